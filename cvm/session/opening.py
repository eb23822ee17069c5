"""The program that a session runs: given as an object, or as the path of a file that is read and verified."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from cvm.arguments import checked_path, expected
from cvm.errors import CvmError, Location, Mismatch
from cvm.formats import diagnosed, refuse_folder
from cvm.session.aside import LEAST
from cvm.session.encoded import Encoded

if TYPE_CHECKING:
    from cvm.program.reading import ReadFile
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Source", "verified_of"]


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


class Source:
    """Where the program of a session comes from: an object, or the path of a file.

    A session that starts from the cache runs without the verified program, which is read when something else needs it.
    """

    def __init__(self, program: object) -> None:
        """``program`` is what the caller passed."""
        self._program = program
        self.named = isinstance(program, str | os.PathLike)
        """Whether the program is a file."""
        self._verified: VerifiedProgram | None = None
        self.hash: str | None = None
        """The SHA-256 of the program's file, or of the file that a large program in memory would have."""

    def file(self) -> ReadFile | Encoded | None:
        """The program's file, or the one that it would have; a program in memory is verified first.

        Returns None for a small program in memory, and if the file cannot be read: `read` says what is wrong.
        """
        from cvm.program.reading import ReadFile

        file: ReadFile | Encoded | None = None
        if self.named:
            with suppress(CvmError, OSError, ValueError):
                file = ReadFile(cast("str", self._program))
        else:
            encoded = Encoded(self.verified.program)
            file = encoded if encoded.size >= LEAST else None
        self.hash = None if file is None else file.hash
        return file

    def read(self, file: ReadFile | Encoded | None) -> VerifiedProgram:
        """Verify the program, and keep it. ``file`` is what `file` gave. Raises `CvmError`."""
        if not self.named:
            return self.verified
        self._verified, self.hash = _verified_and_hash(self._program, cast("ReadFile | None", file))
        return self._verified

    def forget(self) -> None:
        """Free the memory of the verified program if it can be read again from its file."""
        if self.named:
            self._verified = None

    @property
    def verified(self) -> VerifiedProgram:
        """The verified program. Raises `Mismatch` (``session.program``) if its file has changed, and OSError."""
        verified = self._verified  # read once: another thread may forget it
        if verified is None:
            verified, found = _verified_and_hash(self._program)
            if self.named and found != self.hash:
                message = f"the session began with a file of the SHA-256 {self.hash}, which now has {found}"
                raise Mismatch("session.program", message, Location(os.fspath(cast("str", self._program))))
            self._verified = verified
        return verified
