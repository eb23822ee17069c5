"""The contents and quantisers of the tensors of a model. Sizes are checked before anything is allocated."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.blocks import finite
from cvm.errors import Invalid, Location, Malformed, Unsupported
from cvm.frontends.common.data_types import bounds
from cvm.frontends.tflite.model import TfliteTensor
from cvm.limits import INT32_MAX, Limits, elements
from cvm.quantization import LinearQuantizer

__all__ = ["FLOATS", "INTEGERS", "contents_of", "integer_range", "quantizer_of", "stored_quantizer"]

FLOATS = frozenset({"float32", "float16", "float64"})
INTEGERS = frozenset({"int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_PACKED = "int4"


def contents_of(tensor: TfliteTensor, limits: Limits) -> npt.NDArray[Any]:
    """The elements of a constant, row-major; integers of 4 bits as int8.

    Raises `Malformed` where the number of bytes does not fit the shape, `Unsupported` for strings, resources and
    complex numbers, `LimitExceeded`.
    """
    assert tensor.contents is not None
    count, size = elements(tensor.shape, limits, tensor.label), len(tensor.contents)
    if tensor.data_type == _PACKED:
        if size != (count + 1) // 2:
            raise _wrong_size(tensor, size, (count + 1) // 2)
        pairs = np.frombuffer(tensor.contents, np.uint8)
        halves = np.stack([pairs & 15, pairs >> 4], axis=1).ravel()[:count].astype(np.int8)
        return ((halves ^ 8) - 8).reshape(tensor.shape)
    if tensor.data_type not in FLOATS | INTEGERS | {"bool", "uint64"}:
        message = f"{tensor.label} holds items of type {tensor.data_type}, which is not read"
        raise Unsupported("tflite.data-type", message, Location(tensor=tensor.name))
    dtype = np.dtype(tensor.data_type).newbyteorder("<")
    if size != count * dtype.itemsize:
        raise _wrong_size(tensor, size, count * dtype.itemsize)
    items = np.frombuffer(tensor.contents, dtype).reshape(tensor.shape)
    if tensor.data_type in FLOATS and not finite(items):
        message = f"{tensor.label} holds a NaN or an infinity, which is no real number"
        raise Unsupported("tflite.nan", message, Location(tensor=tensor.name))
    return items.astype(np.dtype(tensor.data_type), copy=False)


def _wrong_size(tensor: TfliteTensor, found: int, expected: int) -> Malformed:
    shape = f"{tensor.data_type} {list(tensor.shape)}"
    return Malformed("tflite.contents", f"{tensor.label} has {found} bytes, not the {expected} of {shape}")


def integer_range(data_type: str) -> tuple[int, int]:
    """The least and the greatest machine integer of a data type.

    Raises `Unsupported` for a type that is not an integer type.
    """
    if data_type not in INTEGERS | {"bool"}:
        raise Unsupported("tflite.data-type", f"tensors of type {data_type} are not supported")
    lo, hi = bounds(data_type)
    return max(lo, -INT32_MAX), min(hi, INT32_MAX)


def quantizer_of(tensor: TfliteTensor) -> LinearQuantizer | None:
    """The quantiser of an input or a computed tensor; None where it has none.

    Code q stands for (q - zero point) * scale, with the scale as the exact rational of its float32. Raises `Invalid`
    for impossible scales and zero points, `Unsupported` for scales per axis, which only constants may have.
    """
    found = tensor.quantization
    if found is None or tensor.data_type not in INTEGERS:
        return None
    if len(found.scales) > 1 and len(set(found.scales)) + len(set(found.zero_points)) > 2:
        message = f"{tensor.label} is computed and has {len(found.scales)} scales; only constants have them per axis"
        raise Unsupported("tflite.quantization", message, Location(tensor=tensor.name))
    (scale, *_), (zero, *_) = _scales(tensor), found.zero_points
    lo, hi = integer_range(tensor.data_type)
    return LinearQuantizer((scale,), (-scale * zero,), lo, hi)


def stored_quantizer(tensor: TfliteTensor) -> LinearQuantizer | None:
    """The quantiser of the codes of a constant, per tensor or per index of an axis; None where it has none.

    Some converters write a wrong axis. Where the extent of the stated axis differs from the number of scales, the only
    axis of that extent is taken. Raises `Invalid` where there is no such axis, or more than one.
    """
    found = tensor.quantization
    if found is None or tensor.data_type not in INTEGERS:
        return None
    scales, (lo, hi) = _scales(tensor), bounds(tensor.data_type)
    offsets = tuple(-scale * zero for scale, zero in zip(scales, found.zero_points, strict=True))
    if len(scales) == 1:
        return LinearQuantizer(scales, offsets, lo, hi)
    axis = found.dimension
    if not 0 <= axis < len(tensor.shape) or tensor.shape[axis] != len(scales):
        fitting = [i for i, extent in enumerate(tensor.shape) if extent == len(scales)]
        if len(fitting) != 1:
            message = f"{tensor.label} of shape {list(tensor.shape)} has {len(scales)} scales along axis {axis}"
            raise Invalid("tflite.quantization", message, Location(tensor=tensor.name))
        (axis,) = fitting
    return LinearQuantizer(scales, offsets, lo, hi, axis)


def _scales(tensor: TfliteTensor) -> tuple[Fraction, ...]:
    assert tensor.quantization is not None
    scales = tensor.quantization.scales
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        message = f"{tensor.label} has a scale that is not above 0"
        raise Invalid("tflite.quantization", message, Location(tensor=tensor.name))
    return tuple(map(Fraction, scales))
