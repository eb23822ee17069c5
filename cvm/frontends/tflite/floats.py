"""32-bit and 64-bit floats as rationals, for the constants that TFLite prepares in floating point.

Each function gives the result that IEEE 754 demands of one operation: the exact result rounded to the nearest float,
ties to even. The functions compute without floats, so the constants are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

from cvm.quantization.exact import round_fraction

__all__ = ["binary32", "binary64", "exp32", "frexp", "round_away", "tanh32"]


def frexp(value: Fraction) -> tuple[Fraction, int]:
    """``(q, e)`` with value = q * 2^e and 1/2 <= q < 1, for a value above 0."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value / Fraction(2) ** exponent
    if scaled >= 1:
        return scaled / 2, exponent + 1
    return scaled, exponent


def _nearest(value: Fraction, bits: int, least: int) -> Fraction:
    """The nearest number of ``bits`` significant bits that is a multiple of 2^least, ties to even."""
    if not value:
        return value
    _, exponent = frexp(abs(value))
    unit = Fraction(2) ** max(exponent - bits, least)
    return round_fraction(value / unit, "half_even") * unit


def binary32(value: Fraction) -> Fraction:
    """The 32-bit float nearest to a number within their range."""
    return _nearest(value, 24, -149)


def binary64(value: Fraction) -> Fraction:
    """The 64-bit float nearest to a number within their range."""
    return _nearest(value, 53, -1074)


def round_away(value: Fraction) -> int:
    """The nearest integer, ties away from 0."""
    nearest = (2 * abs(value) + 1) // 2
    return int(nearest if value >= 0 else -nearest)


def exp32(value: Fraction) -> Fraction:
    """The 32-bit float nearest to e^value, for abs(value) < 80."""
    return _decided(value, lambda x: x.exp())


def tanh32(value: Fraction) -> Fraction:
    """The 32-bit float nearest to tanh(value)."""
    if not value:
        return value
    clipped = min(max(value, Fraction(-40)), Fraction(40))
    return _decided(2 * clipped, lambda x: (x.exp() - 1) / (x.exp() + 1))


def _decided(value: Fraction, function: Callable[[Decimal], Decimal]) -> Fraction:
    """The float nearest to a function, computed in more and more digits until an error of 10^-(digits - 20) cannot
    matter.
    """
    digits = 60
    while True:
        with localcontext() as context:
            context.prec = digits
            found = Fraction(function(Decimal(value.numerator) / Decimal(value.denominator)))
        error = Fraction(max(abs(found), Fraction(1, 10**10))) / 10 ** (digits - 40)
        ends = {binary32(found - error), binary32(found + error)}
        if len(ends) == 1:
            return ends.pop()
        if digits > 1000:
            return binary32(found)
        digits *= 2
