"""Integers at plan time never wrap: every operation equals Python's on each element, whatever its size."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.exact import Exact, exact, stacked, where

EDGES = [sign * (2**bits + near) for bits in (0, 7, 8, 31, 32, 52, 62, 63) for near in (-1, 0, 1) for sign in (1, -1)]
FITTING = [value for value in EDGES if -(2**63) <= value < 2**63]
INTEGERS = st.sampled_from(FITTING) | st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
LISTS = st.lists(INTEGERS, min_size=1, max_size=4)
BINARY: list[tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = [
    (operator.add, operator.add),
    (operator.sub, operator.sub),
    (operator.mul, operator.mul),
    (lambda a, b: a.larger(b), max),
    (lambda a, b: a.smaller(b), min),
]


def elements(found: Exact) -> list[int]:
    return [int(value) for value in found._array.ravel()]


def array(values: list[int]) -> Exact:
    return exact(np.array(values, np.int64))


@given(LISTS, INTEGERS)
def test_operations_are_pythons(left: list[int], right: int) -> None:
    for ours, pythons in BINARY:
        assert elements(ours(array(left), right)) == [pythons(value, right) for value in left]
        twice = ours(ours(array(left), right), right)  # from operands beyond 64 bits, too
        assert elements(twice) == [pythons(pythons(value, right), right) for value in left]


@given(LISTS, st.lists(st.integers(0, 130), min_size=1, max_size=1))
def test_shifts_are_pythons(left: list[int], shift: list[int]) -> None:
    assert elements(array(left) << array(shift)) == [value << shift[0] for value in left]
    assert elements(array(left) >> array(shift)) == [value >> shift[0] for value in left]
    assert elements((array(left) << 64) >> array(shift)) == [(value << 64) >> shift[0] for value in left]


@given(LISTS, INTEGERS.filter(bool))
def test_quotients_and_residues_are_pythons(left: list[int], right: int) -> None:
    assert elements(array(left) // right) == [value // right for value in left]
    assert elements(array(left) & 2**32 - 1) == [value % 2**32 for value in left]
    for value, residue in zip(left, array(left).int32().tolist(), strict=True):
        assert -(2**31) <= residue < 2**31
        assert (value - residue) % 2**32 == 0


@given(LISTS)
def test_sums_bounds_and_magnitudes_are_pythons(values: list[int]) -> None:
    assert elements(array(values).sum(axis=0)) == [sum(values)]
    assert array(values).hull == (min(values), max(values))
    assert array(values).magnitude == max(map(abs, values))
    assert elements(abs(array(values))) == [abs(value) for value in values]
    assert elements(-array(values)) == [-value for value in values]
    assert elements(stacked([array(values), array(values)])) == values * 2


@given(LISTS, INTEGERS)
def test_comparisons_are_pythons(left: list[int], right: int) -> None:
    far = array(left) << 3
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        assert compare(array(left), right).tolist() == [compare(value, right) for value in left]
        assert compare(far, right).tolist() == [compare(value << 3, right) for value in left]
    chosen = where(array(left) < right, far, right)
    assert elements(chosen) == [value << 3 if value < right else right for value in left]


def test_what_does_not_fit_in_64_bits_is_not_handed_over() -> None:
    most = exact(2**63 - 1)
    assert int((most + 1 - 1).int64()) == 2**63 - 1
    with pytest.raises(OverflowError):
        (most + 1).int64()
    with pytest.raises(OverflowError):
        (exact(np.array([-(2**62), 0])) * 3).int64()


def test_a_part_of_a_wide_array_is_handed_over_if_it_fits() -> None:
    wide = exact(np.array([1, 2**62])) * 4
    assert wide[:1].int64().tolist() == [4]


def test_floats_negative_shifts_and_divisors_of_0_are_refused() -> None:
    with pytest.raises(TypeError):
        exact(np.array([1.0]))
    with pytest.raises(ValueError, match="negative"):
        exact(1) << -1
    with pytest.raises(ZeroDivisionError):
        exact(1) // np.array([1, 0])


def test_arrays_of_numpy_do_not_take_an_operation_over() -> None:
    with pytest.raises(TypeError):
        np.array([1]) + exact(1)  # type: ignore[operator]
