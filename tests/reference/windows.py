"""Sliding windows (4.3): output extents, automatic padding, and the items under each kernel index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from .rational import Flags, Integers

Padding = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Axis:
    """The window along one dimension: kernel extent, padding before the data, stride, dilation, output extent."""

    size: int
    before: int
    stride: int
    dilation: int
    output: int

    def positions(self, kernel: int) -> np.ndarray:
        """i * s + j * d - p over the output positions i, for the kernel index j (4.3.1)."""
        return np.arange(self.output) * self.stride + kernel * self.dilation - self.before


def automatic_padding(extent: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding for which the output extent is ceil(X / s) (4.3). The total may be negative: the text has no clamp."""
    total = (-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent
    return total // 2, -(-total // 2)


def window(
    shape: Sequence[int], size: Sequence[int], padding: Padding, stride: Sequence[int], dilation: Sequence[int]
) -> list[Axis]:
    """One `Axis` per dimension; empty stride and dilation are 1s, empty padding is automatic (4.3)."""
    strides, dilations = list(stride) or [1] * len(shape), list(dilation) or [1] * len(shape)
    if min([*size, *strides, *dilations], default=1) <= 0:
        raise ValueError("sizes, strides and dilations are positive")
    paddings = list(padding) or [automatic_padding(*x) for x in zip(shape, size, strides, dilations, strict=True)]
    axes = []
    for extent, f, (p, q), s, d in zip(shape, size, paddings, strides, dilations, strict=True):
        room = p + extent + q - ((f - 1) * d + 1)
        if room < 0:
            raise ValueError("the window is larger than the padded input")
        axes.append(Axis(f, p, s, d, room // s + 1))
    return axes


def taps(items: Integers, axes: Sequence[Axis]) -> Iterator[tuple[Integers, Flags]]:
    """For every kernel index, row-major: the items under it at all output positions, and which are inside.

    Outside of the tensor the item is 0, the only constant border that 4.3 defines.
    """
    for kernel in product(*(range(axis.size) for axis in axes)):
        taken, inside = items, np.ones([axis.output for axis in axes], dtype=bool)
        for dimension, (axis, j) in enumerate(zip(axes, kernel, strict=True)):
            positions = axis.positions(j)
            valid = (positions >= 0) & (positions < items.shape[dimension])
            taken = np.take(taken, np.where(valid, positions, 0), axis=dimension)
            inside &= valid.reshape([-1 if other == dimension else 1 for other in range(len(axes))])
        yield np.where(inside, taken, 0), inside
