"""The steps of a quantiser: the real numbers from which on numbers have the code k or more.

The steps of a linear quantiser lie half-way between the numbers of two codes, so they are rational. The steps of a
logarithmic quantiser lie at zero and at +-2^(e - 1/2), which are irrational, but whose squares are powers of two. So a
step is stored as its sign and its square, and a number that is compared with it is squared too.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.roots import exact_root
from cvm.records import dataclass

__all__ = ["Step", "step"]

_HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Step:
    """The number sign * sqrt(square). Greater numbers have reached the code; this number has unless ``strict``."""

    sign: int
    square: Fraction
    strict: bool = False

    @staticmethod
    def at(number: Fraction) -> Step:
        """A step at a rational number, which the number itself reaches."""
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
    """The step at which the codes from ``code`` on begin, lo < code <= hi, for the channel ``index``.

    The quantiser rounds to the nearest. With half to even, a tie gets the even code, so an odd code begins behind the
    tie; otherwise a tie is rounded up. A logarithmic code c > 1 begins at 2^(e - 1/2), where e is the exponent of c. A
    magnitude at this step is rounded up, so the number -2^(e - 1/2) has the code -c, and -c + 1 begins behind it. Zero
    has its own code.
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
