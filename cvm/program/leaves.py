"""Merkle roots over many leaves, as fast as the machine hashes.

Where the processor has instructions for SHA-256 (`cvm.executors.native.sha256`), leaves and nodes are hashed by them,
outside of Python's lock; elsewhere by `hashlib`. The roots are those of `cvm.program.merkle.Tree`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, Tree, chunks, joined

if TYPE_CHECKING:
    from cvm.executors.native.sha256 import Hasher

__all__ = ["Bytes", "Subtrees", "data_root", "fast_hasher"]

Bytes: TypeAlias = npt.NDArray[np.uint8]


@cache
def fast_hasher() -> Hasher | None:
    """The hasher of this processor, where it has one. To make it the first time takes as long as hashing 50 MB."""
    try:
        from cvm.executors.native.sha256 import hasher

        return hasher()
    except (ImportError, OSError):  # llvmlite does not load here
        return None


class Subtrees:
    """Roots over data of at most ``most`` bytes each, by one call for leaves and all levels above them."""

    def __init__(self, run: Hasher, most: int) -> None:
        self._run = run
        self._nodes = bytearray(-(-most // LEAF_BYTES) * HASH_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._nodes))

    def root(self, data: Bytes) -> bytes:
        """The Merkle root over the leaves of contiguous bytes, one or more."""
        whole, rest = divmod(data.size, LEAF_BYTES)
        if rest:
            last = Tree.of([data[whole * LEAF_BYTES :].tobytes()]).root
            self._nodes[whole * HASH_BYTES : (whole + 1) * HASH_BYTES] = last
        address = data.__array_interface__["data"][0]
        self._run.tree(address, LEAF_BYTES, whole, int(rest > 0), self._address)
        return bytes(self._nodes[:HASH_BYTES])


def data_root(blocks: Iterable[Bytes], most: int, run: Hasher | None) -> bytes:
    """The Merkle root over the leaves of data that comes in blocks, all but the last one of ``most`` bytes: a power of
    two of whole leaves.

    ``run`` is a hasher, or None for `hashlib`.
    """
    if run is None:
        return Tree.of(leaf for block in blocks for leaf in chunks(block.tobytes())).root
    trees = Subtrees(run, most)
    return joined(trees.root(block) for block in blocks)
