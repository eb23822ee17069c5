"""Convolution and pooling: windows along the axes after batch and channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from cvm.frontends.common.data_types import EVERYTHING
from cvm.frontends.common.decompositions.windows import Padding, Windows, convolution, pooling, sides
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import result
from cvm.frontends.onnx.rules.reductions import centred
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.graph import Operand as Argument

__all__: list[str] = []


def _require_plane(call: OnnxCall, source: Operand) -> None:
    if source.rank < 3:
        raise call.invalid(
            "shape", f"the input must have batch, channels and at least one axis more, found {list(source.shape)}"
        )


def _steps(call: OnnxCall, kernel: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides and dilations. Raises `Invalid` where one is not above 0."""
    count = len(kernel)
    strides, dilations = (call.sized(name, call.integers(name), count, 1) for name in ("strides", "dilations"))
    if any(item < 1 for item in (*kernel, *strides, *dilations)):
        raise call.invalid("attribute", "kernel_shape, strides and dilations must be above 0")
    return tuple(kernel), strides, dilations


def _pads(call: OnnxCall, count: int) -> Padding:
    given = call.sized("pads", call.integers("pads"), 2 * count, 0)
    if any(item < 0 for item in given):
        raise call.refuse(f"the pads {list(given)} are negative, which is not computed", "remove items with Slice")
    return tuple(zip(given[:count], given[count:], strict=True))


def _geometry(
    call: OnnxCall, source: Operand, kernel: Sequence[int], ceil: bool = False
) -> tuple[Windows, tuple[int, ...]]:
    """The windows of a convolution or a pooling, and the number of windows along each axis."""
    extents = source.shape[2:]
    kernel, strides, dilations = _steps(call, kernel)
    auto = call.text("auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilations, strict=True)]
    padding = _pads(call, len(extents)) if auto == "NOTSET" else ((0, 0),) * len(extents)
    if auto.startswith("SAME"):
        made = []
        for extent, step, span in zip(extents, strides, spans, strict=True):
            made.append(_halves(max((-(-extent // step) - 1) * step + span - extent, 0), auto))
        padding = tuple(made)
    outputs = []
    for extent, step, span, (before, after) in zip(extents, strides, spans, padding, strict=True):
        free = extent + before + after - span
        if free < 0:
            raise call.invalid(
                "shape", f"a window of {span} items is larger than the padded extent {extent + before + after}"
            )
        count = -(-free // step) + 1 if ceil else free // step + 1
        if ceil and (count - 1) * step >= extent + before:
            count -= 1  # a window must not begin after the last element
        outputs.append(count)
    return Windows(padding, strides, dilations), tuple(outputs)


def _halves(total: int, auto: str) -> tuple[int, int]:
    """The padding before and after an axis; SAME_UPPER puts the greater half of an odd total at the end."""
    less, more = total // 2, total - total // 2
    return (less, more) if auto == "SAME_UPPER" else (more, less)


# Convolution


def _require_filter(call: OnnxCall, source: Operand, weights: Operand, group: int) -> None:
    _require_plane(call, source)
    channels = source.shape[1]
    fits = source.rank == weights.rank and group >= 1 and channels == weights.shape[1] * group
    if not fits or weights.shape[0] % group:
        shapes = f"{list(weights.shape)} for the input {list(source.shape)}"
        raise call.invalid("shape", f"a filter of {shapes} does not fit {group} groups")
    _require_kernel_shape(call, weights)
    if source.rank > 5:
        raise call.refuse(f"a convolution over {source.rank - 2} axes is not computed", "use at most 3 axes")


def _require_kernel_shape(call: OnnxCall, weights: Operand) -> None:
    given = call.integers("kernel_shape")
    if given is not None and given != weights.shape[2:]:
        raise call.invalid(
            "attribute", f"kernel_shape is {list(given)}, but the filter has the shape {list(weights.shape)}"
        )


def _bias(translation: OnnxTranslation, call: OnnxCall, channels: int) -> Argument:
    bias = call.optional(2)
    if bias is None:
        return Fraction(0)
    if bias.shape != (channels,):
        raise call.invalid("shape", f"the bias has shape {list(bias.shape)}, not [{channels}]")
    return translation.reshape(translation.name(bias), (1, channels))


def _convolved(
    translation: OnnxTranslation,
    call: OnnxCall,
    source: Operand,
    name: str,
    weights: Operand,
    filter_name: str,
    bias: Argument,
    group: int,
) -> tuple[str, Shape]:
    windows, outputs = _geometry(call, source, weights.shape[2:])
    found = convolution(translation, name, filter_name, bias, windows, group)
    return found, (source.shape[0], weights.shape[0], *outputs)


@rule("Conv")
def conv(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Conv: a convolution with zero padding."""
    source, weights = call.operand(0), call.operand(1)
    data_type, group = call.same_type(source, weights), call.integer("group", 1)
    _require_filter(call, source, weights, group)
    bias = _bias(translation, call, weights.shape[0])
    names = translation.name(source), translation.name(weights)
    name, shape = _convolved(translation, call, source, names[0], weights, names[1], bias, group)
    return Made(name, shape, data_type)


@rule("ConvInteger")
def conv_integer(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ConvInteger: a convolution of integers minus their zero points; the padding is the zero point."""
    source, weights, group = call.operand(0), call.operand(1), call.integer("group", 1)
    _require_filter(call, source, weights, group)
    names = []
    for operand, index, axis in ((source, 2, -1), (weights, 3, 0)):
        zero = call.optional(index)
        if zero is not None:
            call.same_type(operand, zero)
        names.append(translation.name(operand) if zero is None else centred(translation, call, operand, zero, axis))
    name, shape = _convolved(translation, call, source, names[0], weights, names[1], Fraction(0), group)
    return result(translation, name, shape, "int32")


@rule("ConvTranspose")
def conv_transpose(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ConvTranspose: the transpose of a convolution; the filter is (channels, results per group, ..)."""
    source, weights, group = call.operand(0), call.operand(1), call.integer("group", 1)
    data_type = call.same_type(source, weights)
    _require_plane(call, source)
    channels, count = source.shape[1], source.rank - 2
    if source.rank != weights.rank or group < 1 or channels != weights.shape[0] or channels % group:
        shapes = f"{list(weights.shape)} for the input {list(source.shape)}"
        raise call.invalid("shape", f"a filter of {shapes} does not fit {group} groups")
    _require_kernel_shape(call, weights)
    windows, outputs = _transposed_geometry(call, source, weights.shape[2:], count)
    results = weights.shape[1] * group
    shape = (source.shape[0], results, *outputs)
    names = translation.name(source), translation.name(weights)
    name = convolution(translation, *names, _bias(translation, call, results), windows, group, shape)
    return Made(name, shape, data_type)


def _transposed_geometry(call: OnnxCall, source: Operand, kernel: Shape, count: int) -> tuple[Windows, tuple[int, ...]]:
    kernel, strides, dilations = _steps(call, kernel)
    extra = call.sized("output_padding", call.integers("output_padding"), count, 0)
    if any(not 0 <= item < max(step, gap) for item, step, gap in zip(extra, strides, dilations, strict=True)):
        raise call.invalid(
            "attribute", f"output_padding {list(extra)} must be below the strides {list(strides)} or the dilations"
        )
    auto = call.text("auto_pad", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    wished = call.integers("output_shape")
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, dilations, strict=True)]
    whole = [
        (extent - 1) * step + more + span
        for extent, step, more, span in zip(source.shape[2:], strides, extra, spans, strict=True)
    ]
    if wished is None and auto.startswith("SAME"):
        wished = tuple(extent * step for extent, step in zip(source.shape[2:], strides, strict=True))
    padding = _pads(call, count)
    if wished is not None:
        if len(wished) == source.rank:
            wished = wished[2:]
        made = []
        for size, target in zip(whole, call.sized("output_shape", wished, count, 0), strict=True):
            made.append(_halves(size - target, auto))
        padding = tuple(made)
    elif auto == "VALID":
        padding = ((0, 0),) * count
    outputs = tuple(size - before - after for size, (before, after) in zip(whole, padding, strict=True))
    if any(size < 1 for size in outputs) or any(min(pair) < 0 for pair in padding):
        raise call.refuse(
            f"its result would have the extents {list(outputs)} with the pads {[list(pair) for pair in padding]}"
        )
    return Windows(padding, strides, dilations), outputs


# Pooling


def _kernel(call: OnnxCall, source: Operand) -> tuple[int, ...]:
    """The extents of the window of a pooling."""
    _require_plane(call, source)
    kernel = call.integers("kernel_shape")
    if kernel is None or len(kernel) != source.rank - 2:
        raise call.invalid("attribute", f"kernel_shape is {kernel}, which does not fit the input {list(source.shape)}")
    return kernel


@rule("MaxPool", "AveragePool")
def pooling_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """MaxPool and AveragePool: the maximum or the mean of each window; elements beyond the end padding do not count."""
    source = call.operand()
    kernel = _kernel(call, source)
    call.integer("storage_order", 0)  # it concerns indices, which are not computed
    windows, outputs = _geometry(call, source, kernel, call.flag("ceil_mode", False))
    name, extents, padding = translation.name(source), source.shape[2:], windows.padding
    if call.node.op == "AveragePool" and call.flag("count_include_pad", False) and any(map(any, padding)):
        extents = tuple(n + before + after for n, (before, after) in zip(extents, padding, strict=True))
        around = ((0, 0), (0, 0), *padding)
        name = translation.emit("pad", name, padding=around, border="constant", value=Fraction(0))
        padding = ((0, 0),) * len(padding)
    before = [first for first, _ in padding]
    reached = sides(extents, outputs, kernel, windows.strides, before, windows.dilations)
    windows = replace(windows, padding=reached)
    greatest = call.node.op == "MaxPool"
    quantizer = EVERYTHING if greatest and not source.real else None
    op = "max_pool" if greatest else "avg_pool"
    name = pooling(translation, op, name, kernel, windows, quantizer=quantizer)
    return Made(name, (*source.shape[:2], *outputs), source.data_type)


@rule("LpPool")
def norm_pooling(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """LpPool: the norm of each window, the root of its sum of squares or its sum of magnitudes."""
    source, p = call.operand(), call.integer("p", 2)
    kernel = _kernel(call, source)
    if p not in (1, 2):
        raise call.refuse(f"a norm of order {p} is not computed", "use p 1 or 2")
    windows, outputs = _geometry(call, source, kernel, call.flag("ceil_mode", False))
    before = [first for first, _ in windows.padding]
    reached = sides(source.shape[2:], outputs, kernel, windows.strides, before, windows.dilations)
    windows = replace(windows, padding=reached)
    name = translation.name(source)
    if p == 2:
        name = pooling(translation, "l2_pool", name, kernel, windows)
    else:
        name = pooling(translation, "avg_pool", translation.emit("abs", name), kernel, windows, border="constant")
        name = translation.emit("mul", name, Fraction(math.prod(kernel)))
    return Made(name, (*source.shape[:2], *outputs), source.data_type)


@rule("GlobalAveragePool", "GlobalMaxPool")
def global_pooling(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """GlobalAveragePool and GlobalMaxPool: the mean or the maximum of each channel."""
    source = call.operand()
    _require_plane(call, source)
    shape = source.shape[:2] + (1,) * (source.rank - 2)
    op = "mean_reduce" if call.node.op == "GlobalAveragePool" else "max_reduce"
    if math.prod(source.shape[2:]) == 1:
        return Made(translation.name(source), shape, source.data_type)
    axes = tuple(range(2, source.rank))
    return Made(translation.emit(op, translation.name(source), axes=axes), shape, source.data_type)
