"""Movement along an axis by a constant index vector, in the cheapest ops that say it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation
from cvm.lowering.forms.emission import Emission
from cvm.lowering.forms.windows import Indices

__all__ = ["around", "gathered", "gathered_windows"]

Array = npt.NDArray[Any]


def gathered(
    lowering: Emission, operation: GraphOperation, value: str, axis: int, indices: Indices, fill: int | Array = 0
) -> str:
    """The items at ``indices`` along ``axis``; where an index is -1, ``fill``, which broadcasts to the other axes."""
    extent = lowering.builder.shape(value)[axis]
    inside = np.flatnonzero(indices >= 0)
    if inside.size == indices.size:
        return _selected(lowering, operation, value, axis, indices)
    if inside.size:
        first, last = int(inside[0]), int(inside[-1])
        middle = indices[first : last + 1]
        if (middle >= 0).all():
            parts = [_selected(lowering, operation, value, axis, middle)]
            if first:
                parts.insert(0, _rows(lowering, operation, value, axis, first, fill))
            if last + 1 < indices.size:
                parts.append(_rows(lowering, operation, value, axis, indices.size - last - 1, fill))
            return lowering.emit(operation, "concatenate", *parts, axis=axis)
    # A row of the filling behind the last item, to take from where there is none.
    joined = _with_row(lowering, operation, value, axis, fill)
    return _selected(lowering, operation, joined, axis, np.where(indices < 0, extent, indices))


def gathered_windows(
    lowering: Emission, operation: GraphOperation, value: str, axis: int, indices: Indices, fill: int | Array = 0
) -> str:
    """The items at (outputs, taps) ``indices``: ``axis`` gives way to two axes. Ranks of up to 7 only."""
    if (indices < 0).any():
        extent = lowering.builder.shape(value)[axis]
        value = _with_row(lowering, operation, value, axis, fill)
        indices = np.where(indices < 0, extent, indices)
    places = lowering.tensor_constant(operation, indices, "places")
    return lowering.emit(operation, "take", value, places, axis=axis)


def _with_row(lowering: Emission, operation: GraphOperation, value: str, axis: int, fill: int | Array) -> str:
    row = _rows(lowering, operation, value, axis, 1, fill)
    return lowering.emit(operation, "concatenate", value, row, axis=axis)


def _rows(lowering: Emission, operation: GraphOperation, value: str, axis: int, count: int, fill: int | Array) -> str:
    shape = list(lowering.builder.shape(value))
    shape[axis] = count
    items = np.broadcast_to(np.asarray(fill, dtype=object), shape)
    return lowering.tensor_constant(operation, items, "padding")


def _selected(lowering: Emission, operation: GraphOperation, value: str, axis: int, indices: Indices) -> str:
    shape = lowering.builder.shape(value)
    extent, count = shape[axis], indices.size
    if count == extent and (indices == np.arange(extent)).all():
        return value
    times = count // extent
    if count == times * extent and (indices == np.repeat(np.arange(extent), times)).all():
        return lowering.emit(operation, "repeat", value, axis=axis, repeats=times)
    steps = np.unique(np.diff(indices))
    if count == 1 or (steps.size == 1 and steps[0] > 0):
        start, step = int(indices[0]), 1 if count == 1 else int(steps[0])
        begin = [0] * axis + [start]
        end = [*shape[:axis], int(indices[-1]) + 1]
        strides = [1] * axis + [step]
        return lowering.emit(operation, "slice", value, begin=tuple(begin), end=tuple(end), strides=tuple(strides))
    places = lowering.tensor_constant(operation, indices, "places")
    return lowering.emit(operation, "take", value, places, axis=axis)


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The shape with everything before the axis, and everything behind it, in one axis each."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
