"""Interval arithmetic on decimals: rigorous enclosures of the elementary functions, to any number of digits.

An interval is a pair of decimals, one below and one above the true value. The context rounds sums, products and
quotients outward. ``exp``, ``ln`` and ``sqrt`` of `decimal` are correctly rounded to nearest, so the result plus and
minus one unit in the last digit encloses the true value. All other functions are computed from these, or by a series
with a bound on its tail.

A number beyond the range of exponents has the largest decimal or an infinity as a bound, on the safe side. What cannot
be said of an infinite bound, such as its difference to another, raises `decimal.InvalidOperation`.
"""

from __future__ import annotations

from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
)
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

__all__ = ["Arithmetic", "Interval", "fractions"]

Interval: TypeAlias = tuple[Decimal, Decimal]

_ZERO = Decimal(0)
_ONE = Decimal(1)
_TWO = Decimal(2)
_TRAPS = [InvalidOperation, DivisionByZero]
_LONGEST = 5_000
"""Digits before or after the point that numbers are written out with."""


def fractions(x: Interval) -> tuple[Fraction, Fraction] | None:
    """The bounds as rationals; None if one of them is too long to be written out."""
    if any(not bound.is_finite() or (bound and abs(bound.adjusted()) > _LONGEST) for bound in x):
        return None
    return Fraction(x[0]), Fraction(x[1])


class Arithmetic:
    """The operations at one precision. Every result encloses the true value. Callers check the domains of functions."""

    def __init__(self, digits: int) -> None:
        self.digits = digits
        self.down = Context(digits, ROUND_FLOOR, MIN_EMIN, MAX_EMAX, traps=_TRAPS)
        self.up = Context(digits, ROUND_CEILING, MIN_EMIN, MAX_EMAX, traps=_TRAPS)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(digits: int) -> Arithmetic:
        """The arithmetic with this number of digits."""
        return Arithmetic(digits)

    def rational(self, x: Fraction) -> Interval:
        """A rational."""
        numerator, denominator = Decimal(x.numerator), Decimal(x.denominator)
        return self.down.divide(numerator, denominator), self.up.divide(numerator, denominator)

    def neg(self, x: Interval) -> Interval:
        """-x."""
        return x[1].copy_negate(), x[0].copy_negate()

    def add(self, x: Interval, y: Interval) -> Interval:
        """X + y."""
        return self.down.add(x[0], y[0]), self.up.add(x[1], y[1])

    def mul(self, x: Interval, y: Interval) -> Interval:
        """X * y."""
        pairs = [(a, b) for a in x for b in y]
        return min(self.down.multiply(a, b) for a, b in pairs), max(self.up.multiply(a, b) for a, b in pairs)

    def div(self, x: Interval, y: Interval) -> Interval | None:
        """``x / y``; None if y is not known to differ from zero."""
        if y[0] <= 0 <= y[1]:
            return None
        pairs = [(a, b) for a in x for b in y]
        return min(self.down.divide(a, b) for a, b in pairs), max(self.up.divide(a, b) for a, b in pairs)

    def exp(self, x: Interval) -> Interval:
        """e^x."""
        low, high = self.down.exp(x[0]).next_minus(self.down), self.up.exp(x[1]).next_plus(self.up)
        return max(low, _ZERO), high

    def log(self, x: Interval) -> Interval | None:
        """``ln x``; None if x is not known to be positive."""
        if x[0] <= 0:
            return None
        return self.down.ln(x[0]).next_minus(self.down), self.up.ln(x[1]).next_plus(self.up)

    def sqrt(self, x: Interval) -> Interval | None:
        """The square root; None if x is not known to be at least 0."""
        if x[0] < 0:
            return None
        low, high = self.down.sqrt(x[0]).next_minus(self.down), self.up.sqrt(x[1]).next_plus(self.up)
        return max(low, _ZERO), high

    def sin(self, x: Interval) -> Interval | None:
        """``sin x``, by the Taylor series at the middle of the interval. sin changes at most as much as x does.

        None if x has more digits before the point than are computed with.
        """
        middle = self.down.divide(self.down.add(x[0], x[1]), _TWO)
        radius = max(self.up.subtract(x[1], middle), self.up.subtract(middle, x[0]))
        if middle.adjusted() > _LONGEST:
            return None
        # A whole number of turns is taken away, at as many more digits as x has before the point.
        fine = Arithmetic.of(self.digits + max(middle.adjusted(), 0) + 10)
        turn = fine.mul((_TWO, _TWO), fine.pi())
        turns = fine.down.divide(middle, turn[0]).to_integral_value(ROUND_HALF_EVEN)
        point = fine.add((middle, middle), fine.neg(fine.mul((turns, turns), turn)))
        low, high = fine.sin_series(point)
        low, high = self.down.subtract(low, radius), self.up.add(high, radius)
        return max(low, _ONE.copy_negate()), min(high, _ONE)

    def sin_series(self, x: Interval) -> Interval:
        """``x - x^3/3! + x^5/5! - ..`` for |x| < 4. From the third term on, each bounds the rest after it."""
        square = self.neg(self.mul(x, x))
        total: Interval = (_ZERO, _ZERO)
        term, k = x, 1
        while k < 6 or max(abs(term[0]), abs(term[1])) > Decimal((0, (1,), -self.digits - 5)):
            total = self.add(total, term)
            ratio = self.mul(term, square)
            divisor = Decimal((k + 1) * (k + 2))
            term = self.down.divide(ratio[0], divisor), self.up.divide(ratio[1], divisor)
            k += 2
        rest = max(abs(term[0]), abs(term[1]))
        return self.add(total, (rest.copy_negate(), rest))

    def atan(self, x: Interval) -> Interval:
        """``arctan x``. It grows, so enclosures at both ends of x enclose it."""
        return self._atan(x[0])[0], self._atan(x[1])[1]

    def _atan(self, x: Decimal) -> Interval:
        """``arctan x = 2 arctan(x / (1 + sqrt(1 + x^2)))``, repeated until the series is short."""
        point: Interval = (x, x)
        one = (_ONE, _ONE)
        halvings = 0
        while max(abs(point[0]), abs(point[1])) > Decimal("0.01"):
            root = self.sqrt(self.add(one, self.mul(point, point)))
            reduced = None if root is None else self.div(point, self.add(one, root))
            assert reduced is not None, "the divisor 1 + sqrt(1 + x^2) is at least 2"
            point = reduced
            halvings += 1
        return self.mul((Decimal(2**halvings), Decimal(2**halvings)), self._atan_series(point))

    def _atan_series(self, x: Interval) -> Interval:
        """``x - x^3/3 + x^5/5 - ..`` for |x| <= 0.01. The terms alternate and fall, so the next one bounds the rest."""
        square = self.neg(self.mul(x, x))
        total: Interval = (_ZERO, _ZERO)
        power = x
        k = 0
        while max(abs(power[0]), abs(power[1])) > Decimal((0, (1,), -self.digits - 5)):
            divisor = Decimal(2 * k + 1)
            total = self.add(total, (self.down.divide(power[0], divisor), self.up.divide(power[1], divisor)))
            power = self.mul(power, square)
            k += 1
        rest = max(abs(power[0]), abs(power[1]))
        return self.add(total, (rest.copy_negate(), rest))

    def pi(self) -> Interval:
        """The circle's circumference over its diameter: 4 arctan 1."""
        return _pi(self)

    def erf(self, x: Interval) -> Interval:
        """The error function. It grows, so enclosures at both ends of x enclose it."""
        return self._erf(x[0])[0], self._erf(x[1])[1]

    def _erf(self, x: Decimal) -> Interval:
        """2 / sqrt(pi) * e^-x^2 * (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), an odd function. 1 - erf x < e^-x^2 for x > 0."""
        if x < 0:
            return self.neg(self._erf(x.copy_negate()))
        point: Interval = (x, x)
        square = self.mul(point, point)
        decay = self.exp(self.neg(square))
        if decay[1] < Decimal((0, (1,), -self.digits)):
            return self.down.subtract(_ONE, decay[1]), _ONE
        root = self.sqrt(self.pi())
        factor = None if root is None else self.div(self.mul((Decimal(2), Decimal(2)), decay), root)
        assert factor is not None, "pi is positive"
        low, high = self.mul(factor, self._erf_series(point, self.add(square, square)))
        return max(low, _ZERO), min(high, _ONE)

    def _erf_series(self, x: Interval, ratio: Interval) -> Interval:
        """The sum of x * r^n / (3 * 5 * .. (2n + 1)) for r = 2 x^2. No term is negative, so nothing cancels."""
        total: Interval = (_ZERO, _ZERO)
        term, n = x, 0
        while True:
            total = self.add(total, term)
            n += 1
            divisor = Decimal(2 * n + 1)
            term = self.mul(term, ratio)
            term = self.down.divide(term[0], divisor), self.up.divide(term[1], divisor)
            # If each term is at most half of the term before it, the rest is at most twice the next term.
            if 2 * ratio[1] <= divisor and term[1] <= self.up.scaleb(total[1], -self.digits):
                return self.add(total, (_ZERO, self.up.add(term[1], term[1])))


@lru_cache(maxsize=64)
def _pi(arithmetic: Arithmetic) -> Interval:
    four = Decimal(4)
    return arithmetic.mul((four, four), arithmetic.atan((_ONE, _ONE)))
