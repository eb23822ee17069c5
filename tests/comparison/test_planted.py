"""Defects planted in an engine: the operator is named in all, and the arithmetic where it is a known rounding."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.comparison import Model, compared, drawn, explained, opened
from cvm.comparison.regions import Regions
from tests.comparison.mock import brain, cut, doubled, reduced, rounded, shown_with, upward
from tests.selection import mostly_long

FAMILY = Path(__file__).parents[1] / "frontends" / "onnx" / "family"
NETWORKS = (
    "ds_cnn-qdq-channel-int8",
    "resnet-qoperator-tensor-uint8",
    "efficientnet-qdq-channel-int8",
    "tcn-qdq-channel-int8",
)
ROUNDINGS = {
    "doubled": (doubled, "doubling high multiply and rounding shift"),
    "reduced": (reduced, "multiplier of 15 bits, rounded once"),
    "bfloat16": (brain, "float32 bfloat16 result and bias"),
    "cut": (cut, "exact result, ties cut toward zero"),
}
OTHERS = ("zero point", "channels", "border", "upward", "one element")
CASES = [(network, kind) for network in NETWORKS for kind in (*ROUNDINGS, *OTHERS)] + [
    ("espcn-qdq-channel-int8", kind) for kind in ("doubled", "cut", "zero point", "channels")
]


@cache
def network(name: str) -> tuple[Model, list[Any]]:
    """A model, and the samples that are run."""
    pytest.importorskip("onnx")
    model = opened(FAMILY / f"{name}.onnx", executor="numpy")
    return model, list(drawn(model, 3, seed=1).feeds)


def planted(model: Model, name: str, kind: str) -> Any:
    """The wrong codes of a tensor."""
    if kind in ROUNDINGS:
        return rounded(model, name, ROUNDINGS[kind][0])
    if kind == "upward":
        return rounded(model, name, upward)
    place = next(place for place in model.places if place.name == name)

    def wrong(feed: Any, engine: Any) -> Any:
        codes = np.array(engine[name])
        if kind == "zero point":
            return np.clip(codes + 1, place.quantizer.lo, place.quantizer.hi)
        if kind == "channels":
            axis = 1 if codes.ndim == 4 else -1
            return np.roll(codes, 1, axis)
        if kind == "border":
            lo, hi = place.quantizer.lo, place.quantizer.hi
            codes[..., 0] = np.where(codes[..., 0] == lo, hi, lo)
            return codes
        codes.flat[codes.size // 2] ^= 1
        return codes

    return wrong


def target(model: Model, feeds: list[Any], network_name: str, kind: str) -> str:
    """The tensor where a defect is planted: one of the sums, chosen by the names of the case.

    A rounding that gives the exact codes there is no defect; then it is the next sum where it does not.
    """
    found = Regions(model).regions
    sums = [place.name for place in model.places if place.name in found and found[place.name].unit is not None]
    first = sum(map(ord, network_name + kind)) % len(sums)
    for name in [*sums[first:], *sums[:first]]:
        wrong = planted(model, name, kind)
        for feed in feeds:
            exact = model.exact(feed)
            if (wrong(feed, dict(exact)).reshape(exact[name].shape) != exact[name]).any():
                return name
    return sums[first]


@pytest.mark.parametrize("case", mostly_long(CASES, CASES[:9:2]), ids="-".join)
def test_a_planted_defect_is_found_where_it_is(case: tuple[str, str]) -> None:
    name, kind = case
    model, feeds = network(name)
    where = target(model, feeds, name, kind)
    found = compared(model, shown_with(model, feeds, where, planted(model, where, kind)), feeds)
    differing = [item.name for item in found.tensors if item.own.differ]
    assert differing == [where]
    assert found.first is not None
    assert found.first.name == where
    (explanation,) = explained(found, feeds)
    if kind in ROUNDINGS:
        assert explanation.explained == explanation.differ
        assert explanation.astray == 0
        assert explanation.model.startswith(ROUNDINGS[kind][1])
        assert explanation.example is not None
        assert explanation.example.stages[-1][1] == str(explanation.example.engine)
    else:
        assert explanation.left > 0
