"""What is finished: one file per chunk, in a folder beside the output, from which a later run goes on.

The name of a file is a digest of the job and of the inputs of its chunk. So a file is used again only for the same
program, options and numbers. It appears whole, or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path

import numpy as np

from cvm.arrays import Array, npz_bytes, npz_members, read_npz
from cvm.limits import LARGE
from cvm.mapping.datasets import Chunk
from cvm.records import dataclass
from cvm.writing import make_folder, unwritable, write_atomically

__all__ = ["Parts", "Receipts"]


@dataclass(slots=True)
class Parts:
    """The finished chunks of one output."""

    folder: Path
    expected: list[str] = field(default_factory=list)
    """The names of the files of all chunks, in the order of the data set."""

    @staticmethod
    def beside(output: Path) -> Parts:
        """The folder ``OUTPUT.parts``, made if it is not there. Raises `Invalid` (``output.unwritable``)."""
        return Parts(make_folder(output.with_name(f"{output.name}.parts")))

    def expect(self, chunk: Chunk, identity: str) -> str:
        """Take the next chunk of the data set into account; returns the name of its file."""
        hashed = sha256(identity.encode())
        for name in sorted(chunk.arrays):
            array = np.ascontiguousarray(chunk.arrays[name])
            hashed.update(repr((name, array.dtype.str, array.shape)).encode())
            hashed.update(array.data)
        name = f"{chunk.begin:012}-{hashed.hexdigest()}.npz"
        self.expected.append(name)
        return name

    def has(self, name: str) -> bool:
        """Whether an earlier run has finished this chunk."""
        return (self.folder / name).is_file()

    def write(self, name: str, outputs: Mapping[str, Array]) -> None:
        """Keep the results of a chunk. Raises `Invalid` (``output.unwritable``)."""
        _write(self.folder / name, npz_bytes(outputs))

    def chunks(self) -> Iterator[dict[str, Array]]:
        """The results of every chunk, in the order of the data set."""
        for part in self.expected:
            path = self.folder / part
            yield {name: read_npz(path, name, LARGE) for name in npz_members(path, LARGE)}

    def arrays(self, name: str) -> Iterator[Array]:
        """The arrays of one output, chunk by chunk in the order of the data set."""
        for part in self.expected:
            yield read_npz(self.folder / part, name, LARGE)

    def remove(self) -> None:
        """Remove the folder: its content has become the output."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Receipts:
    """The folder of receipts: ``NAME.receipt``, with its inputs in ``NAME.npz``, as `cvm receipt verify` takes it."""

    folder: Path

    @staticmethod
    def beside(output: Path) -> Receipts:
        """The folder ``OUTPUT.receipts``, made if it is not there. Raises `Invalid` (``output.unwritable``)."""
        return Receipts(make_folder(output.with_name(f"{output.name}.receipts")))

    def have(self, names: Sequence[str]) -> bool:
        """Whether all these items have a receipt."""
        return all((self.folder / f"{name}.receipt").is_file() for name in names)

    def write(self, receipts: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Write receipts and their inputs. Raises `Invalid` (``output.unwritable``)."""
        for name, (receipt, inputs) in receipts.items():
            _write(self.folder / f"{name}.npz", inputs)
            _write(self.folder / f"{name}.receipt", receipt)


def _write(path: Path, data: bytes) -> None:
    with unwritable(path):
        write_atomically(path, data, lasting=False)
