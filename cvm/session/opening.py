"""The program that a session runs: given as an object, or as the path of a file that is read and verified."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from cvm.arguments import checked_path, expected
from cvm.errors import CvmError, Location, Mismatch
from cvm.formats import diagnosed, refuse_folder

if TYPE_CHECKING:
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Source", "program_file", "verified_of"]


def verified_of(program: object) -> VerifiedProgram:
    """The verified program that a caller passed. Raises `CvmError`, and `Invalid` (``argument.program``)."""
    return _verified_and_hash(program)[0]


def _verified_and_hash(program: object, file: ReadFile | None = None) -> tuple[VerifiedProgram, str | None]:
    """The verified program, and the SHA-256 of its file if it is one. ``file`` is the file if it was read before."""
    from cvm.program import Program
    from cvm.program.files import decoded
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram, verify

    if isinstance(program, VerifiedProgram):
        return program, None
    if isinstance(program, Program):
        return verify(program), None
    if not isinstance(program, str | os.PathLike):
        raise expected("program", "a program (cvm.load, cvm.compile) or the path of a program file", program)
    path = checked_path(program, "a program")
    refuse_folder(path, "a program of cvm (.cvm)")
    try:
        return decoded(file or ReadFile(path))
    except CvmError as error:
        raise diagnosed(error, path, "a program of cvm (.cvm)", ("program",)) from None


def program_file(program: object) -> ReadFile | None:
    """The content of the program's file; None if the program is no file, or if the file cannot be read."""
    if not isinstance(program, str | os.PathLike):
        return None
    from cvm.program.reading import ReadFile

    try:
        return ReadFile(program)
    except (CvmError, OSError, ValueError):  # `Source.read` says what is wrong
        return None


class Source:
    """Where the program of a session comes from.

    A session that starts from the cache runs without the verified program, which is read when something else needs it.
    """

    def __init__(self, program: object, file: ReadFile | None) -> None:
        """``program`` is what the caller passed, and ``file`` the content of its file if that was read already."""
        self._program = program
        self._verified: VerifiedProgram | None = None
        self.hash = None if file is None else file.hash
        """The SHA-256 of the program's file; None if there is no file."""

    def read(self, file: ReadFile | None) -> VerifiedProgram:
        """Verify the program, and keep it. Raises `CvmError`."""
        self._verified, self.hash = _verified_and_hash(self._program, file)
        return self._verified

    def forget(self) -> None:
        """Free the memory of the verified program, which is read again when it is needed."""
        self._verified = None

    @property
    def verified(self) -> VerifiedProgram:
        """The verified program. Raises `Mismatch` (``session.program``) if its file has changed, and OSError."""
        verified = self._verified  # read once: another thread may forget it
        if verified is None:
            verified, found = _verified_and_hash(self._program)
            if found != self.hash:
                message = f"the session began with a file of the SHA-256 {self.hash}, which now has {found}"
                raise Mismatch("session.program", message, Location(os.fspath(cast("str", self._program))))
            self._verified = verified
        return verified
