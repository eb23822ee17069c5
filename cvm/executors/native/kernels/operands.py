"""Further operands of contractions than input and weights: one element per channel, or a tensor like the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.sums import Pixels, Read, Segment
from cvm.executors.native.exact import Exact
from cvm.executors.native.kernels.formulas import Operand
from cvm.executors.native.kernels.packing import packed_channels
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.protocol import Planning
from cvm.executors.native.plan.view import View
from cvm.records import dataclass

__all__ = ["CHANNELS_LAST", "KernelOperand", "arguments", "operand_of", "pixels_of"]

CHANNELS_LAST = (0, 2, 3, 1)
"""The order of the axes of a map (N, C, H, W) in memory, the outermost first."""


@dataclass(frozen=True, eq=False, slots=True)
class KernelOperand:
    """An operand, and how the kernel reads it: either ``elements``, one per channel, or the elements of a ``home``."""

    read: Read
    elements: npt.NDArray[Any] | None
    home: Home | None


def pixels_of(view: View, op: str) -> Pixels | None:
    """The strides per image, row, column and channel of a view of the output's shape.

    Returns None if an axis has several factors, and so no stride.
    """
    axes = CHANNELS_LAST if op == "conv2d" else (None, None, 0, 1)
    strides = [0 if axis is None else view.stride(axis) for axis in axes]
    return None if None in strides else Pixels(*strides)  # type: ignore[arg-type]


def operand_of(planner: Planning, operand: Operand, target: Home, op: str) -> KernelOperand:
    """Decide how the kernel reads an operand: as elements per channel (axis 1), or from a home with strides."""
    shape = target.view.shape
    if operand.array is not None:
        spread = operand.array.reshape((1,) * (len(shape) - operand.array.ndim) + operand.array.shape)
        if all(n == 1 or axis == 1 for axis, n in enumerate(spread.shape)):
            elements = np.broadcast_to(spread, [shape[1] if axis == 1 else 1 for axis in range(len(shape))]).ravel()
            return KernelOperand(Read(operand.format, None), elements, None)
    home = operand.over(planner, target)
    pixels = pixels_of(home.view, op)
    if pixels is None:
        home = planner.rearranged(home)
        pixels = pixels_of(home.view, op)
    assert pixels is not None
    return KernelOperand(Read(home.format, pixels), None, home)


def arguments(
    planner: Planning,
    start: Exact | None,
    operands: Sequence[KernelOperand],
    segments: Sequence[Segment],
    channels: slice,
) -> list[tuple[Buffer, int]]:
    """The arguments of a call for some channels: the start of the sums, unless that is zero, then the operands."""
    found = []
    if start is not None:
        found.append(planner.constants.add(packed_channels(start.int32()[channels], segments, INT32)))
    for operand in operands:
        if operand.home is None:
            assert operand.elements is not None
            packed = packed_channels(operand.elements[channels], segments, operand.read.format)
            found.append(planner.constants.add(packed))
        else:
            assert operand.read.pixels is not None
            found.append(operand.home.at((channels.start or 0) * operand.read.pixels.channel))
    return found
