"""Interval arithmetic on decimals: rigorous enclosures of the elementary functions, to any number of digits.

An interval is a pair of decimals, below and above the true value. Sums, products and quotients are rounded outward by
the context. ``exp``, ``ln`` and ``sqrt`` of `decimal` are correctly rounded to nearest, so that one unit in the last
place either side encloses them. Everything else is made of these, or a series with a bound on its tail.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

__all__ = ["Arithmetic", "Interval"]

Interval: TypeAlias = tuple[Decimal, Decimal]

_ZERO = Decimal(0)
_ONE = Decimal(1)


class Arithmetic:
    """The operations at one precision. No result is ever narrower than the truth; no domain is checked twice."""

    def __init__(self, digits: int) -> None:
        self.digits = digits
        self.down = Context(prec=digits, rounding=ROUND_FLOOR, Emax=MAX_EMAX, Emin=MIN_EMIN)
        self.up = Context(prec=digits, rounding=ROUND_CEILING, Emax=MAX_EMAX, Emin=MIN_EMIN)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(digits: int) -> Arithmetic:
        """The arithmetic of so many digits."""
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
        """X / y; None while y is not known to differ from zero."""
        if y[0] <= 0 <= y[1]:
            return None
        pairs = [(a, b) for a in x for b in y]
        return min(self.down.divide(a, b) for a, b in pairs), max(self.up.divide(a, b) for a, b in pairs)

    def exp(self, x: Interval) -> Interval:
        """e^x."""
        low, high = self.down.exp(x[0]).next_minus(self.down), self.up.exp(x[1]).next_plus(self.up)
        return max(low, _ZERO), high

    def log(self, x: Interval) -> Interval | None:
        """Ln x; None while x is not known to be positive."""
        if x[0] <= 0:
            return None
        return self.down.ln(x[0]).next_minus(self.down), self.up.ln(x[1]).next_plus(self.up)

    def sqrt(self, x: Interval) -> Interval | None:
        """The square root; None while x is not known to be non-negative."""
        if x[0] < 0:
            return None
        low, high = self.down.sqrt(x[0]).next_minus(self.down), self.up.sqrt(x[1]).next_plus(self.up)
        return max(low, _ZERO), high

    def erf(self, x: Interval) -> Interval:
        """The error function, which grows: the ends' enclosures enclose it."""
        return self._erf(x[0])[0], self._erf(x[1])[1]

    def _erf(self, x: Decimal) -> Interval:
        if x < 0:
            low, high = self._erf(x.copy_negate())
            return high.copy_negate(), low.copy_negate()
        if x * x > 3 * self.digits:
            # 1 - erf(x) < e^(-x^2) < 10^-digits for x >= 1.
            return self.down.subtract(_ONE, Decimal((0, (1,), -self.digits))), _ONE
        # erf(x) = 2/sqrt(pi) * e^(-x^2) * sum of x * (2 x^2)^n / (1 * 3 * .. * (2n + 1)), all terms positive.
        point = (x, x)
        square = self.mul(point, point)
        twice = self.mul((Decimal(2), Decimal(2)), square)
        total: Interval = (_ZERO, _ZERO)
        term, n = point, 0
        while term[1] > Decimal((0, (1,), -self.digits - 5)) or 2 * n + 1 < 2 * twice[1]:
            total = self.add(total, term)
            n += 1
            divisor = Decimal(2 * n + 1)
            ratio = self.mul(term, twice)
            term = self.down.divide(ratio[0], divisor), self.up.divide(ratio[1], divisor)
        # From here on each term is less than half of the one before, 2 x^2 / (2n + 3) < 1/2: the rest is at most twice
        # this one.
        total = total[0], self.up.add(total[1], self.up.multiply(Decimal(2), term[1]))
        scale = self.div((Decimal(2), Decimal(2)), self.sqrt(self.pi()) or self.pi())
        assert scale is not None
        return self.mul(scale, self.mul(self.exp(self.neg(square)), total))

    @lru_cache(maxsize=8)  # noqa: B019 - there are few precisions, and they live as long as the program
    def pi(self) -> Interval:
        """Pi = 16 arctan(1/5) - 4 arctan(1/239)."""
        first, second = self._arctan_inverse(5), self._arctan_inverse(239)
        sixteen, four = (Decimal(16), Decimal(16)), (Decimal(4), Decimal(4))
        return self.add(self.mul(sixteen, first), self.neg(self.mul(four, second)))

    def _arctan_inverse(self, n: int) -> Interval:
        """arctan(1/n): an alternating series of falling terms, enclosed by its last two partial sums."""
        one, square = Decimal(1), Decimal(n * n)
        power = self.down.divide(one, Decimal(n)), self.up.divide(one, Decimal(n))
        total: Interval = (_ZERO, _ZERO)
        k = 0
        while power[1] > Decimal((0, (1,), -self.digits - 5)):
            divisor = Decimal(2 * k + 1)
            term = self.down.divide(power[0], divisor), self.up.divide(power[1], divisor)
            total = self.add(total, term if k % 2 == 0 else self.neg(term))
            power = self.down.divide(power[0], square), self.up.divide(power[1], square)
            k += 1
        return self.add(total, (power[1].copy_negate(), power[1]))

    def sin(self, x: Interval) -> Interval:
        """Sin x, by the Taylor series at the middle of the interval; sin changes by no more than its argument."""
        middle = self.down.divide(self.down.add(x[0], x[1]), Decimal(2))
        radius = max(self.up.subtract(x[1], middle), self.up.subtract(middle, x[0]))
        # Terms of the series grow to e^|x| first: work with as many more digits.
        fine = Arithmetic.of(self.digits + int(abs(middle)) // 2 + 10)
        point = (middle, middle)
        square = fine.neg(fine.mul(point, point))
        total: Interval = (_ZERO, _ZERO)
        term: Interval = point
        k = 1
        while max(abs(term[0]), abs(term[1])) > Decimal((0, (1,), -fine.digits - 5)) or k < abs(middle) + 2:
            total = fine.add(total, term)
            ratio = fine.mul(term, square)
            divisor = Decimal((k + 1) * (k + 2))
            term = fine.down.divide(ratio[0], divisor), fine.up.divide(ratio[1], divisor)
            k += 2
        # The terms alternate and fall from here on: the rest is at most the next one.
        rest = self.up.add(max(abs(term[0]), abs(term[1])), radius)
        low, high = self.down.subtract(total[0], rest), self.up.add(total[1], rest)
        return max(low, _ONE.copy_negate()), min(high, _ONE)
