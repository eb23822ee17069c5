"""Defects planted in an engine: the operator is named in all, and the arithmetic where it is a known rounding."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.comparison import Model, compared, drawn, explained, opened
from cvm.comparison.regions import Regions
from tests.comparison.mock import cut, doubled, once, rounded, shown_with, single_float, upward
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
    "once": (once, "fixed-point multiplier, rounded once"),
    "float": (single_float, "float32 scale"),
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
            codes[..., 0] = place.quantizer.lo
            return codes
        codes.flat[codes.size // 2] ^= 1
        return codes

    return wrong


def target(model: Model, network_name: str, kind: str) -> str:
    """The tensor where a defect is planted: one of the sums, chosen by the names of the case."""
    found = Regions(model).regions
    sums = [place.name for place in model.places if place.name in found and found[place.name].unit is not None]
    return sums[sum(map(ord, network_name + kind)) % len(sums)]


@pytest.mark.parametrize("case", mostly_long(CASES, CASES[:9:2]), ids="-".join)
def test_a_planted_defect_is_found_where_it_is(case: tuple[str, str]) -> None:
    name, kind = case
    model, feeds = network(name)
    where = target(model, name, kind)
    found = compared(model, shown_with(model, feeds, where, planted(model, where, kind)), feeds)
    differing = [item.name for item in found.tensors if item.own.differ]
    if not differing:  # this rounding gives the exact codes here: then nothing may differ at all
        assert kind in ROUNDINGS
        assert all(item.total.differ == 0 for item in found.tensors)
        return
    assert differing == [where]
    assert found.first is not None
    assert found.first.name == where
    (explanation,) = explained(found, feeds)
    if kind in ROUNDINGS:
        assert explanation.explained == explanation.differ
        assert explanation.astray == 0
        assert explanation.model.startswith(ROUNDINGS[kind][1]) or kind in ("once", "float")
        assert explanation.example is not None
        assert explanation.example.stages[-1][1] == str(explanation.example.engine)
    else:
        assert explanation.left > 0


@pytest.mark.long
def test_most_planted_roundings_do_make_a_difference() -> None:
    made = 0
    for name, kind in CASES:
        if kind in ROUNDINGS:
            model, feeds = network(name)
            where = target(model, name, kind)
            found = compared(model, shown_with(model, feeds, where, planted(model, where, kind)), feeds)
            made += found.first is not None
    assert made >= 10
