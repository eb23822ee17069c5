"""Shapes of the operations that current Khronos tools have beyond NNEF 1.0.1, under the section each would stand in.

Source: nnef 1.0.10; where its shape function checks nothing, the rule of the nearest operation of 1.0.1 holds.
"""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, ShapeCall, rule
from cvm.graph.shapes.window import FILTER_BORDERS

__all__: list[str] = []

_MAX_BITS = 64


@rule("4.5", "pad")
def pad(call: ShapeCall) -> Results:
    """The padded extents. Where the border reflects, a padding must be less than the extent that it reflects."""
    shape, padding = call.shape("input"), call.attributes["padding"]
    border = call.one_of("border", *FILTER_BORDERS)
    if len(padding) != len(shape):
        raise call.invalid("padding", f"padding must have {len(shape)} items, found {len(padding)}")
    if any(amount < 0 for pair in padding for amount in pair):
        raise call.invalid("padding", f"padding must not be negative, found {[list(pair) for pair in padding]}")
    for extent, pair in zip(shape, padding, strict=True):
        reach = {"reflect": extent - 1, "reflect-even": extent}.get(border)
        if reach is not None and max(pair) > reach:
            message = f"border {border!r} cannot be reflected beyond an extent of {extent}"
            raise call.conflict("border", message)
    return (tuple(extent + before + after for extent, (before, after) in zip(shape, padding, strict=True)),)


@rule("4.5", "tile")
def tile(call: ShapeCall) -> Results:
    """Each extent times its number of repetitions."""
    shape = call.shape("input")
    repeats = call.positive("repeats", len(shape))
    return (tuple(extent * count for extent, count in zip(shape, repeats, strict=True)),)


@rule("4.5", "gather")
def gather(call: ShapeCall) -> Results:
    """The shape of the input, in which the shape of the indices replaces the axis."""
    shape = call.shape("input")
    axis = call.axis(len(shape))
    return ((*shape[:axis], *call.shape("indices"), *shape[axis + 1 :]),)


@rule("4.5", "cast")
def cast(call: ShapeCall) -> Results:
    """The shape of the input."""
    return (call.shape("input"),)


@rule("4.9.5", "min_max_linear_quantize", "zero_point_linear_quantize")
def quantize(call: ShapeCall) -> Results:
    """The common shape of the operand and the parameters of the quantiser."""
    if not 1 <= call.integer("bits") <= _MAX_BITS:
        raise call.invalid("bits", f"bits must be in 1..{_MAX_BITS}, found {call.integer('bits')}")
    return (call.broadcast(*call.shapes.values()),)
