"""Shapes of sliding-window operations and poolings: NNEF 1.0.1 sections 4.3, 4.9.2 (separable) and 4.9.3."""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, Shape, ShapeCall, rule
from cvm.graph.shapes.window import FILTER_BORDERS, Window

__all__: list[str] = []


def _check_bias(call: ShapeCall, result: Shape) -> None:
    """Require a bias whose channel extent is the number of channels or 1, and whose other extents are 1."""
    bias, channels = call.shape("bias"), result[1]
    if call.wide_bias and bias == (1, *result[1:]):
        return
    for axis, extent in enumerate(bias):
        if extent != 1 and (axis != 1 or extent != channels):
            raise call.conflict("bias", f"a bias of shape {list(bias)} does not fit {channels} output channels")


def _conv(call: ShapeCall, shape: Shape, kernel: Shape, groups: int, window: Window) -> Shape:
    """The shape of the result of a convolution; ``groups`` 0 stands for one group per input channel."""
    groups = _check_filter(call, shape, kernel, groups, shape[1] if len(shape) > 1 else 1)
    if kernel[1] * groups != shape[1]:
        message = f"{kernel[1]} filter channels in {groups} groups do not fit {shape[1]} input channels"
        raise call.conflict("channels", message)
    return (shape[0], kernel[0], *window.down(shape[2:]))


def _check_filter(call: ShapeCall, shape: Shape, kernel: Shape, groups: int, depthwise: int) -> int:
    if len(shape) < 2 or len(kernel) != len(shape):
        message = f"the filter must have the rank of the input, at least 2; found {len(kernel)} and {len(shape)}"
        raise call.conflict("rank", message)
    if groups < 0:
        raise call.invalid("groups", f"groups must not be negative, found {groups}")
    groups = groups or depthwise
    if kernel[0] % groups:
        raise call.invalid("groups", f"{groups} groups do not divide a filter of batch {kernel[0]}")
    return groups


def _deconv(call: ShapeCall, shape: Shape, kernel: Shape, groups: int, window: Window, reference: Shape) -> Shape:
    """The shape of the result of a deconvolution; the batch dimension of its filter is the input's number of channels.

    The channels of the result are the filter's channels times the groups, by the formula of section 4.3.1; the sentence
    there describes conv. ``groups`` 0 stands for one group per output channel.
    """
    if len(shape) >= 2 and len(reference) not in (0, len(shape)):
        raise call.invalid("output_shape", f"output_shape must have {len(shape)} items or none, found {len(reference)}")
    depthwise = next((extents[1] for extents in (reference, shape) if len(extents) > 1), 1)
    if depthwise < 1:
        raise call.invalid("output_shape", f"items of output_shape must be positive, found {list(reference)}")
    groups = _check_filter(call, shape, kernel, groups, depthwise)
    if kernel[0] != shape[1]:
        raise call.conflict("channels", f"a filter of batch {kernel[0]} does not fit {shape[1]} input channels")
    channels = kernel[1] * groups
    if reference and reference[:2] != (shape[0], channels):
        message = f"output_shape {list(reference)} does not have batch {shape[0]} and {channels} channels"
        raise call.conflict("output_shape", message)
    return (shape[0], channels, *window.up(shape[2:], reference[2:]))


@rule("4.3.1", "conv")
def conv(call: ShapeCall) -> Results:
    """The batch of the input, the batch of the filter as channels, and the down-scaled spatial extents."""
    kernel = call.shape("filter")
    window = Window.of(call, kernel[2:], FILTER_BORDERS)
    result = _conv(call, call.shape("input"), kernel, call.integer("groups"), window)
    _check_bias(call, result)
    return (result,)


@rule("4.3.1", "deconv")
def deconv(call: ShapeCall) -> Results:
    """The batch of the input, the channels of the filter times the groups, and the up-scaled spatial extents."""
    kernel = call.shape("filter")
    window = Window.of(call, kernel[2:], FILTER_BORDERS)
    reference = call.integers("output_shape")
    result = _deconv(call, call.shape("input"), kernel, call.integer("groups"), window, reference)
    _check_bias(call, result)
    return (result,)


def _plane_kernel(call: ShapeCall, channels: int) -> Shape:
    kernel = call.shape("plane_filter")
    if len(kernel) < 2 or kernel[1] != 1 or kernel[0] % max(channels, 1):
        raise call.conflict("channels", f"a plane filter of shape {list(kernel)} does not fit {channels} channels")
    return kernel


def _point_window(call: ShapeCall, rank: int) -> Window:
    return Window(call, (1,) * rank, None, (1,) * rank, (1,) * rank, "constant")


def _point_kernel(call: ShapeCall) -> Shape:
    kernel = call.shape("point_filter")
    if any(extent != 1 for extent in kernel[2:]):
        raise call.conflict("point_filter", f"a point filter of shape {list(kernel)} must have spatial extents of 1")
    return kernel


@rule("4.9.2", "separable_conv")
def separable_conv(call: ShapeCall) -> Results:
    """The shape after a depth-wise convolution and a convolution whose filter has extent 1 in space."""
    shape, point = call.shape("input"), _point_kernel(call)
    plane = _plane_kernel(call, shape[1] if len(shape) > 1 else 1)
    filtered = _conv(call, shape, plane, 0, Window.of(call, plane[2:], FILTER_BORDERS))
    result = _conv(call, filtered, point, call.integer("groups"), _point_window(call, max(len(point) - 2, 0)))
    _check_bias(call, result)
    return (result,)


@rule("4.9.2", "separable_deconv")
def separable_deconv(call: ShapeCall) -> Results:
    """The shape after a deconvolution whose filter has extent 1 in space and a depth-wise deconvolution."""
    shape, point = call.shape("input"), _point_kernel(call)
    filtered = _deconv(call, shape, point, call.integer("groups"), _point_window(call, max(len(point) - 2, 0)), ())
    plane = _plane_kernel(call, 1)
    window = Window.of(call, plane[2:], FILTER_BORDERS)
    result = _deconv(call, filtered, plane, 0, window, call.integers("output_shape"))
    _check_bias(call, result)
    return (result,)


def _window(call: ShapeCall, shape: Shape, borders: tuple[str, ...] = ("ignore", *FILTER_BORDERS)) -> Window:
    size = call.integers("size")
    if len(size) != len(shape):
        raise call.invalid("size", f"size must have {len(shape)} items, found {len(size)}")
    return Window.of(call, size, borders)


@rule("4.3.2", "box")
@rule("4.3.3", "argmax_pool")
@rule("4.9.3", "max_pool", "avg_pool", "rms_pool")
def box(call: ShapeCall) -> Results:
    """All extents scaled down, those of batch and channels, too."""
    shape = call.shape("input")
    return (_window(call, shape).down(shape),)


@rule("4.9.3", "max_pool_with_index")
def max_pool_with_index(call: ShapeCall) -> Results:
    """All extents scaled down, once for the maxima and once for their indices."""
    return box(call) * 2


def _reference(call: ShapeCall, rank: int) -> Shape:
    reference = call.integers("output_shape")
    if len(reference) not in (0, rank):
        raise call.invalid("output_shape", f"output_shape must have {rank} items or none, found {len(reference)}")
    return reference


@rule("4.3.2", "debox")
def debox(call: ShapeCall) -> Results:
    """All extents scaled up."""
    shape = call.shape("input")
    return (_window(call, shape).up(shape, _reference(call, len(shape))),)


@rule("4.3.3", "sample")
def sample(call: ShapeCall) -> Results:
    """All extents scaled down; the indices must have that shape."""
    shape, index = call.shape("input"), call.shape("index")
    result = _window(call, shape, FILTER_BORDERS).down(shape)
    if index != result:
        raise call.conflict("index", f"indices of shape {list(index)} do not fit a result of shape {list(result)}")
    return (result,)


@rule("4.3.3", "desample")
def desample(call: ShapeCall) -> Results:
    """All extents scaled up; the indices must have the shape of the input."""
    shape, index = call.shape("input"), call.shape("index")
    if index != shape:
        raise call.conflict("index", f"indices of shape {list(index)} do not fit an input of shape {list(shape)}")
    return (_window(call, shape, ("constant",)).up(shape, _reference(call, len(shape))),)


def _factors(call: ShapeCall, shape: Shape) -> Shape:
    if len(shape) < 2:
        raise call.conflict("rank", f"the input must have batch and channel dimensions, found rank {len(shape)}")
    return call.positive("factor", len(shape) - 2)


@rule("4.3.4", "nearest_downsample", "area_downsample")
def downsample(call: ShapeCall) -> Results:
    """Spatial extents divided by the factors, which must divide them."""
    shape = call.shape("input")
    factors = _factors(call, shape)
    for extent, factor in zip(shape[2:], factors, strict=True):
        if extent % factor:
            raise call.conflict("factor", f"an extent of {extent} is not divisible by {factor}")
    return ((*shape[:2], *(extent // factor for extent, factor in zip(shape[2:], factors, strict=True))),)


@rule("4.3.4", "nearest_upsample")
def nearest_upsample(call: ShapeCall) -> Results:
    """Spatial extents multiplied by the factors."""
    shape = call.shape("input")
    factors = _factors(call, shape)
    return ((*shape[:2], *(extent * factor for extent, factor in zip(shape[2:], factors, strict=True))),)


@rule("4.3.4", "multilinear_upsample")
def multilinear_upsample(call: ShapeCall) -> Results:
    """Spatial extents multiplied by the factors."""
    call.one_of("method", "asymmetric", "symmetric", "aligned")
    call.one_of("border", *FILTER_BORDERS)
    return nearest_upsample(call)
