"""Exact comparison of integers with start + the sum of up to two signed square roots of rationals.

All decisions are made by squaring. Only a first estimate is approximate, and it is corrected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

__all__ = ["Surd", "ceil_root", "ceil_surd", "least_integer"]

Surd: TypeAlias = tuple[int, Fraction]
"""sign * sqrt(square), with a sign of -1, 0 or 1 and a square of at least 0."""


def ceil_surd(start: Fraction, square: Fraction, sign: int) -> int:
    """ceil(start + sign * sqrt(square)), exactly."""
    d = start.denominator * square.denominator
    a = start.numerator * square.denominator
    n = start.denominator * start.denominator * square.numerator * square.denominator
    return ceil_root(a, n, d, sign)


def ceil_root(a: int, n: int, d: int, sign: int) -> int:
    """ceil((a + sign * sqrt(n)) / d) for integers n >= 0 and d > 0.

    If n is not a square, a + sqrt(n) is irrational, so its ceiling is its floor plus 1, and floors nest.
    """
    root = math.isqrt(n)
    if root * root == n:
        return -(-(a + sign * root) // d)
    return (a + root) // d + 1 if sign > 0 else -((root - a) // d)


def least_integer(start: Fraction, surds: Sequence[Surd], strict: bool = False) -> int:
    """The least integer that is at least (with ``strict``: greater than) start + the sum of ``surds``."""
    summands = [(sign, square) for sign, square in surds if sign and square]
    if len(summands) > 2:
        raise ValueError("at most two square roots are added")
    if not strict and len(summands) == 1:
        ((sign, square),) = summands
        return ceil_surd(start, square, sign)
    guess = math.floor(start)
    for sign, square in summands:
        guess += sign * math.isqrt(math.floor(square))

    def beyond(n: int) -> bool:
        side = _compared(n - start, summands)
        return side > 0 or (side == 0 and not strict)

    while not beyond(guess):
        guess += 1
    while beyond(guess - 1):
        guess -= 1
    return guess


def _compared(x: Fraction, surds: Sequence[Surd]) -> int:
    """The sign of x minus the sum of up to two square roots, none of which is zero."""
    if not surds:
        return _sign(x)
    if len(surds) == 1:
        ((sign, square),) = surds
        return _against_root(x, sign, square)
    (first, a), (second, b) = surds
    whole = first if first == second else first * _sign(a - b)
    if _sign(x) != whole:
        return _sign(_sign(x) - whole)
    # x and the sum have the same sign, so compare x^2 with a + b + 2 * first * second * sqrt(a * b).
    rest = x * x - a - b
    return whole * _against_root(rest, first * second, 4 * a * b)


def _against_root(x: Fraction, sign: int, square: Fraction) -> int:
    """The sign of x - sign * sqrt(square) for a sign of 1 or -1 and square > 0."""
    return _sign(_sign(x) - sign) if _sign(x) != sign else sign * _sign(x * x - square)


def _sign(x: Fraction | int) -> int:
    return (x > 0) - (x < 0)
