"""Exact quantisers for ranges.

Every number of such a quantiser is an integer times its scale, so zero has a code if it lies in the range. The scale is
a decimal of six significant digits, such as 0.00392157; then ``min = -128 * scale`` is a short decimal too. A reader of
decimals reads the same rationals from a file that were written to it, and a reader of floats nearly the same.

The scale is the least such decimal with which no number of the range is clipped: each is within half a scale of the
number of a code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from cvm.errors import Invalid
from cvm.quantization.calibration.levels import power_exponents
from cvm.quantization.exact import round_fraction
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer

__all__ = ["affine", "decimal_above", "multiples_of", "power_above", "powers", "short_above", "symmetric"]

_DIGITS = 6
_SHORT = Fraction(1, 2**10)

_NARROWEST = 2**10
"""The width of a range is at least its greatest magnitude divided by this number, since other data may differ more."""


def decimal_above(value: Fraction) -> Fraction:
    """The least decimal of six significant digits that is at least a positive number."""
    power = len(str(value.numerator)) - len(str(value.denominator)) - 1
    power += value >= Fraction(10) ** (power + 1)  # 10^power <= value < 10^(power + 1)
    unit = Fraction(10) ** (power + 1 - _DIGITS)
    return -(-value // unit) * unit


def power_above(value: Fraction) -> Fraction:
    """The least power of two that is at least a positive number."""
    power = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length())
    return power if value <= power else 2 * power


def short_above(value: Fraction) -> Fraction:
    """The least number m * 2^e, m an integer of at most 10 bits, that is at least a positive number."""
    unit = power_above(value) * _SHORT
    return -(-value // unit) * unit


def affine(
    low: float,
    high: float,
    bits: int,
    *,
    signed: bool,
    rounded: Callable[[Fraction], Fraction] = decimal_above,
    nonzero: bool = False,
) -> LinearQuantizer:
    """A quantiser of 2^bits codes, from 0 or around 0, for the numbers in [low, high].

    ``rounded`` makes the scale a simple number: a decimal; a power of two, for tensors from which indices are computed;
    or a short dyadic number, for tensors whose squares are summed. With ``nonzero``, numbers that all have the same
    sign keep it: none is rounded to zero, even if zero is nearer.

    A range that is narrower than 1/1024 of its greatest magnitude is widened to that on both sides. The range of zeros
    only is [0, 1].
    Raises `Invalid` (``calibration.bits``) unless 2 <= bits <= 16.
    """
    _require_bits(bits)
    minimum, maximum = _widened(Fraction(low), Fraction(high))
    steps = 2**bits - 1
    scale = rounded((maximum - minimum) / steps)
    # Let a = round(min / scale). Then round(max / scale) <= a + steps, since max - min <= steps * scale.
    first = round_fraction(minimum / scale, "half_up")
    if nonzero and (minimum > 0 or maximum < 0):
        first = max(first, 1) if minimum > 0 else min(first, -1 - steps)
    lo = -(2 ** (bits - 1)) if signed else 0
    return LinearQuantizer((scale,), (scale * (first - lo),), lo, lo + steps)


def _widened(low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    magnitude = max(abs(low), abs(high))
    if magnitude == 0:
        return Fraction(0), Fraction(1)
    missing = magnitude / _NARROWEST - (high - low)
    return (low - missing / 2, high + missing / 2) if missing > 0 else (low, high)


def symmetric(magnitudes: Sequence[float], bits: int, *, signed: bool, axis: int | None = None) -> LinearQuantizer:
    """A quantiser for numbers in [-m, m], in which zero has the middle code. Each m gets a scale along ``axis``.

    The codes are -(2^(bits-1) - 1) .. 2^(bits-1) - 1 if ``signed``, else 0 .. 2^bits - 1, where zero is 2^(bits-1) and
    the lowest code is not needed. If an m is 0, its scale is the largest scale of the others.
    Raises `Invalid` (``calibration.bits``) unless 2 <= bits <= 16.
    """
    _require_bits(bits)
    most = 2 ** (bits - 1) - 1
    scales = [decimal_above(Fraction(m) / most) if m else None for m in magnitudes]
    largest = max((scale for scale in scales if scale is not None), default=decimal_above(Fraction(1, most)))
    return multiples_of([scale or largest for scale in scales], bits, signed=signed, axis=axis)


def multiples_of(scales: Sequence[Fraction], bits: int, *, signed: bool, axis: int | None = None) -> LinearQuantizer:
    """A quantiser whose numbers are the multiples of given scales around zero. Its codes are those of `symmetric`."""
    most = 2 ** (bits - 1) - 1
    if signed:
        return LinearQuantizer(tuple(scales), (Fraction(0),) * len(scales), -most, most, axis)
    offsets = tuple(-scale * (most + 1) for scale in scales)
    return LinearQuantizer(tuple(scales), offsets, 0, 2 * most + 1, axis)


def powers(magnitude: float, bits: int) -> LogarithmicQuantizer:
    """The logarithmic quantiser whose greatest power of two is the one to which ``magnitude`` is rounded."""
    _require_bits(bits)
    return LogarithmicQuantizer(int(power_exponents(magnitude)) if magnitude else 0, bits)


def _require_bits(bits: int) -> None:
    if not 2 <= bits <= 16:
        raise Invalid("calibration.bits", f"bits must be in 2..16, found {bits}")
