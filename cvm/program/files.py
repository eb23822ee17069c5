"""Program files: written whole or not at all, bounded and verified when read."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from os import PathLike
from pathlib import Path

from cvm.errors import CvmError, Malformed
from cvm.limits import DEFAULT, Limits, require
from cvm.program.codec import decode
from cvm.program.model import Program
from cvm.program.verifier import VerifiedProgram, remember, verify

__all__ = ["load", "load_verified", "read_bytes", "write_atomically"]


def write_atomically(
    path: str | PathLike[str], *data: bytes | memoryview, mode: int = 0o666, lasting: bool = True
) -> None:
    """Write ``data``, one after the other, to ``path``: there is the old content or the new, never a part of it.

    A file of its own in the same folder is written, with ``mode`` as far as the process' mask allows, and renamed.
    ``lasting``: it is flushed to the disk before, so that this holds even where the system stops. Raises OSError.
    """
    target = Path(path)
    if not target.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for part in data:
                file.write(part)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read_bytes(path: str | PathLike[str], limit: int, format_name: str = "program") -> bytes:
    """The content of a regular file of at most ``limit`` bytes; the size is checked before anything is read.

    Raises `LimitExceeded` (``limit.<format_name>_bytes``), `Malformed` (``<format_name>.file``) for what is no regular
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


def load_verified(path: str | PathLike[str], limits: Limits = DEFAULT) -> VerifiedProgram:
    """Read, decode and verify a program file, keeping what was proven. Raises `CvmError` (with the file) or OSError."""
    try:
        return verify(decode(read_bytes(path, limits.program_bytes), limits), limits)
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None


def load(path: str | PathLike[str], limits: Limits = DEFAULT) -> Program:
    """Read, decode and verify a program file. Raises `CvmError` (with the file in its location) or OSError."""
    verified = load_verified(path, limits)
    remember(verified)
    return verified.program
