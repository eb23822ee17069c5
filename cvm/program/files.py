"""Program files. Their size is checked before they are read, and programs are verified when they are loaded."""

from __future__ import annotations

import re
from os import PathLike

from cvm.errors import CvmError, Invalid, Location, Mismatch
from cvm.limits import DEFAULT, Limits
from cvm.program.codec import decode
from cvm.program.program import Program
from cvm.program.reading import ReadFile
from cvm.program.verifier import VerifiedProgram, remember, verify

__all__ = ["decoded", "load", "load_hashed", "load_verified", "require_digest"]


def load_verified(path: str | PathLike[str], limits: Limits = DEFAULT) -> VerifiedProgram:
    """Read, decode and verify a program file; returns what was proven. Raises `CvmError` (with the file) or OSError."""
    return load_hashed(path, limits)[0]


def load_hashed(path: str | PathLike[str], limits: Limits = DEFAULT) -> tuple[VerifiedProgram, str]:
    """`load_verified`, and the SHA-256 of the bytes of the file in hexadecimal."""
    return decoded(ReadFile(path, limits), limits)


def decoded(file: ReadFile, limits: Limits = DEFAULT) -> tuple[VerifiedProgram, str]:
    """The program in a file that was read, verified, and the SHA-256 of the file.

    The bytes of the file are freed before the program is verified. Raises `CvmError` (with the file).
    """
    data, found = file.taken()
    try:
        program = decode(data, limits)
        del data
        return verify(program, limits), found
    except CvmError as error:
        raise error.at(file=file.path) from None


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
