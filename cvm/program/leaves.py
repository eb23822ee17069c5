"""Merkle roots over many leaves, as fast as the machine hashes.

Where the processor has instructions for SHA-256 (`cvm.executors.native.sha256`), leaves and nodes are hashed by them,
outside of Python's lock; elsewhere by `hashlib`. The roots are those of `cvm.program.merkle.Tree`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, Tree, chunks

if TYPE_CHECKING:
    from cvm.executors.native.sha256 import Hasher

__all__ = ["Bytes", "data_root", "fast_hasher"]

Bytes: TypeAlias = npt.NDArray[np.uint8]


@cache
def fast_hasher() -> Hasher | None:
    """The hasher of this processor, where it has one. To make it the first time takes as long as hashing 50 MB."""
    try:
        from cvm.executors.native.sha256 import hasher

        return hasher()
    except (ImportError, OSError):  # llvmlite does not load here
        return None


def data_root(blocks: Iterable[Bytes], size: int, run: Hasher | None) -> bytes:
    """The Merkle root over the leaves of ``size`` bytes of data, which come in blocks of whole leaves but for the last.

    ``run`` is a hasher, or None for `hashlib`.
    """
    if run is None or not size:
        return Tree.of(leaf for block in blocks for leaf in chunks(block.tobytes())).root
    level = np.empty(-(-size // LEAF_BYTES) * HASH_BYTES, np.uint8)
    done = 0
    for block in blocks:
        whole = block.size // LEAF_BYTES
        run(0, block.ctypes.data, LEAF_BYTES, whole, level[done:].ctypes.data)
        done += whole * HASH_BYTES
        if block.size % LEAF_BYTES:
            rest = Tree.of([block[whole * LEAF_BYTES :].tobytes()]).root
            level[done : done + HASH_BYTES] = np.frombuffer(rest, np.uint8)
            done += HASH_BYTES
    if done != level.size:
        raise ValueError(f"{size} bytes have {level.size // HASH_BYTES} leaves, found {done // HASH_BYTES}")
    while level.size > HASH_BYTES:
        pairs = level.size // (2 * HASH_BYTES)
        parents = np.empty(-(-level.size // (2 * HASH_BYTES)) * HASH_BYTES, np.uint8)
        run(1, level.ctypes.data, 2 * HASH_BYTES, pairs, parents.ctypes.data)
        parents[pairs * HASH_BYTES :] = level[2 * pairs * HASH_BYTES :]
        level = parents
    return level.tobytes()
