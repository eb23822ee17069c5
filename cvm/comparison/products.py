"""Rounding models for sums of products in float32, where the order of the products decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import fused_multiply_add
from cvm.comparison.floats import at_tap, decoded, in_codes
from cvm.comparison.numbers import F, Numbers, Stages

__all__ = ["blocks_of_products", "columns_of_products"]

Array = npt.NDArray[Any]
_TERMS = 2**26
"""The most products of one tensor: each of them is some ten operations of NumPy."""
_BLOCK = 32
"""How many numbers have a scale together, where data is quantised once more."""


def columns_of_products(numbers: Numbers, fused: bool) -> Stages:
    """A transposed convolution in float32: for each element of the kernel a sum over channels, then these are added.

    Products are summed over input channels first, one after the other; the sums of all elements of the kernel are then
    added to the image, in the order of rows and columns, and the bias at last. ``fused``: by fused multiply-adds.
    """
    region = numbers.region
    data, weights = region.operands
    if region.operation.name != "deconv" or data is None or weights is None or numbers.result.ndim != 4:
        return []
    kernel = numbers.real[weights.tensor].astype(F)
    if numbers.real[data.tensor].size * kernel[0].size > _TERMS:
        return []
    image = _placed(decoded(numbers, data), kernel, numbers.result.shape, region.operation.attributes, fused)
    stages: Stages = [("products summed in float32", image)]
    if region.bias is not None:
        image = image + numbers.real[region.bias].astype(F).reshape(1, -1, 1, 1)
        stages.append(("plus bias", image))
    return [*stages, *in_codes(numbers, image)]


def _placed(data: Array, kernel: Array, shape: tuple[int, ...], attributes: Any, fused: bool) -> Array:
    """The image that a transposed convolution adds up, without bias."""
    stride, dilation = attributes.get("stride") or (1, 1), attributes.get("dilation") or (1, 1)
    before = [ends[0] for ends in attributes.get("padding") or ((0, 0), (0, 0))]
    rows, columns = kernel.shape[2:]
    size = [(data.shape[2 + n] - 1) * stride[n] + (kernel.shape[2 + n] - 1) * dilation[n] + 1 for n in (0, 1)]
    size = [max(size[n], shape[2 + n] + before[n]) for n in (0, 1)]
    whole: Array = np.zeros((*shape[:2], *size), F)
    for row, column in np.ndindex(rows, columns):
        made = np.concatenate(list(_channels(data, kernel[:, :, row, column], attributes["groups"], fused)), axis=1)
        whole[at_tap((row, column), data.shape[2:], stride, dilation)] += made
    return whole[:, :, before[0] : before[0] + shape[2], before[1] : before[1] + shape[3]]


def _channels(data: Array, weights: Array, groups: int, fused: bool) -> Iterator[Array]:
    """For each group the products with the weights of one element of the kernel, summed over its input channels."""
    each = data.shape[1] // (groups or data.shape[1])
    for first in range(0, data.shape[1], each):
        total = np.zeros((data.shape[0], weights.shape[1], *data.shape[2:]), F)
        for channel in range(first, first + each):
            factor = weights[channel][None, :, None, None]
            taken = data[:, channel : channel + 1]
            total = fused_multiply_add(taken, factor, total) if fused else total + taken * factor
        yield total


def blocks_of_products(numbers: Numbers) -> Stages:
    """A product with a stored matrix, whose data operand is quantised once more: to 8 bits, by blocks of 32 numbers.

    The scale of a block is the greatest magnitude in it over 127. Each block has an integer sum, which is scaled in
    float32; these are added one by one, and the bias at last.
    """
    region = numbers.region
    data, weights = region.operands
    if data is None or weights is None or region.operation.name not in ("linear", "matmul"):
        return []
    real, stored = decoded(numbers, data), numbers.real[weights.tensor]
    if stored.ndim != 2 or region.operation.attributes.get("transposeA") is True:
        return []
    matrix = stored.T if region.operation.name == "linear" or region.operation.attributes.get("transposeB") else stored
    scales = np.broadcast_to(np.ravel(weights.scale), matrix.shape[1:])
    rows, codes = real.reshape(-1, matrix.shape[0]), np.rint(matrix / scales)
    total: Array = np.zeros((len(rows), matrix.shape[1]), F)
    for first in range(0, matrix.shape[0], _BLOCK):
        block = rows[:, first : first + _BLOCK]
        most = np.abs(block).max(axis=1, keepdims=True)
        again = np.rint(block * np.where(most > 0, F(127) / np.where(most > 0, most, F(1)), F(0)))
        sums = again.astype(np.float64) @ codes[first : first + _BLOCK]
        total = total + sums.astype(F) * (most / F(127) * scales.astype(F))
    shaped = total.reshape(numbers.result.shape)
    if region.bias is not None:
        shaped = shaped + numbers.real[region.bias].astype(F).reshape(1, -1)
    return [("result of requantised blocks in float32", shaped), *in_codes(numbers, shaped)]
