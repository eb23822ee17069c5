"""The steps of many rows at once are those of each row by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.quantization import fixed_point, thresholds
from cvm.quantization.fixed_point import _Single, fit, proves
from cvm.quantization.rows import LinearRow
from cvm.quantization.thresholds import Steps, blocks, size
from tests.selection import examples


@st.composite
def rising_rows(draw: st.DrawFn) -> LinearRow:
    """Rows with one accumulator of positive factor, of few bits or of hundreds, steep and flat."""
    bits = draw(st.sampled_from([3, 20, 60, 130, 300]))
    factor = draw(st.integers(1, 2**bits))
    denominator = factor * draw(st.integers(1, 50)) if draw(st.booleans()) else draw(st.integers(1, 2 ** (bits + 12)))
    constant = draw(st.integers(-denominator * 300, denominator * 300))
    lo, hi = sorted((draw(st.integers(-(2**31), 2**31)), draw(st.integers(-(2**31), 2**31))))
    width = draw(st.sampled_from([None, 4000, 250, 20]))
    if width is not None:  # the narrower, the more rows are described by their values
        lo = draw(st.integers(-width // 2, 0))
        hi = lo + draw(st.integers(0, width))
    first = draw(st.sampled_from([0, -128, -3, 5, -32768]))
    return LinearRow((factor,), constant, denominator, ((lo, max(lo, hi)),), first, first + draw(st.integers(0, 300)))


def alone(row: LinearRow, m: int, shift: int) -> tuple[int | None, int | None]:
    """By definition: each step is taken at its threshold and not before, within the bounds of the accumulator."""
    ((lo, hi),) = row.bounds
    at = {k: min(max(-((row.constant - k * row.denominator) // row.factors[0]), lo), hi + 1) for k in row.steps()}
    least = (k * 2**shift - m * t for k, t in at.items() if t <= hi)
    greatest = (k * 2**shift - m * (t - 1) - 1 for k, t in at.items() if t > lo)
    return max(least, default=None), min(greatest, default=None)


@settings(deadline=None, max_examples=examples(400))
@given(rising_rows(), st.integers(0, 46), st.integers(1, 2**31))
def test_the_offsets_of_a_row_are_those_of_its_definition(row: LinearRow, shift: int, m: int) -> None:
    assert _Single(row).offsets([m], shift) == alone(row, m, shift)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(400))
@given(st.lists(rising_rows(), min_size=1, max_size=5), st.integers(0, 46), st.integers(1, 2**31))
def test_the_offsets_are_those_of_every_row_alone(rows: list[LinearRow], shift: int, m: int) -> None:
    index = 0
    for block, found in blocks(rows):
        assert list(block) == rows[index : index + len(block)]
        index += len(block)
        offsets = found and found.offsets([m] * len(block), [shift] * len(block))
        if offsets is not None:
            assert offsets == [alone(row, m, shift) for row in block]
    assert index == len(rows)


def test_rows_of_usual_networks_take_64_bits() -> None:
    """Codes of 8 bits, accumulators of 24 bits, coefficients of a hundred: no row falls back to single ones."""
    rows = [LinearRow((2**100 + k,), 7**40, 2**114 - k, ((-(2**23), 2**23),), -128, 127) for k in range(50)]
    ((block, found),) = blocks(rows)
    assert isinstance(found, Steps)
    multipliers = [row.multiplier(0, 44) for row in block]
    assert found.offsets(multipliers, [44] * 50) == [
        alone(row, m, 44) for row, m in zip(rows, multipliers, strict=True)
    ]


def test_a_threshold_that_is_an_integer_is_decided_exactly() -> None:
    """(k * D - R) / P = 4k + 3 for P = 3: between its two bounds lies an integer, for every k."""
    row = LinearRow((3,), -9, 12, ((-2000, 2000),), -128, 127)
    ((_, found),) = blocks([row])
    assert found is not None
    k = np.arange(-127, 128)
    np.testing.assert_array_equal(found.at[0], 4 * k + 3)


def test_a_row_of_few_values_and_many_steps_takes_a_column_for_each_value() -> None:
    """An operand of 8 bits in a sum of 16 bits: 256 columns, not 65,535; the code 3 * x - 1 is decided exactly."""
    row = LinearRow((9,), -3, 3, ((0, 255),), -32768, 32767)
    ((_, found),) = blocks([row])
    assert found is not None
    assert found.k.shape == (1, 256) == (1, size(row))
    np.testing.assert_array_equal(found.k[0], 3 * np.arange(256) - 1)
    assert found.offsets([3 << 20], [20]) == [alone(row, 3 << 20, 20)]


@pytest.mark.parametrize("constant", [10**40, -(10**40)])
def test_thresholds_far_beyond_the_bounds_are_left_to_single_rows(constant: int) -> None:
    row = LinearRow((3,), constant, 2**50, ((-5, 5),), -(10**30), 10**30)
    assert [found for _, found in blocks([row])] == [None]


def test_sums_that_64_bits_may_not_hold_are_left_to_single_rows() -> None:
    row = LinearRow((1,), 0, 1, ((-(2**31), 2**31),), -100, 100)
    ((_, found),) = blocks([row])
    assert found is not None
    assert found.offsets([2**31], [20]) == [alone(row, 2**31, 20)]
    assert found.offsets([2**61], [20]) is None
    assert found.offsets([1], [62]) is None


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [LinearRow((1,), k, 3, ((-500, 500),), -128, 127) for k in range(20)]
    monkeypatch.setattr(thresholds, "BLOCK", 1000)
    parts = list(blocks(rows))
    assert [len(block) for block, _ in parts] == [3] * 6 + [2]
    found = []
    for block, some in parts:
        assert some is not None
        found += some.offsets([1] * len(block), [2] * len(block)) or []
    assert found == [alone(row, 1, 2) for row in rows]


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(rising_rows(), min_size=1, max_size=4))
def test_the_forms_that_are_fitted_are_proven_row_by_row(rows: list[LinearRow]) -> None:
    mixed = [row if index % 2 else row.mirrored() for index, row in enumerate(rows)]
    try:
        forms = fit(mixed)
    except fixed_point.Unprovable:
        return
    assert all(proves(row, form) for row, form in zip(mixed, forms, strict=True))
