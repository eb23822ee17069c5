"""Forests written out as lookups and comparisons: their thresholds and votes stay the numbers that they are."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.calibration import Settings
from cvm.frontends import onnx as front
from cvm.quantization import LinearQuantizer
from cvm.quantizing import Quantized, quantize_completed
from cvm.session import Session
from tests.frontends.onnx.making import made

FEATURES, TREES, DEPTH, CLASSES, ROWS = 5, 4, 3, 3, 40


@dataclass(frozen=True)
class Forest:
    """Full binary trees: feature and threshold of each node by level, and what each leaf gives each class."""

    features: list[np.ndarray]
    thresholds: list[np.ndarray]
    leaves: np.ndarray

    @staticmethod
    def drawn(seed: int, votes: bool) -> Forest:
        random = np.random.default_rng(seed)
        sizes = [TREES * 2**level for level in range(DEPTH)]
        features = [random.integers(0, FEATURES, size) for size in sizes]
        thresholds = [random.normal(size=size).astype(np.float32) for size in sizes]
        shape = (TREES * 2**DEPTH, CLASSES)
        leaves = random.integers(0, 50, shape) if votes else random.normal(size=shape)
        return Forest(features, thresholds, leaves.astype(np.float32))

    def leaf(self, row: list[Fraction], tree: int, comparison: str) -> int:
        """The leaf that a row of exact numbers reaches."""
        at = tree
        for features, thresholds in zip(self.features, self.thresholds, strict=True):
            x, c = row[features[at]], Fraction(float(thresholds[at]))
            right = x < c if comparison == "Less" else x > c
            at = 2 * at + int(right)
        return at


def written_out(forest: Forest, comparison: str) -> onnx.ModelProto:
    """The tensor operations that converters of trees write: one lookup and one comparison for each level."""
    nodes, constants = [], {"flat": np.array([-1]), "two": np.array(2), "rows": np.array([ROWS, TREES])}
    for level, (features, thresholds) in enumerate(zip(forest.features, forest.thresholds, strict=True)):
        constants |= {f"f{level}": features, f"c{level}": thresholds}
        if level == 0:
            nodes += [
                helper.make_node("Gather", ["x", "f0"], ["v0"], axis=1),
                helper.make_node(comparison, ["v0", "c0"], ["b0"]),
                helper.make_node("Cast", ["b0"], ["r0"], to=7),
                helper.make_node("Add", ["r0", "roots"], ["a0"]),
            ]
            continue
        before = f"a{level - 1}"
        nodes += [
            helper.make_node("Reshape", [before, "flat"], [f"i{level}"]),
            helper.make_node("Gather", [f"f{level}", f"i{level}"], [f"g{level}"]),
            helper.make_node("Reshape", [f"g{level}", "rows"], [f"h{level}"]),
            helper.make_node("GatherElements", ["x", f"h{level}"], [f"e{level}"], axis=1),
            helper.make_node("Reshape", [f"e{level}", "flat"], [f"v{level}"]),
            helper.make_node("Gather", [f"c{level}", f"i{level}"], [f"t{level}"]),
            helper.make_node(comparison, [f"v{level}", f"t{level}"], [f"b{level}"]),
            helper.make_node("Cast", [f"b{level}"], [f"r{level}"], to=7),
            helper.make_node("Mul", [f"i{level}", "two"], [f"d{level}"]),
            helper.make_node("Add", [f"d{level}", f"r{level}"], [f"a{level}"]),
        ]
    nodes += [
        helper.make_node("Gather", ["leaves", f"a{DEPTH - 1}"], ["l"]),
        helper.make_node("Reshape", ["l", "whole"], ["w"]),
        helper.make_node("ReduceSum", ["w", "middle"], ["sums"], keepdims=0),
        helper.make_node("ArgMax", ["sums"], ["y"], axis=1, keepdims=0),
    ]
    constants |= {
        "roots": 2 * np.arange(TREES), "leaves": forest.leaves, "whole": np.array([ROWS, TREES, CLASSES]),
        "middle": np.array([1]),
    }  # fmt: skip
    return made(nodes, {"x": ("float32", (ROWS, FEATURES))}, {"y": "int64", "sums": "float32"}, constants)


def compiled(forest: Forest, comparison: str, data: np.ndarray) -> Quantized:
    loaded = front.loads(written_out(forest, comparison).SerializeToString(), front.Settings(floats=True))
    return quantize_completed("m.onnx", loaded, {"x": data}, Settings())


def exact_rows(made: Quantized, data: np.ndarray) -> list[list[Fraction]]:
    """What the program is given: the real numbers of the codes of the data."""
    quantizer = made.calibration.quantizers["x"]
    assert isinstance(quantizer, LinearQuantizer)
    codes = np.clip(
        np.rint((data - float(quantizer.offset[0])) / float(quantizer.scale[0])), quantizer.lo, quantizer.hi
    )
    return [[quantizer.value(int(code)) for code in row] for row in codes]


@pytest.mark.parametrize("comparison", ["Less", "Greater"])
def test_a_forest_of_votes_is_exact_but_for_its_input(comparison: str) -> None:
    random = np.random.default_rng(8)
    forest = Forest.drawn(1, votes=True)
    data = random.normal(size=(1, ROWS, FEATURES))
    found = compiled(forest, comparison, data)
    roles = {item.name for item in found.calibration.tensors}
    assert roles == {"x", "sums"}
    sums = found.calibration.quantizers["sums"]
    assert isinstance(sums, LinearQuantizer)
    assert (sums.scale, sums.offset) == ((Fraction(1),), (Fraction(0),))
    rows = exact_rows(found, data[0])
    quantizer = found.calibration.quantizers["x"]
    assert isinstance(quantizer, LinearQuantizer)
    codes = [[int((item - quantizer.offset[0]) / quantizer.scale[0]) for item in row] for row in rows]
    results = Session(found.program).run({"x": np.array(codes)}, codes=True)
    for row, numbers in enumerate(rows):
        leaves = [forest.leaf(numbers, tree, comparison) for tree in range(TREES)]
        expected = forest.leaves[leaves].sum(axis=0)
        np.testing.assert_array_equal(results["sums"][row], expected)
        assert results["y"][row] == expected.argmax()


def test_tables_of_real_leaves_get_quantisers_and_thresholds_none() -> None:
    forest = Forest.drawn(2, votes=False)
    data = np.random.default_rng(9).normal(size=(1, ROWS, FEATURES))
    names = {item.name for item in compiled(forest, "Less", data).calibration.tensors}
    assert "leaves" in names
    assert not names & {f"c{level}" for level in range(DEPTH)}
