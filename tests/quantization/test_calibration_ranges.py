"""Every method chooses the range that its definition says, by an evaluation of the definition number by number."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.quantization.calibration import METHODS, Histogram, Levels, choose
from cvm.quantization.calibration.levels import power_exponents
from cvm.quantization.calibration.ranges import CANDIDATES, divergences, squared_errors
from tests.selection import examples

# Multiples of the width of the bins have their bin for themselves, but its middle stands for them.
ITEMS = st.lists(st.integers(-2047, 2047), min_size=2, max_size=40).map(
    lambda bins: np.array([float(bin_) for bin_ in [*bins, 2047]])
)
KINDS = st.sampled_from(["affine", "symmetric", "powers"])
BITS = st.integers(2, 5)


def nearest(x: float) -> int:
    return math.floor(x + 0.5)


def quantised(x: float, kind: str, bits: int, low: float, high: float) -> float:
    """The number that the quantiser of [low, high] makes of x."""
    if kind == "affine":
        scale = (high - low) / (2**bits - 1)
        first = nearest(low / scale)
        return min(max(nearest(x / scale), first), first + 2**bits - 1) * scale
    most = max(-low, high)
    if kind == "symmetric":
        scale = most / (2 ** (bits - 1) - 1)
        return min(max(nearest(x / scale), -(2 ** (bits - 1)) + 1), 2 ** (bits - 1) - 1) * scale
    if x == 0.0:
        return 0.0
    top = nearest(math.log2(most))
    power = min(max(nearest(math.log2(abs(x))), top - 2**bits + 1), top)
    return math.copysign(2.0**power, x)


def points(items: np.ndarray) -> Counter[float]:
    """How often the number occurs that the histogram has instead of each item: the middle of its bin."""
    width = Histogram.of(items).width
    middles = ((math.floor(abs(x) / width) + 0.5) * math.copysign(width, x) if x else 0.0 for x in items.tolist())
    return Counter(min(max(middle, items.min()), items.max()) for middle in middles)


def candidates(items: np.ndarray) -> list[tuple[float, float]]:
    """All ranges in question, the widest first."""
    most = float(np.abs(items).max())
    ends = [most * (i / CANDIDATES) for i in range(CANDIDATES, 0, -1)]
    ranges = [(max(float(items.min()), -end), min(float(items.max()), end)) for end in ends]
    return [(low, high) for low, high in ranges if low < high]


def squared_error(items: np.ndarray, kind: str, bits: int, low: float, high: float) -> float:
    return sum(count * (x - quantised(x, kind, bits, low, high)) ** 2 for x, count in points(items).items())


def divergence(items: np.ndarray, kind: str, bits: int, low: float, high: float) -> float:
    """Kullback-Leibler, from the text of Migacz: P with the outliers at its ends, Q spread evenly over each level.

    Zeros are no part of it, since they are codes.
    """
    counted = {x: count for x, count in points(items).items() if x != 0.0}
    within = {x: count for x, count in sorted(counted.items()) if low <= x <= high}
    level = {x: quantised(x, kind, bits, low, high) for x in within}
    p = {x: float(count) for x, count in within.items()}
    for end, outliers in (
        (low, sum(count for x, count in counted.items() if x < low)),
        (high, sum(count for x, count in counted.items() if x > high)),
    ):
        if outliers:
            same = [x for x in within if level[x] == quantised(end, kind, bits, low, high)]
            if not same:
                return math.inf
            p[min(same) if end == low else max(same)] += outliers
    q = {}
    for x in within:
        share = [y for y in within if level[y] == level[x]]
        q[x] = sum(within[y] for y in share) / len(share)
    if not p:
        return math.inf
    p_sum, q_sum = sum(p.values()), sum(q.values())
    return sum(p[x] / p_sum * math.log((p[x] / p_sum) / (q[x] / q_sum)) for x in p)


COSTS = {"mse": squared_error, "entropy": divergence}
FAST = {"mse": squared_errors, "entropy": divergences}


def fast_costs(method: str, items: np.ndarray, kind: str, bits: int) -> list[float]:
    """What the product computes for all candidates, squares in the unit of the items."""
    histogram = Histogram.of(items)
    low, high = (np.array(ends) / histogram.width for ends in zip(*candidates(items), strict=True))
    unit = histogram.width**2 if method == "mse" else 1.0
    return (FAST[method](*histogram.points(), Levels(kind, bits), low, high) * unit).tolist()


@pytest.mark.parametrize("method", COSTS)
@settings(max_examples=examples(40), deadline=None)
@given(items=ITEMS, kind=KINDS, bits=BITS)
def test_the_range_costs_least_of_all_candidates(method: str, items: np.ndarray, kind: str, bits: int) -> None:
    assume(items.min() < items.max())
    costs = {extremes: COSTS[method](items, kind, bits, *extremes) for extremes in candidates(items)}
    assert fast_costs(method, items, kind, bits) == pytest.approx(list(costs.values()), rel=1e-9, abs=1e-9)
    chosen = choose(Histogram.of(items), Levels(kind, bits), method)
    assert costs[chosen] <= min(costs.values()) * (1 + 1e-9) + 1e-9


def test_zeros_do_not_change_the_range_of_the_least_divergence() -> None:
    """As after a relu: numbers of one sign, and as many zeros as one likes."""
    items = np.abs(np.random.default_rng(3).normal(size=20_000))
    levels = Levels("affine", 8)
    low, high = choose(Histogram.of(items), levels, "entropy", with_zero=True)
    for zeros in (1, 20_000, 200_000):
        mixed = np.concatenate([np.zeros(zeros), items])
        assert choose(Histogram.of(mixed), levels, "entropy") == (0.0, high)
    assert high > 0.6 * items.max()
    assert low == 0.0


def test_of_ranges_that_cost_the_same_the_widest_is_chosen() -> None:
    """One level for both numbers, or one for each: nothing is lost either way."""
    items, levels = np.array([1023.0, 2047.0]), Levels("symmetric", 2)
    costs = dict(zip(candidates(items), fast_costs("entropy", items, "symmetric", 2), strict=True))
    assert sum(cost == 0.0 for cost in costs.values()) > 1
    assert choose(Histogram.of(items), levels, "entropy") == (1023.0, 2047.0)


@given(items=ITEMS, percentile=st.floats(0.5, 100.0))
def test_a_percentile_keeps_that_share_of_what_is_not_zero(items: np.ndarray, percentile: float) -> None:
    histogram = Histogram.of(items)
    low, high = choose(histogram, Levels("affine", 8), "percentile", percentile=percentile)
    bound = max(-low, high)
    magnitudes = np.abs(items[items != 0.0])
    assert (magnitudes <= bound).sum() >= math.floor(percentile / 100 * magnitudes.size)
    if bound < np.abs(items).max() and (items.min() < 0.0 or items.max() - bound > 0.0):
        below = bound - histogram.width
        assert (magnitudes < below).sum() < percentile / 100 * magnitudes.size + 1e-9


@given(items=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20).map(np.array), kind=KINDS)
def test_minmax_is_the_extremes(items: np.ndarray, kind: str) -> None:
    histogram = Histogram.of(items)
    assert choose(histogram, Levels(kind, 8), "minmax") == (items.min(), items.max())
    with_zero = choose(histogram, Levels(kind, 8), "minmax", with_zero=True)
    assert with_zero == (min(items.min(), 0.0), max(items.max(), 0.0))


@pytest.mark.parametrize("method", METHODS)
@given(items=st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=12).map(np.array), kind=KINDS, zero=st.booleans())
@settings(max_examples=examples(50), deadline=None)
def test_a_range_lies_within_the_extremes(method: str, items: np.ndarray, kind: str, zero: bool) -> None:
    low, high = choose(Histogram.of(items), Levels(kind, 4), method, with_zero=zero)
    least, most = float(items.min()), float(items.max())
    if zero:
        least, most = min(least, 0.0), max(most, 0.0)
    assert least <= low <= high <= most
    assert low < high or least == most


@pytest.mark.parametrize("scale", [2.0**-1060, 2.0**-300, 1.0, 2.0**900])
@pytest.mark.parametrize("method", METHODS)
def test_the_choice_does_not_depend_on_the_unit(method: str, scale: float) -> None:
    items = np.random.default_rng(1).normal(size=500).astype(np.float32).astype(np.float64)
    items = np.round(items * 2**12) / 2**12
    low, high = choose(Histogram.of(items), Levels("affine", 6), method)
    scaled = choose(Histogram.of(items * scale), Levels("affine", 6), method)
    assert scaled == (low * scale, high * scale)


def test_an_outlier_is_clipped_by_all_methods_but_minmax() -> None:
    items = np.concatenate([np.random.default_rng(0).normal(size=100_000), [60.0]])
    histogram = Histogram.of(items)
    highest = {method: choose(histogram, Levels("symmetric", 4), method)[1] for method in METHODS}
    assert highest["minmax"] == 60.0
    assert all(highest[method] < 8.0 for method in METHODS if method != "minmax")


def test_the_hundredth_percentile_clips_nothing_but_the_rest_of_a_bin() -> None:
    histogram = Histogram.of(np.array([-1.0, 0.25, 2.0]))
    assert choose(histogram, Levels("affine", 8), "percentile", percentile=100.0) == (-1.0, 2.0)


def test_a_percentile_of_nothing_is_refused() -> None:
    for percentile in (0.0, -1.0, 100.5, math.nan):
        with pytest.raises(Invalid) as caught:
            choose(Histogram.of(np.array([0.0, 1.0])), Levels("affine", 8), "percentile", percentile=percentile)
        assert caught.value.code == "calibration.percentile"


@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool))
def test_exponents_are_the_rounded_logarithms_exactly(x: float) -> None:
    exponent = int(power_exponents(np.array([x]))[0])
    square = Fraction(x) ** 2
    assert Fraction(2) ** (2 * exponent - 1) <= square < Fraction(2) ** (2 * exponent + 1)


def test_exponents_beside_the_root_of_one_half() -> None:
    root = math.sqrt(0.5)
    around = [math.nextafter(root, 0.0), root, math.nextafter(root, 1.0)]
    for x in around:
        exponent = int(power_exponents(np.array([x]))[0])
        assert exponent == (0 if 2 * Fraction(x) ** 2 >= 1 else -1)
