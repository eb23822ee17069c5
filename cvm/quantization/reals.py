"""Real numbers that can be compared with every rational. Tables of functions are computed with them.

A `Real` is an exact rational, or an enclosure to any number of digits. Functions find their rational points by algebra
(exp(0), log2 of powers of two, square roots of squares, ..). By the theorem of Lindemann and Weierstrass there are no
others among rational arguments, so refining the enclosure of any other value comes to an end. For composed functions
there is no such theorem: if a comparison is still open at `MOST_DIGITS` digits, `Undecided` is raised. Nothing is
guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from cvm.quantization.enclosures import Arithmetic, Interval, fractions
from cvm.quantization.exact import code as exact_code
from cvm.quantization.quantizer import LogarithmicQuantizer, Quantizer
from cvm.quantization.roots import exact_root
from cvm.records import dataclass

__all__ = [
    "FUNCTIONS",
    "OnlyExact",
    "Real",
    "Undecided",
    "Undefined",
    "code",
    "exp",
    "floor",
    "gelu",
    "gelu_sigmoid",
    "gelu_tanh",
    "log",
    "power",
    "rational",
    "rounded",
]

START_DIGITS = 25
MOST_DIGITS = 3_200
_HALF = Fraction(1, 2)

Enclosure = Callable[[Arithmetic], Interval | None]


class Undefined(ArithmeticError):
    """A function has no value at this number."""


class Undecided(ArithmeticError):
    """A comparison is still open at the largest precision: the number may be equal to the rational."""


class OnlyExact(ArithmeticError):
    """A function needs an exact rational, or a single number instead of many at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Real:
    """A real number: a rational if ``exact`` is given; otherwise irrational, or not known to be rational.

    ``enclosure`` encloses a number without ``exact``. ``infinite`` is 1 or -1 for an infinite limit, such as log at 0.
    """

    exact: Fraction | None = None
    enclosure: Enclosure | None = None
    infinite: int = 0
    square: Fraction | None = None
    """The square of an irrational number if it is known to be rational. A root may lie at a logarithmic tie."""

    def known(self) -> Fraction:
        """The exact rational. Raises `OnlyExact` if only an enclosure is known."""
        if self.exact is None:
            raise OnlyExact
        return self.exact

    def bounds(self, arithmetic: Arithmetic) -> Interval | None:
        """An enclosure at the precision of ``arithmetic``; None if that precision is too low for an enclosure."""
        if self.exact is not None:
            return arithmetic.rational(self.exact)
        if self.enclosure is None:
            raise Undefined("an infinite value cannot be computed with")
        try:
            return self.enclosure(arithmetic)
        except InvalidOperation:  # an operand is beyond the range of exponents
            return None

    def applied(self, function: Callable[..., Any], operands: Sequence[Real]) -> Real:
        """The value of a function of ``operands``, one of which is this number. ``function`` encloses it."""

        def enclosure(arithmetic: Arithmetic) -> Interval | None:
            bounds = [operand.bounds(arithmetic) for operand in operands]
            found: Interval | None = None if any(item is None for item in bounds) else function(arithmetic, *bounds)
            return found

        return Real(enclosure=enclosure)

    def __neg__(self) -> Real:
        if self.infinite:
            return Real(infinite=-self.infinite)
        if self.exact is not None:
            return Real(-self.exact)
        return replace(_function(lambda arithmetic, x: arithmetic.neg(x), self), square=self.square)

    def __add__(self, other: Real) -> Real:
        if self.exact is not None and other.exact is not None:
            return Real(self.exact + other.exact)
        return _function(lambda arithmetic, x, y: arithmetic.add(x, y), self, other)

    def __sub__(self, other: Real) -> Real:
        return self + (-other)

    def __mul__(self, other: Real) -> Real:
        if self.exact is not None and other.exact is not None:
            return Real(self.exact * other.exact)
        if self.exact == 0 or other.exact == 0:
            return Real(Fraction(0))
        product = _function(lambda arithmetic, x, y: arithmetic.mul(x, y), self, other)
        squares = _known_square(self), _known_square(other)
        if squares[0] is None or squares[1] is None or (self.exact is None and other.exact is None):
            return product  # the product of two roots may be rational, so nothing is known of its square
        return replace(product, square=squares[0] * squares[1])

    def __truediv__(self, other: Real) -> Real:
        if other.exact == 0:
            raise Undefined("division by zero")
        if self.exact is not None and other.exact is not None:
            return Real(self.exact / other.exact)
        if self.exact == 0:
            return self
        quotient = _function(lambda arithmetic, x, y: arithmetic.div(x, y), self, other)
        squares = _known_square(self), _known_square(other)
        if squares[0] is None or not squares[1] or (self.exact is None and other.exact is None):
            return quotient
        return replace(quotient, square=squares[0] / squares[1])

    def compare(self, bound: Fraction) -> int:
        """-1, 0 or 1 as the number is less than, equal to or greater than ``bound``. Raises `Undecided`."""
        if self.infinite:
            return self.infinite
        if self.exact is not None:
            return (self.exact > bound) - (self.exact < bound)
        digits = START_DIGITS
        while digits <= MOST_DIGITS:
            arithmetic = Arithmetic.of(digits)
            found, at = self.bounds(arithmetic), arithmetic.rational(bound)
            if found is not None and found[0] > at[1]:
                return 1
            if found is not None and found[1] < at[0]:
                return -1
            digits *= 2
        raise Undecided(f"not known to differ from {bound}")

    def floored(self) -> Real:
        """The greatest integer that is not above the number. Raises `Undecided`."""
        return rational(floor(self))

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return self.compare(Fraction(0))


def rational(x: Fraction | int) -> Real:
    """A rational number."""
    return Real(Fraction(x))


def _known_square(x: Real) -> Fraction | None:
    return x.square if x.exact is None else x.exact * x.exact


def _function(function: Callable[..., Any], *operands: Real) -> Real:
    """The value of a function of ``operands``, which ``function`` encloses."""
    if any(operand.infinite for operand in operands):
        raise Undefined("an infinite value cannot be computed with")

    first = next((operand for operand in operands if type(operand) is not Real), operands[0])
    return first.applied(function, operands)


def rounded(x: Real) -> int:
    """floor(x + 1/2). Raises `Undecided`, and `Undefined` for an infinite value."""
    return floor(x + rational(Fraction(1, 2)))


def floor(x: Real) -> int:
    """The greatest integer that is not above x. Raises `Undecided`, and `Undefined` for an infinite value."""

    def of(found: Interval) -> tuple[int, int] | None:
        ends = fractions(found)
        return None if ends is None else (math.floor(ends[0]), math.floor(ends[1]))

    return math.floor(x.exact) if x.exact is not None else _decided(x, of)


def _floor_between(x: Real, lo: int, hi: int) -> int:
    """The floor of x clamped to ``lo .. hi``, however large or small x is. Raises `Undecided` and `Undefined`."""

    def of(found: Interval) -> tuple[int, int]:
        low, high = (int(min(max(bound, Decimal(lo)), Decimal(hi)).to_integral_value(ROUND_FLOOR)) for bound in found)
        return low, high

    return min(max(math.floor(x.exact), lo), hi) if x.exact is not None else _decided(x, of)


def _decided(x: Real, of: Callable[[Interval], tuple[int, int] | None]) -> int:
    """An integer that grows with x: enclosures are refined until ``of`` gives the same integer for both ends."""
    digits = START_DIGITS
    while digits <= MOST_DIGITS:
        found = x.bounds(Arithmetic.of(digits))
        ends = None if found is None else of(found)
        if ends is not None and ends[0] == ends[1]:
            return ends[0]
        digits *= 2
    raise Undecided("not known to differ from an integer")


def code(x: Real, quantizer: Quantizer, index: int = 0) -> int:
    """The exact code of a real number, which is rounded once. Infinite values have the code of an end of the range."""
    if x.infinite:
        return quantizer.hi if x.infinite > 0 else quantizer.lo
    if x.exact is not None:
        return exact_code(x.exact, quantizer, index)
    if isinstance(quantizer, LogarithmicQuantizer):
        return _power_code(x, quantizer)
    scale, offset = quantizer.scale[index], quantizer.offset[index]
    scaled = (x - rational(offset)) / rational(scale)
    lo, hi = quantizer.lo, quantizer.hi
    if quantizer.rounding != "toward_zero":
        return _floor_between(scaled + rational(_HALF), lo, hi)  # an irrational number is not at a tie
    return _floor_between(scaled, lo, hi) if scaled.sign > 0 else -_floor_between(-scaled, -hi, -lo)


def _power_code(x: Real, quantizer: LogarithmicQuantizer) -> int:
    """The logarithmic code of x, by bisection. |x| reaches the code c > 1 of the exponent e at 2^(e - 1/2), that is,
    if 2 * x^2 >= 4^e.
    """
    sign, square = x.sign, x * x if x.square is None else rational(x.square)
    doubled = square * rational(2)
    if sign == 0:
        return 0
    low, high = 1, quantizer.hi
    while low < high:
        middle = (low + high + 1) // 2
        reached = doubled.compare(Fraction(4) ** (quantizer.top - quantizer.hi + middle)) >= 0
        low, high = (middle, high) if reached else (low, middle - 1)
    return sign * low


# Functions of one number


def exp(x: Real) -> Real:
    """e^x. It is rational only at 0."""
    if x.infinite:
        return Real(infinite=1) if x.infinite > 0 else rational(0)
    if x.exact == 0:
        return rational(1)
    return _function(lambda arithmetic, v: arithmetic.exp(v), x)


def log(x: Real) -> Real:
    """``ln x``. It is rational only at 1, and minus infinity at 0."""
    sign = x.sign
    if sign < 0:
        raise Undefined("the logarithm of a negative number")
    if sign == 0:
        return Real(infinite=-1)
    if x.exact == 1:
        return rational(0)
    return _function(lambda arithmetic, v: arithmetic.log(v), x)


def log2(x: Real) -> Real:
    """log2 x. It is rational only at powers of two."""
    if x.exact is not None and x.exact > 0:
        power_of_two = x.exact.numerator.bit_length() - x.exact.denominator.bit_length()
        if x.exact == Fraction(2) ** power_of_two:
            return rational(power_of_two)
    numerator = log(x)
    return numerator if numerator.infinite else numerator / log(rational(2))


def power(x: Real, exponent: Fraction) -> Real:
    """x^(a/b) for a rational exponent. For x < 0 the exponent must be an integer."""
    if exponent == 0:
        return rational(1)
    if x.exact is not None:
        return _rational_power(x.exact, exponent)
    if exponent.denominator == 1:
        result = rational(1)
        for _ in range(abs(exponent.numerator)):
            result = result * x
        return result if exponent > 0 else rational(1) / result
    if x.sign < 0:
        raise Undefined("a negative number to a fractional power")
    return exp(rational(exponent) * log(x))


def _rational_power(x: Fraction, exponent: Fraction) -> Real:
    a, b = exponent.numerator, exponent.denominator
    if x == 0:
        if a < 0:
            raise Undefined("zero to a negative power")
        return rational(0)
    if b == 1:
        return rational(x**a)
    if x < 0:
        raise Undefined("a negative number to a fractional power")
    roots = exact_root(x.numerator, b), exact_root(x.denominator, b)
    if roots[0] is not None and roots[1] is not None:
        return rational(Fraction(roots[0], roots[1]) ** a)
    # For an odd b, x^(a/b) is rational if its square is, so the square need not be known.
    square = None if b % 2 else _rational_power(x, 2 * exponent).exact
    if b == 2:
        root = _function(lambda arithmetic, v: arithmetic.sqrt(v), rational(x))
        return replace(power(root, Fraction(a)) if a != 1 else root, square=square)
    return replace(exp(rational(exponent) * log(rational(x))), square=square)


def sigmoid(x: Real) -> Real:
    """1 / (1 + e^-x)."""
    return rational(1) / (rational(1) + exp(-x))


def tanh(x: Real) -> Real:
    """1 - 2 / (e^(2x) + 1)."""
    if x.exact == 0:
        return x
    return rational(1) - rational(2) / (exp(rational(2) * x) + rational(1))


def softplus(x: Real) -> Real:
    """ln(e^x + 1)."""
    return log(exp(x) + rational(1))


def sin(x: Real) -> Real:
    """``sin x``. It is rational only at 0."""
    return x if x.exact == 0 else _function(lambda arithmetic, v: arithmetic.sin(v), x)


def cos(x: Real) -> Real:
    """``cos x = 1 - 2 sin(x/2)^2``. It is rational only at 0."""
    half = sin(x * rational(Fraction(1, 2)))
    return rational(1) - rational(2) * half * half


def tan(x: Real) -> Real:
    """``sin x / cos x``. It is rational only at 0."""
    return x if x.exact == 0 else sin(x) / cos(x)


def atan(x: Real) -> Real:
    """The arc tangent. It is rational only at 0."""
    return x if x.exact == 0 else _function(lambda arithmetic, v: arithmetic.atan(v), x)


def erf(x: Real) -> Real:
    """The error function, 2 / sqrt(pi) times the integral of e^-t^2 from 0 to x.

    It is rational at 0; no other rational point is known. A comparison that stays open raises `Undecided`, as for
    composed functions.
    """
    return x if x.exact == 0 else _function(lambda arithmetic, v: arithmetic.erf(v), x)


def gelu(x: Real) -> Real:
    """X * (1 + erf(x / sqrt(2))) / 2: x times the distribution function of the normal distribution."""
    return x * (rational(1) + erf(x * power(rational(2), -_HALF))) * rational(_HALF)


def gelu_tanh(x: Real) -> Real:
    """X * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2, the usual approximation of `gelu`."""
    if x.exact == 0:
        return x
    pi = _function(lambda arithmetic, v: arithmetic.mul(v, arithmetic.pi()), rational(1))
    inner = x * (rational(1) + rational(Fraction("0.044715")) * x * x)
    return x * (rational(1) + tanh(power(rational(2) / pi, _HALF) * inner)) * rational(_HALF)


def softsign(x: Real) -> Real:
    """X / (1 + |x|)."""
    return x / (rational(1) + _absolute(x))


def hard_swish(x: Real) -> Real:
    """``x * min(max(x + 3, 0), 6) / 6``. The number is compared with -3 and 3."""
    if x.compare(Fraction(-3)) <= 0:
        return rational(0)
    if x.compare(Fraction(3)) >= 0:
        return x
    return x * (x + rational(3)) / rational(6)


def _one_minus_square(x: Real) -> Real:
    """1 - x^2, for the functions that are defined from -1 to 1."""
    rest = rational(1) - x * x
    if rest.sign < 0:
        raise Undefined("the number is not within -1 .. 1")
    return rest


def asin(x: Real) -> Real:
    """arctan(x / sqrt(1 - x^2)); +-pi/2 = +-2 arctan 1 at the ends."""
    rest = _one_minus_square(x)
    if rest.exact == 0:
        return x * rational(2) * atan(rational(1))
    return atan(x / power(rest, _HALF))


def acos(x: Real) -> Real:
    """pi/2 - arcsin x. It is rational only at 1."""
    return rational(0) if x.exact == 1 else rational(2) * atan(rational(1)) - asin(x)


def sinh(x: Real) -> Real:
    """(e^x - e^-x) / 2."""
    return (exp(x) - exp(-x)) * rational(_HALF)


def cosh(x: Real) -> Real:
    """(e^x + e^-x) / 2."""
    return (exp(x) + exp(-x)) * rational(_HALF)


def asinh(x: Real) -> Real:
    """ln(x + sqrt(x^2 + 1)), computed for |x| since it is odd, so that nothing cancels. It is rational only at 0."""
    if x.exact == 0:
        return x
    if x.sign < 0:
        return -asinh(-x)
    return log(x + power(x * x + rational(1), _HALF))


def acosh(x: Real) -> Real:
    """ln(x + sqrt(x^2 - 1)) for x >= 1. It is rational only at 1."""
    if x.compare(Fraction(1)) < 0:
        raise Undefined("the number is below 1")
    return log(x + power(x * x - rational(1), _HALF))


def atanh(x: Real) -> Real:
    """ln((1 + x) / (1 - x)) / 2. It is infinite at -1 and 1."""
    if _one_minus_square(x).exact == 0:
        return Real(infinite=x.sign)
    return log((rational(1) + x) / (rational(1) - x)) * rational(_HALF)


def _absolute(x: Real) -> Real:
    return x if x.sign >= 0 else -x


def gelu_sigmoid(x: Real) -> Real:
    """X * sigmoid(1.702 x), as the Khronos tools define gelu."""
    return x * sigmoid(rational(Fraction("1.702")) * x)


def _reciprocal(x: Real) -> Real:
    if x.sign == 0:
        raise Undefined("the reciprocal of zero")
    return rational(1) / x


def _elu(x: Real) -> Real:
    return x if x.sign >= 0 else exp(x) - rational(1)


FUNCTIONS: Mapping[str, Callable[[Real], Real]] = MappingProxyType(
    {
        "copy": lambda x: x,
        "neg": lambda x: -x,
        "abs": _absolute,
        "sign": lambda x: rational(x.sign),
        "rcp": _reciprocal,
        "exp": exp,
        "log": log,
        "log2": log2,
        "floor": lambda x: x.floored(),
        "ceil": lambda x: -(-x).floored(),
        "round": lambda x: (x + rational(_HALF)).floored(),
        "sqr": lambda x: power(x, Fraction(2)),
        "sqrt": lambda x: power(x, Fraction(1, 2)),
        "rsqr": lambda x: power(x, Fraction(-2)),
        "rsqrt": lambda x: power(x, Fraction(-1, 2)),
        "sigmoid": sigmoid,
        "tanh": tanh,
        "softplus": softplus,
        "elu": _elu,
        "relu": lambda x: x if x.sign > 0 else rational(0),
        "gelu": gelu_sigmoid,
        "erf": erf,
        "softsign": softsign,
        "hard_swish": hard_swish,
        "silu": lambda x: x * sigmoid(x),
        "sin": sin,
        "cos": cos,
        "tan": tan,
        "asin": asin,
        "acos": acos,
        "atan": atan,
        "sinh": sinh,
        "cosh": cosh,
        "asinh": asinh,
        "acosh": acosh,
        "atanh": atanh,
    }
)
"""The functions of one number, by the names of the graph operations."""
