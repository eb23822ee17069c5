"""Shapes of tensor shape operations: NNEF 1.0.1 section 4.5."""

from __future__ import annotations

import math

from cvm.graph.shapes.shape_call import Results, Shape, ShapeCall, rule
from cvm.limits import MAX_RANK, require

__all__: list[str] = []


@rule("4.5.1", "reshape")
def reshape(call: ShapeCall) -> Results:
    """The given shape. An item 0 keeps the extent of the input; one item -1 stands for the extent that the volume
    leaves.

    In the dialect "khronos" only the ``axis_count`` axes (-1: all the rest) from ``axis_start`` on get another shape.
    """
    shape, items = call.shape("input"), call.integers("shape")
    start, count = call.attributes.get("axis_start", 0), call.attributes.get("axis_count", -1)
    if not 0 <= start <= len(shape):
        raise call.invalid("axis_start", f"axis_start {start} is outside of 0..{len(shape)}")
    if not -1 <= count <= len(shape) - start:
        raise call.invalid("axis_count", f"axis_count {count} is outside of -1..{len(shape) - start}")
    end = len(shape) if count == -1 else start + count
    require("rank", len(shape) - (end - start) + len(items), MAX_RANK, "rank")
    return ((*shape[:start], *_reshaped(call, shape[start:end], items), *shape[end:]),)


def _reshaped(call: ShapeCall, old: Shape, items: Shape) -> Shape:
    if any(item < -1 for item in items) or items.count(-1) > 1:
        raise call.invalid("shape", f"items must be 0 or more, and one at most may be -1; found {list(items)}")
    new = list(items)
    for axis, item in enumerate(items):
        if item == 0:
            if axis >= len(old):
                raise call.invalid("shape", f"item {axis} is 0, but an input of rank {len(old)} has no such axis")
            new[axis] = old[axis]
    volume = math.prod(old)
    if -1 in items:
        rest = math.prod(extent for extent in new if extent != -1)
        if volume % rest:
            raise call.conflict("volume", f"a volume of {volume} is not divisible by {rest}")
        new[items.index(-1)] = volume // rest
    if math.prod(new) != volume:
        raise call.conflict("volume", f"{list(new)} has a volume of {math.prod(new)}, the input has {volume}")
    return tuple(new)


@rule("4.5.1", "squeeze")
def squeeze(call: ShapeCall) -> Results:
    """The shape without the given axes, each of which must have extent 1."""
    shape = call.shape("input")
    axes = call.axes(len(shape))
    for axis in axes:
        if shape[axis] != 1:
            raise call.conflict("singular", f"dimension {axis} has extent {shape[axis]}, not 1")
    return (tuple(extent for axis, extent in enumerate(shape) if axis not in axes),)


@rule("4.5.1", "unsqueeze")
def unsqueeze(call: ShapeCall) -> Results:
    """The shape with axes of extent 1 inserted; ``axes`` counts them in the result."""
    shape = call.shape("input")
    rank = len(shape) + len(call.integers("axes"))
    require("rank", rank, MAX_RANK, "rank")
    axes = call.axes(rank)
    rest = iter(shape)
    return (tuple(1 if axis in axes else next(rest) for axis in range(rank)),)


@rule("4.5.2", "transpose")
def transpose(call: ShapeCall) -> Results:
    """The first dimensions permuted by ``axes``; further dimensions keep their order."""
    shape, axes = call.shape("input"), call.integers("axes")
    if len(axes) > len(shape):
        raise call.invalid("axes", f"an input of rank {len(shape)} has at most that many axes, found {len(axes)}")
    if sorted(axes) != list(range(len(axes))):
        raise call.invalid("axes", f"{list(axes)} is not a permutation of 0..{len(axes) - 1}")
    return (tuple(shape[axis] for axis in axes) + shape[len(axes) :],)


@rule("4.5.3", "split")
def split(call: ShapeCall) -> Results:
    """Chunks whose extents along the axis stand in the given ratios."""
    shape, ratios = call.shape("value"), call.positive("ratios")
    axis = call.axis(len(shape))
    total = sum(ratios)
    if not ratios:
        raise call.invalid("ratios", "there must be at least one ratio")
    if shape[axis] % total:
        raise call.conflict("ratios", f"an extent of {shape[axis]} is not divisible by the sum of ratios {total}")
    unit = shape[axis] // total
    chunks: list[Shape] = [(*shape[:axis], unit * ratio, *shape[axis + 1 :]) for ratio in ratios]
    return (chunks,)


@rule("4.5.3", "concat")
def concat(call: ShapeCall) -> Results:
    """The sum of the extents along the axis; all other extents must be equal."""
    shapes = call.array("values")
    if not shapes:
        raise call.invalid("values", "there must be at least one tensor")
    first = shapes[0]
    axis = call.axis(len(first))
    for shape in shapes:
        if len(shape) != len(first) or shape[:axis] + shape[axis + 1 :] != first[:axis] + first[axis + 1 :]:
            raise call.conflict("agree", f"{list(first)} and {list(shape)} differ in more than dimension {axis}")
    return ((*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :]),)


@rule("4.5.3", "stack")
def stack(call: ShapeCall) -> Results:
    """The common shape of the tensors, with a new axis whose extent is the number of tensors."""
    shapes = call.array("values")
    if not shapes:
        raise call.invalid("values", "there must be at least one tensor")
    first = shapes[0]
    axis = call.axis(len(first) + 1)
    for shape in shapes:
        if shape != first:
            raise call.conflict("agree", f"shapes {list(first)} and {list(shape)} differ")
    return ((*first[:axis], len(shapes), *first[axis:]),)


@rule("4.5.3", "unstack")
def unstack(call: ShapeCall) -> Results:
    """One tensor for each index of the axis, each with the shape of the input without that axis."""
    shape = call.shape("value")
    axis = call.axis(len(shape))
    return (call.repeat(shape[:axis] + shape[axis + 1 :], shape[axis]),)


@rule("4.5.4", "slice")
def slice_(call: ShapeCall) -> Results:
    """The extents of the slices along the axes; negative bounds count from the end, and ``end`` 0 is the end.

    In the dialect "khronos" there is a stride per axis. A negative stride goes from ``begin`` down to, but not
    including, ``end``: there 0 is the first index, and -extent - 1 lies before it.
    """
    shape = call.shape("input")
    strides = call.attributes.get("stride", ())
    axes, begins, ends = call.axes(len(shape)), call.integers("begin"), call.integers("end")
    if not len(axes) == len(begins) == len(ends):
        message = f"axes, begin and end must have the same length, found {len(axes)}, {len(begins)} and {len(ends)}"
        raise call.invalid("length", message)
    if len(strides) not in (0, len(axes)) or 0 in strides:
        raise call.invalid("stride", f"stride must have {len(axes)} non-zero items or none, found {list(strides)}")
    result = list(shape)
    for axis, begin, end, stride in zip(axes, begins, ends, strides or (1,) * len(axes), strict=True):
        section = _forward if stride > 0 else _backward
        result[axis] = -(-section(call, axis, shape[axis], begin, end) // abs(stride))
    return (tuple(result),)


def _forward(call: ShapeCall, axis: int, extent: int, begin: int, end: int) -> int:
    """The number of indices from ``begin`` up to, but not including, ``end``."""
    for name, position in (("begin", begin), ("end", end)):
        if not -extent < position <= extent:
            raise call.invalid(name, f"{name} {position} is outside of (-{extent}, {extent}] in dimension {axis}")
    first = begin + extent if begin < 0 else begin
    last = end + extent if end <= 0 else end
    if last <= first:
        raise call.invalid("end", f"end {end} is not greater than begin {begin} in dimension {axis}")
    return last - first


def _backward(call: ShapeCall, axis: int, extent: int, begin: int, end: int) -> int:
    """The number of indices from ``begin`` down to, but not including, ``end``."""
    if not -extent <= begin < extent:
        raise call.invalid("begin", f"begin {begin} is outside of [-{extent}, {extent}) in dimension {axis}")
    if not -extent - 1 <= end < extent:
        raise call.invalid("end", f"end {end} is outside of [-{extent + 1}, {extent}) in dimension {axis}")
    first = begin + extent if begin < 0 else begin
    last = end + extent if end < 0 else end
    if last >= first:
        raise call.invalid("end", f"end {end} is not less than begin {begin} in dimension {axis} of negative stride")
    return first - last
