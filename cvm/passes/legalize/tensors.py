"""Int32 tensors in digits, shifted without overflow, and clipped: the arithmetic that legalisation is made of.

cvm_right_shift by b rounds half up: h = floor((x + 2^(b-1)) / 2^b), so that x - h * 2^b is a balanced digit, in
[-2^(b-1), 2^(b-1) - 1]. Plain intervals do not show that: a clip that changes no element says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvm.limits import INT32_MAX
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable
from cvm.passes.legalize.integers import Integers

__all__ = ["Interval", "Tensors"]

Interval = tuple[int, int]
"""Bounds of an integer, which may be wider than any tensor's."""

WIDE = 32
"""The precision that every int32 fits, so that nothing is clipped."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Arithmetic on expressions."""

    made: Expressions

    def times(self, x: Expression, items: Integers, label: str) -> Expression:
        """``x`` times constants."""
        if bool((items == 1).all()):
            return x
        return self.made.apply("broadcast_mul", x, self.made.constant(items), label=label)

    def plus(self, x: Expression, items: Integers, label: str) -> Expression:
        """``x`` plus constants."""
        if not bool((items != 0).any()):
            return x
        return self.made.apply("broadcast_add", x, self.made.constant(items), label=label)

    def total(self, parts: Sequence[Expression], label: str) -> Expression:
        """The sum, that of small tensors first."""
        found, *others = sorted(parts, key=lambda part: part.size)
        for part in others:
            found = self.made.apply("broadcast_add", found, part, label=label)
        return found

    def minus(self, x: Expression, y: Expression, label: str) -> Expression:
        """The difference x - y."""
        return self.made.apply("broadcast_sub", x, y, label=label)

    def largest(self, x: Expression, y: Expression, label: str) -> Expression:
        """max(x, y)."""
        return self.made.apply("broadcast_max", x, y, label=label)

    def negative(self, x: Expression, label: str) -> Expression:
        """-x."""
        return self.made.apply("negative", x, label=label)

    def clip(self, x: Expression, lo: int, hi: int, label: str) -> Expression:
        """``x`` within [lo, hi], which may be wider than int32; ``x`` itself where it is proven to lie there."""
        if lo <= x.lo and x.hi <= hi:
            return x
        a_min, a_max = (max(-INT32_MAX, min(bound, INT32_MAX)) for bound in (lo, hi))
        return self.made.apply("clip", x, label=label, a_min=a_min, a_max=a_max)

    def down(self, x: Expression, shift: int, label: str, precision: int = WIDE) -> Expression:
        """floor(x / 2^shift + 1/2)."""
        return self.made.apply("cvm_right_shift", x, label=label, precision=precision, shift_bit=shift)

    def up(self, x: Expression, shift: int, label: str) -> Expression:
        """The product x * 2^shift. The op clips it to int32, so it must fit."""
        if max(abs(x.lo), abs(x.hi)) << shift > INT32_MAX:
            raise Unprovable(f"{label}: cvm_left_shift by {shift} exceeds int32")
        return self.saturated(x, shift, label, WIDE) if shift else x

    def saturated(self, x: Expression, shift: int, label: str, precision: int) -> Expression:
        """The product x * 2^shift clipped to +-(2^(precision - 1) - 1)."""
        return self.made.apply("cvm_left_shift", x, label=label, precision=precision, shift_bit=shift)

    def raised(self, x: Expression, shift: int, below: Interval, needed: Interval, label: str) -> Expression:
        """A tensor that may stand for x * 2^shift as the upper part of a sum that is wanted within ``needed`` only.

        ``below`` bounds the lower part, l. With the result r in place of x * 2^shift the sum l + r is the same where it
        lies within ``needed``, and beyond the same end where it does not: r differs from x * 2^shift only where r is
        clipped to a bound beyond which no l leads back inside.
        """
        low, high = needed[0] - below[1], needed[1] - below[0]  # below low, or above high, the sum is outside
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
        """(l, h) with x = l + 2^base * h; l is a balanced digit unless h is clipped so that 2^base * h is an int32.

        x - 2^base * h is proven where x, or its span, is less than 2^30 or so, or x has one sign. Otherwise |x| is
        split, and the sign put back.
        """
        try:
            return self._split(x, base)
        except Unprovable:
            sign = self.made.apply("clip", x, label="sign", a_min=-1, a_max=1)
            low, high = self._split(self.made.apply("abs", x, label="magnitude"), base)
            return (
                self.made.apply("broadcast_mul", low, sign, label="digit"),
                self.made.apply("broadcast_mul", high, sign, label="digit"),
            )

    def _split(self, x: Expression, base: int) -> tuple[Expression, Expression]:
        half = 1 << (base - 1)
        largest = (1 << (31 - base)) - 1
        high = self.down(x, base, "digit", 32 - base)
        rest = self.minus(x, self.up(high, base, "digit"), "digit")
        lo, hi = min(-half, x.lo + (largest << base)), max(half - 1, x.hi - (largest << base))
        return self.clip(rest, lo, hi, "digit"), high

    def digits(self, x: Expression, base: int, top: int) -> list[Expression]:
        """Digits d with the sum of d[i] * 2^(base * i) = x, the last of magnitude <= 2^top."""
        found = []
        while max(abs(x.lo), abs(x.hi)) > 1 << top:
            low, x = self.split(x, base)
            found.append(low)
        return [*found, x]

    def spread(self, x: Expression, over: Expression, label: str) -> Expression:
        """``x`` broadcast to the shape of ``over``, to which it broadcasts."""
        if x.shape == over.shape:
            return x
        zeros = self.made.apply("clip", over, label=label, a_min=0, a_max=0)
        return self.made.apply("broadcast_add", zeros, x, label=label)

    def within(self, x: Expression, lo: Integers, hi: Integers, label: str) -> Expression:
        """``x`` with bounds that vary: max(x, lo) first, then min(x, hi) = -max(-x, -hi)."""
        x = self.largest(x, self.made.constant(lo), label)
        return self.negative(self.largest(self.negative(x, label), self.made.constant(np.negative(hi)), label), label)
