"""Maxima of cells of regions that are given as integers, with ends that depend on data.

The greatest of items s .. e - 1 of an axis is the greater of two windows of 2^j items, the largest power of two that is
not above e - s: the one that begins at s and the one that ends at e. Maxima of all windows of 1, 2, 4, .. items are
made by doubling, and each cell takes two of them; first along the width, then, among what was found, along the height.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cvm.graph import GraphOperation
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.forms.windows import integers
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("region_maximum", claim=exact("maxima of windows of powers of two, of which each cell takes two per axis"))
def region_maximum(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Of input (B, C, H, W) and integer codes rois (B, R, 4), x_0, y_0, x_1, y_1: maxima (B, R, C, *output_size).

    A region of n = max(x_1 - x_0, 0) + 1 positions is cut into m cells, cell i being floor(i * n / m) up to, not
    including, ceil((i + 1) * n / m), from x_0 on, cut to the image. A cell without a position has the code 0; with
    ``before`` = "empty" a cell that begins before the image has none.
    """
    value, factor, constant, form = lowering.coded(operation, "input")
    rois, _, _, regions = lowering.coded(operation, "rois")
    batch, channels, height, width = form.shape
    count = regions.shape[1]
    rows, columns = integers(operation, "output_size")
    emit = _Emitter(lowering, operation)
    in_x = _cells(emit, rois, (batch, count), 0, width, columns)
    in_y = _cells(emit, rois, (batch, count), 1, height, rows)
    planes = emit("transpose", value, axes=(1, 2, 0, 3))
    planes = emit("reshape", planes, target_shape=(channels * height, batch, width))
    starts = [emit("reshape", end, target_shape=(batch, count * columns)) for end in in_x[:2]]
    found = _greatest(emit, planes, starts[0], starts[1])
    groups = batch * count * columns
    found = emit("reshape", found, target_shape=(channels, height, groups))
    found = emit("transpose", found, axes=(0, 2, 1))
    ends = []
    for end in in_y[:2]:
        spread = emit("repeat", emit("reshape", end, target_shape=(batch * count, rows)), axis=0, repeats=columns)
        ends.append(spread)
    found = _greatest(emit, found, ends[0], ends[1])
    found = emit("reshape", found, target_shape=(channels, batch, count, columns, rows))
    found = emit("transpose", found, axes=(1, 2, 0, 4, 3))
    masks = [
        emit("reshape", mask, target_shape=(batch, count, 1, *extents))
        for mask, extents in ((in_x[2], (1, columns)), (in_y[2], (rows, 1)))
    ]
    mask = emit("broadcast_mul", *masks)
    maxima = emit("broadcast_mul", found, mask)
    rank, shape = 5, (batch, count, channels, rows, columns)
    scale, offset = (Rationals.scalar(item, rank) for item in (factor, constant))
    return [LinearForm(shape, (Term(maxima, scale),), offset)]


class _Emitter:
    """Nodes of one operation."""

    def __init__(self, lowering: Lowering, operation: GraphOperation) -> None:
        self.lowering, self.operation = lowering, operation

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.lowering.emit(self.operation, op, *inputs, **attributes)

    def constant(self, items: Any, what: str) -> str:
        return self.lowering.tensor_constant(self.operation, np.asarray(items, dtype=object), what)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.lowering.builder.shape(value)


def _cells(
    emit: _Emitter, rois: str, regions: tuple[int, int], axis: int, extent: int, cells: int
) -> tuple[str, str, str]:
    """First positions and ends of all cells along an axis, (B, R, cells), and 1 where there is a position, else 0.

    Where there is none, the first position stands for it, so that ends are always in order.
    """
    batch, count = regions
    first, last = (
        emit("slice", rois, begin=(0, 0, place), end=(batch, count, place + 1), strides=(1, 1, 1))
        for place in (axis, axis + 2)
    )
    # Coordinates have at most 16 bits, and so does their difference, but for its sign.
    size = emit("clip", emit("broadcast_sub", last, first), a_min=0, a_max=2**17)
    size = emit("broadcast_add", size, emit.constant([1], "one"))
    numbers = np.arange(cells).reshape(1, 1, cells)
    divisor = emit.constant([cells], "cells")
    begin = emit("broadcast_div", emit("broadcast_mul", size, emit.constant(numbers, "number")), divisor)
    end = emit("broadcast_mul", size, emit.constant(numbers + 1, "number"))
    end = emit("broadcast_add", end, emit.constant([cells - 1], "rest"))
    end = emit("broadcast_div", end, divisor)
    start = emit("broadcast_add", first, begin)
    begin, end = (emit("clip", item, a_min=0, a_max=extent) for item in (start, emit("broadcast_add", first, end)))
    there = emit("broadcast_greater", end, begin)
    if emit.operation.attributes["before"] == "empty":
        there = emit("broadcast_mul", there, emit("broadcast_greater", start, emit.constant([-1], "outside")))
    begin = emit("clip", begin, a_min=0, a_max=extent - 1)
    end = emit("broadcast_max", end, emit("broadcast_add", begin, emit.constant([1], "one")))
    return begin, end, there


def _greatest(emit: _Emitter, value: str, begin: str, end: str) -> str:
    """The greatest of begin .. end - 1, (groups, cells), in (K, groups, positions): (K, groups, cells)."""
    kept, groups, extent = emit.shape(value)
    levels, size = [value], 1
    while 2 * size <= extent:
        # The windows that would reach beyond the last position are never asked for: the last item stands for them.
        behind = np.minimum(np.arange(extent) + size, extent - 1)
        moved = emit("take", levels[-1], emit.constant(behind, "places"), axis=2)
        levels.append(emit("broadcast_max", levels[-1], moved))
        size *= 2
    joined = emit("concatenate", *levels, axis=2) if len(levels) > 1 else value
    joined = emit("reshape", joined, target_shape=(kept, groups * len(levels) * extent))
    length = emit("broadcast_sub", end, begin)
    powers = [max(n, 1).bit_length() - 1 for n in range(extent + 1)]
    level = emit("cvm_lut", emit.constant([power * extent for power in powers], "level"), length)
    reach = emit("cvm_lut", emit.constant([2**power for power in powers], "reach"), length)
    own = emit.constant((np.arange(groups) * len(levels) * extent).reshape(groups, 1), "group")
    base = emit("broadcast_add", level, own)
    sides = [
        emit("take", joined, emit("broadcast_add", base, place), axis=1)
        for place in (begin, emit("broadcast_sub", end, reach))
    ]
    return emit("broadcast_max", *sides)
