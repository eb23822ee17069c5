"""The format in which the elements of a tensor are stored, chosen by their proven interval."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.executors.native.exact import exact
from cvm.records import dataclass

__all__ = ["INT32", "INT64", "SHORT", "Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """Integers of ``bits`` bits; a stored integer i stands for the element i - ``bias``.

    Integers of a ``raw`` format are only copied, never computed with.
    """

    bits: int
    signed: bool = True
    bias: int = 0
    raw: bool = False

    @staticmethod
    def of(lo: int, hi: int) -> Format:
        """The narrowest format that holds [lo, hi] and 0, the element of borders and padding.

        Formats of eight bits are unsigned, because one operand of x86's dot products is; an interval with negative
        elements is stored with a bias.
        """
        lo, hi = min(lo, 0), max(hi, 0)
        if lo == 0 and hi <= 255:
            return Format(8, False)
        if lo >= -128 and hi <= 127:
            return Format(8, False, 128)
        if hi - lo <= 255:
            return Format(8, False, -lo)
        if lo >= -(2**15) and hi < 2**15:
            return Format(16)
        if lo == 0 and hi < 2**16:
            return Format(16, False)
        return INT32

    @property
    def bytes(self) -> int:
        """The number of bytes of one element."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The NumPy type of the stored integers."""
        return np.dtype(f"{'i' if self.signed else 'u'}{self.bytes}")

    @property
    def hull(self) -> tuple[int, int]:
        """The least and the largest element that the format holds."""
        least = -(2 ** (self.bits - 1)) if self.signed else 0
        return least - self.bias, least + 2**self.bits - 1 - self.bias

    def stored(self, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The stored integers of elements. Raises OverflowError for an element that the format does not hold."""
        given, (lo, hi) = exact(values), self.hull
        if not lo <= given.hull[0] <= given.hull[1] <= hi:
            raise OverflowError(f"{given.hull} is not within [{lo}, {hi}]")
        return (given + self.bias).int64().astype(self.dtype)


SHORT = Format(16)
INT32 = Format(32)
INT64 = Format(64)
