"""Program files. Their size is checked before they are read, and programs are verified when they are loaded."""

from __future__ import annotations

import os
import re
import stat
from os import PathLike

from cvm.errors import CvmError, Invalid, Location, Malformed, Mismatch
from cvm.limits import DEFAULT, Limits, require
from cvm.program.codec import decode
from cvm.program.program import Program
from cvm.program.verifier import VerifiedProgram, remember, verify

__all__ = ["load", "load_verified", "read_bytes", "require_digest"]


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


def load_verified(path: str | PathLike[str], limits: Limits = DEFAULT) -> VerifiedProgram:
    """Read, decode and verify a program file; returns what was proven. Raises `CvmError` (with the file) or OSError."""
    try:
        return verify(decode(read_bytes(path, limits.program_bytes), limits), limits)
    except CvmError as error:
        raise error.at(file=os.fspath(path)) from None


def load(path: str | PathLike[str], limits: Limits = DEFAULT) -> Program:
    """Read, decode and verify a program file. Raises `CvmError` (with the file in its location) or OSError."""
    verified = load_verified(path, limits)
    remember(verified)
    return verified.program


def require_digest(program: Program, expected: str | None, file: str | None = None) -> None:
    """Refuse a program whose digest is not the expected one (None: any).

    Raises `Mismatch` (``program.digest``), and `Invalid` (``argument.digest``) if ``expected`` is not a digest.
    """
    if expected is None:
        return
    if not isinstance(expected, str) or not re.fullmatch("[0-9a-fA-F]{64}", expected):
        raise Invalid("argument.digest", f"expected a digest, 64 hexadecimal digits, found {str(expected)[:80]!r}")
    if program.digest != expected.lower():
        message = f"expected the program {expected.lower()}, found {program.digest}"
        raise Mismatch("program.digest", message, Location(file))
