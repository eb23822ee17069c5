"""Reading the files of models: only regular files, and never more bytes than allowed."""

from __future__ import annotations

import mmap
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

from cvm.errors import Invalid, Location, Malformed

__all__ = ["Buffer", "Files", "read_regular", "regular"]

Buffer: TypeAlias = bytes | memoryview
"""The bytes of a file: in memory, or mapped from it."""

LEAST_MAPPED = 2**24
"""Files of this many bytes or more are mapped: the system reads a page when it is needed, and can forget it again."""


def read_regular(path: str, most: int, code: str, offset: int = 0) -> bytes:
    """At most ``most`` bytes of a regular file from ``offset`` on. Raises `Invalid` and `Malformed`, with
    ``code``.<rule>.
    """
    with _opened(path, code) as file:
        file.seek(offset)
        return file.read(most)


def regular(path: str, most: int, code: str) -> Buffer:
    """At most ``most`` bytes of a regular file. A large file is mapped, and nobody may make it shorter meanwhile.

    Raises as `read_regular`.
    """
    with _opened(path, code) as file:
        size = min(os.fstat(file.fileno()).st_size, most)
        if size >= LEAST_MAPPED:
            return _mapped(file, size)
        return file.read(size or most)  # the system reports 0 bytes for some files that have more


def _mapped(file: BinaryIO, size: int) -> Buffer:
    """The first bytes of a file, mapped; read where the file system cannot map files."""
    try:
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    except (OSError, ValueError):
        return file.read(size)


class Files:
    """Files that are read in parts. A large file is mapped once, however many parts are read."""

    def __init__(self) -> None:
        self._mapped: dict[str, memoryview] = {}

    def part(self, path: str, offset: int, size: int, code: str) -> Buffer:
        """At most ``size`` bytes of a regular file from ``offset`` on. Raises as `read_regular`."""
        if size >= LEAST_MAPPED and path not in self._mapped:
            found = regular(path, sys.maxsize, code)
            if not isinstance(found, memoryview):
                return found[offset : offset + size]
            self._mapped[path] = found
        if path in self._mapped:
            return self._mapped[path][offset : offset + size]
        return read_regular(path, size, code, offset)


@contextmanager
def _opened(path: str, code: str) -> Iterator[BinaryIO]:
    """A regular file, open for reading."""
    where = Location(file=path)
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Malformed(f"{code}.file", "this is not a regular file", where)
            yield file
    except OSError as error:
        raise Invalid(f"{code}.unreadable", f"cannot be read: {error.strerror or error}", where) from None
    except ValueError as error:  # the path contains a NUL
        if isinstance(error, Malformed):
            raise
        raise Invalid(f"{code}.unreadable", f"cannot be read: {error}", Location(file=repr(path))) from None
