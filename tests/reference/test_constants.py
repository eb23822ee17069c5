"""Within `sharing`, a stored array is rounded once for all references that round it by the same quantiser."""

from __future__ import annotations

import gc
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pytest

from cvm.graph import GraphTensor, QuantizedGraph, TensorData
from cvm.quantization import LinearQuantizer
from cvm.reference import Reference, evaluator, sharing
from cvm.reference.values import Compact
from tests.reference.graphs import computed, external, graph, operation

BYTES = LinearQuantizer((Fraction(1, 50),), (Fraction(0),), -127, 127)
COARSE = LinearQuantizer((Fraction(1, 5),), (Fraction(0),), -127, 127)
VALUES = np.random.default_rng(1).normal(0, 1, (4, 5)).astype(np.float32)


def model() -> QuantizedGraph:
    w = GraphTensor("w", VALUES.shape, "constant", quantizer=BYTES, data=TensorData(VALUES))
    tensors = [external("x", (1, 4)), w, computed("y", (1, 5))]
    return graph("x", "y", tensors, operation("matmul", "y", {"transposeA": False, "transposeB": False}, A="x", B="w"))


def rounded_by(quantizer: LinearQuantizer) -> QuantizedGraph:
    found = model()
    tensors = dict(found.tensors) | {"w": replace(found.tensors["w"], quantizer=quantizer)}
    return replace(found, tensors=MappingProxyType(tensors))


@pytest.mark.parametrize("narrow", [False, True])
def test_what_is_equal_is_made_once_and_all_else_anew(narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if narrow:
        monkeypatch.setattr(evaluator, "_WIDE_BYTES", 0)
    alone = Reference(model(), pseudo_quantize=True)
    with sharing():
        first, same = Reference(model(), pseudo_quantize=True), Reference(model(), pseudo_quantize=True)
        others = Reference(rounded_by(COARSE), pseudo_quantize=True), Reference(model()), Reference(model(), clip=True)
    assert same._fixed["w"] is first._fixed["w"]
    held = {id(item._fixed["w"]) for item in (alone, first, *others)}
    assert len(held) == 2 + len(others)
    feed = {"x": np.random.default_rng(2).normal(0, 1, (1, 4))}
    assert np.array_equal(same.run(feed)["y"], alone.run(feed)["y"])
    for shared, graph_of in zip(others, (rounded_by(COARSE), model(), model()), strict=True):
        again = Reference(graph_of, shared._round is not None and shared is others[0], clip=shared is others[2])
        assert np.array_equal(shared.run(feed)["y"], again.run(feed)["y"])


def test_nothing_lives_longer_than_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_WIDE_BYTES", 0)
    rounded: list[LinearQuantizer] = []
    round_it = Compact.rounded

    def counted(x: np.ndarray, quantizer: LinearQuantizer) -> Compact:  # type: ignore[type-arg]
        rounded.append(quantizer)
        return round_it(x, quantizer)

    monkeypatch.setattr(Compact, "rounded", staticmethod(counted))
    with sharing():
        first = Reference(model(), pseudo_quantize=True)
        second = Reference(model(), pseudo_quantize=True)
        assert rounded == [BYTES]
        del first, second
        gc.collect()
        Reference(model(), pseudo_quantize=True)
    assert rounded == [BYTES, BYTES]
    assert Reference(model(), pseudo_quantize=True)._fixed["w"] is not None
    assert len(rounded) == 3
