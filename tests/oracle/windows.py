"""Sliding windows (4.3): extents, automatic padding, border modes, and the items under each kernel index.

An operation visits its kernel indices one after another; for each, `taps` gives the items that lie under it at all
output positions at once. Basic operations read input[i * s + j * d - p]; reverse operations read
input[(i + p - j * d) / s] where s divides, in both cases of the input extended by its border.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from .tensors import Flags, Items, require

Padding = Sequence[tuple[int, int]]
BORDERS = ("constant", "replicate", "reflect", "reflect-even")
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """The window along one dimension: kernel extent, padding before the data, stride, dilation, output extent."""

    size: int
    before: int
    stride: int
    dilation: int
    output: int
    reverse: bool = False

    def positions(self, kernel: int) -> tuple[Positions, Flags]:
        """The input position of each output position for kernel index j, and whether there is one."""
        index = np.arange(self.output)
        if not self.reverse:
            return index * self.stride + kernel * self.dilation - self.before, np.ones(self.output, dtype=bool)
        upscaled = index + self.before - kernel * self.dilation
        return upscaled // self.stride, upscaled % self.stride == 0


def downscaled(extent: int, size: int, pads: tuple[int, int], stride: int, dilation: int) -> int:
    """x = floor((p + X + q - f_d) / s) + 1."""
    room = sum(pads) + extent - ((size - 1) * dilation + 1)
    require(room >= 0, "the window is not larger than the padded input")
    return room // stride + 1


def upscaled(extent: int, size: int, pads: tuple[int, int], stride: int, dilation: int) -> int:
    """X = (x - 1) * s + f_d - (p + q)."""
    result = (extent - 1) * stride + (size - 1) * dilation + 1 - sum(pads)
    require(result > 0, "the up-scaled extent is positive")
    return result


def automatic_padding(extent: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding for which the down-scaled extent is ceil(X / s).

    The text has no clamp. Where windows of a forward operation leave gaps, its total is negative; the recorded networks
    of Khronos begin at the first item then, so that forward operations take no padding instead (`window`).
    """
    total = (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent
    return total // 2, -(-total // 2)


def window(
    shape: Sequence[int],
    size: Sequence[int],
    padding: Padding,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_shape: Sequence[int] = (),
    reverse: bool = False,
) -> list[Axis]:
    """One `Axis` per dimension of an input of `shape`; empty stride and dilation are 1s, empty padding is automatic.

    A reverse operation without output_shape and padding has the up-scaled extent x * s (the text is silent; it is the
    largest extent whose automatic padding leads back to x, and what the Khronos tools do).
    """
    strides, dilations = list(stride) or [1] * len(shape), list(dilation) or [1] * len(shape)
    require(min([*size, *strides, *dilations], default=1) > 0, "sizes, strides and dilations are positive")
    axes = []
    for k, (extent, f, s, d) in enumerate(zip(shape, size, strides, dilations, strict=True)):
        if not reverse:
            before, after = automatic_padding(extent, f, s, d)
            pads = padding[k] if padding else (max(before, 0), max(after, 0))
            axes.append(Axis(f, pads[0], s, d, downscaled(extent, f, pads, s, d)))
            continue
        wanted = output_shape[k] if output_shape else (None if padding else extent * s)
        pads = padding[k] if padding else automatic_padding(wanted or 0, f, s, d)
        if wanted is None:
            wanted = upscaled(extent, f, pads, s, d)
        else:
            require(downscaled(wanted, f, pads, s, d) == extent, "output_shape down-scales to the shape of input")
        axes.append(Axis(f, pads[0], s, d, wanted, reverse=True))
    require(not padding or len(padding) == len(shape), "padding has an item per dimension")
    return axes


def bordered(positions: Positions, extent: int, border: str) -> tuple[Positions, Flags]:
    """Positions mapped into 0..extent-1 by the border mode, and which lie (or were mapped) inside.

    A reflection that leaves the input again is not defined by the formulas and is refused.
    """
    inside = (positions >= 0) & (positions < extent)
    if border == "replicate":
        mapped = np.clip(positions, 0, extent - 1)
    elif border == "reflect":
        mapped = np.where(positions < 0, -positions, 2 * (extent - 1) - positions)
    elif border == "reflect-even":
        mapped = np.where(positions < 0, -positions - 1, 2 * extent - 1 - positions)
    else:
        require(border in {"constant", "ignore"}, "border is one of the modes of 4.3")
        return np.where(inside, positions, 0), inside
    mapped = np.where(inside, positions, mapped)
    return mapped, (mapped >= 0) & (mapped < extent)


def taps(items: Items, axes: Sequence[Axis], border: str) -> Iterator[tuple[Items, Flags, Flags]]:
    """For every kernel index, row-major: the items under it at all output positions, which of them exist (a reverse
    operation has none where the stride does not divide), and which of these are inside of the extended input.

    Where there is no item, or it lies in a constant or ignored border, it is 0.
    """
    shape = [axis.output for axis in axes]
    for kernel in product(*(range(axis.size) for axis in axes)):
        taken, exist, inside = items, np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
        for dimension, (axis, j) in enumerate(zip(axes, kernel, strict=True)):
            positions, found = axis.positions(j)
            mapped, valid = bordered(positions, items.shape[dimension], border)
            along = [-1 if other == dimension else 1 for other in range(len(axes))]
            exist = exist & found.reshape(along)
            inside = inside & valid.reshape(along)
            taken = np.take(taken, np.where(valid, mapped, 0), axis=dimension)
        if border not in {"constant", "ignore"}:
            require(bool(inside[exist].all()), "a reflection stays within the input")
        yield np.where(exist & inside, taken, 0), exist, exist & inside
