"""Scales and zero points: the grid of real numbers that integers stand for.

An integer q stands for (q - zero point) * scale; a number x gets clamp(round_half_even(x / scale) + zero point). A
float scale counts as the exact rational of its value.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.data_types import bounds
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["Grid", "rational"]


def rational(item: Any) -> Fraction:
    """The exact value of an element of an array of floats or of rationals."""
    return item if isinstance(item, Fraction) else Fraction(item.item())


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """The scale and the zero point of every block of a tensor; both arrays have one shape, with an extent per block."""

    scale: npt.NDArray[Any]
    """Scales: floats, or rationals (dtype object)."""
    zero_point: npt.NDArray[np.int64]
    data_type: str
    """The data type of the integers."""

    @property
    def uniform(self) -> bool:
        """Whether all blocks share one scale and one zero point."""
        return bool((self.scale == self.scale.flat[0]).all() and (self.zero_point == self.zero_point.flat[0]).all())

    def same(self, other: Grid) -> bool:
        """Whether both grids are uniform and hold the same numbers."""
        return (
            self.uniform
            and other.uniform
            and self.data_type == other.data_type
            and rational(self.scale.flat[0]) == rational(other.scale.flat[0])
            and bool(self.zero_point.flat[0] == other.zero_point.flat[0])
        )

    def quantizer(self) -> LinearQuantizer | None:
        """The quantiser with the same numbers and the same rounding; None where no single quantiser has them.

        Ties go to the even multiple of the scale: the code is q where the zero point is even, else q - zero point.
        """
        scale = rational(self.scale.flat[0])
        if not self.uniform or scale <= 0:
            return None
        zero, (lo, hi) = int(self.zero_point.flat[0]), bounds(self.data_type)
        if zero % 2:
            lo, hi, zero = lo - zero, hi - zero, 0
        lo, hi = max(lo, -INT32_MAX), min(hi, INT32_MAX)
        return LinearQuantizer((scale,), (-scale * zero,), lo, hi, rounding="half_even")

    def stored(self, axes: int) -> LinearQuantizer | None:
        """The quantiser of stored integers of rank ``axes``, per tensor or along one axis; None for any other grid."""
        if (self.scale <= 0).any():
            return None
        lo, hi = bounds(self.data_type)
        shape = (1,) * (axes - self.scale.ndim) + self.scale.shape
        varying = [axis for axis, extent in enumerate(shape) if extent > 1]
        if len(varying) > 1:
            return None
        scales = tuple(Fraction(item) for item in self.scale.ravel().tolist())
        offsets = tuple(-s * z for s, z in zip(scales, self.zero_point.ravel().tolist(), strict=True))
        return LinearQuantizer(scales, offsets, lo, hi, varying[0] if varying else None)
