"""The numbers that a kind of quantiser can represent, in float64. Methods use them to compare ranges.

The numbers of the exact quantiser of a range differ only because its scale is rounded to a short decimal
(`quantizers`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

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
        if self.kind == "powers":
            top = power_exponents(np.maximum(-low, high))
            exponents = np.clip(power_exponents(points), top - 2**self.bits + 1, top)
            indices = np.sign(points) * (exponents - (top - 2**self.bits))
            return np.sign(points) * np.exp2(exponents.astype(np.float64)), indices.astype(np.int64)
        codes, scale = self._codes(points, low, high)
        return codes * scale, codes.astype(np.int64)

    def nearest(self, points: Floats, low: Floats | float, high: Floats | float) -> Floats:
        """The level of each point, as `rounded` gives it."""
        if self.kind == "powers":
            return self.rounded(points, low, high)[0]
        codes, scale = self._codes(points, low, high)
        codes *= scale
        return codes

    def step(self, low: Floats | float, high: Floats | float) -> Floats | float:
        """The distance between two levels of an affine or symmetric quantiser of [low, high]."""
        affine = self.kind == "affine"
        width: Floats | float = high - low if affine else np.maximum(-low, high)
        found: Floats | float = width / (2**self.bits - 1 if affine else 2 ** (self.bits - 1) - 1)
        return found

    def _codes(self, points: Floats, low: Floats | float, high: Floats | float) -> tuple[Floats, Floats | float]:
        """The multiples of the scale to which points are rounded, in float64, and the scale."""
        scale = self.step(low, high)
        if self.kind == "affine":
            first: Floats | float = np.floor(low / scale + 0.5)
            last = first + (2**self.bits - 1)
        else:
            last = 2.0 ** (self.bits - 1) - 1
            first = -last
        codes: Floats = points / scale
        codes += 0.5
        return np.clip(np.floor(codes, out=codes), first, last, out=codes), scale


def power_exponents(items: Floats | float) -> Integers:
    """The exact round(log2(abs(x))) of every item; 0 for zero.

    For x = f * 2^p with 1/2 <= f < 1 it is p if f >= sqrt(1/2), else p - 1.
    """
    fractions, powers = np.frexp(np.abs(items))
    exponents: Integers = np.where(fractions == 0.0, 0, powers - (fractions < _ROOT_HALF)).astype(np.int64)
    return exponents
