"""A program in memory as the file that it would have: the cache knows programs by the SHA-256 of their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from cvm.program import Program

__all__ = ["Encoded"]


class Encoded:
    """The bytes of the file that a program in memory would have: their number, and their SHA-256 in hexadecimal."""

    def __init__(self, program: Program) -> None:
        self._pieces: tuple[bytes, ...] = program.pieces()
        self.size = sum(map(len, self._pieces))
        digest = sha256()
        for piece in self._pieces:
            digest.update(piece)
        self.hash = digest.hexdigest()

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """A file with these bytes, and without a name, so that nothing is left of it. Raises OSError."""
        from tempfile import TemporaryFile

        with TemporaryFile() as file:
            file.writelines(self._pieces)
            file.seek(0)  # which also writes what is buffered
            yield file

    def forget(self) -> None:
        """Free the bytes that are not the program's own."""
        self._pieces = ()
