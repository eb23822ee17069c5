"""Arithmetic on int32 tensors for legalisation: splitting into digits, shifts without overflow, and clips.

cvm_right_shift by b rounds half up: h = floor((x + 2^(b-1)) / 2^b). So x - h * 2^b is a balanced digit, in
[-2^(b-1), 2^(b-1) - 1]. Interval arithmetic does not find that out, so a clip that changes no element states it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.limits import INT32_MAX
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable
from cvm.passes.legalize.integers import Integers
from cvm.records import dataclass

__all__ = ["Interval", "Tensors"]

Interval = tuple[int, int]
"""Bounds of an integer, which need not fit in 32 bits."""

WIDE = 32
"""The precision that every int32 fits, so that a shift with it clips nothing."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Arithmetic on expressions."""

    made: Expressions

    def times(self, x: Expression, items: Integers, label: str) -> Expression:
        """``x`` times constants."""
        if bool((items == 1).all()):
            return x
        return x.times(self.made.constant(items), label)

    def plus(self, x: Expression, items: Integers, label: str) -> Expression:
        """``x`` plus constants."""
        if not bool((items != 0).any()):
            return x
        return x.plus(self.made.constant(items), label)

    def total(self, parts: Sequence[Expression], label: str) -> Expression:
        """The sum of all parts; small tensors are added first."""
        found, *others = sorted(parts, key=lambda part: part.size)
        for part in others:
            found = found.plus(part, label)
        return found

    def clip(self, x: Expression, lo: int, hi: int, label: str) -> Expression:
        """``x`` clipped to [lo, hi], which may be wider than int32; ``x`` itself if it is proven to lie there."""
        if lo <= x.lo and x.hi <= hi:
            return x
        a_min, a_max = (max(-INT32_MAX, min(bound, INT32_MAX)) for bound in (lo, hi))
        return x.clip(a_min, a_max, label)

    def down(self, x: Expression, shift: int, label: str, precision: int = WIDE) -> Expression:
        """floor(x / 2^shift + 1/2)."""
        return x.apply("cvm_right_shift", label=label, precision=precision, shift_bit=shift)

    def up(self, x: Expression, shift: int, label: str) -> Expression:
        """The product x * 2^shift. Raises `Unprovable` if it might not fit in int32, to which the op would clip it."""
        if max(abs(x.lo), abs(x.hi)) << shift > INT32_MAX:
            raise Unprovable(f"{label}: cvm_left_shift by {shift} exceeds int32")
        return self.saturated(x, shift, label, WIDE) if shift else x

    def saturated(self, x: Expression, shift: int, label: str, precision: int) -> Expression:
        """The product x * 2^shift clipped to +-(2^(precision - 1) - 1)."""
        return x.apply("cvm_left_shift", label=label, precision=precision, shift_bit=shift)

    def raised(self, x: Expression, shift: int, below: Interval, needed: Interval, label: str) -> Expression:
        """A tensor r that may replace x * 2^shift as the upper part of a sum that matters only within ``needed``.

        ``below`` bounds the lower part l of the sum. Where l + x * 2^shift lies within ``needed``, l + r is equal to
        it; where it lies outside, l + r lies outside on the same side. For r differs from x * 2^shift only where it is
        clipped to a bound so large that no l brings the sum back into ``needed``.
        """
        low, high = needed[0] - below[1], needed[1] - below[0]  # if r < low or r > high, the sum is outside
        if not shift:
            return self.clip(x, low, high, label)
        least, largest = x.lo << shift, x.hi << shift
        alpha = max(0, min(largest, high), -max(least, low))
        precision = alpha.bit_length() + 1
        alpha = 2 ** (precision - 1) - 1
        fits = min(largest, alpha) + below[1] <= INT32_MAX and max(least, -alpha) + below[0] >= -INT32_MAX
        if fits and precision <= WIDE:
            return self.saturated(x, shift, label, precision)
        return self.up(self.clip(x, low >> shift, -(-high >> shift), label), shift, label)

    def split(self, x: Expression, base: int) -> tuple[Expression, Expression]:
        """Split x into (l, h) with x = l + 2^base * h.

        l is a balanced digit, unless h must be clipped so that 2^base * h is an int32. The rules prove x - 2^base * h
        to be an int32 if |x|, or the width of its interval, is below about 2^30, or if x has one sign. Otherwise |x| is
        split, and both parts get the sign of x.
        """
        try:
            return self._split(x, base)
        except Unprovable:
            sign = x.clip(-1, 1, "sign")
            low, high = self._split(x.apply("abs", label="magnitude"), base)
            return low.times(sign, "digit"), high.times(sign, "digit")

    def _split(self, x: Expression, base: int) -> tuple[Expression, Expression]:
        half = 1 << (base - 1)
        largest = (1 << (31 - base)) - 1
        high = self.down(x, base, "digit", 32 - base)
        rest = x.minus(self.up(high, base, "digit"), "digit")
        lo, hi = min(-half, x.lo + (largest << base)), max(half - 1, x.hi - (largest << base))
        return self.clip(rest, lo, hi, "digit"), high

    def digits(self, x: Expression, base: int, top: int) -> list[Expression]:
        """Digits d with the sum of d[i] * 2^(base * i) = x. The last one has a magnitude of at most 2^top."""
        found = []
        while max(abs(x.lo), abs(x.hi)) > 1 << top:
            low, x = self.split(x, base)
            found.append(low)
        return [*found, x]

    def spread(self, x: Expression, over: Expression, label: str) -> Expression:
        """``x`` broadcast to the shape of ``over``."""
        if x.shape == over.shape:
            return x
        return over.clip(0, 0, label).plus(x, label)

    def within(self, x: Expression, lo: Integers, hi: Integers, label: str) -> Expression:
        """``x`` clipped to bounds that vary by element: max(x, lo) first, then min(x, hi) = -max(-x, -hi)."""
        x = x.maximum(self.made.constant(lo), label)
        return x.negative(label).maximum(self.made.constant(np.negative(hi)), label).negative(label)
