"""Ties: numbers half-way between two codes. A quantiser with the rounding ``half_even`` gives them the even code.

A row of a sum (`cvm.quantization.rows`) rounds ties upward: its code is floor((sum_i P_i * x_i + R) / D), where
R includes the half of rounding. A tie occurs if D divides sum_i P_i * x_i + R; it matters only if the quotient is odd.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.limits import INT32_MAX
from cvm.lowering.forms.emission import Value
from cvm.quantization.fixed_point import FixedPoint, fits_int64
from cvm.quantization.rows import LinearRow, Row, SurdRow

__all__ = ["by_shift", "even_of", "has_odd_tie", "truncated_by_shift"]

_MOST_SOLUTIONS = 4096
"""The most ties that are examined one by one. If there are more, one of them is assumed to be odd."""
_MOST_SHIFT = 62


def has_odd_tie(row: Row, below: Row) -> bool:
    """Whether a tie may occur whose code, rounded upward, is odd. ``below`` is the row that rounds ties downward.

    If not, rounding half up, half to even and half down are the same function.
    """
    if isinstance(row, SurdRow):
        return _surd_tie(row)
    assert isinstance(below, LinearRow)
    if row.constant == below.constant:  # R is not an integer, so no sum of integers is a tie
        return False
    least, greatest = (extreme // row.denominator for extreme in row.extremes())
    if greatest <= row.lo or least > row.hi:  # every code is a bound
        return False
    divisor = math.gcd(row.denominator, *row.factors)
    if row.constant % divisor:
        return False
    return _single_tie(row) if len(row.factors) == 1 and row.factors[0] else True


def _single_tie(row: LinearRow) -> bool:
    """`has_odd_tie` for one accumulator. The x that give a tie are one residue class modulo D / gcd(P, D)."""
    (factor,), ((lo, hi),) = row.factors, row.bounds
    divisor = math.gcd(factor, row.denominator)
    period = row.denominator // divisor
    inverse = pow(factor // divisor, -1, period) if period > 1 else 0
    first = -(row.constant // divisor) * inverse % period
    first += -((first - lo) // period) * period
    if (hi - first) // period >= _MOST_SOLUTIONS:
        return True
    codes = ((factor * x + row.constant) // row.denominator for x in range(first, hi + 1, period))
    return any(code % 2 and row.lo < code <= row.hi for code in codes)


def _surd_tie(row: SurdRow) -> bool:
    """`has_odd_tie` for a surd row. If the root is irrational, only the sum 0 gives a rational number: the height."""
    root = Fraction(math.isqrt(row.radicand.numerator), math.isqrt(row.radicand.denominator))
    return root * root == row.radicand or row.height.denominator == 1


def by_shift(row: Row, below: Row) -> FixedPoint | None:
    """The row as the constants of a ``requantize`` with the rounding half_even.

    None if the denominator is no power of two, or if the sums do not fit int64. A row without ties gets one more bit,
    which replaces the dropped fraction of R, and prevents the sum from being a tie.
    """
    if not isinstance(row, LinearRow) or not isinstance(below, LinearRow) or row.denominator & (row.denominator - 1):
        return None
    factors, constant, denominator = row.factors, row.constant, row.denominator
    if row.constant == below.constant or denominator == 1:
        tie = row.constant != below.constant
        factors, constant, denominator = tuple(2 * f for f in factors), 2 * constant + (not tie), 2 * denominator
    return _fitting(row, FixedPoint(factors, constant, denominator.bit_length() - 1))


def truncated_by_shift(row: Row, below: Row) -> FixedPoint | None:
    """The same as `by_shift` for the rounding toward_zero. The rows are those of the number itself, without a half.

    The dropped fraction of R lies between two integers. Half a unit replaces it, which prevents the sum from being an
    integer.
    """
    if not isinstance(row, LinearRow) or not isinstance(below, LinearRow) or row.denominator & (row.denominator - 1):
        return None
    factors, constant, denominator = row.factors, row.constant, row.denominator
    if row.constant == below.constant:
        factors, constant, denominator = tuple(2 * f for f in factors), 2 * constant + 1, 2 * denominator
    # A form's offset includes the half that a floor needs and that emission subtracts; toward_zero adds none.
    return _fitting(row, FixedPoint(factors, constant + denominator // 2, denominator.bit_length() - 1))


def _fitting(row: LinearRow, form: FixedPoint) -> FixedPoint | None:
    wide = any(abs(factor) >= 2**62 for factor in form.multipliers) or form.shift > _MOST_SHIFT
    return None if wide or not fits_int64(row, form) else form


def even_of(up: Value, down: Value) -> Value:
    """Emit max(2 * floor(u / 2), d): the codes with ties to even, from those with ties upward and downward."""
    one = np.ones((1,) * up.rank, dtype=np.int64)
    value, lowering = up, up.emission
    for factor, offset, shift, what in ((1, -1, 1, "half"), (2, 0, 0, "even")):
        parameters = [
            lowering.parameter(one * item, f"{what}.{label}")
            for item, label in ((factor, "m"), (offset, "c"), (shift, "s"))
        ]
        value = lowering.emit(
            "requantize", value, *parameters, label=what, rounding="half_up", lo=-INT32_MAX, hi=INT32_MAX
        )
    return value.maximum(down, label="")
