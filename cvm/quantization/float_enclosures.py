"""Interval arithmetic on arrays of float64: rigorous enclosures of the elementary functions of many numbers at once.

No mathematical library is trusted. By IEEE 754 (5.1, 4.3), a sum, product or quotient differs from the true one by less
than one unit in the last place in every rounding mode, or by less than 2^-1021 if it is subnormal or flushed to zero. A
unit in the last place of v is at most 2^-52 |v|. So the true result is between v - w and v + w for w = 2^-51 |v| +
2^-1000, computed in float64. All functions are computed from such steps:

* e^x, sin x and the error function are power series with a bound on the omitted terms (`exp`, `sin`, `erf`);
* ln x and sqrt(x) start from NumPy's result, which may be wrong: e^y or s^2 is compared with x, and the difference
  bounds the result.

An item that is not known is NaN at both ends. That happens if an argument is or may be outside of the domain, if a
number is beyond the range of float64, or if the reduction of an argument failed. NaN stays NaN, and decides nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.quantization.enclosures import Arithmetic, Interval

__all__ = ["FLOATS", "FloatArithmetic", "FloatInterval", "Floats", "between", "outward"]

Floats: TypeAlias = npt.NDArray[np.float64]
FloatInterval: TypeAlias = tuple[Floats, Floats]
"""The ends below and above the true numbers, as arrays of one shape; NaN where nothing is known."""

_RELATIVE = 2.0**-51
_ABSOLUTE = 2.0**-1000
_MOST_EXPONENT = 690.0
"""e^690 < 2^996, so exponentials of smaller numbers are within the range of float64."""
_LEAST_EXPONENTIAL = 2.0**-995
"""A number greater than e^-690."""
_EXPONENTIAL_TERMS = 20
"""r^21 / 21! < 2^-74 for 0 <= r <= 3/4. The rest of the series is less than twice that."""
_EXPONENTIAL_REST = 2.0**-73
_SINE_TERMS = 13
"""r^27 / 27! < 2^-74 for |r| <= 1.6. This first omitted term bounds the rest, since the terms alternate and fall."""
_SINE_REST = 2.0**-74
_LARGEST_ANGLE = 2.0**20
_ATAN_HALVINGS = 5
_ATAN_TERMS = 7
"""z^15 / 15 < 2^-68 for |z| <= 1/20. This first omitted term bounds the rest, since the terms alternate and fall."""
_ATAN_REST = 2.0**-68
_ERF_TERMS = 200
"""The number of terms for |x| <= 6.1: 2 x^2 < 75 is less than a quarter of 2 * 200 + 1, and the last terms are below
2^-100.
"""
_LARGEST_ERF = 6.1
"""Above this x, 1 - erf x < e^-6.1^2 < 2^-53."""


def outward(low: Floats, high: Floats) -> FloatInterval:
    """The ends of computed results, moved outward by more than the error of one operation."""
    return low - (np.abs(low) * _RELATIVE + _ABSOLUTE), high + (np.abs(high) * _RELATIVE + _ABSOLUTE)


def _known(low: Floats, high: Floats, where: npt.NDArray[np.bool_]) -> FloatInterval:
    """The interval for the items ``where`` it holds, and NaN for the others."""
    return np.where(where, low, np.nan), np.where(where, high, np.nan)


def _point(value: Floats | float) -> FloatInterval:
    array = np.asarray(value, np.float64)
    return array, array


def between(low: Fraction, high: Fraction) -> FloatInterval:
    """Float64 ends around two rationals, which are compared exactly; NaN if the rationals are too large for float64."""
    try:
        ends = float(low), float(high)
    except OverflowError:
        return _point(np.nan)
    below, above = (np.asarray(end, np.float64) for end in ends)
    if Fraction(ends[0]) > low:
        below = outward(below, below)[0]
    if Fraction(ends[1]) < high:
        above = outward(above, above)[1]
    if Fraction(below.item()) <= low and high <= Fraction(above.item()):
        return below, above
    return _point(np.nan)


def _enclosed(interval: Interval | None) -> FloatInterval:
    assert interval is not None, "a constant is defined"
    return between(Fraction(interval[0]), Fraction(interval[1]))


class FloatArithmetic:
    """The operations of `cvm.quantization.enclosures.Arithmetic` on arrays of intervals of float64."""

    def __init__(self) -> None:
        fine = Arithmetic.of(50)
        two = fine.rational(Fraction(2))
        self.pi = _enclosed(fine.pi())
        logarithm = fine.log(two)
        assert logarithm is not None, "2 is positive"
        # ln 2 and pi are split. The first parts have 40 and 32 bits, and their multiples k have 10 and 20 bits.
        self._log_parts = _parts(logarithm, 40)
        self._pi_parts = _parts(fine.pi(), 30)
        root = fine.sqrt(fine.pi())
        assert root is not None, "pi is positive"
        self._erf_factor = _enclosed(fine.div(two, root))

    def rational(self, x: Fraction) -> FloatInterval:
        """A rational as an interval of rank 0."""
        return between(x, x)

    def neg(self, x: FloatInterval) -> FloatInterval:
        """-x."""
        return -x[1], -x[0]

    def add(self, x: FloatInterval, y: FloatInterval) -> FloatInterval:
        """X + y."""
        return outward(x[0] + y[0], x[1] + y[1])

    def mul(self, x: FloatInterval, y: FloatInterval) -> FloatInterval:
        """X * y."""
        products = [a * b for a in x for b in y]
        return outward(np.minimum.reduce(products), np.maximum.reduce(products))

    def div(self, x: FloatInterval, y: FloatInterval) -> FloatInterval:
        """X / y."""
        quotients = [a / b for a in x for b in y]
        low, high = outward(np.minimum.reduce(quotients), np.maximum.reduce(quotients))
        return _known(low, high, (y[0] > 0) | (y[1] < 0))

    def exp(self, x: FloatInterval) -> FloatInterval:
        """e^x. It grows, so enclosures at both ends of x enclose it."""
        return self._exp(x[0])[0], self._exp(x[1])[1]

    def _exp(self, x: Floats) -> FloatInterval:
        """e^x = 2^k e^r for x = k ln 2 + r, 0 <= r <= 3/4, by Horner's rule on 1 + r + r^2/2 + .."""
        bounded = np.clip(x, -_MOST_EXPONENT, _MOST_EXPONENT)
        k = np.floor(bounded / self._log_parts[0] - 2.0**-20)  # an estimate: the remainder of x is checked below
        rest = self._less_multiple(bounded, k, self._log_parts)
        low = high = np.ones_like(x)
        for n in range(_EXPONENTIAL_TERMS, 0, -1):  # no factor is negative, so lower ends give the least product
            low, high = outward(low * rest[0], high * rest[1])
            low, high = outward(low / n, high / n)
            low, high = outward(1 + low, 1 + high)
        high = outward(high, high + _EXPONENTIAL_REST)[1]
        low, high = (np.ldexp(end, k.astype(np.int32)) for end in (low, high))  # exact: no end is subnormal
        low, high = _known(low, high, (rest[0] >= 0) & (rest[1] <= 0.75) & (x <= _MOST_EXPONENT))
        tiny = x < -_MOST_EXPONENT
        return np.where(tiny, 0.0, low), np.where(tiny, _LEAST_EXPONENTIAL, high)

    def _less_multiple(self, x: Floats, k: Floats, parts: tuple[float, float, float]) -> FloatInterval:
        """``x - k * c`` for a constant c in parts: a first part with so few bits that k times it is exact, and the ends
        of an enclosure of the rest.
        """
        first, *ends = parts
        near = x - k * first
        return self.add(outward(near, near), self.neg(self.mul(_point(k), (np.asarray(ends[0]), np.asarray(ends[1])))))

    def log(self, x: FloatInterval) -> FloatInterval:
        """``ln x = y + ln z`` for any y and z = x e^-y, where 1 - 1/z <= ln z <= z - 1."""
        positive = x[0] > 0
        guess = np.log(np.where(positive, x[0], 1.0))
        z = self.mul(x, self.exp(_point(-guess)))
        one = _point(1.0)
        low = self.add(one, self.neg(self.div(one, z)))[0]
        high = self.add(z, self.neg(one))[1]
        return _known(*self.add(_point(guess), (low, high)), positive)

    def sqrt(self, x: FloatInterval) -> FloatInterval:
        """The square root: numbers whose squares are at most the lower end, and at least the upper end."""
        low, high = outward(np.sqrt(x[0]), np.sqrt(x[1]))
        low = np.maximum(low, 0.0)
        square = self.mul((low, high), (low, high))
        lower = self.mul(_point(low), _point(low))[1] <= x[0]
        low = np.where(lower, low, 0.0)
        upper = self.mul(_point(high), _point(high))[0] >= x[1]
        return _known(low, high, (x[0] >= 0) & upper & np.isfinite(square[1]))

    def sin(self, x: FloatInterval) -> FloatInterval:
        """``sin x``, by the series at a number in the interval. sin changes by at most as much as its argument."""
        middle = (x[0] + x[1]) / 2
        radius = np.maximum(outward(middle, x[1] - middle)[1], outward(middle, middle - x[0])[1])
        k = np.rint(middle / self._pi_parts[0])
        rest = self._less_multiple(middle, k, self._pi_parts)
        square = self.neg(self.mul(rest, rest))
        total = _point(np.ones_like(middle))
        for n in range(2 * _SINE_TERMS - 2, 0, -2):
            total = self.add(_point(1.0), self.div(self.mul(total, square), _point(float(n * (n + 1)))))
        low, high = self.mul(total, rest)
        reach = outward(radius, radius + _SINE_REST)[1]
        low, high = outward(low - reach, high + reach)
        odd = np.remainder(k, 2) == 1
        low, high = np.where(odd, -high, low), np.where(odd, -low, high)
        reduced = (rest[0] >= -1.6) & (rest[1] <= 1.6) & (np.abs(k) < _LARGEST_ANGLE)
        return _known(np.maximum(low, -1.0), np.minimum(high, 1.0), reduced)

    def atan(self, x: FloatInterval) -> FloatInterval:
        """``arctan x = 2 arctan(x / (1 + sqrt(1 + x^2)))``, applied five times, then the series x - x^3/3 + .."""
        one, point = _point(1.0), x
        for _ in range(_ATAN_HALVINGS):
            root = self.sqrt(self.add(one, self.mul(point, point)))
            point = self.div(point, self.add(one, root))
        square = self.neg(self.mul(point, point))
        total = self.div(one, _point(float(2 * _ATAN_TERMS - 1)))
        for n in range(2 * _ATAN_TERMS - 3, 0, -2):
            total = self.add(self.div(one, _point(float(n))), self.mul(total, square))
        low, high = self.mul(total, point)
        low, high = outward(low - _ATAN_REST, high + _ATAN_REST)
        factor = _point(2.0**_ATAN_HALVINGS)
        return _known(*self.mul((low, high), factor), (point[0] >= -0.05) & (point[1] <= 0.05))

    def erf(self, x: FloatInterval) -> FloatInterval:
        """The error function. It grows and is odd; enclosures at both ends of x enclose it."""
        ends = []
        for side, end in enumerate(x):
            found = self._erf(np.abs(end))
            ends.append(np.where(end < 0, -found[1 - side], found[side]))
        return ends[0], ends[1]

    def _erf(self, x: Floats) -> FloatInterval:
        """2 / sqrt(pi) * e^-x^2 * (x + 2 x^3 / 3 + 4 x^5 / 15 + ..) for x >= 0; 1 - erf x < e^-x^2."""
        bounded = np.minimum(x, _LARGEST_ERF)
        square = self.mul(_point(bounded), _point(bounded))
        ratio = self.add(square, square)
        low = high = np.zeros_like(x)
        term = _point(bounded)
        for n in range(1, _ERF_TERMS + 1):  # no factor is negative
            low, high = outward(low + term[0], high + term[1])
            term = outward(term[0] * ratio[0], term[1] * ratio[1])
            term = outward(term[0] / (2 * n + 1), term[1] / (2 * n + 1))
            term = np.maximum(term[0], 0.0), term[1]
            if 4 * float(ratio[1].max(initial=0.0)) <= 2 * n + 1 and float(term[1].max(initial=0.0)) < 2.0**-80:
                break
        # Each omitted term is at most half of the term before it, so their sum is at most twice the next term.
        high = outward(high, high + 2 * term[1])[1]
        found = self.mul(self.mul((np.maximum(low, 0.0), high), self.exp(self.neg(square))), self._erf_factor)
        low, high = _known(*found, 4 * ratio[1] <= 2 * n + 1)
        far = x > _LARGEST_ERF
        return np.where(far, 1 - 2.0**-53, np.maximum(low, 0.0)), np.where(far, 1.0, np.minimum(high, 1.0))


def _parts(constant: Interval, bits: int) -> tuple[float, float, float]:
    """The first ``bits`` bits of a constant after the binary point, and the ends of an enclosure of the rest."""
    first = Fraction(int(Fraction(constant[0]) * 2**bits), 2**bits)
    low, high = between(Fraction(constant[0]) - first, Fraction(constant[1]) - first)
    return float(first), low.item(), high.item()


FLOATS = FloatArithmetic()
"""The only instance that is needed, since the class has no parameters."""
