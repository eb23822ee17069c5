"""Histograms with dyadic bins. The order in which numbers are added does not matter.

Bins have the width 2^e, the least one with which the largest magnitude so far lies within `BINS` bins on its side of
zero. If a larger magnitude is added, the width is doubled until it lies within them, and pairs of neighbouring bins are
merged. That is exact, since a bin of width 2w is the union of two bins of width w. So one pass in bounded memory gives
the same histogram, bit for bit, as a second pass over the known range would give, for every division into batches.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.blocks import blocks
from cvm.errors import Invalid
from cvm.records import dataclass

__all__ = ["BINS", "Histogram"]

BINS = 2**12
"""The number of bins on either side of zero. At least half of them are used on one side: 16 for each of 127 steps."""

_LEAST_EXPONENT = -1074
"""The least exponent of the width of bins, which is that of the least float64."""

_PLAIN = 1000
"""Powers of two with exponents up to this magnitude are normal float64."""

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Histogram:
    """How often zero occurs, and how often numbers of each bin occur.

    ``counts[BINS]`` counts zeros, ``counts[BINS + k]`` numbers in [k - 1, k) and ``counts[BINS - k]`` numbers in
    (-k, 1 - k], in units of 2^``exponent``, k = 1 .. `BINS`. ``min`` and ``max`` are the exact extremes.
    """

    min: float
    max: float
    exponent: int
    counts: Counts

    @staticmethod
    def of(items: npt.NDArray[Any]) -> Histogram:
        """The histogram of an array with at least one item. Raises `Invalid` with the index of NaN or an infinity."""
        low, high = float(items.min()), float(items.max())
        if not np.isfinite([low, high]).all():
            index = [int(k) for k in np.unravel_index(int(np.isfinite(items).argmin()), items.shape)]
            what = "NaN" if np.isnan(items[tuple(index)]) else "an infinity"
            raise Invalid("calibration.real", f"found {what} at {index} where a real number is needed")
        exponent = _exponent(max(-low, high))
        counts = np.zeros(2 * BINS + 1, np.int64)
        for block in blocks(items.shape):
            counts += _counts(items[block].astype(np.float64, copy=False).ravel(), exponent)
        return Histogram(low, high, exponent, counts)

    def __add__(self, other: Histogram) -> Histogram:
        """The histogram of both collections of numbers together."""
        exponent = max(self.exponent, other.exponent)
        counts = self._at(exponent) + other._at(exponent)
        return Histogram(min(self.min, other.min), max(self.max, other.max), exponent, counts)

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return int(self.counts.sum())

    @property
    def width(self) -> float:
        """The width of a bin."""
        return float(np.ldexp(1.0, self.exponent))

    def points(self) -> tuple[Floats, Counts]:
        """The middles of the bins that are not empty, in ascending order and in units of the width, and their counts.

        Zeros are exactly at 0. No point is beyond the extremes.
        """
        (used,) = np.nonzero(self.counts)
        bins = used - BINS
        middles = bins - 0.5 * np.sign(bins)
        return np.clip(middles, self._in_widths(self.min), self._in_widths(self.max)), self.counts[used]

    def _in_widths(self, extreme: float) -> float:
        """An extreme in units of the width. A quotient that is subnormal is not rounded beyond the extreme."""
        quotient = extreme / self.width
        return float(np.nextafter(quotient, 0.0)) if abs(quotient) * self.width > abs(extreme) else quotient

    def share_outside(self, low: float, high: float) -> float:
        """The share of the numbers whose point is outside of [low, high]."""
        points, counts = self.points()
        outside = (points < low / self.width) | (points > high / self.width)
        return float(counts[outside].sum()) / self.count

    def _at(self, exponent: int) -> Counts:
        """The counts for bins of the width 2^exponent, which is at least the present width."""
        shift = min(exponent - self.exponent, 2 * BINS)
        if shift == 0:
            return self.counts
        (used,) = np.nonzero(self.counts)
        bins = used - BINS
        merged = np.sign(bins) * (((np.abs(bins) - 1) >> min(shift, 62)) + 1)
        counts = np.zeros_like(self.counts)
        np.add.at(counts, np.where(bins == 0, 0, merged) + BINS, self.counts[used])
        return counts


def _counts(real: Floats, exponent: int) -> Counts:
    """How often each bin occurs. A product with a power of two is exact, or rounded as `np.ldexp` rounds it."""
    magnitudes = np.abs(real)
    with np.errstate(under="ignore"):
        in_widths = magnitudes * 2.0**-exponent if abs(exponent) <= _PLAIN else np.ldexp(magnitudes, -exponent)
    bins = in_widths.astype(np.int64) + (magnitudes > 0.0)
    return np.bincount(np.where(real < 0.0, -bins, bins) + BINS, minlength=2 * BINS + 1)


def _exponent(magnitude: float) -> int:
    """The least e with magnitude < BINS * 2^e for which 2^e is a float64."""
    if magnitude == 0.0:
        return _LEAST_EXPONENT
    return max(int(np.frexp(magnitude)[1]) - (BINS.bit_length() - 1), _LEAST_EXPONENT)
