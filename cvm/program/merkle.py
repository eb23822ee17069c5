"""Merkle trees as in RFC 6962 (Certificate Transparency), section 2.1, over SHA-256.

A leaf hashes as SHA-256(00 | leaf), an inner node as SHA-256(01 | left | right). Level by level, neighbours are paired
from the left; a last one without a partner moves up unchanged. The tree of no leaves is SHA-256 of nothing. The root
alone does not say how many leaves there are: whoever commits to a root commits to the count beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

__all__ = ["LEAF_BYTES", "Proof", "Tree", "chunks", "root", "root_of_proof", "verify_proof"]

LEAF_BYTES = 1_024
"""Bytes of a leaf of tensor data; the last leaf of a tensor may be shorter."""

HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Proof:
    """The place of one leaf, and the hashes of the neighbours on its way to the root, lowest first."""

    index: int
    count: int
    path: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A Merkle tree, all levels: the hashes of the leaves, then of each level above, 32 bytes each."""

    levels: tuple[bytes, ...] = field(repr=False)

    @staticmethod
    def of(leaves: Iterable[bytes]) -> Tree:
        """The tree over ``leaves``."""
        level = b"".join([sha256(b"\x00" + leaf).digest() for leaf in leaves])
        levels = [level]
        while len(level) > HASH_BYTES:
            level = _parents(level)
            levels.append(level)
        return Tree(tuple(levels))

    @property
    def count(self) -> int:
        """The number of leaves."""
        return len(self.levels[0]) // HASH_BYTES

    @property
    def root(self) -> bytes:
        """The root."""
        return self.levels[-1] or sha256().digest()

    def prove(self, index: int) -> Proof:
        """The proof that leaf ``index`` is where it is. Raises IndexError for a leaf that does not exist."""
        if not 0 <= index < self.count:
            raise IndexError(f"leaf {index} of {self.count}")
        path = []
        place = index
        for level in self.levels[:-1]:
            start = (place ^ 1) * HASH_BYTES
            if start < len(level):
                path.append(level[start : start + HASH_BYTES])
            place >>= 1
        return Proof(index, self.count, tuple(path))


def _parents(level: bytes) -> bytes:
    """The level above ``level``."""
    pair = 2 * HASH_BYTES
    paired = len(level) // pair * pair
    parents = [sha256(b"\x01" + level[start : start + pair]).digest() for start in range(0, paired, pair)]
    parents.append(level[paired:])
    return b"".join(parents)


def root(leaves: Iterable[bytes]) -> bytes:
    """The root of the tree over ``leaves``."""
    return Tree.of(leaves).root


def root_of_proof(leaf: bytes, proof: Proof) -> bytes | None:
    """The root of the tree in which ``leaf`` stands as ``proof`` says; None if no tree has a proof of that form."""
    place, last = proof.index, proof.count - 1
    if not 0 <= place <= last:
        return None
    node = sha256(b"\x00" + leaf).digest()
    path = iter(proof.path)
    while last > 0:
        if place & 1 or place < last:
            neighbour = next(path, b"")
            if len(neighbour) != HASH_BYTES:
                return None
            pair = neighbour + node if place & 1 else node + neighbour
            node = sha256(b"\x01" + pair).digest()
        place >>= 1
        last >>= 1
    return node if next(path, None) is None else None


def verify_proof(root: bytes, leaf: bytes, proof: Proof) -> bool:
    """Whether ``leaf`` stands where ``proof`` says in the tree with that root and ``proof.count`` leaves."""
    return root_of_proof(leaf, proof) == root


def chunks(data: bytes) -> Iterator[bytes]:
    """The leaves of tensor data: 1,024 bytes each, the last one what is left."""
    return (data[start : start + LEAF_BYTES] for start in range(0, len(data), LEAF_BYTES))
