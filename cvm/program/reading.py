"""Reading of files whose size is checked first."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from os import PathLike

from cvm.errors import CvmError, Malformed
from cvm.limits import DEFAULT, Limits, require

__all__ = ["ReadFile", "read_bytes"]


def read_bytes(path: str | PathLike[str], limit: int, format_name: str = "program") -> bytes:
    """The content of a regular file of at most ``limit`` bytes. The size is checked before anything is read.

    Raises `LimitExceeded` (``limit.<format_name>_bytes``), `Malformed` (``<format_name>.file``) if it is not a regular
    file or changes while it is read, and OSError.
    """
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Malformed(f"{format_name}.file", "this is not a regular file")
        require(f"{format_name}_bytes", status.st_size, limit, f"bytes of a {format_name}")
        data = file.read(status.st_size + 1)
    if len(data) != status.st_size:
        raise Malformed(
            f"{format_name}.file", f"expected {status.st_size} bytes, found {len(data)}: the file is changing"
        )
    return data


class ReadFile:
    """The bytes of a program file, its size, and their SHA-256 in hexadecimal.

    Raises `CvmError` (with the file) or OSError.
    """

    def __init__(self, path: str | PathLike[str], limits: Limits = DEFAULT) -> None:
        self.path, self._limits = os.fspath(path), limits
        try:
            self._data: bytes | None = read_bytes(path, limits.program_bytes)
        except CvmError as error:
            raise error.at(file=self.path) from None
        self.size = len(self._data or b"")
        self.hash = sha256(self._data or b"").hexdigest()

    def forget(self) -> None:
        """Free the bytes, which take as much memory as the program itself."""
        self._data = None

    def taken(self) -> tuple[bytes, str]:
        """The bytes, which this object frees, and their SHA-256.

        If it freed them before, the file is read again, whatever is in it now. Raises as the class does.
        """
        if self._data is None:
            return ReadFile(self.path, self._limits).taken()
        data, self._data = self._data, None
        return data, self.hash
