"""The contents of a tensor as a tensor file, with an item type that keeps them exactly. NNEF 1.0.1 section 5.2."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.nnef.faults import invalid, unsupported
from cvm.frontends.nnef.tensor_file import ItemType, write_tensor
from cvm.graph import GraphTensor
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer

__all__ = ["tensor_bytes"]


def tensor_bytes(tensor: GraphTensor) -> bytes:
    """The file of a variable; reading it gives the same contents.

    Numbers are stored as they are. Codes are stored with their range in the file (0x10, 0x11) if they have a quantiser
    that the file can hold, or as items 2 or 3 if their quantiser is that of the tensor. Raises `Unsupported` for codes
    of any other quantiser.
    """
    data = tensor.data
    assert data is not None
    if data.values.shape != tensor.shape:
        raise invalid("writer.tensor", "the contents have another shape than the tensor").at(tensor=tensor.name)
    values = np.ascontiguousarray(data.values).reshape(tensor.shape)
    match data.quantizer:
        case None:
            return write_tensor(values)
        case LogarithmicQuantizer():
            stored = _logarithmic(values, data.quantizer)
        case LinearQuantizer():
            stored = _linear(values, data.quantizer)
            if stored is None and data.quantizer == tensor.quantizer:
                item = ItemType.SIGNED_CODE if values.dtype.kind == "i" else ItemType.UNSIGNED_CODE
                stored = write_tensor(values, item=item)
    if stored is None:
        message = (
            "no tensor file holds these codes: their quantiser is neither that of the tensor nor one of section 5.2"
        )
        raise unsupported("writer.codes", message).at(tensor=tensor.name)
    return stored


def _linear(values: npt.NDArray[Any], quantizer: LinearQuantizer) -> bytes | None:
    """Items 0x10, for codes of some width from 0 on whose range consists of two float32 numbers;
    None for other codes.
    """
    bits = quantizer.hi.bit_length()
    if quantizer.axis is not None or quantizer.lo != 0 or quantizer.hi != 2**bits - 1 or values.dtype.kind != "u":
        return None
    if quantizer.rounding != "half_up" or next(w for w in (8, 16, 32, 64) if w >= bits) != values.dtype.itemsize * 8:
        return None
    ends = [quantizer.offset[0] + quantizer.scale[0] * code for code in (0, quantizer.hi)]
    minimum, maximum = map(_float32, ends)
    if minimum is None or maximum is None:
        return None
    return write_tensor(values, bits, ItemType.LINEAR, minimum, maximum)


def _float32(value: Fraction) -> float | None:
    """The float32 that equals a fraction; None if none does."""
    try:
        nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return nearest if Fraction(nearest) == value else None


def _logarithmic(codes: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> bytes | None:
    """Items 0x11, which have no code for zero; None for other codes."""
    maximum = _float32(Fraction(2) ** quantizer.top) if abs(quantizer.top) < 200 else None
    if maximum is None or not codes.all():
        return None
    signed = bool((codes < 0).any())
    items = (np.abs(codes.astype(np.int64)) - 1) + np.where(codes < 0, 2**quantizer.bits, 0)
    minimum = -maximum if signed else 0.0
    return write_tensor(items.astype(np.uint64), quantizer.bits + signed, ItemType.LOGARITHMIC, minimum, maximum)
