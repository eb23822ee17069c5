"""Convolutions, pooling and fully connected layers; in the graph their channels are axis 1."""

from __future__ import annotations

import math
from fractions import Fraction

from cvm.frontends.common.decompositions.windows import convolution, pooling
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.rules.geometry import filter_layout, pairs, transposed_windows, windows_of
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.graph import Operand as Argument

__all__: list[str] = []


def _filter(
    translation: TfliteTranslation, call: TfliteCall, source: Operand, weights: Operand, depthwise: bool
) -> tuple[str, int, int]:
    """The filter with results at axis 0 and channels at axis 1, the number of results, and the number of groups."""
    order, results, groups = filter_layout(call, source, weights, depthwise)
    return translation.stored(weights, order=order), results, groups


def _bias(translation: TfliteTranslation, call: TfliteCall, index: int, channels: int) -> Argument:
    bias = call.optional(index)
    if bias is None:
        return Fraction(0)
    if math.prod(bias.shape) != channels:
        raise call.invalid("shape", f"the bias {bias.label} has shape {list(bias.shape)}, not [{channels}]")
    return translation.stored(bias, (1, channels))


@rule("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A convolution, then a fused activation."""
    source, weights = call.operand(0), call.operand(1)
    filter_, results, groups = _filter(translation, call, source, weights, call.operator.op == "DEPTHWISE_CONV_2D")
    windows, _ = windows_of(call, source.shape[1:3], weights.shape[1:3], ("H", "W"), dilated=True)
    name = convolution(
        translation, translation.planar(source), filter_, _bias(translation, call, 2, results), windows, groups
    )
    return Made(translation.activated(call, name), planar=True)


@rule("CONV_3D")
def conv_3d(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A convolution over three axes; in the filter, channels come before results."""
    source, weights = call.operand(0), call.operand(1)
    call.require_rank(source, 5)
    call.require_rank(weights, 5)
    if weights.shape[3] != source.shape[4]:
        raise call.invalid("shape", f"a filter of {list(weights.shape)} does not fit {source.shape[4]} channels")
    filter_ = translation.stored(weights, order=(4, 3, 0, 1, 2))
    windows, _ = windows_of(call, source.shape[1:4], weights.shape[:3], ("D", "H", "W"), dilated=True)
    bias = _bias(translation, call, 2, weights.shape[4])
    name = convolution(translation, translation.planar(source), filter_, bias, windows, 1)
    return Made(translation.activated(call, name), planar=True)


@rule("TRANSPOSE_CONV")
def transpose_conv(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The transpose of a convolution, to a given shape; the filter's axes are
    results, space, channels.
    """
    shape, weights, source = call.integers(0, "the shape of the result"), call.operand(1), call.operand(2)
    windows, target = transposed_windows(call, shape, weights, source)
    filter_ = translation.stored(weights, order=(3, 0, 1, 2))
    bias = _bias(translation, call, 3, target[1])
    name = convolution(translation, translation.planar(source), filter_, bias, windows, 1, target)
    return Made(translation.activated(call, name), planar=True)


@rule("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def pool(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """mean, maximum or norm of each window; padding does not count."""
    source = call.operand()
    call.require_rank(source, 4)
    kernel = pairs(call, "Filter", "Height", "Width")
    windows, _ = windows_of(call, source.shape[1:3], kernel, ("H", "W"), dilated=False)
    op = {"AVERAGE_POOL_2D": "avg_pool", "MAX_POOL_2D": "max_pool"}.get(call.operator.op)
    if op is None:
        raise call.refuse("norms of windows are not computed", "use AVERAGE_POOL_2D of squares")
    name = pooling(translation, op, translation.planar(source), kernel, windows)
    return Made(translation.activated(call, name), planar=True)


@rule("FULLY_CONNECTED")
def fully_connected(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The product of input rows with a weight matrix, plus a bias, then a fused activation."""
    source, weights = call.operand(0), call.operand(1)
    call.require_rank(weights, 2)
    if call.integer("WeightsFormat"):
        raise call.refuse("its weights are shuffled", "convert the model without shuffled weights")
    results, depth = weights.shape
    count = math.prod(source.shape)
    if not depth or count % depth:
        raise call.invalid("shape", f"weights of {list(weights.shape)} do not fit the input {list(source.shape)}")
    rows = count // depth
    name = translation.name(source)
    if source.shape != (rows, depth):
        name = translation.reshape(name, (rows, depth))
    matrix = translation.name(weights) if weights.values is None else translation.stored(weights)
    name = translation.emit("linear", name, matrix, _bias(translation, call, 2, results))
    name = translation.activated(call, name)
    if call.flag("KeepNumDims") and source.rank != 2:
        name = translation.reshape(name, (*source.shape[:-1], results))
    return Made(name)
