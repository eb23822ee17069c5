"""Reading of files whose size is checked first."""

from __future__ import annotations

import os
import stat
from os import PathLike

from cvm.errors import Malformed
from cvm.limits import require

__all__ = ["read_bytes"]


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
