"""A program in memory as the file that it would have: the cache knows programs by the SHA-256 of their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from cvm.program import Program

__all__ = ["Encoded"]


class Encoded:
    """The file that a program in memory would have. Its bytes are made only to be written."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.size = sum(len(one.data) for one in program.constants)
        """The number of bytes of the constants, which are most of a large file."""

    @property
    def hash(self) -> str:
        """The SHA-256 of the file in hexadecimal."""
        return self._program.file_hash

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A file with these bytes, and without a name, so that nothing is left of it. Raises OSError."""
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            file.writelines(self._program.pieces())
            file.seek(0)  # which also writes what is buffered
            yield file

    def forget(self) -> None:
        """As `cvm.program.reading.ReadFile.forget`: there is nothing here to free."""
