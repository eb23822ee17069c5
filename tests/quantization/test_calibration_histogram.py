"""Histograms count every number once, in the bin where it belongs, whatever came before it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.quantization.calibration import Histogram
from cvm.quantization.calibration.histogram import BINS
from tests.selection import examples

REALS = st.floats(allow_nan=False, allow_infinity=False, width=64)
CLOSE = st.floats(-8.0, 8.0) | st.integers(-4, 4).map(float)
ARRAYS = st.lists(REALS | CLOSE, min_size=1, max_size=30).map(np.array)


def bins(items: np.ndarray, exponent: int) -> dict[int, int]:
    """Numbers by their bin, counted one by one, in exact arithmetic."""
    found: dict[int, int] = {}
    for item in items.tolist():
        units = abs(Fraction(item)) / Fraction(2) ** exponent
        bin_ = 0 if item == 0 else (math.floor(units) + 1) * (1 if item > 0 else -1)
        found[bin_] = found.get(bin_, 0) + 1
    return found


def counts(histogram: Histogram) -> dict[int, int]:
    return {bin_ - BINS: count for bin_, count in enumerate(histogram.counts.tolist()) if count}


@given(ARRAYS)
def test_every_number_is_in_its_bin(items: np.ndarray) -> None:
    histogram = Histogram.of(items)
    assert counts(histogram) == bins(items, histogram.exponent)
    assert (histogram.min, histogram.max, histogram.count) == (items.min(), items.max(), items.size)


@given(ARRAYS)
def test_bins_are_as_narrow_as_the_largest_number_allows(items: np.ndarray) -> None:
    histogram = Histogram.of(items)
    most = Fraction(float(np.abs(items).max()))
    assert most < BINS * Fraction(2) ** histogram.exponent
    assert histogram.exponent == -1074 or most >= BINS * Fraction(2) ** (histogram.exponent - 1)


@given(st.lists(ARRAYS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_batches_and_their_order_do_not_matter(batches: list[np.ndarray], random) -> None:
    at_once = Histogram.of(np.concatenate(batches))
    random.shuffle(batches)
    total = Histogram.of(batches[0])
    for batch in batches[1:]:
        total = total + Histogram.of(batch)
    assert (total.min, total.max, total.exponent) == (at_once.min, at_once.max, at_once.exponent)
    assert np.array_equal(total.counts, at_once.counts)


@settings(max_examples=examples(50))
@given(ARRAYS)
@example(np.array([3.5496391820664e-301, -34359738368.0]))  # in units of the width it is subnormal
def test_points_stand_for_their_bins(items: np.ndarray) -> None:
    histogram = Histogram.of(items)
    points, found = histogram.points()
    assert found.tolist() == [count for _, count in sorted(counts(histogram).items())]
    bins = [bin_ for bin_, _ in sorted(counts(histogram).items())]
    for bin_, point in zip(bins, points.tolist(), strict=True):
        assert (point == 0.0) if bin_ == 0 else (abs(bin_) - 1 <= abs(point) <= abs(bin_))
        assert histogram.min <= point * histogram.width <= histogram.max


def test_the_share_outside_counts_what_is_beyond_the_ends() -> None:
    histogram = Histogram.of(np.array([-3.0, -1.0, 0.0, 0.0, 1.0, 2.0, 2.5, 100.0]))
    assert histogram.share_outside(-3.0, 100.0) == 0.0
    assert histogram.share_outside(-2.0, 50.0) == 2 / 8
    assert histogram.share_outside(0.0, 0.0) == 6 / 8


@pytest.mark.parametrize(("item", "word"), [(math.nan, "NaN"), (math.inf, "an infinity"), (-math.inf, "an infinity")])
def test_what_is_no_real_number_is_refused(item: float, word: str) -> None:
    with pytest.raises(Invalid, match=rf"found {word} at \[0, 1\] where") as caught:
        Histogram.of(np.array([[0.5, item]]))
    assert caught.value.code == "calibration.real"
