"""Methods of calibration: the choice of the range that a quantiser should cover.

A method chooses one threshold T. Numbers of a greater magnitude are clipped, so the range is [max(min, -T), min(max,
T)]. A smaller T gives smaller steps to the other numbers. Among equally good thresholds, the greatest one is chosen.

Sources: Wu et al., "Integer Quantization for Deep Learning Inference", arXiv:2004.09602, section 3.4 (max, percentile,
entropy); Migacz, "8-bit Inference with TensorRT", GTC 2017 (entropy); Nagel et al., "A White Paper on Neural Network
Quantization", arXiv:2106.08295, section 3.1 (min-max, mean squared error).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.quantization.calibration.histogram import Histogram
from cvm.quantization.calibration.levels import Levels

__all__ = ["CANDIDATES", "METHODS", "Method", "Range", "choose", "divergences", "squared_errors"]

CANDIDATES = 128
"""The number of thresholds that mse and entropy compare: the greatest magnitude times i / `CANDIDATES`, for i = 1 ..
`CANDIDATES`.
"""

Method = Literal["minmax", "percentile", "mse", "entropy"]
Range: TypeAlias = "tuple[float, float]"
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


def choose(
    histogram: Histogram, levels: Levels, method: Method, *, percentile: float = 99.99, with_zero: bool = False
) -> Range:
    """The range [low, high] for a quantiser of ``levels``. low < high unless all numbers are equal.

    It lies within the extremes. ``with_zero`` widens these to contain zero, which affine levels need for tensors that
    are padded with zeros. Raises `Invalid` (``calibration.percentile``) for a percentile outside (0, 100].
    """
    low, high = histogram.min, histogram.max
    if with_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high or method == "minmax":
        return low, high
    threshold = _THRESHOLDS[method](histogram, levels, (low, high), percentile)
    return _clipped((low, high), threshold)


def _clipped(extremes: Range, threshold: float) -> Range:
    return max(extremes[0], -threshold), min(extremes[1], threshold)


def _percentile(histogram: Histogram, levels: Levels, extremes: Range, percentile: float) -> float:
    """The least bound of a bin such that ``percentile`` percent of the numbers other than zero are not greater in
    magnitude.

    Zeros are not counted, since every quantiser represents them exactly.
    """
    if not 0.0 < percentile <= 100.0:
        raise Invalid("calibration.percentile", f"a percentile must be greater than 0 and at most 100: {percentile}")
    half = len(histogram.counts) // 2
    counts = histogram.counts[half + 1 :] + histogram.counts[:half][::-1]
    needed = percentile / 100.0 * float(counts.sum())
    bins = int(np.searchsorted(np.cumsum(counts), needed)) + 1
    bound = bins * histogram.width
    return bound if _clipped(extremes, bound)[0] < _clipped(extremes, bound)[1] else max(-extremes[0], extremes[1])


def _least_error(histogram: Histogram, levels: Levels, extremes: Range, percentile: float) -> float:
    """The candidate with the least squared error, as `_best` finds it, without those that clip too much.

    Clipped numbers alone have an error that grows as the threshold falls. Where that error exceeds the least error so
    far, by more than float64 may be wrong, neither this threshold nor a smaller one is the best.
    """
    thresholds, low, high = _candidates(histogram, extremes)
    points, counts = histogram.points()
    best, least = 0, math.inf
    for start in range(0, len(thresholds), _TOGETHER):
        some = slice(start, start + _TOGETHER)
        if _clipping_error(points, counts, levels, low[start], high[start]) > least * _SLACK:
            break
        found = squared_errors(points, counts, levels, low[some], high[some])
        if found.min() < least:
            best, least = start + int(found.argmin()), float(found.min())
    return float(thresholds[best])


_TOGETHER = 4
"""The number of thresholds that are compared at a time: their arrays stay in the processor's cache."""
_SLACK = 1.0 + 2.0**-20


def _clipping_error(points: Floats, counts: Integers, levels: Levels, low: float, high: float) -> float:
    """A lower bound of the squared error: of numbers that lie more than a step outside of the range."""
    if levels.kind == "powers":
        return 0.0
    step = float(levels.step(low, high))
    below, above = int(np.searchsorted(points, low - step)), int(np.searchsorted(points, high + step))
    under = np.square(points[:below] - (low - step)) * counts[:below]
    over = np.square(points[above:] - (high + step)) * counts[above:]
    return float(under.sum() + over.sum())


def _least_divergence(histogram: Histogram, levels: Levels, extremes: Range, percentile: float) -> float:
    return _best(histogram, levels, extremes, divergences)


_THRESHOLDS: Mapping[str, Callable[[Histogram, Levels, Range, float], float]] = MappingProxyType(
    {"percentile": _percentile, "mse": _least_error, "entropy": _least_divergence}
)

METHODS: tuple[Method, ...] = ("minmax", "percentile", "mse", "entropy")
"""The names of all methods."""


def _best(
    histogram: Histogram,
    levels: Levels,
    extremes: Range,
    costs: Callable[[Floats, Integers, Levels, Floats, Floats], Floats],
) -> float:
    """The greatest of the candidates with the least cost. Costs are in units of the bins, so no square overflows."""
    thresholds, low, high = _candidates(histogram, extremes)
    points, counts = histogram.points()
    return float(thresholds[costs(points, counts, levels, low, high).argmin()])


def _candidates(histogram: Histogram, extremes: Range) -> tuple[Floats, Floats, Floats]:
    """The thresholds, the greatest first, and the ends of their ranges in units of the bins."""
    thresholds = max(-extremes[0], extremes[1]) * (np.arange(CANDIDATES, 0, -1) / CANDIDATES)
    low, high = np.maximum(extremes[0], -thresholds), np.minimum(extremes[1], thresholds)
    ranges = low < high
    return thresholds[ranges], low[ranges] / histogram.width, high[ranges] / histogram.width


def squared_errors(points: Floats, counts: Integers, levels: Levels, low: Floats, high: Floats) -> Floats:
    """For each range, the sum of the squared distances of all numbers to their levels."""
    distances = levels.nearest(points, low[:, None], high[:, None])
    np.subtract(points, distances, out=distances)
    np.square(distances, out=distances)
    distances *= counts
    total: Floats = distances.sum(axis=1)
    return total


def divergences(points: Floats, counts: Integers, levels: Levels, low: Floats, high: Floats) -> Floats:
    """The `divergence` for each range, of all numbers but zeros.

    Zero is a code, so zeros cost nothing. But they share a level with the numbers around them, and after a relu there
    are so many of them that the least divergence would be that of the smallest range.
    """
    kept = points != 0.0
    points, counts = points[kept], counts[kept]
    ranges = zip(low.tolist(), high.tolist(), strict=True)
    return np.array([divergence(points, counts, levels, *extremes) for extremes in ranges])


def divergence(points: Floats, counts: Integers, levels: Levels, low: float, high: float) -> float:
    """The Kullback-Leibler divergence of the quantised distribution Q from the clipped distribution P.

    P is the distribution of the points within the range, where clipped numbers are added to the outermost point of the
    level to which they are clipped. Q divides the share of each level among the numbers within the range evenly among
    the points of that level (Migacz, GTC 2017). The divergence is infinite if numbers are clipped to a level that no
    number within the range has.
    """
    inside = (points >= low) & (points <= high)
    below, above = float(counts[points < low].sum()), float(counts[points > high].sum())
    _, ends = levels.rounded(np.array([low, high]), low, high)
    _, codes = levels.rounded(points[inside], low, high)
    if not codes.size or (below and codes[0] != ends[0]) or (above and codes[-1] != ends[-1]):
        return math.inf
    reference = counts[inside].astype(np.float64)
    _, level = np.unique(codes, return_inverse=True)
    quantised = (np.bincount(level, reference) / np.bincount(level))[level]
    reference[0] += below
    reference[-1] += above
    p, q = reference / reference.sum(), quantised / quantised.sum()
    return float((p * np.log(p / q)).sum())
