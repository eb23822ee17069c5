"""The ``.params`` files of cvm-runtime: named int8 and int32 arrays, little-endian, without padding.

    u64 list magic, u64 0, u64 n, n names (u64 length, bytes), u64 n, n arrays, each:
    u64 array magic, u64 0, i32 device type, i32 device number, i32 rank, u8 type code (0: integers), u8 bits (8 or 32),
    u16 lanes (1), i64 extents, i64 number of bytes, row-major elements

Every count is compared with the bytes that are there before anything is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location, Malformed
from cvm.limits import DEFAULT, Limits, elements, require
from cvm.records import dataclass

__all__ = ["Parameters", "read_parameters", "write_parameters"]

LIST_MAGIC = 0xF7E58D4F05049CB7
ARRAY_MAGIC = 0xDD5E40F096B4A13F
CPU = 1
"""The only device type that arrays in a file may have."""
RANKS = range(1, 7)
WIDTHS = {8: "<i1", 32: "<i4"}
"""The dtype of an element, by its bits."""


@dataclass(frozen=True, eq=False, slots=True)
class Parameters:
    """The arrays of a file by name, read-only int8 and int32 arrays; for a repeated name, the last one."""

    arrays: Mapping[str, npt.NDArray[Any]]
    trailing: int = 0
    """The number of bytes after the last array, which the library ignores."""


class _Reader:
    """Consumes the bytes of a file part by part."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def take(self, count: int, what: str) -> bytes:
        """The next ``count`` bytes."""
        if not 0 <= count <= self.left:
            message = f"{what}: expected {count} bytes at offset {self.offset}, found {self.left}"
            raise Malformed("cvm_runtime.params.truncated", message)
        self.offset += count
        return self.data[self.offset - count : self.offset]

    def number(self, form: str, what: str) -> int:
        """The next integer, in a format of `struct`."""
        (found,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form), what))
        return int(found)

    def expect(self, form: str, expected: int, code: str, what: str) -> None:
        """Read the next integer, which must be ``expected``. Raises `Malformed` for any other."""
        offset, found = self.offset, self.number(form, what)
        if found != expected:
            message = f"{what} at offset {offset}: expected {expected:#x}, found {found:#x}"
            raise Malformed(f"cvm_runtime.params.{code}", message)


def read_parameters(data: bytes, limits: Limits = DEFAULT) -> Parameters:
    """The arrays of a ``.params`` file.

    Raises `Malformed` (``cvm_runtime.params.truncated``, ``.magic``, ``.reserved``, ``.count``, ``.name`` or
    ``.length``), `Invalid` (``cvm_runtime.params.device``, ``.dtype`` or ``.shape``) and `LimitExceeded`.
    """
    reader = _Reader(data)
    reader.expect("Q", LIST_MAGIC, "magic", "the magic number of the list")
    reader.expect("Q", 0, "reserved", "the reserved word of the list")
    count = reader.number("Q", "the number of names")
    require("nodes", count, limits.nodes, "arrays of a parameter file")
    names = [_name(reader, limits) for _ in range(count)]
    reader.expect("Q", count, "count", "the number of arrays, which is that of the names,")
    total = 0
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in names:
        try:
            array = _array(reader, limits)
        except (Malformed, Invalid) as error:
            raise error.at(tensor=name) from None
        total += 4 * array.size
        require("constants", total, limits.constants, "bytes of all parameters, expanded", Location(tensor=name))
        arrays[name] = array
    return Parameters(arrays, reader.left)


def _name(reader: _Reader, limits: Limits) -> str:
    length = reader.number("Q", "the length of a name")
    require("name", length, limits.name_bytes, "bytes of the name of a parameter")
    data = reader.take(length, "a name")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("cvm_runtime.params.name", f"the name {data[:40]!r} is not UTF-8") from None


def _array(reader: _Reader, limits: Limits) -> npt.NDArray[Any]:
    reader.expect("Q", ARRAY_MAGIC, "magic", "the magic number of an array")
    reader.expect("Q", 0, "reserved", "the reserved word of an array")
    device = reader.number("i", "the device type")
    if device != CPU:
        raise Invalid("cvm_runtime.params.device", f"expected an array of device type {CPU} (cpu), found {device}")
    reader.number("i", "the device number")
    rank = reader.number("i", "the rank")
    code, bits, lanes = (reader.number(form, "the type") for form in "BBH")
    if (code, lanes) != (0, 1) or bits not in WIDTHS:
        found = f"type code {code} of {bits} bits, {lanes} lanes"
        raise Invalid("cvm_runtime.params.dtype", f"expected int8 or int32 elements (code 0, 1 lane), found {found}")
    if rank not in RANKS:
        raise Invalid("cvm_runtime.params.shape", f"expected a rank of 1 to 6, found {rank}")
    shape = [reader.number("q", "an extent") for _ in range(rank)]
    if min(shape) < 1:
        raise Invalid("cvm_runtime.params.shape", f"expected extents of 1 or more, found {shape}")
    count = elements(shape, limits, "parameter")
    size = reader.number("q", "the number of bytes")
    if size != count * bits // 8:
        message = f"{count} elements of {bits} bits take {count * bits // 8} bytes, found {size}"
        raise Malformed("cvm_runtime.params.length", message)
    array = np.frombuffer(reader.take(size, "the elements"), WIDTHS[bits]).reshape(shape)
    array.setflags(write=False)
    return array


def write_parameters(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A ``.params`` file with the given int8 and int32 arrays, in their order."""
    parts = [struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))]
    for name in arrays:
        encoded = name.encode("utf-8")
        parts.append(struct.pack("<Q", len(encoded)) + encoded)
    parts.append(struct.pack("<Q", len(arrays)))
    for array in arrays.values():
        bits = 8 * array.itemsize
        data = array.astype(WIDTHS[bits]).tobytes()
        parts.append(struct.pack("<QQiiiBBH", ARRAY_MAGIC, 0, CPU, 0, array.ndim, 0, bits, 1))
        parts.append(struct.pack(f"<{array.ndim}qq", *array.shape, len(data)) + data)
    return b"".join(parts)
