"""Tensors of exact real numbers, and the one question a quantiser asks them: floor(scale * x + offset).

`Rational` holds Python integers over one common denominator. `Surd` holds a + b / sqrt(c), which batch_normalization
gives. (`exponential.Shares` is the third kind.) The floor is decided with integers alone; with it comes whether
scale * x + offset is itself an integer, that is, an exact tie of the quantiser's rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt, lcm
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[Any]
"""An object array of Python integers, which have no width (numpy's types cannot say what an object array holds)."""
Flags = npt.NDArray[np.bool_]


class Value(Protocol):
    """A tensor of real numbers known exactly."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the tensor."""

    def floors(self, scale: Fraction, offset: Fraction) -> tuple[Integers, Flags]:
        """floor(scale * x + offset) of every item x, and whether scale * x + offset is an integer; scale > 0."""


def integers(items: Any) -> Integers:
    """An object array of Python integers (numpy's 0-dimensional arithmetic returns bare items: wrap them again)."""
    return np.asarray(items, dtype=object)


@dataclass(frozen=True, eq=False)
class Rational:
    """The tensor numerators / denominator, denominator > 0."""

    numerators: Integers
    denominator: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numerators.shape

    def floors(self, scale: Fraction, offset: Fraction) -> tuple[Integers, Flags]:
        """Exact by integer division: scale * n/d + offset = (n * sn * od + on * d * sd) / (d * sd * od)."""
        divisor = self.denominator * scale.denominator * offset.denominator
        dividends = integers(
            self.numerators * (scale.numerator * offset.denominator)
            + offset.numerator * self.denominator * scale.denominator
        )
        return integers(dividends // divisor), np.asarray(dividends % divisor == 0, dtype=bool)

    def item(self, *index: int) -> Fraction:
        """One item as a `Fraction`."""
        return Fraction(self.numerators[index], self.denominator)

    def scaled(self, factor: Fraction) -> Rational:
        """Every item times `factor`."""
        return Rational(integers(self.numerators * factor.numerator), self.denominator * factor.denominator)

    def map(self, numerators: Any) -> Rational:
        """Other numerators over the same denominator."""
        return Rational(integers(numerators), self.denominator)


def literal(value: Fraction | int) -> Rational:
    """A literal as a constant tensor of singleton shape (3.3.1, type casting)."""
    fraction = Fraction(value)
    return Rational(integers(fraction.numerator), fraction.denominator)


def from_fractions(items: npt.NDArray[Any]) -> Rational:
    """An array of `Fraction` brought to its least common denominator."""
    denominator = lcm(*(item.denominator for item in items.flat))
    numerators = integers([item.numerator * (denominator // item.denominator) for item in items.flat])
    return Rational(numerators.reshape(items.shape), denominator)


def from_floats(array: npt.NDArray[np.floating]) -> Rational:
    """IEEE floats as the dyadic rationals they are; NaN and infinities have no ratio and raise."""
    ratios = [Fraction(*item.as_integer_ratio()) for item in array.flat]
    return from_fractions(np.array(ratios, dtype=object).reshape(array.shape))


def from_codes(codes: npt.NDArray[np.int64], lowest: Fraction, step: Fraction) -> Rational:
    """The values lowest + code * step of a quantised tensor (4.9.5)."""
    denominator = lcm(lowest.denominator, step.denominator)
    start = lowest.numerator * (denominator // lowest.denominator)
    stride = step.numerator * (denominator // step.denominator)
    return Rational(integers(start + codes.astype(object) * stride), denominator)


def aligned(tensors: Sequence[Rational]) -> tuple[list[Integers], int]:
    """The numerators of all tensors over their least common denominator, and that denominator."""
    denominator = lcm(*(tensor.denominator for tensor in tensors))
    return [integers(tensor.numerators * (denominator // tensor.denominator)) for tensor in tensors], denominator


@dataclass(frozen=True, eq=False)
class Surd:
    """The tensor a + b / sqrt(c), c > 0; the three parts have broadcastable shapes (numpy's rule)."""

    a: Rational
    b: Rational
    c: Rational

    def __post_init__(self) -> None:
        if not bool(np.all(self.c.numerators > 0)):
            raise ValueError("the square root of batch_normalization needs variance + epsilon > 0")

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self.a.shape, self.b.shape, self.c.shape)

    def floors(self, scale: Fraction, offset: Fraction) -> tuple[Integers, Flags]:
        """Exact by integer square roots.

        With scale * a + offset = p / q, scale * b = u / w and c = m / k (integers; q, w, k common to the tensor):
        u / w / sqrt(m / k) = sign(u) * sqrt(u^2 * m * k) / (w * m), therefore
        scale * (a + b / sqrt(c)) + offset = (p * v + sign(u) * sqrt(q^2 * u^2 * m * k)) / (q * v), v = w * m > 0,
        which `floor_of_root` decides without any approximation.
        """
        q = self.a.denominator * scale.denominator * offset.denominator
        p = self.a.numerators * (scale.numerator * offset.denominator) + (
            offset.numerator * self.a.denominator * scale.denominator
        )
        w, k = self.b.denominator * scale.denominator, self.c.denominator

        def decide(p: int, u: int, m: int) -> tuple[int, bool]:
            v = w * m
            return floor_of_root(p * v, 1 if u > 0 else -1, q * q * u * u * m * k, q * v)

        floors, exact = np.frompyfunc(decide, 3, 2)(p, self.b.numerators * scale.numerator, self.c.numerators)
        return integers(floors), np.asarray(exact, dtype=bool)


def floor_of_root(p: int, sign: int, n: int, d: int) -> tuple[int, bool]:
    """floor((p + sign * sqrt(n)) / d) for integers n >= 0, d > 0, and whether the quotient is an integer.

    For integer p, d and real x: floor((p + x) / d) = floor((p + floor(x)) / d), since no multiple of d lies strictly
    between p + floor(x) and p + x. floor(sqrt(n)) is isqrt(n); floor(-sqrt(n)) is -isqrt(n) if n is a square and
    -isqrt(n) - 1 if not. The quotient is an integer only if sqrt(n) is one (a root of an integer is an integer or
    irrational), so ties are decided by the algebra of perfect squares.
    """
    root = isqrt(n)
    square = root * root == n
    below = root if sign > 0 else -root - (not square)
    quotient, remainder = divmod(p + below, d)
    return quotient, square and remainder == 0
