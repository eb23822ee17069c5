"""The directory of a zip archive, compared with the limits before `zipfile` reads it.

`zipfile` makes an object of every entry of the directory, some 40 microseconds each, whatever the number of entries
that the archive claims. So the directory is found, its size is bounded, and its entries are counted first. This only
helps if `zipfile` finds the same directory. Therefore anything ambiguous is refused: a comment at the end, bytes before
the archive or between its parts, more than one disk, further data in a zip64 record. No .npz file has them.

Source: PKWARE APPNOTE.TXT, sections 4.3.12, 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import struct
from typing import IO

from cvm.errors import Malformed
from cvm.limits import Limits, require

__all__ = ["require_directory"]

_ENTRY, _ENTRY_BYTES = b"PK\x01\x02", 46
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_NAME_BYTES = 1_024
"""The most bytes of the name, the extra fields and the comment of an entry, on average over a directory."""


def require_directory(file: IO[bytes], size: int, limits: Limits) -> None:
    """Raise `LimitExceeded` for an archive of ``size`` bytes with too large a directory, `Malformed` for an odd one."""
    entries, length, start, end = _end(file, size)
    if start + length != end:
        raise _odd("its directory does not end where the record of its end begins")
    require("archive_members", entries, limits.archive_members, "members of the archive")
    longest = limits.archive_members * (_ENTRY_BYTES + _NAME_BYTES)
    require("archive_directory", length, longest, "bytes of the directory of the archive")
    if _count(_read(file, start, length), limits.archive_members) != entries:
        raise _odd(f"its directory does not have the {entries} entries that it claims")


def _end(file: IO[bytes], size: int) -> tuple[int, int, int, int]:
    """The entries, bytes and offset of the directory, and the offset of the records behind it."""
    end = size - _END.size
    signature, disk, first, here, entries, length, start, comment = _END.unpack(_read(file, end, _END.size))
    if signature != b"PK\x05\x06" or comment:
        raise _odd("the record of its end is missing, or a comment follows it")
    offset = end - _LOCATOR.size
    if offset >= 0:
        locator = _LOCATOR.unpack(_read(file, offset, _LOCATOR.size))
        if locator[0] == b"PK\x06\x07":
            return _end_64(file, offset - _END_64.size, locator)
    if (disk, first) != (0, 0) or here != entries:
        raise _odd("it is one of several disks")
    return entries, length, start, end


def _end_64(file: IO[bytes], offset: int, locator: tuple[bytes, int, int, int]) -> tuple[int, int, int, int]:
    """The same from a zip64 record, which takes precedence where it exists."""
    _, disk, found, disks = locator
    if found != offset or disk != 0 or disks > 1:
        raise _odd("its zip64 record is not where it is said to be")
    signature, rest, _, _, disk, first, here, entries, length, start = _END_64.unpack(_read(file, offset, _END_64.size))
    if signature != b"PK\x06\x06" or rest != _END_64.size - 12 or (disk, first) != (0, 0) or here != entries:
        raise _odd("its zip64 record is not one of a single disk")
    return entries, length, start, offset


def _count(directory: bytes, most: int) -> int:
    """The entries of a directory, counted up to one more than ``most``."""
    at, count = 0, 0
    while at < len(directory) and count <= most:
        if directory[at : at + 4] != _ENTRY or at + _ENTRY_BYTES > len(directory):
            raise _odd("its directory has something else than entries")
        at += _ENTRY_BYTES + sum(struct.unpack_from("<3H", directory, at + 28))
        count += 1
    if count <= most and at != len(directory):
        raise _odd("its directory ends within an entry")
    return count


def _read(file: IO[bytes], offset: int, count: int) -> bytes:
    if offset < 0:
        raise _odd("it is too short")
    file.seek(offset)
    data = file.read(count)
    if len(data) != count:
        raise _odd("it ends too early")
    return data


def _odd(what: str) -> Malformed:
    return Malformed("array.archive", f"this is not a whole .npz file: {what}")
