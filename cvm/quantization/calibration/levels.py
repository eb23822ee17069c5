"""The numbers that a kind of quantiser can represent, in float64: what methods compare when they look for a range.

They are those of the exact quantiser of the range but for its rounding to a short decimal (`quantizers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Levels", "power_exponents"]

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

_ROOT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
"""The least float64 above sqrt(1/2): since that is irrational, f >= sqrt(1/2) is f >= this, for every float64 f."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A kind of quantiser and its width: ``affine`` and ``symmetric`` are linear, ``powers`` is logarithmic.

    Affine levels are 2^bits multiples of a scale, about from one end of a range to the other; symmetric ones
    2^bits - 1 multiples around zero. Powers are 2^bits powers of two, either sign, and zero.
    """

    kind: Literal["affine", "symmetric", "powers"]
    bits: int

    def rounded(self, points: Floats, low: Floats | float, high: Floats | float) -> tuple[Floats, Integers]:
        """The level that each point gets under the quantiser of [low, high], low < high; and its number.

        Points and ranges are broadcast.
        """
        match self.kind:
            case "affine":
                steps = 2**self.bits - 1
                scale = (high - low) / steps
                first = np.floor(low / scale + 0.5)
                codes = np.clip(np.floor(points / scale + 0.5), first, first + steps)
            case "symmetric":
                most = 2 ** (self.bits - 1) - 1
                scale = np.maximum(-low, high) / most
                codes = np.clip(np.floor(points / scale + 0.5), -most, most)
            case "powers":
                top = power_exponents(np.maximum(-low, high))
                exponents = np.clip(power_exponents(points), top - 2**self.bits + 1, top)
                codes = np.sign(points) * (exponents - (top - 2**self.bits))
                return np.sign(points) * np.exp2(exponents.astype(np.float64)), codes.astype(np.int64)
        return codes * scale, codes.astype(np.int64)


def power_exponents(items: Floats | float) -> Integers:
    """round(log2(abs(x))) of every item, exactly; that of zero is 0.

    With x = f * 2^p and 1/2 <= f < 1 it is p or p - 1, by whether f >= sqrt(1/2).
    """
    fractions, powers = np.frexp(np.abs(items))
    exponents: Integers = np.where(fractions == 0.0, 0, powers - (fractions < _ROOT_HALF)).astype(np.int64)
    return exponents
