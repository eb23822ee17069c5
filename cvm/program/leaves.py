"""Merkle roots over many leaves, computed by a fast hasher if there is one.

A program is hashed by `hashlib`, or by a faster `Hasher` that another package offers by `offer`. The native executor
has one for processors with instructions for SHA-256, which works without Python's lock. The roots equal those of
`cvm.program.merkle.Tree`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, Tree, chunks, joined

__all__ = ["Bytes", "Hasher", "Subtrees", "data_root", "fast_hasher", "offer"]

Bytes: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Hasher:
    """SHA-256 of many messages of one size at a time. Both functions take addresses.

    ``messages(prefix, data, size, count, digests)`` hashes ``count`` messages of ``size`` bytes, one behind the other,
    into 32 bytes each; ``size`` is a positive multiple of 64.

    ``tree(data, size, count, more, nodes)`` hashes ``count`` leaves of ``size`` bytes with the prefix 0 into ``nodes``.
    Behind them, ``nodes`` already holds the hashes of ``more`` further leaves (0 or 1). Then it hashes pairs of nodes
    with the prefix 1, level by level; an unpaired last node moves up unchanged. In the end, the first node is the root.
    """

    messages: Callable[[int, int, int, int, int], None]
    tree: Callable[[int, int, int, int, int], None]


_OFFERED: list[Callable[[], Hasher | None]] = []


def offer(make: Callable[[], Hasher | None]) -> None:
    """Register ``make``, which `fast_hasher` calls; it returns None on a processor without SHA-256 instructions."""
    _OFFERED[:] = [make]
    fast_hasher.cache_clear()


@cache
def fast_hasher() -> Hasher | None:
    """The hasher of this processor, or None. Making it at the first call takes as long as hashing 50 MB."""
    return _OFFERED[0]() if _OFFERED else None


class Subtrees:
    """Computes roots over data of at most ``most`` bytes, with one call for the leaves and all levels above them."""

    def __init__(self, run: Hasher, most: int) -> None:
        self._run = run
        self._nodes = bytearray(-(-most // LEAF_BYTES) * HASH_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._nodes))

    def root(self, data: Bytes) -> bytes:
        """The Merkle root over the leaves of at least one contiguous byte."""
        whole, rest = divmod(data.size, LEAF_BYTES)
        if rest:
            last = Tree.of([data[whole * LEAF_BYTES :].tobytes()]).root
            self._nodes[whole * HASH_BYTES : (whole + 1) * HASH_BYTES] = last
        address = data.__array_interface__["data"][0]
        self._run.tree(address, LEAF_BYTES, whole, int(rest > 0), self._address)
        return bytes(self._nodes[:HASH_BYTES])


def data_root(blocks: Iterable[Bytes], most: int, run: Hasher | None) -> bytes:
    """The Merkle root over the leaves of data that comes in blocks.

    All blocks but the last have ``most`` bytes, which are a power of two of whole leaves. ``run`` is a hasher, or None
    for `hashlib`.
    """
    if run is None:
        return Tree.of(leaf for block in blocks for leaf in chunks(block.tobytes())).root
    trees = Subtrees(run, most)
    return joined(trees.root(block) for block in blocks)
