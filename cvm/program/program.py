"""The integer program: its parts (`cvm.program.model`), and methods for its bytes, its digest and its description."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from os import PathLike

from cvm.arguments import checked_path
from cvm.program.commitments import program_digest
from cvm.program.encoding import encoded
from cvm.program.model import ProgramParts
from cvm.writing import write_file

__all__ = ["Program"]


@dataclass(frozen=True, eq=False, repr=False)
class Program(ProgramParts):
    """A whole integer program. Programs are equal if their digests are; provenance does not count."""

    def __eq__(self, other: object) -> bool:
        """Whether both have the same digest, that is, the same ops, constants, inputs, outputs and state."""
        if not isinstance(other, Program):
            return NotImplemented
        return self is other or self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        from cvm.drawing import listed

        given = listed([f"{item.value.name} {list(item.value.shape)}" for item in self.inputs])
        return f"Program({given} -> {listed([item.name for item in self.outputs])}; {len(self.nodes)} nodes)"

    def _repr_html_(self) -> str:
        """The program as notebooks show it: its digest and a drawing."""
        from cvm.drawing import network_html, steps_of

        return network_html(f"{self!r} {self.digest}", steps_of(self))

    @cached_property
    def digest(self) -> str:
        """The program's identity: its Merkle claim, SHA-256 in hexadecimal (docs/commitments.md)."""
        return program_digest(self).hex()

    @cached_property
    def file_hash(self) -> str:
        """The SHA-256, in hexadecimal, of the file that `save` writes. Unlike `digest`, it covers the provenance."""
        found = sha256()
        for piece in self.pieces():
            found.update(piece)
        return found.hexdigest()

    def to_bytes(self) -> bytes:
        """The canonical bytes of the program."""
        return b"".join(self.pieces())

    def pieces(self) -> tuple[bytes, ...]:
        """The canonical bytes in pieces, large constants among them without a copy."""
        return encoded(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the canonical bytes to ``path``. A file is replaced as a whole or not at all. Raises OSError."""
        write_file(checked_path(path, "a file"), *self.pieces())
