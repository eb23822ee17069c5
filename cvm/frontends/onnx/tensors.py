"""Stored tensors: constants in the model or in files beside it. Sizes are checked before anything is allocated."""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Malformed, Unsupported
from cvm.frontends.common.data_types import bounds
from cvm.frontends.common.files import Buffer, Files
from cvm.frontends.onnx.model import Tensor
from cvm.frontends.onnx.wire import Contents
from cvm.limits import Limits, elements
from cvm.records import dataclass

if TYPE_CHECKING:
    from onnx import TensorProto

__all__ = ["DATA_TYPES", "Sources", "data_type_of", "embed", "tensor_of", "unpacked"]

DATA_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 21: "uint4", 22: "int4", 25: "uint2", 26: "int2",
}  # fmt: skip
"""The data types that are read, by their numbers in the format."""
_OTHERS = {
    0: "undefined", 8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0", 27: "float6e2m3", 28: "float6e3m2",
}  # fmt: skip
_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}
_EXTERNAL = 1
_CHUNK = 2**20


def data_type_of(number: int, what: str) -> str:
    """The name of a data type. Raises `Unsupported` for a type that is not read, `Invalid` for an unknown number."""
    if number in DATA_TYPES:
        return DATA_TYPES[number]
    if number not in _OTHERS or number == 0:
        raise Invalid("onnx.data-type", f"{what} has the data type number {number}, which ONNX does not define")
    raise Unsupported("onnx.data-type", f"{what} is of data type {_OTHERS[number]}, which is not read")


@dataclass(frozen=True, eq=False, slots=True)
class Sources:
    """Where the items of constants are: files within ``folder`` alone (None: in no file), and the bytes of a model that
    was parsed without its ``contents`` (None: it was parsed whole).
    """

    folder: str | None
    contents: Contents | None = None
    files: Files = field(default_factory=Files)

    def raw(self, proto: TensorProto) -> Buffer:
        """The raw data of a constant."""
        stored: bytes = proto.raw_data
        return stored if self.contents is None else self.contents.of(stored)


def tensor_of(proto: TensorProto, sources: Sources, limits: Limits, what: str) -> Tensor:
    """The contents of a constant.

    Raises `Malformed` where the number of elements differs from the shape's, `Unsupported` for strings, complex numbers
    and floats of 8 bits, `LimitExceeded` for too many elements.
    """
    data_type = data_type_of(proto.data_type, what)
    shape = tuple(proto.dims)
    if any(extent < 0 for extent in shape):
        raise Malformed("onnx.tensor", f"{what} has the shape {list(shape)}")
    count = elements(shape, limits, what)
    if proto.HasField("segment"):
        raise Unsupported("onnx.tensor", f"{what} is a segment of a tensor, which is not read")
    if proto.data_location == _EXTERNAL:
        raw: Buffer | None = _external(proto, sources, _stored_bytes(data_type, count), what)
    else:
        raw = sources.raw(proto) if proto.HasField("raw_data") else None
    if raw is None:
        return Tensor(_from_fields(proto, data_type, count, what).reshape(shape), data_type)
    if len(raw) != _stored_bytes(data_type, count):
        expected = f"{_stored_bytes(data_type, count)} bytes for {data_type} {list(shape)}"
        raise Malformed("onnx.tensor", f"{what} has {len(raw)} bytes, not {expected}")
    return Tensor(_from_bytes(raw, data_type, count).reshape(shape), data_type)


def _stored_bytes(data_type: str, count: int) -> int:
    if data_type in _BITS:
        return -(-count * _BITS[data_type] // 8)
    return count * (2 if data_type == "bfloat16" else np.dtype(data_type).itemsize)


def _from_bytes(raw: Buffer, data_type: str, count: int) -> npt.NDArray[Any]:
    if data_type in _BITS:
        return unpacked(np.frombuffer(raw, np.uint8), data_type, count)
    if data_type == "bfloat16":
        return _widened(np.frombuffer(raw, "<u2"))
    dtype = np.dtype(data_type)
    if data_type == "bool":
        return np.asarray(np.frombuffer(raw, np.uint8) != 0)
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False)


def _widened(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Convert bfloat16 to float32: a bfloat16 is the upper half of the bits of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def unpacked(packed: npt.NDArray[np.uint8], data_type: str, count: int) -> npt.NDArray[Any]:
    """Unpack elements of 2 or 4 bits; the first lies in the least significant bits of a byte."""
    bits = _BITS[data_type]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    items = (packed[:, None] >> shifts & (2**bits - 1)).reshape(-1)[:count].astype(np.int64)
    lo, hi = bounds(data_type)
    return np.asarray(np.where(items > hi, items - 2**bits, items).astype(np.int8 if lo < 0 else np.uint8))


def _from_fields(proto: TensorProto, data_type: str, count: int, what: str) -> npt.NDArray[Any]:
    """The elements in the typed field of the message, such as ``float_data``."""
    field = {
        "float32": "float_data", "float64": "double_data", "int64": "int64_data", "uint32": "uint64_data",
        "uint64": "uint64_data",
    }.get(data_type, "int32_data")  # fmt: skip
    found = getattr(proto, field)
    expected = -(-count * _BITS[data_type] // 8) if data_type in _BITS else count
    if len(found) != expected:
        raise Malformed("onnx.tensor", f"{what} has {len(found)} items in {field}, not {expected}")
    if field in ("float_data", "double_data"):
        return np.array(found, data_type)
    items = np.array(found, np.uint64 if field == "uint64_data" else np.int64)
    if data_type in _BITS:
        return unpacked((items & 255).astype(np.uint8), data_type, count)
    if data_type in ("float16", "bfloat16"):
        bits = (items & 0xFFFF).astype(np.uint16)
        return bits.view(np.float16) if data_type == "float16" else _widened(bits)
    if data_type not in ("int64", "uint64"):
        lo, hi = bounds(data_type)
        if count and not lo <= int(items.min()) <= int(items.max()) <= hi:
            raise Malformed("onnx.tensor", f"{what} holds an item that is no {data_type}")
    return items.astype(data_type)


# Files


def embed(proto: TensorProto, folder: str, limits: Limits, what: str) -> int:
    """Put the items of a constant that lie in another file, within ``folder`` alone, into it; returns their bytes.

    One that has its items already is left as it is. Raises as `tensor_of`.
    """
    if proto.data_location != _EXTERNAL:
        return 0
    data_type = data_type_of(proto.data_type, what)
    size = _stored_bytes(data_type, elements(tuple(proto.dims), limits, what))
    raw = bytes(_external(proto, Sources(folder), size, what))
    proto.raw_data = raw
    proto.ClearField("external_data")
    proto.ClearField("data_location")
    return len(raw)


def _external(proto: TensorProto, sources: Sources, size: int, what: str) -> Buffer:
    folder = sources.folder
    entries = {str(entry.key): str(entry.value) for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        message = f"{what} lies in the file {location!r}, but this model was not read from a folder"
        raise Unsupported("onnx.external", f"{message}; load the model by its path")
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or location.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise Invalid("onnx.external", f"{what} lies in {location!r}, which is no file within the model's folder")
    home, path = os.path.realpath(folder), os.path.realpath(os.path.join(folder, location))
    if os.path.commonpath([home, path]) != home:
        raise Invalid("onnx.external", f"{what} lies in {location!r}, which leads out of the model's folder")
    offset, length = (_number(entries, key, default, what) for key, default in (("offset", 0), ("length", size)))
    if length != size:
        raise Malformed("onnx.external", f"{what} states {length} bytes of external data, and its shape {size}")
    found = sources.files.part(path, offset, size, "onnx.external")
    if len(found) != size:
        raise Malformed("onnx.external", f"{what}: {location!r} has {len(found)} of {size} bytes from {offset} on")
    return found


def _number(entries: dict[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Malformed("onnx.external", f"{what}: {key} of external data is {text[:20]!r}")
    return int(text)
