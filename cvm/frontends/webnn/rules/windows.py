"""Convolution, pooling and resampling: batch and channels are moved to the front, height and width to the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.frontends.webnn.operand import MLOperand, WebnnNode, bounds, is_float
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal, unit

__all__: list[str] = []


def _ordered(translation: WebnnTranslation, name: str, shape: Sequence[int], layout: str, wish: str) -> str:
    """A tensor whose axes have the letters of ``layout``, in the order of ``wish``."""
    if layout == wish:
        return name
    axes = tuple(layout.index(letter) for letter in wish)
    return translation.emit("transpose", {"input": name}, [shape[axis] for axis in axes], axes=axes)


def _in_layout(shape: Sequence[int], layout: str, wish: str) -> list[int]:
    return [shape[layout.index(letter)] for letter in wish]


def _sides(padding: Sequence[int]) -> tuple[tuple[int, int], ...]:
    top, bottom, left, right = padding
    return (top, bottom), (left, right)


def _bias(translation: WebnnTranslation, node: WebnnNode) -> str | Fraction:
    bias = node.operands.get("bias")
    if bias is None:
        return Fraction(0)
    return translation.emit("reshape", {"input": translation.name(bias)}, (1, bias.shape[0]))


def _filter(translation: WebnnTranslation, operand: MLOperand, layout: str, wish: str) -> str:
    return _ordered(translation, translation.name(operand), operand.shape, layout, wish)


@rule("conv2d", "convTranspose2d")
def convolution(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A convolution, or the transpose of one."""
    attributes, output = node.attributes, node.outputs[0]
    layout, order = attributes["input_layout"], attributes["filter_layout"]
    source = node.operands["input"]
    transposed = node.op == "convTranspose2d"
    if transposed and _in_layout(source.shape, layout, "c")[0] % attributes["groups"]:
        raise refusal(output, "the input channels cannot be cut into the groups", "choose groups that divide them")
    inputs = {
        "input": _ordered(translation, translation.name(source), source.shape, layout, "nchw"),
        "filter": _filter(translation, node.operands["filter"], order, "iohw" if transposed else "oihw"),
        "bias": _bias(translation, node),
    }
    shape = _in_layout(output.shape, layout, "nchw")
    further: dict[str, Any] = {"output_shape": tuple(shape)} if transposed else {}
    name = translation.emit(
        "deconv" if transposed else "conv",
        inputs,
        shape,
        border="constant",
        padding=_sides(attributes["padding"]),
        stride=attributes["strides"],
        dilation=attributes["dilations"],
        groups=attributes["groups"],
        **further,
    )
    return _ordered(translation, name, shape, "nchw", layout)


_POOLS = {"averagePool2d": "avg_pool", "l2Pool2d": "l2_pool", "maxPool2d": "max_pool"}


@rule(*_POOLS)
def pooling(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The mean, norm or greatest of what is no padding; the windows that are asked for say how much padding is read."""
    attributes, output, source = node.attributes, node.outputs[0], node.operands["input"]
    layout = attributes["layout"]
    name = _ordered(translation, translation.name(source), source.shape, layout, "nchw")
    extents, shape = (_in_layout(item.shape, layout, "nchw") for item in (source, output))
    padding = [(0, 0), (0, 0)]
    for i, (before, _) in enumerate(_sides(attributes["padding"])):
        reach = (attributes["sizes"][i] - 1) * attributes["strides"][i]
        covered = (attributes["window"][i] - 1) * attributes["dilations"][i] + 1
        padding.append((before, reach + covered - extents[2 + i] - before))
    found = translation.emit(
        _POOLS[node.op],
        {"input": name},
        shape,
        size=(1, 1, *attributes["window"]),
        border="ignore",
        padding=tuple(padding),
        stride=(1, 1, *attributes["strides"]),
        dilation=(1, 1, *attributes["dilations"]),
    )
    return _ordered(translation, found, shape, "nchw", layout)


# Resampling


@rule("resample2d")
def resample2d(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Axis by axis: the nearest element, or a weighted sum of two; of integers rounded once, half to even."""
    source, output = node.operands["input"], node.outputs[0]
    linear = node.attributes["mode"] == "linear"
    name, shape = translation.name(source), list(source.shape)
    for axis in node.attributes["axes"]:
        extent, shape[axis] = shape[axis], output.shape[axis]
        at = _coordinates(extent, shape[axis])
        if not linear:
            # ceil(x - 1/2): a half goes down.
            name = _at(translation, name, [math.ceil(x - Fraction(1, 2)) for x in at], axis, shape)
            continue
        low, high = ([f(x) for x in at] for f in (math.floor, math.ceil))
        weights = [x - math.floor(x) for x in at]
        sides = [
            _weighted(translation, _at(translation, name, places, axis, shape), parts, axis, shape)
            for places, parts in ((low, [1 - w for w in weights]), (high, weights))
        ]
        name = translation.emit("add", {"x": sides[0], "y": sides[1]}, shape)
    if linear and not is_float(source.data_type):
        return translation.emit("copy", {"x": name}, shape, quantizer=unit(*bounds(source.data_type)))
    return name


def _coordinates(extent: int, size: int) -> list[Fraction]:
    """Where each output reads: (o + 1/2) * extent / size - 1/2, cut to the input."""
    last = Fraction(extent - 1)
    return [min(max(Fraction((2 * o + 1) * extent, 2 * size) - Fraction(1, 2), Fraction(0)), last) for o in range(size)]


def _at(translation: WebnnTranslation, name: str, places: Sequence[int], axis: int, shape: Sequence[int]) -> str:
    indices = translation.constant(np.array(places, np.int64), (len(places),))
    return translation.emit("gather", {"input": name, "indices": indices}, shape, axis=axis)


def _weighted(
    translation: WebnnTranslation, name: str, weights: Sequence[Fraction], axis: int, shape: Sequence[int]
) -> str:
    """Times one weight per position of an axis: integers over a common denominator."""
    denominator = math.lcm(*(Fraction(weight).denominator for weight in weights))
    extents = [len(weights) if i == axis else 1 for i in range(len(shape))]
    items = np.array([int(weight * denominator) for weight in weights], np.int64)
    product = translation.emit("mul", {"x": name, "y": translation.constant(items, extents)}, shape)
    return translation.emit("mul", {"x": product, "y": Fraction(1, denominator)}, shape)
