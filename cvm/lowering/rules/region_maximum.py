"""Maxima of the cells of regions that are given as integers. The ends of the cells depend on data.

The maximum of items s .. e - 1 along an axis is the larger of the maxima of two windows: the one that begins at s and
the one that ends at e. Both have 2^j items, the largest power of two that is at most e - s. The maxima of all windows
of 1, 2, 4, .. items are computed by doubling, and each cell takes two of them; first along the width, then, from these
results, along the height.
"""

from __future__ import annotations

import numpy as np

from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("region_maximum", claim=exact("maxima of windows of powers of two, of which each cell takes two per axis"))
def region_maximum(lowering: Lowering) -> list[Result]:
    """Maxima (B, R, C, *output_size) of input (B, C, H, W) in regions with integer codes rois (B, R, 4).

    A region is x_0, y_0, x_1, y_1. Its n = max(x_1 - x_0, 0) + 1 positions are divided into m cells. Cell i goes from
    floor(i * n / m) up to, not including, ceil((i + 1) * n / m), counted from x_0 and clipped to the image. An empty
    cell has the code 0. With ``before`` = "empty", a cell that begins before the image is empty.
    """
    value, factor, constant, form = lowering.coded("input")
    rois, _, _, regions = lowering.coded("rois")
    batch, channels, height, width = form.shape
    count = regions.shape[1]
    rows, columns = lowering.integers("output_size")
    in_x = _cells(lowering, rois, (batch, count), 0, width, columns)
    in_y = _cells(lowering, rois, (batch, count), 1, height, rows)
    planes = value.transpose((1, 2, 0, 3))
    planes = planes.reshape((channels * height, batch, width))
    starts = [end.reshape((batch, count * columns)) for end in in_x[:2]]
    found = _greatest(planes, starts[0], starts[1])
    groups = batch * count * columns
    found = found.reshape((channels, height, groups))
    found = found.transpose((0, 2, 1))
    ends = []
    for end in in_y[:2]:
        spread = end.reshape((batch * count, rows)).repeat(0, columns)
        ends.append(spread)
    found = _greatest(found, ends[0], ends[1])
    found = found.reshape((channels, batch, count, columns, rows))
    found = found.transpose((1, 2, 0, 4, 3))
    masks = [
        mask.reshape((batch, count, 1, *extents)) for mask, extents in ((in_x[2], (1, columns)), (in_y[2], (rows, 1)))
    ]
    maxima = found * (masks[0] * masks[1])
    rank, shape = 5, (batch, count, channels, rows, columns)
    scale, offset = (Rationals.scalar(item, rank) for item in (factor, constant))
    return [LinearForm(shape, (Term(maxima, scale),), offset)]


def _cells(
    lowering: Lowering, rois: Value, regions: tuple[int, int], axis: int, extent: int, cells: int
) -> tuple[Value, Value, Value]:
    """The first positions and the ends of all cells along an axis, and 1 for cells that are not empty, else 0.

    All have the shape (B, R, cells). An empty cell gets one position, so that its end is above its begin.
    """
    batch, count = regions
    first, last = (
        lowering.emit("slice", rois, begin=(0, 0, column), end=(batch, count, column + 1), strides=(1, 1, 1))
        for column in (axis, axis + 2)
    )
    # Coordinates have at most 16 bits, so their difference has at most 16 bits and a sign.
    size = (last - first).clip(0, 2**17)
    size = size + lowering.tensor_constant([1], "one")
    numbers = np.arange(cells).reshape(1, 1, cells)
    divisor = lowering.tensor_constant([cells], "cells")
    begin = lowering.emit("broadcast_div", size * lowering.tensor_constant(numbers, "number"), divisor)
    end = size * lowering.tensor_constant(numbers + 1, "number")
    end = end + lowering.tensor_constant([cells - 1], "rest")
    end = lowering.emit("broadcast_div", end, divisor)
    start = first + begin
    begin, end = (item.clip(0, extent) for item in (start, first + end))
    there = end.greater(begin)
    if lowering.operation.attributes["before"] == "empty":
        there = there * start.greater(lowering.tensor_constant([-1], "outside"))
    begin = begin.clip(0, extent - 1)
    end = end.maximum(begin + lowering.tensor_constant([1], "one"))
    return begin, end, there


def _greatest(value: Value, begin: Value, end: Value) -> Value:
    """The maxima (K, groups, cells) of ``value`` (K, groups, positions) over begin .. end - 1 (groups, cells)."""
    kept, groups, extent = value.shape
    lowering = value.emission
    levels, size = [value], 1
    while 2 * size <= extent:
        # Windows that would reach beyond the last position are never read; they repeat the last item.
        behind = np.minimum(np.arange(extent) + size, extent - 1)
        moved = levels[-1].take(lowering.tensor_constant(behind, "places"), 2)
        levels.append(levels[-1].maximum(moved))
        size *= 2
    joined = lowering.emit("concatenate", *levels, axis=2) if len(levels) > 1 else value
    joined = joined.reshape((kept, groups * len(levels) * extent))
    length = end - begin
    powers = [max(n, 1).bit_length() - 1 for n in range(extent + 1)]
    level = lowering.emit("cvm_lut", lowering.tensor_constant([power * extent for power in powers], "level"), length)
    reach = lowering.emit("cvm_lut", lowering.tensor_constant([2**power for power in powers], "reach"), length)
    own = lowering.tensor_constant((np.arange(groups) * len(levels) * extent).reshape(groups, 1), "group")
    base = level + own
    sides = [joined.take(base + side, 1) for side in (begin, end - reach)]
    return sides[0].maximum(sides[1])
