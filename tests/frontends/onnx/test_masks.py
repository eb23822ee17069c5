"""Masks of attention, as exporters write them: each becomes the condition of a masked softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cvm.errors import Unsupported
from cvm.frontends import onnx as front
from tests.frontends.onnx.making import Shape, compiled, made, results

node = helper.make_node
CODES = np.random.default_rng(4).integers(-100, 100, (1, 2, 3, 4)).astype(np.int8)
STEP = 1 / 64
LEAST = float(np.finfo(np.float32).min)
PADDING = np.array([[1, 1, 0, 1]])
CAUSAL = np.tril(np.ones((3, 4), bool), 1)
CONSTANTS = {"one": np.float32(1), "none": np.float32(0), "axes": np.array([1, 2])}


def model(
    nodes: list[Any], constants: dict[str, Any], inputs: dict[str, tuple[str, Shape]] | None = None
) -> onnx.ModelProto:
    """DequantizeLinear of x gives r; the softmax of a, quantised, is y."""
    fixed = {"q": np.float32(0.05), "t": np.float32(STEP), "z": np.int8(0), **CONSTANTS, **constants}
    ends = [node("DequantizeLinear", ["x", "q", "z"], ["r"]), *nodes, node("Softmax", ["a"], ["o"], axis=-1),
            node("QuantizeLinear", ["o", "t", "z"], ["y"])]  # fmt: skip
    return made(ends, {"x": ("int8", CODES.shape), **(inputs or {})}, {"y": "int8"}, fixed)


def operations(model: onnx.ModelProto, **settings: Any) -> list[str]:
    graph = front.loads(model.SerializeToString(), front.Settings(**settings)).graph
    return [item.name for item in graph.operations]


def wanted(seen: Any, alike: bool = False) -> Any:
    """The codes of softmax over what is seen; of all where nothing is, or all ``alike`` there."""
    seen = np.broadcast_to(seen, CODES.shape)
    numbers = CODES * float(np.float32(0.05))
    none = ~seen.any(axis=-1, keepdims=True)
    e = np.where(seen | none, np.exp(np.where(none & alike, 0, numbers)), 0)
    return np.rint(e / e.sum(axis=-1, keepdims=True) / STEP).astype(np.int64)


def added(below: float) -> list[Any]:
    """(1 - mask) * below, added."""
    return [node("Unsqueeze", ["m", "axes"], ["u"]), node("Cast", ["u"], ["f"], to=1), node("Sub", ["one", "f"], ["i"]),
            node("Mul", ["i", "below"], ["k"]), node("Add", ["k", "r"], ["a"])]  # fmt: skip


@pytest.mark.parametrize("op_set", [1, 2])
@pytest.mark.parametrize("below", [-1e4, -1e9, LEAST])
@pytest.mark.parametrize("mask", [PADDING, 0 * PADDING], ids=["some", "none"])
def test_a_mask_computed_from_integers_hides_what_it_is_zero_for(mask: Any, below: float, op_set: int) -> None:
    found = model(added(below), {"below": np.float32(below)}, {"m": ("int64", (1, 4))})
    settings: dict[str, Any] = {"ranges": {"m": (0, 1)}}
    assert "masked_softmax" in operations(found, **settings)
    got = results(found, {"x": CODES, "m": mask}, op_set, **settings)["y"]
    np.testing.assert_array_equal(got, wanted(mask[:, None, None] != 0))


def test_integers_of_many_values_are_no_mask() -> None:
    found = model(added(-1e4), {"below": np.float32(-1e4)}, {"m": ("int64", (1, 4))})
    assert "masked_softmax" not in operations(found, ranges={"m": (0, 99)})


@pytest.mark.parametrize("below", [-np.inf, LEAST, -1e4])
def test_a_constant_mask_is_a_constant_condition(below: float) -> None:
    found = model([node("Add", ["r", "k"], ["a"])], {"k": np.where(CAUSAL, 0, below).astype(np.float32)})
    assert "masked_softmax" in operations(found)
    np.testing.assert_array_equal(results(found, {"x": CODES}, 2)["y"], wanted(CAUSAL))


CHOICES = {
    "of numbers": [node("Cast", ["m"], ["c"], to=9), node("Where", ["c", "r", "below"], ["a"])],
    "the other way": [node("Equal", ["m", "nought"], ["c"]), node("Where", ["c", "below", "r"], ["a"])],
    "of a mask": [node("Cast", ["m"], ["c"], to=9), node("Where", ["c", "none", "below"], ["k"]),
                  node("Add", ["r", "k"], ["a"])],
    "of a mask, moved": [node("Cast", ["m"], ["c"], to=9), node("Where", ["c", "none", "below"], ["k"]),
                         node("Expand", ["k", "four"], ["e"]), node("Add", ["r", "e"], ["a"])],
    "clipped below": [node("Cast", ["m"], ["c"], to=9), node("Where", ["c", "none", "below"], ["k"]),
                      node("Add", ["r", "k"], ["s"]), node("Max", ["s", "below"], ["a"])],
    "of truth values": [node("Cast", ["m"], ["c"], to=9), node("Not", ["c"], ["n"]), node("Cast", ["n"], ["f"], to=1),
                        node("Mul", ["f", "below"], ["k"]), node("Add", ["r", "k"], ["a"])],
}  # fmt: skip


@pytest.mark.parametrize("below", [LEAST, -65504.0])
@pytest.mark.parametrize("form", CHOICES)
def test_a_choice_is_a_mask(form: str, below: float) -> None:
    constants = {"below": np.float32(below), "nought": np.int64(0), "four": np.array([1, 1, 3, 4])}
    found = model(CHOICES[form], constants, {"m": ("int64", (1, 4))})
    assert "masked_softmax" in operations(found)
    for mask in (PADDING, 5 * PADDING, 0 * PADDING):
        alike = form in ("of numbers", "the other way")
        got = results(found, {"x": CODES, "m": mask}, 2)["y"]
        np.testing.assert_array_equal(got, wanted(mask[:, None, None] != 0, alike))


def test_several_masks_and_a_bias_beside_them() -> None:
    """scores + (bias + mask), where the mask is of a condition within another, as T5 and GPT-2 have them."""
    bias = np.array([0.5, 0.0, -0.25, 1.0], np.float32)
    nodes = [node("Cast", ["m"], ["c"], to=9), node("Where", ["causal", "none", "below"], ["k"]),
             node("Where", ["c", "k", "below"], ["l"]), node("Add", ["bias", "l"], ["b"]),
             node("Add", ["r", "b"], ["a"])]  # fmt: skip
    constants = {"below": np.float32(LEAST), "causal": CAUSAL[None, None], "bias": bias}
    found = model(nodes, constants, {"m": ("int64", (1, 4))})
    names = operations(found)
    assert names.count("masked_softmax") == 1
    assert not {"select", "softmax"} & set(names)
    seen = np.broadcast_to(CAUSAL & (PADDING[:, None, None] != 0), CODES.shape)
    numbers = np.exp(CODES * float(np.float32(0.05)) + bias) * seen
    exact = np.rint(numbers / numbers.sum(axis=-1, keepdims=True) / STEP)
    nodes.insert(4, node("QuantizeLinear", ["r", "q", "z"], ["rq"]))  # the sum has a grid of its own
    nodes[5:] = [node("DequantizeLinear", ["rq", "q", "z"], ["rr"]), node("Add", ["rr", "bias"], ["s"]),
                 node("QuantizeLinear", ["s", "q", "z"], ["sq"]), node("DequantizeLinear", ["sq", "q", "z"], ["sr"]),
                 node("Add", ["sr", "l"], ["a"])]  # fmt: skip
    got = results(model(nodes, constants, {"m": ("int64", (1, 4))}), {"x": CODES, "m": PADDING}, 2)["y"]
    assert np.abs(got - exact).max() <= 2  # the sum with the bias was rounded


def test_a_mask_that_the_numbers_may_reach_is_refused() -> None:
    nodes = [node("Mul", ["r", "far"], ["w"]), node("QuantizeLinear", ["w", "g", "z"], ["wq"]),
             node("DequantizeLinear", ["wq", "g", "z"], ["v"]), node("Add", ["v", "k"], ["a"])]  # fmt: skip
    constants = {"far": np.float32(100), "g": np.float32(5), "k": np.where(CAUSAL, 0, -1250).astype(np.float32)}
    with pytest.raises(Unsupported, match="not far enough below"):
        compiled(model(nodes, constants), 2)


def test_a_mask_that_is_rounded_stays_a_sum() -> None:
    nodes = [node("Add", ["r", "k"], ["s"]), node("QuantizeLinear", ["s", "g", "z"], ["sq"]),
             node("DequantizeLinear", ["sq", "g", "z"], ["a"])]  # fmt: skip
    constants = {"g": np.float32(80), "k": np.where(CAUSAL, 0, -1e4).astype(np.float32)}
    assert "masked_softmax" not in operations(model(nodes, constants))


def test_a_mask_of_more_axes_than_what_it_hides_stays_a_sum() -> None:
    """The numbers without the mask have another shape than the softmax: nothing is left over of the attempt."""
    bias = np.array([0.5, 0.0, -0.25, 1.0], np.float32)
    nodes = [node("Add", ["k", "b"], ["l"]), node("ReduceMax", ["r", "axes"], ["m"]), node("Add", ["m", "l"], ["a"])]
    found = model(nodes, {"k": np.where(CAUSAL, 0, -1e4).astype(np.float32), "b": bias})
    names = operations(found)
    assert "softmax" in names
    assert names.count("add") == operations(model(nodes, {"k": CAUSAL.astype(np.float32), "b": bias})).count("add")
