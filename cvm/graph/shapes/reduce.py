"""Shapes of reductions and normalisations: NNEF 1.0.1 sections 4.4, 4.9.4 and 4.9.6 (moments)."""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, ShapeCall, rule
from cvm.graph.shapes.window import Window

__all__: list[str] = []


@rule("4.4", "sum_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce", "mean_reduce")
@rule("4.4", "any_reduce", "all_reduce")
def reduce(call: ShapeCall) -> Results:
    """The shape of the input, with extent 1 along the reduced axes."""
    shape = call.shape("input")
    axes = call.axes(len(shape))
    return (tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)),)


@rule("4.9.6", "moments")
def moments(call: ShapeCall) -> Results:
    """The shapes of two reductions: the mean and the variance."""
    return reduce(call) * 2


@rule(
    "4.9.4",
    "local_response_normalization",
    "local_mean_normalization",
    "local_variance_normalization",
    "local_contrast_normalization",
)
def local_normalization(call: ShapeCall) -> Results:
    """The shape of the input. The window has one extent per dimension of the input, and stride 1 in each."""
    shape = call.shape("input")
    call.accuracy()
    size = call.positive("size", len(shape))
    ones = (1,) * len(shape)
    return (call.broadcast(shape, Window(call, size, None, ones, ones, "constant").down(shape)),)


@rule("4.9.4", "l1_normalization", "l2_normalization")
def norm(call: ShapeCall) -> Results:
    """The shape of the input. Every item of ``axes`` must be an axis of the input."""
    shape = call.shape("input")
    call.axes(len(shape))
    return (shape,)


@rule("4.9.4", "batch_normalization")
def batch_normalization(call: ShapeCall) -> Results:
    """The common shape of the input and its four parameters."""
    return (call.broadcast(*(call.shape(name) for name in ("input", "mean", "variance", "offset", "scale"))),)
