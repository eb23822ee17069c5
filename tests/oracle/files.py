"""Tensor files (5.2): every storage code of the document, at any width, and the item types of the Khronos tools.

Silent points. The 4-byte code is little-endian with the algorithm in its low half. Items that are no whole bytes fill
the stream from the least significant bit on, which is how little-endian items of 16, 32 and 64 bits lie;
only Khronos' 1-bit logicals start at the most significant bit. A signed logarithmic item (min = -max) has its sign in
the most significant bit. Header parameters are the rationals that their 32-bit floats are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .quantization import linear, logarithmic
from .tensors import Tensor, from_array, from_numbers, require

_HEADER_BYTES = 128
_FLOATS = {16: "<f2", 32: "<f4", 64: "<f8"}
FLOAT, UINT, QUINT, QINT, INT, BOOL, LINEAR, LOGARITHMIC = 0, 1, 2, 3, 4, 5, 0x10, 0x11


@dataclass(frozen=True, eq=False)
class Stored:
    """The content of a tensor file: real values, or (item types 2 and 3) codes of the quantiser in graph.quant."""

    values: Tensor
    are_codes: bool = False


def read_tensor(path: Path) -> Stored:
    """The tensor in a file."""
    return decode(path.read_bytes())


def decode(data: bytes) -> Stored:
    """The tensor that the bytes of a file spell; `ValueError` if they are none."""
    require(len(data) >= _HEADER_BYTES, "the header has 128 bytes")
    magic, length, rank = struct.unpack_from("<4sII", data, 0)
    require(magic == b"N\xef\x01\x00", "the file is a tensor file of version 1.0")
    extents = struct.unpack_from("<8I", data, 12)
    bits, code = struct.unpack_from("<II", data, 44)
    require(rank <= 8 and not any(extents[rank:]), "the rank is at most 8, unused extents are 0")
    shape = extents[:rank]
    require(1 <= bits <= 64, "an item has 1 to 64 bits")
    require(length == len(data) - _HEADER_BYTES == -(-prod(shape) * bits // 8), "the length fits extents and bits")
    body = data[_HEADER_BYTES:]
    parameter = struct.unpack_from("<I", data, 52)[0]
    if code == FLOAT:
        require(bits in _FLOATS, "a float has 16, 32 or 64 bits")
        return Stored(from_array(np.frombuffer(body, dtype=_FLOATS[bits]).reshape(shape)))
    if code == BOOL and bits == 1:
        return Stored(_whole(_bits(body, prod(shape), 1, "big"), shape))
    items = _bits(body, prod(shape), bits, "little")
    if code == BOOL:
        return Stored(_whole([int(item != 0) for item in items], shape))
    if code in {UINT, INT, QUINT, QINT}:
        signed = code in {INT, QINT} or (code == UINT and parameter != 0)
        whole = [item - (1 << bits) if signed and item >> (bits - 1) else item for item in items]
        return Stored(_whole(whole, shape), are_codes=code in {QUINT, QINT})
    low, high = (Fraction(x) for x in struct.unpack_from("<2f", data, 52))
    if code == LINEAR:
        return Stored(linear(low, high, bits).channels[0].values(np.array(items, dtype=object).reshape(shape)))
    require(code == LOGARITHMIC, f"storage code {code:#x} is known")
    require(high > 0 and low in {0, -high}, "min is 0 or -max")
    return Stored(_powers(items, shape, high, bits, signed=low < 0))


def _whole(items: list[int], shape: tuple[int, ...]) -> Tensor:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return Tensor(array.reshape(shape))


def _bits(body: bytes, count: int, width: int, order: Any) -> list[int]:
    """`count` integers of `width` bits, from the least (little) or most (big) significant bit of each byte on."""
    stream: npt.NDArray[np.uint8] = np.unpackbits(np.frombuffer(body, dtype=np.uint8), bitorder=order)
    require(not stream[count * width :].any(), "the last byte is padded with zero bits")
    columns = stream[: count * width].reshape(count, width).astype(object)
    return [int(item) for item in columns @ np.array([1 << k for k in range(width)], dtype=object)]


def _powers(items: list[int], shape: tuple[int, ...], high: Fraction, bits: int, signed: bool) -> Tensor:
    """2^(q + (m - r)), where a sign takes one of the bits; there is no item for 0."""
    width = bits - signed
    require(width >= 1, "a signed item has more than its sign")
    quantiser = logarithmic(high, width)
    codes = [(-1 if item >> width else 1) * ((item & ((1 << width) - 1)) + 1) for item in items]
    found = quantiser.channels[0].values(np.array(codes, dtype=object).reshape(shape))
    return from_numbers(found.numbers())
