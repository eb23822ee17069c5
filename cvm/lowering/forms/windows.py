"""Geometry of sliding windows (NNEF 1.0.1 section 4.3): padding, strides, borders, and which item each tap reads.

Basic and reverse operations have the same description. Along an axis, the input is first written to a *line*: item z of
the line is an item of the input, or nothing (a zero, written as -1 in index vectors). Window number o then reads the
line at o * step, o * step + dilation, .. For a basic operation, the line is the input with its border, and the step is
the stride. For a reverse operation, the line has stride - 1 zeros between the items, the step is 1, and the taps are
read in the opposite order: output[i] is the sum over j of filter[j] * input[(i + p - j * d) / s], where only whole
quotients count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import DEFAULT, require
from cvm.lowering.forms.emission import Emission
from cvm.records import dataclass

__all__ = ["Axis", "Indices", "axes_of", "reverse_axes_of", "sizes_of"]

Indices = npt.NDArray[np.int64]
NOTHING = -1


@dataclass(frozen=True, slots=True)
class Axis:
    """A window along one axis: ``extent`` items in, ``outputs`` items out; ``before`` is the padding p."""

    extent: int
    outputs: int
    size: int = 1
    before: int = 0
    stride: int = 1
    dilation: int = 1
    border: str = "constant"
    reverse: bool = False

    @property
    def step(self) -> int:
        """The distance on the line between the first taps of two neighbouring windows."""
        return 1 if self.reverse else self.stride

    @property
    def length(self) -> int:
        """The number of indices of the line."""
        return (self.outputs - 1) * self.step + (self.size - 1) * self.dilation + 1

    @property
    def identity(self) -> bool:
        """Whether every output is the input item at the same index."""
        return self.size == 1 and np.array_equal(self.sources()[:, 0], np.arange(self.extent))

    def line(self) -> Indices:
        """The indices of the items on the line, from the first tap of the first window to the last tap of the last."""
        reach = (self.size - 1) * self.dilation
        start = self.before - reach if self.reverse else -self.before
        z = start + np.arange(self.length)
        if not self.reverse:
            return self.bordered(z)
        return np.where(z % self.stride == 0, self.bordered(z // self.stride), NOTHING)

    def bordered(self, z: Indices) -> Indices:
        """The input index for each position ``z`` inside or outside of the input, as the border defines it.

        -1 is a zero. Positions that the border does not define are below -1.
        """
        last = self.extent - 1
        if self.border == "replicate":
            return np.clip(z, 0, last)
        outside: Indices = np.full_like(z, NOTHING)
        if self.border in ("reflect", "reflect-even"):
            even = int(self.border == "reflect-even")
            outside = np.where(z < 0, -z - even, 2 * last + even - z)
            outside[(outside < 0) | (outside > last)] = -2 - last  # only one reflection is defined
        found: Indices = np.where((z >= 0) & (z <= last), z, outside)
        return found

    def defined(self) -> bool:
        """Whether the border defines the item of every tap. A reflection reaches only one extent beyond the input."""
        return bool((self.sources() >= NOTHING).all())

    def sources(self) -> Indices:
        """An (outputs, size) array of the item that each tap of the kernel reads; -1 where it reads nothing."""
        indices = np.arange(self.outputs)[:, None] * self.step + np.arange(self.size)[None, :] * self.dilation
        found: Indices = self.line()[indices]
        return found[:, ::-1] if self.reverse else found

    def inside(self) -> Indices:
        """An (outputs, size) array: 1 where a tap reads an item, 0 where it reads nothing."""
        return (self.sources() >= 0).astype(np.int64)


def sizes_of(lowering: Emission, rank: int) -> tuple[int, ...]:
    """The attribute ``size`` of a window over all axes. An empty list, which tensors of rank 0 have, means all ones."""
    return lowering.integers("size") or (1,) * rank


def axes_of(lowering: Emission, extents: Sequence[int], sizes: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of a basic operation on a tensor of these extents, with windows of these sizes.

    Automatic padding gives ceil(extent / stride) windows, with the smaller half of the padding before the data; if
    windows leave gaps, there is no padding (docs/decisions.md). Raises `Unsupported` if the border does not define an
    item that is read, and `LimitExceeded` if a line has too many indices.
    """
    strides, dilations, pads = _lists(lowering, len(sizes))
    axes = []
    for i, (extent, size, stride, dilation) in enumerate(zip(extents, sizes, strides, dilations, strict=True)):
        covered = (size - 1) * dilation + 1
        automatic = [max(0, side) for side in _automatic(extent, covered, stride)]
        before, after = automatic if pads is None else pads[i]
        outputs = (before + extent + after - covered) // stride + 1
        axes.append(Axis(extent, outputs, size, before, stride, dilation, str(lowering.operation.attributes["border"])))
    return _checked(lowering, axes)


def reverse_axes_of(
    lowering: Emission, extents: Sequence[int], sizes: Sequence[int], shape: Sequence[int]
) -> tuple[Axis, ...]:
    """The axes of a reverse operation whose result has the extents ``shape``: the up-scaled space.

    Padding, stride and dilation belong to that space, the border to the input.
    """
    strides, dilations, pads = _lists(lowering, len(sizes))
    axes = []
    for i, (extent, size, stride, dilation) in enumerate(zip(extents, sizes, strides, dilations, strict=True)):
        covered = (size - 1) * dilation + 1
        before, _ = _automatic(shape[i], covered, stride) if pads is None else pads[i]
        border = str(lowering.operation.attributes["border"])
        axes.append(Axis(extent, shape[i], size, before, stride, dilation, border, reverse=True))
    return _checked(lowering, axes)


def _checked(lowering: Emission, axes: Sequence[Axis]) -> tuple[Axis, ...]:
    for i, axis in enumerate(axes):
        length = max(axis.length, abs(axis.before))
        require("elements", length, DEFAULT.elements, "indices that windows go over", lowering.location)
        if not axis.defined():
            reason = f"border {axis.border!r} reaches beyond one reflection of an extent of {axis.extent}"
            raise lowering.unsupported(f"{reason}, in dimension {i} of the window")
    return tuple(axes)


def _automatic(extent: int, covered: int, stride: int) -> tuple[int, int]:
    total = (-(-extent // stride) - 1) * stride + covered - extent
    return total // 2, total - total // 2


def _lists(lowering: Emission, count: int) -> tuple[Sequence[int], Sequence[int], Sequence[tuple[int, int]] | None]:
    """The attributes stride, dilation and padding. Empty lists mean ones, and automatic padding, returned as None."""
    stride, dilation = (lowering.integers(name) or (1,) * count for name in ("stride", "dilation"))
    padding: Any = lowering.operation.attributes["padding"]
    pads = [(int(before), int(after)) for before, after in padding]
    return stride, dilation, pads or (None if count else [])
