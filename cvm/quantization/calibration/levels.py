"""The numbers that a kind of quantiser can represent, in float64. Methods use them to compare ranges.

The numbers of the exact quantiser of a range differ only because its scale is rounded to a short decimal
(`quantizers`).
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
"""The least float64 above sqrt(1/2), which is irrational. So a float64 is at least sqrt(1/2) if it is at least this."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A kind of quantiser and its width: ``affine`` and ``symmetric`` are linear, ``powers`` is logarithmic.

    Affine levels are 2^bits multiples of a scale, roughly from one end of a range to the other. Symmetric levels are
    2^bits - 1 multiples around zero. Powers are 2^bits powers of two with either sign, and zero.
    """

    kind: Literal["affine", "symmetric", "powers"]
    bits: int

    def rounded(self, points: Floats, low: Floats | float, high: Floats | float) -> tuple[Floats, Integers]:
        """The level of each point under the quantiser of [low, high], low < high, and the index of the level.

        Points and ranges broadcast.
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
    """The exact round(log2(abs(x))) of every item; 0 for zero.

    For x = f * 2^p with 1/2 <= f < 1 it is p if f >= sqrt(1/2), else p - 1.
    """
    fractions, powers = np.frexp(np.abs(items))
    exponents: Integers = np.where(fractions == 0.0, 0, powers - (fractions < _ROOT_HALF)).astype(np.int64)
    return exponents
