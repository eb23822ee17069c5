"""Geometry of sliding windows (NNEF 1.0.1 section 4.3): padding, strides, and which taps lie inside the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import Attribute

__all__ = ["Axis", "axes_of"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis of a sliding window."""

    extent: int
    size: int
    before: int
    after: int
    stride: int
    dilation: int

    @property
    def outputs(self) -> int:
        """The number of windows."""
        return (self.extent + self.before + self.after - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def padded(self) -> bool:
        """Whether there is any padding."""
        return self.before > 0 or self.after > 0

    def inside(self) -> npt.NDArray[Any]:
        """An (outputs, size) array: 1 where a tap of a window lies inside the image, 0 where in the padding."""
        starts = np.arange(self.outputs) * self.stride - self.before
        taps = starts[:, None] + np.arange(self.size)[None, :] * self.dilation
        return ((taps >= 0) & (taps < self.extent)).astype(np.int64)


def axes_of(
    extents: tuple[int, ...], sizes: tuple[int, ...], padding: Attribute, stride: Attribute, dilation: Attribute
) -> tuple[Axis, ...]:
    """The axes of a window; an empty ``stride`` or ``dilation`` is all ones, an empty ``padding`` is automatic.

    Automatic padding makes ceil(extent / stride) windows and puts the smaller half of the padding before the image.
    """
    count = len(extents)
    strides = tuple(stride) if isinstance(stride, tuple) and stride else (1,) * count
    dilations = tuple(dilation) if isinstance(dilation, tuple) and dilation else (1,) * count
    axes = []
    for i in range(count):
        step, spread = int(strides[i]), int(dilations[i])  # type: ignore[arg-type]
        if isinstance(padding, tuple) and padding:
            before, after = (int(side) for side in padding[i])  # type: ignore[union-attr, arg-type]
        else:
            covered = (-(-extents[i] // step) - 1) * step + spread * (sizes[i] - 1) + 1
            total = max(covered - extents[i], 0)
            before, after = total // 2, total - total // 2
        axes.append(Axis(extents[i], sizes[i], before, after, step, spread))
    return tuple(axes)
