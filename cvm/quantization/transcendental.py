"""Correctly rounded tables of transcendental functions.

A table entry is decided by a rigorous enclosure at growing precision: `decimal` rounds ``exp`` correctly, so one unit
in the last place either side encloses the true value. The loop ends because exp of a rational other than zero is
irrational (Lindemann), hence never a rounding threshold; exp(0) = 1 is taken exactly first.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

__all__ = ["exp_scaled"]

_START = 40


def exp_scaled(x: Fraction, scale: int) -> int:
    """floor(scale * exp(x) + 1/2) for a rational ``x`` <= 0 and a positive integer ``scale``."""
    if x == 0:
        return scale
    if x < -(scale.bit_length() + 2):
        return 0  # scale * exp(x) < scale * 2^x < 1/2, and so does every bound below
    digits = _START
    while True:
        below, above = _exp_bounds(x, digits)
        least, greatest = (floor_half_up(bound * scale) for bound in (below, above))
        if least == greatest:
            return least
        digits *= 2


def floor_half_up(value: Fraction) -> int:
    """floor(value + 1/2)."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _exp_bounds(x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Rationals below and above exp(x)."""
    bounds = []
    for rounding, widen in ((ROUND_FLOOR, Context.next_minus), (ROUND_CEILING, Context.next_plus)):
        context = Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN)
        argument = context.divide(Decimal(x.numerator), Decimal(x.denominator))
        # exp grows, so that an argument rounded down gives a value not above; exp itself is rounded to nearest.
        bounds.append(Fraction(widen(context, context.exp(argument))))
    return bounds[0], bounds[1]
