"""A quantiser as a staircase of real numbers: which numbers have the code k or more.

The steps of a linear quantiser lie half-way between the numbers of two codes, at rationals. Those of a logarithmic one
lie at zero and at +-2^(e - 1/2), which are irrational, but whose squares are powers of two. So a step is kept as its
sign and its square, and whatever is compared with it is squared too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.roots import exact_root

__all__ = ["Step", "step"]

_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Step:
    """The number sign * sqrt(square): what is greater, and unless ``strict`` what is equal, has reached the code."""

    sign: int
    square: Fraction
    strict: bool = False

    @staticmethod
    def at(number: Fraction) -> Step:
        """A step at a rational number, which itself reaches it."""
        return Step((number > 0) - (number < 0), number * number)

    def number(self) -> Fraction:
        """The rational at which a step of a linear quantiser lies."""
        numerator, denominator = (exact_root(item, 2) for item in (self.square.numerator, self.square.denominator))
        assert numerator is not None, "the steps of linear quantisers are rational"
        assert denominator is not None, "the steps of linear quantisers are rational"
        return Fraction(self.sign * numerator, denominator)

    def reached(self, x: Fraction) -> bool:
        """Whether a rational number reaches the step."""
        sign = (x > 0) - (x < 0)
        if sign != self.sign:
            return sign > self.sign
        difference = sign * (x * x - self.square)
        return difference > 0 or (difference == 0 and not self.strict)


def step(quantizer: Quantizer, code: int, index: int = 0) -> Step:
    """Where the codes from ``code`` on begin, lo < code <= hi, for channel number ``index``; rounding to the nearest.

    Rounding half to even takes a tie to an even code, so that an odd one begins behind it; else a tie goes up.
    A logarithmic code c > 1 begins at 2^(e - 1/2), e the exponent of c. Rounding takes what lies there up, so that a
    negative number at -2^(e - 1/2) has the code -c, and -c + 1 begins behind it. Zero has a code of its own.
    """
    if isinstance(quantizer, LinearQuantizer):
        at = Step.at(quantizer.offset[index] + (code - _HALF) * quantizer.scale[index])
        return replace(at, strict=quantizer.rounding == "half_even" and code % 2 == 1)
    if code in (0, 1):
        return Step(0, Fraction(0), strict=code == 1)
    if code < 0:
        return Step(-1, _square(quantizer, 1 - code), strict=True)
    return Step(1, _square(quantizer, code))


def _square(quantizer: LogarithmicQuantizer, code: int) -> Fraction:
    return Fraction(2) ** (2 * (quantizer.top - quantizer.hi + code) - 1)
