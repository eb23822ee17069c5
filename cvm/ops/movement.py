"""The ranges of tensors whose elements are moved.

An array of bounds has extent 1 along a dimension for which one bound holds. If elements move along such a dimension,
the bounds do not change; if they move along another one, the bounds move with the elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from cvm.ops.ranges import BOUNDS, Bounds, Range, Shape, Stored, affordable, channel_axis

__all__ = ["concatenated", "repeated", "reshaped", "selected"]


def repeated(x: Range, axis: int, times: int, each: bool) -> Range:
    """The range of ``x`` with each element along ``axis`` repeated (``each``), or with the whole axis repeated."""
    if x.shape[axis] == 1 or times == 1:
        return x
    if x.size * times > max(BOUNDS, x.size):
        return x.over((axis,))
    if each:
        return x.moved(lambda bounds: bounds.repeat(times, axis))
    return x.moved(lambda bounds: np.concatenate([bounds] * times, axis))


def reshaped(x: Range, shape: Shape, target: Shape) -> Range:
    """The range of a tensor of the given shape that is reshaped to ``target``, in row-major order."""
    if x.size == 1:
        return x.moved(lambda bounds: bounds.reshape((1,) * len(target)))
    resolved = [axis for axis, extent in enumerate(x.shape) if extent > 1]
    if len(resolved) == 1:
        same = _same_axis(shape, resolved[0], target)
        if same is not None:
            extents = [target[same] if axis == same else 1 for axis in range(len(target))]
            return x.moved(lambda bounds: bounds.reshape(extents))
    if math.prod(shape) <= max(BOUNDS, x.size):
        return x.moved(lambda bounds: np.broadcast_to(bounds, shape).reshape(target))
    return reshaped(x.over(range(x.rank)), shape, target)


def _same_axis(shape: Shape, axis: int, target: Shape) -> int | None:
    """The axis of ``target`` along which the same elements lie as along ``axis`` of ``shape``, or None."""
    before = math.prod(shape[:axis])
    for index, extent in enumerate(target):
        if extent == shape[axis] and math.prod(target[:index]) == before:
            return index
    return None


def concatenated(parts: Sequence[Range], axis: int, extents: Sequence[int]) -> Range:
    """The range of a concatenation along ``axis``, along which the parts have the given extents."""
    if axis != channel_axis(parts[0].rank):  # only along the channel axis does each part keep its own bounds
        return _joint(parts, axis)
    if sum(extents) > BOUNDS:
        return _one_interval(parts)
    shapes = [tuple(n if k == axis else 1 for k in range(parts[0].rank)) for n in extents]
    reduced = [part.per_channel() for part in parts]
    lo = np.concatenate([np.broadcast_to(part.lo, shape) for part, shape in zip(reduced, shapes, strict=True)], axis)
    hi = np.concatenate([np.broadcast_to(part.hi, shape) for part, shape in zip(reduced, shapes, strict=True)], axis)
    return Range(lo, hi)


def _joint(parts: Sequence[Range], axis: int) -> Range:
    """The hull of all parts, which are joined along ``axis``."""

    def size(shapes: Sequence[Shape]) -> int:
        return math.prod(np.broadcast_shapes(*{(*shape[:axis], 1, *shape[axis + 1 :]) for shape in shapes}))

    found: Range | None = None
    for part in affordable(parts, size, allowed=BOUNDS):
        hull = part.over((axis,)).wide()
        found = hull if found is None else found.union(hull)
    return _one_interval(parts) if found is None else found


def _one_interval(parts: Sequence[Range]) -> Range:
    """One interval for all parts."""
    bounds = [part.hull() for part in parts]
    return Range.uniform(parts[0].rank, min(lo for lo, _ in bounds), max(hi for _, hi in bounds))


def selected(x: Range, axis: int, extent: int, indices: Range) -> Range:
    """The range of the elements of ``x`` at ``indices`` along ``axis``, which the axes of the indices replace.

    An index is clipped to [0, extent). Its bound is the hull of ``x`` over all indices that its interval admits.
    """
    x, indices = affordable((x, indices), partial(_selected_size, axis=axis), allowed=BOUNDS)
    if x.shape[axis] == 1:
        axes = (1,) * indices.rank
        return x.moved(lambda bounds: bounds.reshape(*bounds.shape[:axis], *axes, *bounds.shape[axis + 1 :]))
    first, last = np.clip(indices.lo, 0, extent - 1), np.clip(indices.hi, 0, extent - 1)
    ends = (x.least, x.largest) if isinstance(x, Stored) else (x.lo, x.hi)
    lo, hi = _hulls(np.moveaxis(ends[0], axis, 0), np.moveaxis(ends[1], axis, 0), first, last)
    source, destination = range(indices.rank), range(axis, axis + indices.rank)
    return Stored(np.moveaxis(lo, source, destination), np.moveaxis(hi, source, destination)).wide()


def _selected_size(shapes: Sequence[Shape], axis: int) -> int:
    """The number of bounds of the result, for bounds of the first shape and indices with bounds of the second one."""
    x, indices = shapes
    return math.prod(x) // x[axis] * math.prod(indices)


Array = npt.NDArray[np.int64]


def _hulls(lo: Bounds, hi: Bounds, first: Array, last: Array) -> tuple[Bounds, Bounds]:
    """The minima of ``lo`` and maxima of ``hi`` over the indices first..last, inclusive, of their first axis.

    Two runs whose length is the largest possible power of two cover first..last. The powers are handled in order.
    """
    spans = last - first + 1
    least = np.empty((*first.shape, *lo.shape[1:]), lo.dtype)
    largest = np.empty_like(least)
    width = 1
    while True:
        here = (width <= spans) & (spans < 2 * width)
        start, end = first[here], last[here] - width + 1
        least[here] = np.minimum(lo[start], lo[end])
        largest[here] = np.maximum(hi[start], hi[end])
        if 2 * width > spans.max():
            return least, largest
        lo = np.minimum(lo[:-width], lo[width:])  # one statement for each, since the arrays are as large as the operand
        hi = np.maximum(hi[:-width], hi[width:])
        width *= 2
