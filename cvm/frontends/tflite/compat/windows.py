"""Convolutions, pooling and fully connected layers as TFLite's reference kernels compute them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import bounds
from cvm.frontends.common.decompositions.sums import Taps, resampled
from cvm.frontends.common.decompositions.windows import convolution, pooling
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.compat.codes import Grid, clip_of, grid_of, placed, rescaled, rescaled_once, stepped
from cvm.frontends.tflite.compat.fixed_point import Multiplier, effective
from cvm.frontends.tflite.compat.registry import rule
from cvm.frontends.tflite.floats import binary32, binary64
from cvm.frontends.tflite.rules.geometry import filter_layout, pairs, resized, transposed_windows, windows_of
from cvm.frontends.tflite.rules.reductions import product_of_matrices
from cvm.frontends.tflite.translation import TfliteTranslation
from cvm.graph import Operand as Argument
from cvm.quantization import LinearQuantizer

__all__ = ["bias_codes", "filter_codes"]


def filter_codes(translation: TfliteTranslation, call: TfliteCall, weights: Operand, order: Sequence[int]) -> str:
    """A constant filter as integers minus its zero points, with its axes permuted by ``order``."""
    if weights.values is None or weights.tensor.quantization is None or weights.quantizer is None:
        raise call.refuse(f"its weights {weights.label} must be constant codes", "compile it without --compat")
    found = weights.tensor.quantization
    if len(set(found.zero_points)) > 1:
        raise call.refuse(f"{weights.label} has zero points that differ", "compile it without --compat")
    items, zero = np.ascontiguousarray(weights.values.transpose(order)), Fraction(found.zero_points[0])
    lo, hi = bounds(weights.data_type)
    return translation.constant(items, items.shape, LinearQuantizer((Fraction(1),), (-zero,), lo, hi))


def bias_codes(translation: TfliteTranslation, call: TfliteCall, index: int, results: int) -> Argument:
    """The integers of a bias, or 0 where there is none."""
    bias = call.optional(index)
    if bias is None:
        return Fraction(0)
    items = call.constant(index, "the bias")
    if math.prod(bias.shape) != results or bias.data_type not in ("int32", "int64"):
        raise call.invalid("shape", f"the bias {bias.label} must be {results} integers")
    return translation.constant(items.astype(np.int64), (1, results))


def _factors(call: TfliteCall, source: Grid, weights: Operand, result: Grid, per_channel: bool) -> list[Multiplier]:
    """The multipliers of the sums: per channel, from 64-bit floats; else a single one, from a
    32-bit product of scales.
    """
    assert weights.quantizer is not None
    if not per_channel:
        if len(weights.quantizer.scale) > 1:
            raise call.refuse(f"{weights.label} has scales per axis, which its reference kernel does not support")
        product = binary32(source.scale * weights.quantizer.scale[0])
        return [Multiplier.of(binary64(product / result.scale))]
    return [Multiplier.of(effective(source.scale, scale, result.scale)) for scale in weights.quantizer.scale]


@rule("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Sums of products of integers, scaled per channel and rounded twice.

    For codes of 16 bits, with a bias of 64 bits, sums are scaled by a multiplier of 15 bits and rounded once.
    """
    source, weights = call.operand(0), call.operand(1)
    given, result = (grid_of(call, item, "int8", "uint8", "int16") for item in (source.tensor, call.result))
    scaled = rescaled_once if _wide(call, source, call.optional(2)) else rescaled
    order, results, groups = filter_layout(call, source, weights, call.operator.op == "DEPTHWISE_CONV_2D")
    windows, _ = windows_of(call, source.shape[1:3], weights.shape[1:3], ("H", "W"), dilated=True)
    x = stepped(translation, translation.planar(source), given)
    filter_ = filter_codes(translation, call, weights, order)
    name = convolution(translation, x, filter_, bias_codes(translation, call, 2, results), windows, groups)
    factors = _factors(call, given, weights, result, source.data_type != "uint8")
    return Made(scaled(translation, name, factors, result, clip_of(call, result)), planar=True)


@rule("TRANSPOSE_CONV")
def transpose_conv(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The transpose of a convolution, with sums that are scaled and rounded like those of a
    convolution.
    """
    shape, weights, source = call.integers(0, "the shape of the result"), call.operand(1), call.operand(2)
    given, result = (grid_of(call, item, "int8", "uint8", "int16") for item in (source.tensor, call.result))
    scaled = rescaled_once if _wide(call, source, call.optional(3)) else rescaled
    windows, target = transposed_windows(call, shape, weights, source)
    x = stepped(translation, translation.planar(source), given)
    filter_ = filter_codes(translation, call, weights, (3, 0, 1, 2))
    name = convolution(translation, x, filter_, bias_codes(translation, call, 3, target[1]), windows, 1, target)
    factors = _factors(call, given, weights, result, source.data_type != "uint8")
    return Made(scaled(translation, name, factors, result, clip_of(call, result)), planar=True)


def _wide(call: TfliteCall, source: Operand, bias: Operand | None) -> bool:
    """Whether codes have 16 bits. Raises `Unsupported` where TFLite runs another kernel for them."""
    types = {source.data_type, call.result.data_type}
    if "int16" not in types:
        return False
    zeros = [grid_of(call, tensor, "int16").zero for tensor in (source.tensor, call.result) if len(types) == 1]
    if len(types) > 1 or any(zeros) or bias is None or bias.data_type != "int64":
        message = "codes of 16 bits are computed with zero points of 0 and a bias of 64 bits alone"
        raise call.refuse(message, "compile it without --compat")
    return True


@rule("FULLY_CONNECTED")
def fully_connected(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Sums of products of integers, scaled by one multiplier, or one per channel where weights have
    scales.

    For codes of 16 bits, with a bias of 64 bits, sums are scaled by a multiplier of 15 bits and rounded once.
    """
    source, weights = call.operand(0), call.operand(1)
    call.require_rank(weights, 2)
    given, result = (grid_of(call, item, "int8", "uint8", "int16") for item in (source.tensor, call.result))
    scaled = rescaled_once if _wide(call, source, call.optional(2)) else rescaled
    if call.integer("WeightsFormat"):
        raise call.refuse("its weights are shuffled", "convert the model without shuffled weights")
    results, depth = weights.shape
    if not depth or math.prod(source.shape) % depth:
        raise call.invalid("shape", f"weights of {list(weights.shape)} do not fit the input {list(source.shape)}")
    x = translation.reshape(translation.name(source), (math.prod(source.shape) // depth, depth))
    matrix = filter_codes(translation, call, weights, (0, 1))
    name = translation.emit(
        "linear", stepped(translation, x, given), matrix, bias_codes(translation, call, 2, results)
    )  # fmt: skip
    per_channel = weights.quantizer is not None and len(weights.quantizer.scale) > 1
    factors = _factors(call, given, weights, result, per_channel)
    name = scaled(translation, name, factors, result, clip_of(call, result))
    if call.flag("KeepNumDims") and source.rank != 2:
        name = translation.reshape(name, (*source.shape[:-1], results))
    return Made(name)


@rule("BATCH_MATMUL")
def batch_matmul(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Sums of products of the integers of two tensors, scaled by one multiplier and rounded twice."""
    sides = call.operand(0), call.operand(1)
    grids = [grid_of(call, side.tensor, "int8") for side in sides]
    result = grid_of(call, call.result, "int8")
    names = [stepped(translation, translation.name(side), grid) for side, grid in zip(sides, grids, strict=True)]
    name = product_of_matrices(translation, call, names)
    factor = Multiplier.of(binary64(binary32(grids[0].scale * grids[1].scale) / result.scale))
    return Made(rescaled(translation, name, [factor], result, (result.lo, result.hi)))


@rule("AVERAGE_POOL_2D")
def average_pool(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The mean of the codes of each window, ties away from 0; padding does not count.

    A mean of up to n codes is a multiple of 1 / n' with n' <= n, so subtracting 1 / (2n) changes only how a tie is
    rounded.
    """
    source = call.operand()
    call.require_rank(source, 4)
    given, result = (grid_of(call, item, "int8", "uint8") for item in (source.tensor, call.result))
    kernel = pairs(call, "Filter", "Height", "Width")
    windows, _ = windows_of(call, source.shape[1:3], kernel, ("H", "W"), dilated=False)
    steps = stepped(translation, translation.planar(source), given)
    mean = pooling(translation, "avg_pool", steps, kernel, windows)
    offset = Fraction(given.zero - result.zero)
    if given.lo < 0:
        at_least = translation.emit("ge", mean, Fraction(-given.zero))
        tie = Fraction(1, 2 * math.prod(kernel))
        bit = translation.emit("select", at_least, tie, Fraction(0))
        mean, offset = translation.emit("add", mean, bit), offset - tie
    mean = translation.emit("add", mean, offset)
    return Made(placed(translation, mean, result, clip_of(call, result)), planar=True)


@rule("MAX_POOL_2D")
def max_pool(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The greatest code of each window."""
    source = call.operand()
    call.require_rank(source, 4)
    given, result = (grid_of(call, item, "int8", "uint8", "int16") for item in (source.tensor, call.result))
    kernel = pairs(call, "Filter", "Height", "Width")
    windows, _ = windows_of(call, source.shape[1:3], kernel, ("H", "W"), dilated=False)
    steps = stepped(translation, translation.planar(source), given)
    name = pooling(translation, "max_pool", steps, kernel, windows)
    name = translation.emit("add", name, Fraction(given.zero - result.zero))
    return Made(placed(translation, name, result, clip_of(call, result)), planar=True)


@rule("RESIZE_BILINEAR")
def resize_bilinear(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The four codes around each point, weighted in steps of 2^-10, ties away from 0.

    A sum of weighted codes is a multiple of 2^-20, so subtracting 2^-21 changes only how a tie is rounded.
    """
    source = call.operand()
    sizes = resized(call, source, translation.limits)
    given, result = (grid_of(call, item, "int8", "int16") for item in (source.tensor, call.result))
    if (given.scale, given.zero) != (result.scale, result.zero):
        raise call.refuse("its operand and its result have different scales or zero points")
    name = stepped(translation, translation.planar(source), given)
    for axis, (extent, size) in enumerate(zip(source.shape[1:3], sizes, strict=True), 2):
        name = resampled(translation, name, _neighbours(call, extent, size), axis, skip_ones=True)
    not_negative = translation.emit("ge", name, Fraction(-given.zero))
    bit = translation.emit("select", not_negative, Fraction(1, 2**21), Fraction(0))
    name = translation.emit("add", translation.emit("add", name, bit), Fraction(-1, 2**21))
    return Made(placed(translation, name, result, (result.lo, result.hi)), planar=True)


def _neighbours(call: TfliteCall, extent: int, size: int) -> Taps:
    """For each output index along an axis, the two input elements around its coordinate, weighted in steps of 2^-10."""
    corners, centres = call.flag("AlignCorners"), call.flag("HalfPixelCenters")
    if corners and centres:
        raise call.invalid("option", "AlignCorners and HalfPixelCenters exclude each other")
    scale = (2**10 * extent + size // 2) // size
    if corners and size > 1:
        scale = (2**10 * (extent - 1) + (size - 1) // 2) // (size - 1)
    found = []
    for index in range(size):
        at = index * scale + (scale // 2 - 2**9 if centres else 0)
        low, high = max(at // 2**10, 0), min(max(-(-at // 2**10), 0), extent - 1)
        if low >= extent:
            raise call.refuse(f"the kernel reads beyond the {extent} elements of an axis")
        weight = Fraction(at - 2**10 * low, 2**10)
        found.append([(low, 1 - weight), (high, weight)])
    return found
