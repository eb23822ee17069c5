"""Gathering along an axis at constant indices, by the cheapest suitable ops: slice, repeat, concatenate, take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.windows import Indices

__all__ = ["around", "gathered", "gathered_windows"]

Array = npt.NDArray[Any]


def gathered(value: Value, axis: int, indices: Indices, fill: int | Array = 0) -> Value:
    """Emit the items at ``indices`` (one axis) along ``axis``; an index of -1 gives ``fill``.

    ``fill`` broadcasts to the value's shape with extent 1 along ``axis``.
    """
    lowering = value.emission
    extent = value.shape[axis]
    inside = np.flatnonzero(indices >= 0)
    if inside.size == indices.size:
        return _selected(value, axis, indices)
    if inside.size:
        first, last = int(inside[0]), int(inside[-1])
        middle = indices[first : last + 1]
        if (middle >= 0).all():
            parts = [_selected(value, axis, middle)]
            if first:
                parts.insert(0, _rows(value, axis, first, fill))
            if last + 1 < indices.size:
                parts.append(_rows(value, axis, indices.size - last - 1, fill))
            return lowering.emit("concatenate", *parts, axis=axis)
    # One row of ``fill`` is appended, which indices of -1 read.
    joined = _with_row(value, axis, fill)
    return _selected(joined, axis, np.where(indices < 0, extent, indices))


def gathered_windows(value: Value, axis: int, indices: Indices, fill: int | Array = 0) -> Value:
    """Emit the items at ``indices`` (outputs, taps) along ``axis``, which these two axes replace.

    An index of -1 gives ``fill``. The value has at most 7 axes, since the result has one more.
    """
    lowering = value.emission
    if (indices < 0).any():
        extent = value.shape[axis]
        value = _with_row(value, axis, fill)
        indices = np.where(indices < 0, extent, indices)
    taken = lowering.tensor_constant(indices, "places")
    return value.take(taken, axis)


def _with_row(value: Value, axis: int, fill: int | Array) -> Value:
    lowering = value.emission
    row = _rows(value, axis, 1, fill)
    return lowering.emit("concatenate", value, row, axis=axis)


def _rows(value: Value, axis: int, count: int, fill: int | Array) -> Value:
    lowering = value.emission
    shape = list(value.shape)
    shape[axis] = count
    items = np.broadcast_to(np.asarray(fill, dtype=object), shape)
    return lowering.tensor_constant(items, "padding")


def _selected(value: Value, axis: int, indices: Indices) -> Value:
    lowering = value.emission
    shape = value.shape
    extent, count = shape[axis], indices.size
    if count == extent and (indices == np.arange(extent)).all():
        return value
    times = count // extent
    if count == times * extent and (indices == np.repeat(np.arange(extent), times)).all():
        return value.repeat(axis, times)
    steps = np.unique(np.diff(indices))
    if count == 1 or (steps.size == 1 and steps[0] > 0):
        start, step = int(indices[0]), 1 if count == 1 else int(steps[0])
        begin = [0] * axis + [start]
        end = [*shape[:axis], int(indices[-1]) + 1]
        strides = [1] * axis + [step]
        return lowering.emit("slice", value, begin=tuple(begin), end=tuple(end), strides=tuple(strides))
    taken = lowering.tensor_constant(indices, "places")
    return value.take(taken, axis)


def around(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """The shape with all axes before ``axis`` merged into one, and all axes after it merged into one."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
