"""Tables of float thresholds become codes of what they are compared with, and every comparison keeps its result."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.frontends import onnx as front
from cvm.graph import QuantizedGraph
from cvm.lowering import compared, lower
from cvm.quantization import LinearQuantizer
from cvm.session import Session
from tests.frontends.onnx.making import made

CODES = 256
HOLDS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "Less": lambda x, c: x < c,
    "LessOrEqual": lambda x, c: x <= c,
    "Greater": lambda x, c: x > c,
    "GreaterOrEqual": lambda x, c: x >= c,
}


def thresholds(random: Random, scale: float, zero: int) -> np.ndarray:
    """Numbers on codes, between codes, beside codes, beyond both ends, and smaller than any other."""
    on = [np.float32(scale) * np.float32(code - zero) for code in (0, 1, zero, CODES - 1)]
    beside = [np.nextafter(item, np.float32(side)) for item in on for side in (-np.inf, np.inf)]
    between = [random.uniform(-1.2, 1.2) * scale * CODES for _ in range(16)]
    return np.array([*on, *beside, *between, 3e38, -3e38, 1e-35, -1e-35, 0.0, 1e-45], np.float32)


def looked_up(op: str, table: np.ndarray, scale: float, zero: int, exchanged: bool = False) -> QuantizedGraph:
    """Codes in a column beside thresholds in a row, which are looked up by an input of integers."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Unsqueeze", ["d", "one"], ["column"]),
        helper.make_node("Gather", ["table", "i"], ["items"]),
        helper.make_node("Reshape", ["items", "row"], ["t"]),
        helper.make_node(op, ["t", "column"] if exchanged else ["column", "t"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=onnx.TensorProto.INT32),
    ]
    constants = {
        "s": np.float32(scale), "z": np.uint8(zero), "one": np.array([1]), "row": np.array([1, -1]), "table": table
    }  # fmt: skip
    inputs = {"x": ("float32", (CODES,)), "i": ("int64", (table.size,))}
    model = made(nodes, inputs, {"y": "int32"}, constants)
    settings = front.Settings(ranges={"i": (0, table.size - 1)})
    return front.loads(model.SerializeToString(), settings).graph


def every_code(graph: QuantizedGraph) -> tuple[np.ndarray, list[Fraction]]:
    """All codes of the input x, and the real numbers that they stand for."""
    quantizer = graph.tensors["x"].quantizer
    assert isinstance(quantizer, LinearQuantizer)
    codes = range(quantizer.lo, quantizer.hi + 1)
    return np.array(codes), [quantizer.value(code) for code in codes]


def stored(graph: QuantizedGraph) -> list[np.dtype]:
    return [item.data.values.dtype for item in graph.tensors.values() if item.data is not None]


@pytest.mark.sweep
@pytest.mark.parametrize("exchanged", [False, True])
@pytest.mark.parametrize("op", HOLDS)
def test_every_code_is_compared_with_every_threshold_exactly(op: str, exchanged: bool) -> None:
    random = Random(f"{op} {exchanged}")
    for scale, zero in ((0.1, 128), (1 / 3, 0), (3e-7, 200), (5.0, 7)):
        table = thresholds(random, scale, zero)
        graph = looked_up(op, table, scale, zero, exchanged)
        assert np.float32 not in stored(compared.with_coded_thresholds(graph))
        order = np.array(random.sample(range(table.size), table.size))
        codes, real = every_code(graph)
        found = Session(lower(graph)).run({"x": codes, "i": order}, codes=True)["y"]
        limits = [Fraction(float(item)) for item in table[order]]
        expected = [[HOLDS[op](c, x) if exchanged else HOLDS[op](x, c) for c in limits] for x in real]
        np.testing.assert_array_equal(found, np.array(expected, np.int32))


def test_a_table_compared_both_ways_stays_and_is_exact() -> None:
    """`<` and `<=` split at different codes where a threshold is a code, so one table of codes cannot serve both."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Gather", ["table", "i"], ["t"]),
        helper.make_node("Less", ["d", "t"], ["less"]),
        helper.make_node("LessOrEqual", ["d", "t"], ["most"]),
        helper.make_node("Xor", ["less", "most"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=onnx.TensorProto.INT32),
    ]
    constants = {"s": np.float32(0.5), "z": np.uint8(4), "table": np.array([1.5, 1.25, -1.0], np.float32)}
    model = made(nodes, {"x": ("float32", (CODES,)), "i": ("int64", (1,))}, {"y": "int32"}, constants)
    graph = front.loads(model.SerializeToString(), front.Settings(ranges={"i": (0, 2)})).graph
    assert compared.with_coded_thresholds(graph) is graph
    session = Session(lower(graph))
    codes, real = every_code(graph)
    for index, equal in ((0, [Fraction(3, 2)]), (1, []), (2, [Fraction(-1)])):
        found = session.run({"x": codes, "i": np.array([index])}, codes=True)["y"]
        assert [real[at] for at in np.flatnonzero(found)] == equal


def test_codes_that_do_not_split_alike_are_noticed() -> None:
    numerators = np.array([-7, 0, 5, 10, 11, 900], dtype=object)  # in tenths of a code; there are codes 0 to 9
    for up, right in ((True, [0, 0, 1, 1, 2, 10]), (False, [-1, 0, 0, 1, 1, 9])):
        ends = (0, 10) if up else (-1, 9)
        assert compared._splits_alike(np.array(right, dtype=object), numerators, 10, ends, up)
        for index in range(len(right)):
            for wrong in (right[index] - 1, right[index] + 1):
                codes = np.array([*right[:index], wrong, *right[index + 1 :]], dtype=object)
                inside = ends[0] <= wrong <= ends[1]
                assert not (inside and compared._splits_alike(codes, numerators, 10, ends, up))
