"""The fixed-point arithmetic of TFLite's reference kernels, in Python integers.

It computes tables, and the constants that a program uses. The source is the published definition of gemmlowp
(doc/quantization.md, "fixedpoint") and TFLite's specification of 8-bit quantisation.
"""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.tflite.floats import binary64, frexp, round_away
from cvm.records import dataclass

__all__ = [
    "Multiplier",
    "effective",
    "exp_on_negative_values",
    "high_multiply",
    "rounding_shift",
]

_MOST = 2**31 - 1
_EXP = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""For each n, e^-(2^n) as a multiple of 2^-31."""


def high_multiply(a: int, b: int, bits: int = 32) -> int:
    """The product of two integers over 2^(bits - 1), rounded half up and saturated:
    SaturatingRoundingDoublingHighMul.
    """
    product = (a * b + (1 << (bits - 2))) >> (bits - 1)
    return min(product, (1 << (bits - 1)) - 1)


def rounding_shift(x: int, exponent: int) -> int:
    """An integer over 2^exponent, rounded to the nearest, ties away from 0: RoundingDivideByPOT."""
    return round_away(Fraction(x, 2**exponent))


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A real factor as an integer of 31 bits and a power of two: factor = integer * 2^(shift - 31)."""

    integer: int
    shift: int

    @staticmethod
    def of(factor: Fraction) -> Multiplier:
        """The multiplier of a non-negative 64-bit float, as TFLite's QuantizeMultiplier finds it."""
        if not factor:
            return Multiplier(0, 0)
        q, shift = frexp(factor)
        integer = round_away(q * 2**31)
        if integer == 2**31:
            integer, shift = integer // 2, shift + 1
        return Multiplier(0, 0) if shift < -31 else Multiplier(integer, shift)

    @property
    def right(self) -> int:
        """The number of bits of the shift to the right, which is the second rounding."""
        return max(-self.shift, 0)

    @property
    def narrow(self) -> Fraction:
        """The factor with its integer rounded to 15 bits, which multiplies sums of 64 bits."""
        integer = (self.integer + 2**15) >> 16 if self.integer < 0x7FFF0000 else 0x7FFF
        return Fraction(integer, 2**15) * Fraction(2) ** self.shift

    def over(self, count: int) -> Multiplier:
        """The multiplier divided by ``count``, as the kernel of MEAN divides it: a mean is a sum divided by its item
        count.
        """
        bits = min(count.bit_length() - 1, 32, 31 + self.shift)
        return Multiplier((self.integer << bits) // count, self.shift - bits)

    def times(self, x: int) -> int:
        """An integer times the factor, rounded twice: MultiplyByQuantizedMultiplier."""
        return rounding_shift(high_multiply(x << max(self.shift, 0), self.integer), self.right)


def effective(input_scale: Fraction, filter_scale: Fraction, output_scale: Fraction) -> Fraction:
    """Input scale times filter scale over output scale, each step rounded to a 64-bit float as TFLite computes it."""
    return binary64(binary64(input_scale * filter_scale) / output_scale)


def exp_on_negative_values(raw: int, integer_bits: int) -> int:
    """e^x as a multiple of 2^-31, for x = raw / 2^(31 - integer_bits) <= 0."""
    if raw == 0:
        return _MOST
    fractional = 31 - integer_bits
    quarter = 1 << (fractional - 2)
    rest = (raw & (quarter - 1)) - quarter
    result = _exp_near_zero(rest << integer_bits)
    left = rest - raw
    for exponent, factor in _EXP:
        if integer_bits > exponent and left & (1 << (fractional + exponent)):
            result = high_multiply(result, factor)
    return result


def _exp_near_zero(raw: int) -> int:
    """e^x for x = raw / 2^31 in [-1/4, 0): a polynomial around -1/8."""
    constant, third = 1895147668, 715827883
    x = raw + 2**28
    x2 = high_multiply(x, x)
    x3, x4 = high_multiply(x2, x), high_multiply(x2, x2)
    sum_ = high_multiply(rounding_shift(x4, 2) + x3, third) + x2
    return constant + high_multiply(constant, x + rounding_shift(sum_, 1))
