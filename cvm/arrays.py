"""Array files: ``.npy`` and ``.npz`` in and out, read as if an enemy had written them.

The first bytes of a file tell its kind. A header is parsed with a grammar of its own, never evaluated, before anything
is allocated. Then the sizes that it claims are compared with the limits and with the bytes of the file. Pickles,
objects and structured types are not read. The same arrays are always written as the same bytes.

Source: numpy.lib.format, versions 1.0 to 3.0.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, LimitExceeded, Location, Malformed
from cvm.limits import DEFAULT, MAX_RANK, Limits, require
from cvm.zip_directory import require_directory

__all__ = ["Array", "kind_of", "npz_arrays", "npz_bytes", "npz_members", "read_npy", "read_npz"]

Array: TypeAlias = npt.NDArray[Any]

_NPY_MAGIC = b"\x93NUMPY"
_KINDS = ((_NPY_MAGIC, "npy"), (b"PK\x03\x04", "npz"), (b"PK\x05\x06", "npz"), (b"N\xef", "dat"))
_BYTE_TYPES = frozenset({"b1", "i1", "u1"})
_WIDER_TYPES = frozenset({"i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8"})
_HEADER_BYTES = 10_000
_ITEM = re.compile(r"'(descr|fortran_order|shape)' *: *('[^'\n]*'|True|False|\([0-9, ]*\)|\[[^\n]*\])", re.ASCII)
_DESCR = re.compile(r"'([<>|])([a-z][0-9])'", re.ASCII)
_EXTENT = re.compile(r"[0-9]{1,19}", re.ASCII)
_SMALL = 16 * 2**20
"""Below this many inflated bytes the ratio does not matter: an array of zeros deflates to almost nothing."""


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A regular file, open for reading; every error inside the block names the file.

    Raises `Invalid` (``array.unreadable``) for a file that cannot be opened or is not regular.
    """
    name = os.fspath(path)
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Invalid("array.unreadable", "cannot be read: it is not a regular file")
            yield file
    except (Invalid, LimitExceeded, Malformed) as error:
        raise error.at(file=name) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("array.unreadable", message, Location(name)) from None


def kind_of(path: str | PathLike[str]) -> str:
    """``npy``, ``npz`` or ``dat`` (an NNEF tensor file). Raises `Malformed` (``array.kind``) for anything else."""
    with opened(path) as file:
        start = file.read(8)
        for magic, kind in _KINDS:
            if start.startswith(magic):
                return kind
        raise Malformed("array.kind", f"expected a .npy, .npz or NNEF .dat file, found one that begins with {start!r}")


def read_npy(path: str | PathLike[str], limits: Limits = DEFAULT) -> Array:
    """The array in a ``.npy`` file, native byte order. Raises `Malformed`, `Invalid` or `LimitExceeded`."""
    with opened(path) as file:
        return _array(file, os.fstat(file.fileno()).st_size, limits)


def npz_members(path: str | PathLike[str], limits: Limits = DEFAULT) -> tuple[str, ...]:
    """The names of the arrays in a ``.npz`` file, in its order."""
    with opened(path) as file, _archive(file, os.fstat(file.fileno()).st_size, limits) as archive:
        return tuple(_members(archive))


def read_npz(path: str | PathLike[str], member: str, limits: Limits = DEFAULT) -> Array:
    """One array of a ``.npz`` file. Raises as `read_npy`, and `Invalid` (``array.member``) for an unknown name."""
    with opened(path) as file, _archive(file, os.fstat(file.fileno()).st_size, limits) as archive:
        members = _members(archive)
        if member not in members:
            raise Invalid("array.member", f"there is no array {member!r}; there are {', '.join(members) or 'none'}")
        return _inflated(archive, member, members[member], limits)


def npz_arrays(data: bytes, limits: Limits = DEFAULT) -> dict[str, Array]:
    """All arrays of a ``.npz`` file that is in memory, by name. Raises as `read_npy`."""
    with _archive(io.BytesIO(data), len(data), limits) as archive:
        return {name: _inflated(archive, name, info, limits) for name, info in _members(archive).items()}


def _inflated(archive: zipfile.ZipFile, member: str, info: zipfile.ZipInfo, limits: Limits) -> Array:
    try:
        with archive.open(info) as stream:
            return _array(stream, info.file_size, limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise Malformed("array.archive", f"the member {member!r} cannot be inflated: {error}") from None


@contextmanager
def _archive(file: IO[bytes], size: int, limits: Limits) -> Iterator[zipfile.ZipFile]:
    """An archive whose directory states sizes within the limits; no member inflates to more than it states."""
    require("archive_bytes", size, limits.archive_bytes, "bytes of the archive")
    require_directory(file, size, limits)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError) as error:
        raise Malformed("array.archive", f"this is not a whole .npz file: {error}") from None
    infos = archive.infolist()
    require("archive_members", len(infos), limits.archive_members, "members of the archive")
    inflated = sum(info.file_size for info in infos)
    require("archive_bytes", inflated, limits.archive_bytes, "bytes of all members, inflated")
    if inflated > _SMALL:
        require("archive_ratio", inflated // max(size, 1), limits.archive_ratio, "inflated bytes per byte")
    with archive:
        yield archive


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            raise Malformed("array.archive", f"a .npz file holds .npy members only, found {name[:80]!r}")
        if name in members:
            raise Malformed("array.archive", f"two members are called {info.filename[:80]!r}")
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Malformed("array.archive", f"the member {info.filename[:80]!r} is encrypted or oddly compressed")
        members[name] = info
    return members


def _array(stream: IO[bytes], size: int, limits: Limits) -> Array:
    """The array that the ``size`` bytes of ``stream`` hold, to the last byte."""
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(_NPY_MAGIC) or start[6] not in (1, 2, 3) or start[7] != 0:
        raise Malformed("array.header", f"expected a .npy header of version 1.0, 2.0 or 3.0, found {start!r}")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > _HEADER_BYTES:
        raise Malformed("array.header", f"the header claims {length} bytes; {_HEADER_BYTES} are more than any needs")
    dtype, fortran, shape = _header(stream.read(length))
    if len(shape) > MAX_RANK + 2:
        raise LimitExceeded(
            "limit.rank", f"the array has {len(shape)} dimensions, more than {MAX_RANK} and two for runs"
        )
    count = math.prod(shape)
    require("elements", count, limits.elements, "elements of the array")
    expected, found = count * dtype.itemsize, size - 8 - width - length
    if found != expected:
        raise Malformed("array.length", f"an array of {list(shape)} {dtype.name} takes {expected} bytes, found {found}")
    data = stream.read(expected)
    if len(data) != expected:
        raise Malformed("array.length", f"expected {expected} bytes of data, found {len(data)}")
    items = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return items.astype(dtype.newbyteorder("="), order="C", copy=False)


def _header(raw: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    text = raw.decode("latin-1").rstrip(" \n")
    items = list(_ITEM.finditer(text))
    fields = {item[1]: item[2] for item in items}
    between = _ITEM.sub("", text).replace(" ", "")
    if len(items) != 3 or len(fields) != 3 or between not in ("{,,}", "{,,,}"):
        raise Malformed("array.header", f"the header does not say descr, fortran_order and shape: {text[:80]!r}")
    if fields["fortran_order"] not in ("True", "False") or not fields["shape"].startswith("("):
        raise Malformed("array.header", f"impossible values in the header {text[:80]!r}")
    extents = fields["shape"][1:-1].replace(" ", "").removesuffix(",")
    parts = extents.split(",") if extents else []
    if not all(_EXTENT.fullmatch(part) for part in parts):
        raise Malformed("array.header", f"impossible shape {fields['shape'][:80]}")
    return _dtype(fields["descr"]), fields["fortran_order"] == "True", tuple(int(part) for part in parts)


_OTHER_TYPES = {"O": "Python objects", "U": "text", "S": "bytes", "c": "complex numbers", "M": "dates", "m": "times"}
"""The names of NumPy's types that are not read, by their letters."""


def _dtype(text: str) -> np.dtype[Any]:
    match = _DESCR.fullmatch(text)
    if match is None or match[2] not in (_BYTE_TYPES if match[1] == "|" else _BYTE_TYPES | _WIDER_TYPES):
        found = next((words for letter, words in _OTHER_TYPES.items() if letter in text[:3]), "another type")
        message = f"expected integers, booleans or floats of at most 64 bits, found {found}, {text[:80]}"
        raise Invalid("array.dtype", message)
    return np.dtype(match[1] + match[2])


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """A ``.npz`` file with these arrays, not compressed; it contains neither time nor machine."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            np.lib.format.write_array(member, little, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            with archive.open(info, "w", force_zip64=member.tell() >= 2**31) as stream:
                stream.write(member.getbuffer())
    return buffer.getvalue()
