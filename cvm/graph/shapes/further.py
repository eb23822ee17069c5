"""Shapes of the operations of ``further.nnef``: NNEF does not have them, front ends of other formats use them."""

from __future__ import annotations

from cvm.graph.shapes.elementwise import binary, unary
from cvm.graph.shapes.reduce import reduce
from cvm.graph.shapes.shape_call import Results, ShapeCall, rule
from cvm.graph.shapes.sliding import box

__all__: list[str] = []

_INTEGERS = "integers of a data type"
_OPENVX = "OpenVX 1.3"

rule(_INTEGERS, "truncated_div", "integer_pow")(binary)
rule("ONNX, WebNN", "l2_reduce", "log_sum_reduce", "log_sum_exp_reduce")(reduce)
rule("WebNN", "l2_pool")(box)
rule("ONNX, WebNN", "erf", "hard_swish", "softsign")(unary)
rule(_OPENVX, "lookup")(unary)


def _interval(call: ShapeCall) -> None:
    if call.integer("lo") > call.integer("hi"):
        raise call.invalid("lo", f"lo must not exceed hi, found {call.integer('lo')} and {call.integer('hi')}")


@rule(_INTEGERS, "wrap")
def wrap(call: ShapeCall) -> Results:
    """The shape of the operand."""
    _interval(call)
    call.one_of("overflow", "wrap", "error")
    return (call.shape("x"),)


@rule(_INTEGERS, "bitwise")
def bitwise(call: ShapeCall) -> Results:
    """The common shape of the operands."""
    call.one_of("kind", "and", "or", "xor")
    return binary(call)


@rule("ONNX, WebNN", "layer_normalization")
@rule("ONNX", "rms_normalization")
def layer_normalization(call: ShapeCall) -> Results:
    """The shape of the input; scale and offset broadcast to it."""
    shape = call.shape("input")
    call.axes(len(shape))
    return (call.broadcast(shape, call.shape("scale"), call.shape("offset")),)


@rule("ONNX", "masked_softmax")
def masked_softmax(call: ShapeCall) -> Results:
    """The shape of the operand, to which ``seen`` broadcasts."""
    shape = call.shape("x")
    call.axes(len(shape))
    if call.broadcast(shape, call.shape("seen")) != shape:
        raise call.conflict("seen", f"shape {list(call.shape('seen'))} does not broadcast to {list(shape)}")
    return (shape,)


@rule("ONNX", "update_slice")
def update_slice(call: ShapeCall) -> Results:
    """The shape of the input. The update has the same extents; only along the axis it may be shorter."""
    shape, update = call.shape("input"), call.shape("update")
    axis = call.axis(len(shape))
    fits = len(update) == len(shape) and all(
        u == n or (i == axis and u < n) for i, (n, u) in enumerate(zip(shape, update, strict=True))
    )
    if not fits or call.shape("start") != (1,):
        message = f"an update of shape {list(update)} and a start of shape {list(call.shape('start'))}"
        raise call.conflict("update", f"{message} do not fit axis {axis} of an input of shape {list(shape)}")
    return (shape,)


@rule(_OPENVX, "wrapping_quantize")
def wrapping_quantize(call: ShapeCall) -> Results:
    """The shape of the operand."""
    _interval(call)
    call.one_of("rounding", "toward_zero", "half_even")
    return (call.shape("x"),)


@rule(_OPENVX, "region_maximum")
def region_maximum(call: ShapeCall) -> Results:
    """One result per image and region, with the extents ``output_size`` in its spatial dimensions."""
    shape, rois = call.shape("input"), call.shape("rois")
    if len(shape) != 4 or len(rois) != 3 or rois[0] != shape[0] or rois[2] != 4:
        raise call.conflict("rois", f"regions of shape {list(rois)} do not fit images of shape {list(shape)}")
    return ((shape[0], rois[1], shape[1], *call.positive("output_size", 2)),)


@rule("TFLite", "non_max_suppression")
def non_max_suppression(call: ShapeCall) -> Results:
    """``count`` indices of boxes for each batch: the greatest number of boxes that can be kept."""
    boxes, scores = call.shape("boxes"), call.shape("scores")
    if len(boxes) != 3 or boxes[2] != 4 or scores != boxes[:2]:
        raise call.conflict("scores", f"scores of shape {list(scores)} do not fit boxes of shape {list(boxes)}")
    count, overlap = call.integer("count"), call.integer("overlap")
    if not 1 <= count <= boxes[1]:
        raise call.invalid("count", f"count must be in 1..{boxes[1]}, found {count}")
    if not 1 <= overlap <= 100:
        raise call.invalid("overlap", f"overlap must be in 1..100, found {overlap}")
    return ((boxes[0], count),)
