"""Tensor files: NNEF 1.0.1 section 5.2, and the item types 2 to 5 that current Khronos tools write.

Layout: magic, version, length of the data, rank, eight extents, bits per item, item code and its 32 bytes of
parameters, zeros up to 128 bytes; then the items, row-major, as a little-endian bit stream.

Where the specification is silent, this module decides: items fill each byte from its least significant bit (the only
order that agrees with little-endian items of whole bytes), but single-bit logical items of code 5 from the most
significant bit, as the tools that define the code do; the code field is a little-endian word with the algorithm in its
low half; a signed logarithmic item has its sign in the most significant bit, where 1 is negative.
"""

from __future__ import annotations

import math
import struct
from enum import IntEnum
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.frontends.nnef.faults import invalid, malformed, unsupported
from cvm.frontends.nnef.values import Dialect
from cvm.graph import TensorData
from cvm.limits import DEFAULT, MAX_RANK, Limits, elements
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.records import dataclass

__all__ = [
    "HEADER_BYTES",
    "BitOrder",
    "ItemType",
    "StoredTensor",
    "TensorHeader",
    "read_header",
    "read_tensor",
    "write_tensor",
]

HEADER_BYTES = 128
_MAGIC = b"N\xef"
_LAYOUT = struct.Struct("<2sBBII8III32s44s")
_LEAST_EXPONENT, _GREATEST_EXPONENT = -1074, 1023  # the exponents of the powers of two that are float64 numbers
_LOGARITHMIC_BITS = 16  # the most bits of a `LogarithmicQuantizer`
_CHUNK = 1 << 16  # the number of items unpacked at a time; a multiple of 8, so that chunks begin at byte boundaries

BitOrder = Literal["lsb", "msb"]
_LITTLE_OR_BIG: dict[BitOrder, Literal["little", "big"]] = {"lsb": "little", "msb": "big"}


class ItemType(IntEnum):
    """The type of the items of a tensor file."""

    FLOAT = 0x00
    INTEGER = 0x01
    UNSIGNED_CODE = 0x02
    SIGNED_CODE = 0x03
    SIGNED = 0x04
    LOGICAL = 0x05
    LINEAR = 0x10
    LOGARITHMIC = 0x11

    @property
    def added(self) -> bool:
        """Whether the item type belongs to the dialect "khronos", and not to NNEF 1.0.1."""
        return ItemType.INTEGER < self < ItemType.LINEAR


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """A checked header; all its sizes agree with each other and with the length of the file."""

    shape: tuple[int, ...]
    bits: int
    item: ItemType
    parameters: bytes = bytes(32)

    @property
    def count(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def data_bytes(self) -> int:
        """The number of bytes after the header."""
        return (self.count * self.bits + 7) // 8

    @property
    def signed(self) -> bool:
        """Whether integer items are signed; for logarithmic items, whether they have a sign bit."""
        match self.item:
            case ItemType.INTEGER:
                return self.parameters[:4] != bytes(4)
            case ItemType.LOGARITHMIC:
                return self.range[0] != 0
        return self.item in (ItemType.SIGNED_CODE, ItemType.SIGNED)

    @property
    def range(self) -> tuple[float, float]:
        """The parameters ``min`` and ``max`` of the quantised item types."""
        minimum, maximum = struct.unpack_from("<ff", self.parameters)
        return minimum, maximum


@dataclass(frozen=True, eq=False, slots=True)
class StoredTensor:
    """A tensor as stored. With ``codes``, its items are codes of a quantiser that the file does not contain."""

    header: TensorHeader
    data: TensorData
    codes: bool = False


def read_header(head: bytes, size: int, limits: Limits = DEFAULT, dialect: Dialect = "auto") -> TensorHeader:
    """The header in the first bytes ``head`` of a file of ``size`` bytes.

    Raises `Malformed` for bytes that are not a tensor file, `Invalid` for a header that breaks a rule or that
    ``dialect`` excludes, `Unsupported` for other versions, vendors and algorithms, `LimitExceeded` for a tensor larger
    than ``limits``. Nothing is allocated.
    """
    if head[:2] != _MAGIC[: len(head[:2])] or not head:
        raise malformed("tensor-file.magic", "this is not a tensor file")
    if size < HEADER_BYTES or len(head) < HEADER_BYTES:
        raise malformed("tensor-file.truncated", f"the header has {HEADER_BYTES} bytes, the file {size}")
    _, major, minor, length, rank, *extents, bits, code, parameters, reserved = _LAYOUT.unpack_from(head)
    if (major, minor) != (1, 0):
        raise unsupported("tensor-file.version", f"version {major}.{minor} is not known; this is a reader of 1.0")
    if rank > MAX_RANK:
        raise malformed("tensor-file.rank", f"the rank must be at most {MAX_RANK}, found {rank}")
    if any(extents[rank:]):
        raise malformed("tensor-file.extents", f"extents beyond the rank of {rank} are not zero")
    if any(reserved):
        raise malformed("tensor-file.reserved", "reserved bytes of the header are not zero")
    shape = tuple(extents[:rank])
    if 0 in shape:
        raise invalid("tensor-file.extents", f"extents must be positive, found {list(shape)}")
    elements(shape, limits, "tensor file")
    header = TensorHeader(shape, bits, _item_type(code), parameters)
    if header.item.added and dialect == "1.0.1":
        raise invalid("tensor-file.item", f"item code {code} is not of NNEF 1.0.1; the dialect khronos has it")
    _check_items(header)
    if not length == header.data_bytes == size - HEADER_BYTES:
        message = f"{header.count} items of {bits} bits are {header.data_bytes} bytes"
        found = f"the header says {length}, the file has {size - HEADER_BYTES}"
        raise malformed("tensor-file.length", f"{message}; {found}")
    return header


def _item_type(code: int) -> ItemType:
    if code >> 16:
        raise unsupported(
            "tensor-file.vendor",
            f"item code 0x{code & 0xFFFF:x} belongs to vendor 0x{code >> 16:x}, whose items are not known",
        )
    try:
        return ItemType(code)
    except ValueError:
        raise unsupported("tensor-file.item", f"item code 0x{code:x} is not known") from None


def _check_items(header: TensorHeader) -> None:
    """Check that the item type admits the bits per item and the parameters."""
    bits = header.bits
    if not 1 <= bits <= 64:
        raise invalid("tensor-file.bits", f"an item must have 1 to 64 bits, found {bits}")
    if header.item is ItemType.FLOAT and bits not in (16, 32, 64):
        raise invalid("tensor-file.bits", f"a float must have 16, 32 or 64 bits, found {bits}")
    if header.item is ItemType.LOGICAL and bits not in (1, 8):
        raise invalid("tensor-file.bits", f"a logical item must have 1 or 8 bits, found {bits}")
    if header.item not in (ItemType.LINEAR, ItemType.LOGARITHMIC):
        return
    minimum, maximum = header.range
    if not (math.isfinite(minimum) and math.isfinite(maximum)):
        raise invalid("tensor-file.range", f"the range from {minimum} to {maximum} is not finite")
    if header.item is ItemType.LINEAR and not minimum < maximum:
        raise invalid("tensor-file.range", f"min must be less than max, found {minimum} and {maximum}")
    if header.item is ItemType.LOGARITHMIC:
        if maximum <= 0 or minimum not in (0, -maximum):
            message = f"min must be 0 or -max and max positive, found {minimum} and {maximum}"
            raise invalid("tensor-file.range", message)
        if header.signed and bits == 1:
            raise invalid("tensor-file.bits", "a signed logarithmic item needs two bits")


def read_tensor(
    data: bytes, limits: Limits = DEFAULT, bit_order: BitOrder = "lsb", dialect: Dialect = "auto"
) -> StoredTensor:
    """The tensor in the bytes of a file; see `read_header` for the errors.

    ``bit_order`` is the end of a byte from which items are filled in that are not whole bytes. Linear items become
    codes with the exact quantiser of the header. Logarithmic items become the powers of two that they stand for:
    float64 numbers where float64 holds all of them, otherwise codes of a `LogarithmicQuantizer`. Raises `Unsupported`
    for logarithmic items that need such codes and have more than 16 bits without the sign.
    """
    header = read_header(data[:HEADER_BYTES], len(data), limits, dialect)
    if header.item is ItemType.LOGICAL and header.bits == 1:
        bit_order = "msb"
    padding = -header.count * header.bits % 8
    if padding:
        unused = {"lsb": data[-1] >> (8 - padding), "msb": data[-1] & ((1 << padding) - 1)}
        if unused[bit_order]:
            other = "" if all(unused.values()) else "; in the other bit order they are"
            raise malformed("tensor-file.padding", f"the bits after the last item are not zero{other}")
    if header.item is ItemType.FLOAT:
        values: npt.NDArray[Any] = np.frombuffer(data, f"<f{header.bits // 8}", offset=HEADER_BYTES)
        return StoredTensor(header, TensorData(values.reshape(header.shape)))
    values = _unpack(data, header, bit_order).reshape(header.shape)
    match header.item:
        case ItemType.LINEAR:
            minimum, maximum = map(Fraction, header.range)
            top = 2**header.bits - 1
            quantizer = LinearQuantizer(((maximum - minimum) / top,), (minimum,), 0, top)
            return StoredTensor(header, TensorData(values, quantizer))
        case ItemType.LOGARITHMIC:
            return StoredTensor(header, _powers(values, header))
        case ItemType.LOGICAL:
            if values.max() > 1:
                raise invalid("tensor-file.logical", "a logical item is neither 0 nor 1")
            return StoredTensor(header, TensorData(values.astype(np.bool_)))
    return StoredTensor(header, TensorData(values), header.item in (ItemType.UNSIGNED_CODE, ItemType.SIGNED_CODE))


def _unpack(data: bytes, header: TensorHeader, bit_order: BitOrder) -> npt.NDArray[Any]:
    """The integer items of a bit stream, in the smallest integer type that holds every item of that width."""
    bits, signed = header.bits, header.signed and header.item is not ItemType.LOGARITHMIC
    width = next(width for width in (8, 16, 32, 64) if width >= bits)
    kind = "i" if signed else "u"
    stream = np.frombuffer(data, np.uint8, offset=HEADER_BYTES)
    if bits == width:
        return stream.view(f"<{kind}{width // 8}")
    result = np.empty(header.count, f"<{kind}{width // 8}")
    for first in range(0, header.count, _CHUNK):
        count = min(_CHUNK, header.count - first)
        part = stream[first * bits // 8 : (((first + count) * bits) + 7) // 8]
        rows = np.unpackbits(part, count=count * bits, bitorder=_LITTLE_OR_BIG[bit_order]).reshape(count, bits)
        if bit_order == "msb":
            rows = rows[:, ::-1]
        extension = rows[:, -1:] if signed else np.zeros((count, 1), np.uint8)
        wide = np.concatenate([rows, np.repeat(extension, width - bits, axis=1)], axis=1)
        result[first : first + count] = np.packbits(wide, axis=1, bitorder="little").view(result.dtype)[:, 0]
    return result


def _powers(items: npt.NDArray[Any], header: TensorHeader) -> TensorData:
    """Logarithmic items as the powers of two that they stand for: ``2^(q + m - r)``, ``m = ceil(log2 max)``."""
    magnitude_bits = header.bits - header.signed
    top = LogarithmicQuantizer.of(Fraction(header.range[1]), 1).top
    steps = 2**magnitude_bits - 1
    magnitudes = items & items.dtype.type(steps)
    negative = (items >> items.dtype.type(magnitude_bits)).astype(np.bool_) if header.signed else np.False_
    below = items.dtype.type(steps) - magnitudes  # the number of powers between an item and the greatest power
    if top - int(below.max()) >= _LEAST_EXPONENT and top <= _GREATEST_EXPONENT:
        powers = np.ldexp(1.0, top - below.astype(np.int32))
        return TensorData(np.where(negative, -powers, powers))
    if magnitude_bits > _LOGARITHMIC_BITS:
        message = f"a logarithm of {magnitude_bits} bits, some of which are powers of two that are no float64"
        raise unsupported("tensor-file.logarithmic", f"{message}; with up to {_LOGARITHMIC_BITS} bits they are read")
    codes = magnitudes.astype(np.int32) + 1
    return TensorData(np.where(negative, -codes, codes), LogarithmicQuantizer(top, magnitude_bits))


def write_tensor(
    values: npt.NDArray[Any],
    bits: int | None = None,
    item: ItemType | None = None,
    minimum: float = 0.0,
    maximum: float = 0.0,
    bit_order: BitOrder = "lsb",
) -> bytes:
    """The bytes of a tensor file that holds ``values``.

    Without ``item`` float arrays become FLOAT, others INTEGER, of the width and signedness of their type. Integer items
    of ``bits`` bits must be in the range of that width; ``minimum`` and ``maximum`` are the range of LINEAR and
    LOGARITHMIC items. Raises `Invalid` for values or parameters that the format cannot hold.
    """
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    if array.dtype.kind not in "iuf":
        raise invalid("tensor-file.item", f"items of type {array.dtype} cannot be stored")
    item = item or (ItemType.FLOAT if array.dtype.kind == "f" else ItemType.INTEGER)
    if (item is ItemType.FLOAT) != (array.dtype.kind == "f"):
        raise invalid("tensor-file.item", f"items of type {array.dtype} cannot be stored as {item.name}")
    parameters = bytearray(32)
    if item is ItemType.INTEGER:
        parameters[0] = array.dtype.kind == "i"
    elif item in (ItemType.LINEAR, ItemType.LOGARITHMIC):
        struct.pack_into("<ff", parameters, 0, minimum, maximum)
    header = TensorHeader(array.shape, bits or array.dtype.itemsize * 8, item, bytes(parameters))
    if array.ndim > MAX_RANK or 0 in array.shape or header.data_bytes >= 2**32:
        raise invalid("tensor-file.extents", f"a tensor of shape {list(array.shape)} cannot be stored")
    _check_items(header)
    extents = (*array.shape, *(0,) * (MAX_RANK - array.ndim))
    fields = (
        _MAGIC,
        1,
        0,
        header.data_bytes,
        array.ndim,
        *extents,
        header.bits,
        int(item),
        header.parameters,
        bytes(44),
    )
    order: BitOrder = "msb" if item is ItemType.LOGICAL and header.bits == 1 else bit_order
    return _LAYOUT.pack(*fields) + _pack(array.reshape(-1), header, order)


def _pack(array: npt.NDArray[Any], header: TensorHeader, bit_order: BitOrder) -> bytes:
    bits = header.bits
    if header.item is ItemType.FLOAT:
        return array.astype(f"<f{bits // 8}").tobytes()
    signed = header.signed and header.item is not ItemType.LOGARITHMIC
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if int(array.min()) < lowest or int(array.max()) > highest:
        raise invalid("tensor-file.items", f"an item is outside of [{lowest}, {highest}]")
    if bits in (8, 16, 32, 64):
        return array.astype(f"<{'i' if signed else 'u'}{bits // 8}").tobytes()
    bytes_ = array.astype("<i8" if signed else "<u8").reshape(-1, 1).view(np.uint8)
    rows = np.unpackbits(bytes_, axis=1, bitorder="little")[:, :bits]
    if bit_order == "msb":
        rows = rows[:, ::-1]
    return np.packbits(rows.reshape(-1), bitorder=_LITTLE_OR_BIG[bit_order]).tobytes()
