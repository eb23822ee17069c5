"""Convolution, pooling and resampling: tensors are transposed to batch, channels, height, width first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import bounds, is_float, unit
from cvm.frontends.common.decompositions import windows
from cvm.frontends.common.decompositions.sums import resampled
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal

__all__: list[str] = []


def _ordered(translation: WebnnTranslation, name: str, layout: str, wish: str) -> str:
    """Transpose a tensor from the axis order ``layout`` to the axis order ``wish``; both are strings of letters."""
    return name if layout == wish else translation.transposed(name, [layout.index(letter) for letter in wish])


def _in_layout(shape: Sequence[int], layout: str, wish: str) -> list[int]:
    return [shape[layout.index(letter)] for letter in wish]


def _windows(node: WebnnNode) -> windows.Windows:
    top, bottom, left, right = node.attributes["padding"]
    attributes = node.attributes
    return windows.Windows(((top, bottom), (left, right)), attributes["strides"], attributes["dilations"])


def _bias(translation: WebnnTranslation, node: WebnnNode) -> str | Fraction:
    bias = node.operands.get("bias")
    if bias is None:
        return Fraction(0)
    return translation.reshape(translation.name(bias), (1, bias.shape[0]))


@rule("conv2d", "convTranspose2d")
def convolution(translation: WebnnTranslation, node: WebnnNode) -> str:
    """conv2d and convTranspose2d: a convolution, or its transpose."""
    attributes, output, source = node.attributes, node.outputs[0], node.operands["input"]
    layout, order, groups = attributes["input_layout"], attributes["filter_layout"], attributes["groups"]
    transposed = node.op == "convTranspose2d"
    if transposed and _in_layout(source.shape, layout, "c")[0] % groups:
        raise refusal(output, "the groups do not divide the input channels", "choose groups that divide them")
    x = _ordered(translation, translation.name(source), layout, "nchw")
    weights = _ordered(translation, translation.name(node.operands["filter"]), order, "iohw" if transposed else "oihw")
    shape = _in_layout(output.shape, layout, "nchw") if transposed else None
    bias = _bias(translation, node)
    name = windows.convolution(translation, x, weights, bias, _windows(node), groups, shape)
    return _ordered(translation, name, "nchw", layout)


_POOLS = {"averagePool2d": "avg_pool", "l2Pool2d": "l2_pool", "maxPool2d": "max_pool"}


@rule(*_POOLS)
def pooling(translation: WebnnTranslation, node: WebnnNode) -> str:
    """averagePool2d, l2Pool2d and maxPool2d: mean, norm or maximum of each window without its padding.

    The padding at the end of each axis is adjusted to the output size that the call asks for.
    """
    attributes, layout, found = node.attributes, node.attributes["layout"], _windows(node)
    name = _ordered(translation, translation.name(node.operands["input"]), layout, "nchw")
    before = [first for first, _ in found.padding]
    padding = windows.sides(
        translation.shape(name)[2:], attributes["sizes"], attributes["window"], found.strides, before, found.dilations
    )
    found = replace(found, padding=padding)
    name = windows.pooling(translation, _POOLS[node.op], name, attributes["window"], found)
    return _ordered(translation, name, "nchw", layout)


# Resampling


@rule("resample2d")
def resample2d(translation: WebnnTranslation, node: WebnnNode) -> str:
    """resample2d, axis by axis: the nearest element, or a weighted sum of two; integers are rounded
    once, half to even.
    """
    source, output = node.operands["input"], node.outputs[0]
    linear = node.attributes["mode"] == "linear"
    name = translation.name(source)
    for axis in node.attributes["axes"]:
        at = _coordinates(source.shape[axis], output.shape[axis])
        if linear:
            taps = [[(math.floor(x), 1 - (x - math.floor(x))), (math.ceil(x), x - math.floor(x))] for x in at]
            name = resampled(translation, name, taps, axis, skip_ones=False)
        else:
            # ceil(x - 1/2) rounds to the nearest index, ties down
            name = translation.taken(name, np.array([math.ceil(x - Fraction(1, 2)) for x in at], np.int64), axis)
    if linear and not is_float(source.data_type):
        return translation.emit("copy", name, quantizer=unit(*bounds(source.data_type)))
    return name


def _coordinates(extent: int, size: int) -> list[Fraction]:
    """The input coordinate of each output index o: (o + 1/2) * extent / size - 1/2, clipped to the input."""
    last = Fraction(extent - 1)
    return [min(max(Fraction((2 * o + 1) * extent, 2 * size) - Fraction(1, 2), Fraction(0)), last) for o in range(size)]
