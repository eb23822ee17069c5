"""The grids of QuantizeLinear and DequantizeLinear: scale and zero point per tensor, per index of an axis, or per
block.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.grids import Grid
from cvm.frontends.onnx.call import OnnxCall, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.tensors import data_type_of
from cvm.quantization import LinearQuantizer

__all__ = ["BIAS", "CODES", "data_type_of_codes", "grid_of", "input_quantizer"]

CODES = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2")
"""The data types of codes that QuantizeLinear may give."""

BIAS = "BiasDequantizeLinear"
"""An operator of our own that dequantises the bias of QLinearConv and QGemm by the product of two scales."""


def data_type_of_codes(call: OnnxCall) -> str:
    """The data type of the codes of a QuantizeLinear: that of its zero point, else ``output_dtype``, else uint8."""
    zero = call.optional(2)
    wish = call.integer("output_dtype", 0)
    named = data_type_of(wish, "output_dtype") if wish else None
    if zero is not None and named not in (None, zero.data_type):
        raise call.invalid("type", f"output_dtype is {named}, but the zero point is of {zero.data_type}")
    found = zero.data_type if zero is not None else named or "uint8"
    if found not in CODES:
        raise call.refuse(f"codes of data type {found} are not computed", f"use one of {', '.join(CODES)}")
    return found


def grid_of(call: OnnxCall, source: Operand, data_type: str) -> Grid:
    """The grid of a node for a tensor of the shape of ``source``. Raises `Unsupported` where the
    grid is not constant.
    """
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    call.ignore("saturate", "precision")  # for floats of 8 bits; for the division, which is exact here
    call.integer("output_dtype", 0)
    scale = _scales(call)
    zeros = np.zeros(scale.shape, np.int64)
    if call.node.op != BIAS and call.optional(2) is not None:
        zero = call.operand(2)
        if zero.data_type != data_type:
            raise call.invalid("type", f"the zero point is of {zero.data_type}, the integers of {data_type}")
        zeros = call.constant(2, "the zero point").astype(np.int64)
        if zeros.shape != scale.shape and not zeros.size == scale.size == 1:
            raise call.invalid("shape", f"the zero point has shape {list(zeros.shape)}, the scale {list(scale.shape)}")
        zeros = zeros.reshape(scale.shape)
    shape = source.shape
    if scale.size == 1 and block == 0:
        return Grid(scale.reshape(()), zeros.reshape(()), data_type)
    if scale.ndim == 1 and block == 0:
        axis = call.axis(axis, len(shape))
        if scale.size != shape[axis]:
            raise call.invalid("shape", f"{scale.size} scales do not fit axis {axis} of {list(shape)}")
        along = [1] * len(shape)
        along[axis] = scale.size
        return Grid(scale.reshape(along), zeros.reshape(along), data_type)
    scale, zeros = (_spread(call, items, shape, axis, block) for items in (scale, zeros))
    return Grid(scale, zeros, data_type)


def input_quantizer(grid: Grid, rank: int) -> LinearQuantizer | None:
    """The quantiser of a real input with scales along one axis; None where the scales vary along several axes.

    QuantizeLinear rounds ties to the even multiple of the scale, so where the zero point is odd the codes are shifted
    by 1. The quantiser has one code more than the data type has integers: below them for an even zero point, above them
    for an odd one. The operation that reads the codes clamps this code.
    """
    stored = grid.stored(rank)
    if stored is None:
        return None
    odd = [int(zero) % 2 for zero in grid.zero_point.ravel().tolist()]
    offsets = tuple(o + s * bit for o, s, bit in zip(stored.offset, stored.scale, odd, strict=True))
    return LinearQuantizer(stored.scale, offsets, stored.lo - 1, stored.hi, stored.axis, rounding="half_even")


def _scales(call: OnnxCall) -> npt.NDArray[Any]:
    """The scales as floats; the scales of a bias as products of two scales, which are rationals."""
    found = _positive(call, 1)
    if call.node.op != BIAS:
        return found
    other = _positive(call, 2).ravel()
    if found.size != 1:
        raise call.refuse("the input has several scales, so that the bias has no scale of its own")
    products = [Fraction(found.item()) * Fraction(item) for item in other.tolist()]
    return np.array([*products, None], dtype=object)[:-1]


def _positive(call: OnnxCall, index: int) -> npt.NDArray[Any]:
    if not call.operand(index).real:
        raise call.invalid("type", f"the scale is of {call.operand(index).data_type}; it must be of a float type")
    found = call.constant(index, "the scale")
    if found.size == 0 or not np.isfinite(found).all() or (found <= 0).any():
        if np.isinf(found).any():  # quantisers write this where they met an infinite constant, such as a mask
            raise call.invalid("scale", "a scale is infinite; quantise the model again with finite constants")
        raise call.invalid("scale", "every scale must be above 0, and there must be at least one")
    return found.astype(np.float32) if found.dtype == np.float16 else found


def _spread(call: OnnxCall, items: npt.NDArray[Any], shape: Shape, axis: int, block: int) -> npt.NDArray[Any]:
    """Repeat the element of each block along the axis, up to the extent of the tensor; the last
    block may be shorter.
    """
    if items.ndim != len(shape):
        raise call.invalid("shape", f"the scale has shape {list(items.shape)}, the tensor {list(shape)}")
    if block < 0:
        raise call.invalid("attribute", f"block_size is {block}")
    axis = call.axis(axis, len(shape))
    expected = list(shape)
    if block:
        expected[axis] = -(-shape[axis] // block)
    if any(extent not in (wanted, 1) for extent, wanted in zip(items.shape, expected, strict=True)):
        raise call.invalid("shape", f"the scale has shape {list(items.shape)}, not {expected}")
    if block == 0 or items.shape[axis] == 1:
        return items
    return np.repeat(items, block, axis).take(range(shape[axis]), axis)
