"""The three data formats of the extension: U8 and S8 with fixed-point position 0, S16 with position 8 (Q7.8)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.openvx.constants import Type
from cvm.quantization import LinearQuantizer
from cvm.quantization.quantizer import Rounding
from cvm.records import dataclass

__all__ = ["FORMATS", "Format"]


@dataclass(frozen=True, slots=True)
class Format:
    """A data type with its fixed-point position: an integer ``raw`` stands for raw / 2^position."""

    name: str
    data_type: Type
    position: int
    dtype: str

    @property
    def lo(self) -> int:
        """The least integer."""
        return int(np.iinfo(self.dtype).min)

    @property
    def hi(self) -> int:
        """The greatest integer."""
        return int(np.iinfo(self.dtype).max)

    @property
    def bits(self) -> int:
        """The number of bits."""
        return 8 * np.dtype(self.dtype).itemsize

    @property
    def unit(self) -> Fraction:
        """The number that the integer 1 stands for: 2^-position."""
        return Fraction(1, 2**self.position)

    def quantizer(self, rounding: Rounding = "half_even") -> LinearQuantizer:
        """The quantiser whose codes are the raw integers of the format, saturated."""
        return LinearQuantizer((self.unit,), (Fraction(0),), self.lo, self.hi, rounding=rounding)


FORMATS = {
    (item.data_type, item.position): item
    for item in (
        Format("U8", Type.VX_TYPE_UINT8, 0, "uint8"),
        Format("S8", Type.VX_TYPE_INT8, 0, "int8"),
        Format("S16", Type.VX_TYPE_INT16, 8, "int16"),
    )
}
"""The formats by data type and fixed-point position (section 1.6)."""
