"""Bounds of arithmetic in integers of fixed width (`cvm.bounds`)."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cvm.bounds import bits_of, holding, magnitude, narrowest, require_fits
from cvm.quantization.rationals import Rationals


@pytest.mark.parametrize("bits", [7, 31, 63])
def test_a_bound_fits_if_it_is_less_than_the_power_of_two(bits: int) -> None:
    require_fits(2**bits - 1, bits, "a sum")
    with pytest.raises(OverflowError, match=f"a sum: {2**bits} does not fit in {bits} bits"):
        require_fits(2**bits, bits, "a sum")
    require_fits(2**bits, None, "Python integers hold any")


def test_a_bound_is_checked_without_assertions_as_well() -> None:
    source = "from cvm.bounds import require_fits\nrequire_fits(2**63, 63, 'a sum')"
    found = subprocess.run([sys.executable, "-O", "-c", source], capture_output=True, text=True, check=False)
    assert "OverflowError: a sum" in found.stderr


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_magnitudes_do_not_wrap(dtype: type[np.signedinteger]) -> None:
    least = np.iinfo(dtype).min
    assert magnitude(np.array([0, least], dtype)) == -int(least)
    assert bits_of(np.array([least], dtype)) == np.iinfo(dtype).bits - 1


def test_bits_of_other_arrays() -> None:
    assert magnitude(np.array([], np.int64)) == 0
    assert bits_of(np.array([1], np.uint8)) == 8
    assert bits_of(np.array([1], object)) is None
    with pytest.raises(TypeError, match="float64"):
        bits_of(np.array([1.0]))


def test_integers_are_held_as_their_bound_needs() -> None:
    items = np.array([3, -(2**31)], np.int32)
    assert holding(items, 2**63 - 1).dtype == np.int64
    assert holding(items, 2**63).dtype == object
    assert holding(np.array([2**63], np.uint64), 0).tolist() == [2**63]


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (-128, 127, np.int8),
        (-129, 0, np.int16),
        (0, 128, np.int16),
        (-(2**31), 2**31 - 1, np.int32),
        (0, 2**31, np.int64),
    ],
)
def test_the_narrowest_type_holds_both_ends(lo: int, hi: int, expected: type) -> None:
    assert narrowest(lo, hi) is expected


def test_no_type_is_too_narrow() -> None:
    with pytest.raises(OverflowError, match="uint8"):
        narrowest(-1, 255, (np.uint8,))
    with pytest.raises(OverflowError, match="int64"):
        narrowest(0, 2**63)


def test_rationals_refuse_integers_that_wrap() -> None:
    with pytest.raises(TypeError, match="int64"):
        Rationals(np.array([1, 2]))
