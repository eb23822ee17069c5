"""Results half-way between two integers, which go to the even one: where real functions give rational numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.openvx.cases import DTYPES, Case
from tests.frontends.openvx.model import expected


@pytest.mark.parametrize(
    ("fmt", "count", "value"),
    [("U8", 2, 0), ("S8", 2, 0), ("S16", 512, 0), ("S16", 511, 1), ("S16", 171, 1), ("S16", 3, 85), ("U8", 1, 1)],
)
def test_softmax_of_equal_items(fmt: str, count: int, value: int) -> None:
    items = np.full((count,), 7, DTYPES[fmt])
    assert Case("softmax", fmt, {}, {"inputs": items}, (count,)).result().tolist() == [value] * count


def test_softmax_beside_a_tie() -> None:
    """One of 512 items is a little less or more than the others."""
    for other in (99, 101):
        items = np.full(512, 100, np.int16)
        items[0] = other
        found = Case("softmax", "S16", {}, {"inputs": items}, (512,)).result()
        assert np.array_equal(found, expected("softmax", "S16", {}, {"inputs": items}, (512,)))
        assert set(found[1:].tolist()) == {int(other < 100)}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("raw", "bias", "share", "beta", "value"),
    [
        (1, 3.0, 1.0, 0.5, 0),  # 1 / sqrt(3 + 1)
        (1, 15.0, 1.0, 0.25, 0),  # 1 / 16^(1/4)
        (12, 7.0, 1 / 16, 0.75, 2),  # 12 / 16^(3/4), of irrational powers in tables
        pytest.param(4, 8.0, 0.5, 0.75, 0, marks=pytest.mark.long),  # 4 / 16^(3/4)
        pytest.param(20, 15.609375, 1 / 1024, 0.75, 2, marks=pytest.mark.long),  # 20 / 16^(3/4)
        pytest.param(8, 3.0, 1 / 64, 2.0, 0, marks=pytest.mark.long),  # 8 / 4^2
        pytest.param(24, 3.4375, 1 / 1024, 2.0, 2, marks=pytest.mark.long),
        (40, 2.4375, 1 / 1024, 2.0, 2),
        (41, 2.4375, 1 / 1024, 2.0, 2),  # beside a tie
    ],
)
def test_normalisation_half_way(raw: int, bias: float, share: float, beta: float, value: int) -> None:
    """The divisor is (bias + share * raw^2)^beta: alpha / 3 / 256^2 is the share."""
    alpha = share * 3 * 65536  # a float32
    params = {"type": "ACROSS_MAPS", "normalization_size": 3, "alpha": alpha, "beta": beta, "bias": bias}
    for sign in (1, -1):
        items = np.array([[[sign * raw]]], np.int16)
        found = Case("normalization", "S16", params, {"inputs": items}, items.shape).result()
        assert np.array_equal(found, expected("normalization", "S16", params, {"inputs": items}, items.shape))
        assert found.item() == sign * value


@pytest.mark.sweep
@pytest.mark.parametrize("fmt", ["U8", "S8", "S16"])
@pytest.mark.parametrize("function", ["LINEAR", "SQUARE", "SQRT", "LOGISTIC", "HYPERBOLIC_TAN", "SOFTRELU"])
def test_activations_of_every_integer(function: str, fmt: str) -> None:
    """All of 8 bits; of 16 bits every 37th, and those around zero and at the ends."""
    info = np.iinfo(DTYPES[fmt])
    everything = np.arange(info.min, info.max + 1)
    if fmt == "S16":
        everything = np.unique(
            np.concatenate([everything[::37], everything[:9], everything[-9:], np.arange(-300, 301)])
        )
    items = everything.astype(DTYPES[fmt])
    params = {"function": function, "a": 0.5, "b": 0.5}
    found = Case("activation", fmt, params, {"inputs": items}, items.shape).result()
    assert np.array_equal(found, expected("activation", fmt, params, {"inputs": items}, items.shape))
