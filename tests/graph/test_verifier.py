"""Each rule of the verifier against a graph that breaks it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from cvm.errors import Invalid
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, verify
from cvm.graph.verifier import RULES
from cvm.quantization import LinearQuantizer

TENSORS = {
    "x": GraphTensor("x", (2, 3), "external"),
    "y": GraphTensor("y", (2, 1), "computed"),
    "z": GraphTensor("z", (2, 1), "computed", "logical"),
}
SUM = GraphOperation("sum_reduce", {"input": "x"}, {"axes": (1,), "normalize": False}, ("y",))
LESS = GraphOperation("lt", {"x": "y", "y": "y"}, {}, ("z",))
GRAPH = QuantizedGraph("g", ("x",), ("z",), TENSORS, (SUM, LESS))


def with_first(**parts: Any) -> QuantizedGraph:
    return replace(GRAPH, operations=(replace(SUM, **parts), LESS))


def with_tensor(name: str, **parts: Any) -> QuantizedGraph:
    return replace(GRAPH, tensors={**TENSORS, name: replace(TENSORS[name], **parts)})


def per_channel(scales: int) -> LinearQuantizer:
    """A quantiser with scales along axis 0."""
    return LinearQuantizer((Fraction(1),) * scales, (Fraction(0),) * scales, 0, 255, axis=0)


BROKEN = {
    "operation": with_first(name="magic"),
    "inputs": with_first(inputs={"x": "x"}),
    "attributes": with_first(attributes={"axes": (1,)}),
    "types": with_first(attributes={"axes": (1,), "normalize": 0}),
    "arrays": with_first(inputs={"input": ("x",)}),
    "order": replace(GRAPH, operations=(LESS, SUM)),
    "single": replace(GRAPH, operations=(SUM, LESS, SUM)),
    "shapes": with_tensor("y", shape=(2, 3)),
    "dtypes": with_tensor("z", dtype="scalar"),
    "quantizers": with_tensor("y", quantizer=per_channel(3)),
    "boundary": replace(GRAPH, outputs=("w",)),
}


def test_a_graph_that_keeps_the_rules_is_given_back() -> None:
    assert verify(GRAPH, "a test") is GRAPH


@pytest.mark.parametrize("label", BROKEN)
def test_what_is_broken_is_named_with_the_stage(label: str) -> None:
    with pytest.raises(Invalid, match="a test") as caught:
        verify(BROKEN[label], "a test")
    assert caught.value.code == f"graph.{label}"


def test_every_rule_has_a_graph_that_breaks_it() -> None:
    assert {rule.label for rule in RULES} <= set(BROKEN)


def test_a_broken_constraint_of_an_operation_is_told() -> None:
    with pytest.raises(Invalid, match="axes: 2 is not an axis of a tensor of rank 2"):
        verify(with_first(attributes={"axes": (2,), "normalize": False}), "a test")


def test_an_input_is_an_external_tensor() -> None:
    with pytest.raises(Invalid, match="not an external tensor"):
        verify(replace(GRAPH, inputs=("y",)), "a test")


def test_scales_of_what_is_given_fit_its_shape() -> None:
    assert verify(with_tensor("x", quantizer=per_channel(2)), "a test")
    with pytest.raises(Invalid, match="one scale for each index") as caught:
        verify(with_tensor("x", quantizer=per_channel(3)), "a test")
    assert caught.value.code == "graph.quantizers"
