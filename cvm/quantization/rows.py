"""Rows: the exact codes of a tensor as staircases in its integer accumulators.

A row stands for one channel, or for one class of positions of a channel. `cvm.quantization.fixed_point` proves that a
``requantize`` gives the codes of a row.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.quantization.float_enclosures import FLOATS, FloatInterval, between
from cvm.quantization.surds import ceil_root
from cvm.records import dataclass

__all__ = ["Bounds", "Integers", "LinearRow", "Row", "SurdRow"]

Integers = npt.NDArray[np.object_]
Bounds = tuple[int, int]

_ROOT_BITS = 100
"""The number of bits behind the binary point of a square root that float64 encloses."""
_EXACT_FLOATS = 2.0**52
"""For a float64 below this, the next larger integer is a float64 too."""


@dataclass(frozen=True, slots=True)
class LinearRow:
    """code(x) = clamp(floor((sum_i factors[i] * x_i + constant) / denominator), lo, hi); denominator > 0."""

    factors: tuple[int, ...]
    constant: int
    denominator: int
    bounds: tuple[Bounds, ...]
    lo: int
    hi: int

    def multiplier(self, term: int, shift: int) -> int:
        """The factor of accumulator ``term`` times 2^shift, rounded to an integer."""
        return (2 * (self.factors[term] << shift) + self.denominator) // (2 * self.denominator)

    def scale_bits(self) -> int:
        """An e such that the largest factor is below 2^e, and not below 2^(e-3)."""
        largest = max(abs(factor) for factor in self.factors)
        return largest.bit_length() - self.denominator.bit_length() + 1

    def extremes(self) -> Bounds:
        """The least and the greatest value of sum_i factors[i] * x_i + constant."""
        ends = [sorted((p * lo, p * hi)) for p, (lo, hi) in zip(self.factors, self.bounds, strict=True)]
        return self.constant + sum(end[0] for end in ends), self.constant + sum(end[1] for end in ends)

    def code_bounds(self) -> Bounds:
        """The least and the greatest code that occurs."""
        least, greatest = (min(max(end // self.denominator, self.lo), self.hi) for end in self.extremes())
        return least, greatest

    def steps(self) -> range:
        """The codes k whose step matters: those first reached within the bounds, and one more at either end."""
        least, greatest = (extreme // self.denominator for extreme in self.extremes())
        return range(max(self.lo + 1, min(self.hi, least)), min(self.hi, max(self.lo, greatest) + 1) + 1)

    def thresholds(self, steps: Integers) -> Integers:
        """T_k, the least x whose code is at least k, for a row with one accumulator of positive factor."""
        return np.asarray(-((self.constant - steps * self.denominator) // self.factors[0]))

    def fixed(self, term: int, value: int) -> LinearRow:
        """The row that remains if accumulator ``term`` has the given value."""
        keep = [i for i in range(len(self.factors)) if i != term]
        return replace(
            self,
            factors=tuple(self.factors[i] for i in keep),
            bounds=tuple(self.bounds[i] for i in keep),
            constant=self.constant + self.factors[term] * value,
        )

    def mirrored(self) -> LinearRow:
        """The same staircase in -x_0."""
        lo, hi = self.bounds[0]
        return replace(self, factors=(-self.factors[0], *self.factors[1:]), bounds=((-hi, -lo), *self.bounds[1:]))


@dataclass(frozen=True, slots=True)
class SurdRow:
    """code(x) = clamp(floor(height + (slope * x + origin) / sqrt(radicand)), lo, hi): batch normalisation of one input.

    The coefficients are rationals; radicand > 0 and slope != 0. Thresholds are decided by integer square roots.
    """

    slope: Fraction
    origin: Fraction
    height: Fraction
    radicand: Fraction
    bounds: tuple[Bounds, ...]
    lo: int
    hi: int

    def multiplier(self, term: int, shift: int) -> int:
        """The factor of accumulator ``term`` times 2^shift, rounded to an integer."""
        root = _isqrt(self.slope * self.slope / self.radicand * 4 ** (shift + 1))
        return (root + 1) // 2 * (1 if self.slope > 0 else -1)

    def scale_bits(self) -> int:
        """An e such that the largest factor is below 2^e, and not below 2^(e-3)."""
        square = self.slope * self.slope / self.radicand
        bits = square.numerator.bit_length() - square.denominator.bit_length() + 1
        return -(-bits // 2)

    def code_bounds(self) -> Bounds:
        """The least and the greatest code that occurs."""
        row = self if self.slope > 0 else self.mirrored()
        steps, threshold = row.steps(), row._exact_threshold()
        least, greatest = (bisect_right(steps, end, key=threshold) for end in row.bounds[0])
        return self.lo + least, self.lo + greatest

    def steps(self) -> range:
        """All steps of the code range."""
        return range(self.lo + 1, self.hi + 1)

    def thresholds(self, steps: Integers) -> Integers:
        """The least x with slope*x + origin >= (k - height) * sqrt(radicand), for a positive slope.

        Float64 encloses all thresholds at once. Those that it does not decide are computed exactly.
        """
        low, high = self._enclosed(steps)
        known = (np.ceil(low) == np.ceil(high)) & (np.abs(high) < _EXACT_FLOATS)
        found = np.where(known, np.ceil(low), 0.0).astype(np.int64).astype(object)
        threshold = self._exact_threshold()
        for index in np.flatnonzero(~known):
            found[index] = threshold(steps[index])
        return np.asarray(found)

    def _enclosed(self, steps: Integers) -> FloatInterval:
        """Enclosures of start + (k - height) * sqrt(radicand) / slope, which is rounded up."""
        ratio = self.radicand / (self.slope * self.slope)
        root = math.isqrt(ratio.numerator * ratio.denominator << 2 * _ROOT_BITS)
        unit = ratio.denominator << _ROOT_BITS
        codes = steps.astype(np.float64)  # exact: a list of steps beyond 2^53 would not fit into memory
        rise = FLOATS.add((codes, codes), FLOATS.rational(-self.height))
        distance = FLOATS.mul(rise, between(Fraction(root, unit), Fraction(root + 1, unit)))
        return FLOATS.add(distance, FLOATS.rational(-self.origin / self.slope))

    def _exact_threshold(self) -> Callable[[int], int]:
        """The threshold of a code.

        With u = (k - height) * h for the denominator h of the height, and with radicand / slope^2 = r / q in lowest
        terms, it is ceil(start + u * sqrt(r * q) / (h * q)), where start = -origin / slope.
        """
        start, ratio = -self.origin / self.slope, self.radicand / (self.slope * self.slope)
        h, q = self.height.denominator, ratio.denominator
        a, d, square = start.numerator * h * q, start.denominator * h * q, ratio.numerator * q

        def threshold(k: int) -> int:
            u = (k * h - self.height.numerator) * start.denominator
            return ceil_root(a, u * u * square, d, 1 if u >= 0 else -1)

        return threshold

    def mirrored(self) -> SurdRow:
        """The same staircase in -x."""
        ((lo, hi),) = self.bounds
        return replace(self, slope=-self.slope, bounds=((-hi, -lo),))


Row: TypeAlias = LinearRow | SurdRow
"""The codes as a function of integer accumulators, for one channel or one class of positions of a channel."""


def _isqrt(value: Fraction) -> int:
    return math.isqrt(value.numerator // value.denominator)
