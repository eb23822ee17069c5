"""Merkle trees as in RFC 6962 (Certificate Transparency), section 2.1, over SHA-256.

A leaf hashes as SHA-256(00 | leaf), an inner node as SHA-256(01 | left | right). Level by level, neighbours are paired
from the left; an unpaired last node moves up unchanged. The root of a tree without leaves is the SHA-256 of no bytes.
The root alone does not tell how many leaves there are, so every commitment to a root also commits to the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

__all__ = [
    "HASH_BYTES",
    "LEAF_BYTES",
    "Proof",
    "Tree",
    "chunks",
    "joined",
    "root",
    "root_of_proof",
    "root_of_several",
    "verify_consistency",
]

LEAF_BYTES = 1_024
"""The number of bytes of a leaf of tensor data; the last leaf of a tensor may be shorter."""

HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Proof:
    """The index of one leaf, and the hashes of the siblings on its path to the root, lowest first."""

    index: int
    count: int
    path: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A Merkle tree with all its levels: the hashes of the leaves, then of each level above, 32 bytes each."""

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
        """The proof that a leaf has the index ``index``. Raises IndexError for a leaf that does not exist."""
        if not 0 <= index < self.count:
            raise IndexError(f"leaf {index} of {self.count}")
        path = []
        position = index
        for level in self.levels[:-1]:
            start = (position ^ 1) * HASH_BYTES
            if start < len(level):
                path.append(level[start : start + HASH_BYTES])
            position >>= 1
        return Proof(index, self.count, tuple(path))

    def prove_several(self, indices: Iterable[int]) -> tuple[bytes, ...]:
        """The proof of several leaves: level by level from the lowest, the siblings that cannot be computed from them.

        For one leaf it is the path of its `Proof`. Raises IndexError for a leaf that does not exist.
        """
        positions = sorted(set(indices))
        if not all(0 <= index < self.count for index in positions):
            raise IndexError(f"leaves {positions} of {self.count}")
        path = []
        for level in self.levels[:-1]:
            for index in positions:
                start = (index ^ 1) * HASH_BYTES
                if start < len(level) and index ^ 1 not in positions:
                    path.append(level[start : start + HASH_BYTES])
            positions = sorted({index >> 1 for index in positions})
        return tuple(path)

    def node(self, start: int, end: int) -> bytes:
        """The node over the leaves ``start`` to ``end``. Raises IndexError if no node covers exactly these leaves."""
        height = (end - start - 1).bit_length()
        whole = start + (1 << height) == end or end == self.count
        if not 0 <= start < end <= self.count or start % (1 << height) or not whole:
            raise IndexError(f"there is no node over the leaves {start} to {end} of {self.count}")
        return self._node(start, end)

    def prove_consistency(self, first: int) -> tuple[bytes, ...]:
        """The proof that this tree extends the tree over its first ``first`` leaves (RFC 6962, 2.1.2).

        Raises IndexError unless 1 <= first <= count.
        """
        if not 1 <= first <= self.count:
            raise IndexError(f"the first {first} of {self.count} leaves")
        return tuple(self._consistency(first, 0, self.count, whole=True))

    def _consistency(self, first: int, start: int, end: int, whole: bool) -> list[bytes]:
        """The proof for the first ``first`` of the leaves from ``start`` to ``end``.

        With ``whole`` the verifier has the root of these first leaves, since the older tree had no others.
        """
        if first == end - start:
            return [] if whole else [self._node(start, end)]
        split = 1 << (end - start - 1).bit_length() - 1
        if first <= split:
            return [*self._consistency(first, start, start + split, whole), self._node(start + split, end)]
        return [*self._consistency(first - split, start + split, end, whole=False), self._node(start, start + split)]

    def _node(self, start: int, end: int) -> bytes:
        """The node over the leaves ``start`` to ``end``: a full subtree, or the incomplete one at the right edge."""
        height = (end - start - 1).bit_length()
        begin = (start >> height) * HASH_BYTES
        return self.levels[height][begin : begin + HASH_BYTES]


def joined(nodes: Iterable[bytes]) -> bytes:
    """The root over one level of nodes, from left to right. All nodes but the last cover full subtrees."""
    level = b"".join(nodes)
    while len(level) > HASH_BYTES:
        level = _parents(level)
    return level or sha256().digest()


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
    """The root of the tree in which ``proof`` proves ``leaf``; None if no tree has a proof of that form."""
    index, last = proof.index, proof.count - 1
    if not 0 <= index <= last:
        return None
    node = sha256(b"\x00" + leaf).digest()
    path = iter(proof.path)
    while last > 0:
        if index & 1 or index < last:
            neighbour = next(path, b"")
            if len(neighbour) != HASH_BYTES:
                return None
            pair = neighbour + node if index & 1 else node + neighbour
            node = sha256(b"\x01" + pair).digest()
        index >>= 1
        last >>= 1
    return node if next(path, None) is None else None


def root_of_several(leaves: Mapping[int, bytes], count: int, path: Sequence[bytes]) -> bytes | None:
    """The root of the tree of ``count`` leaves in which ``path``, from `Tree.prove_several`, proves ``leaves``.

    ``leaves`` are given by index. None if no such tree has a proof of that form, or if no leaves are given.
    """
    last = count - 1
    if not leaves or not all(0 <= index <= last for index in leaves):
        return None
    nodes = {index: sha256(b"\x00" + leaves[index]).digest() for index in sorted(leaves)}
    neighbours = iter(path)
    while last > 0:
        above = {}
        for index, node in nodes.items():
            if index ^ 1 > last:  # an unpaired node moves up
                above[index >> 1] = node
            elif index ^ 1 not in nodes or index & 1 == 0:
                neighbour = nodes[index ^ 1] if index ^ 1 in nodes else next(neighbours, b"")
                if len(neighbour) != HASH_BYTES:
                    return None
                above[index >> 1] = _parents(neighbour + node if index & 1 else node + neighbour)
        nodes, last = above, last >> 1
    return nodes[0] if next(neighbours, None) is None else None


def verify_consistency(first: int, first_root: bytes, count: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Whether the tree of ``count`` leaves extends the tree of ``first`` leaves (RFC 9162, 2.1.4.2)."""
    if not 1 <= first <= count or any(len(node) != HASH_BYTES for node in path):
        return False
    if first == count:
        return not path and first_root == root
    nodes = [first_root, *path] if first & (first - 1) == 0 else list(path)
    if not nodes:
        return False
    index, last = first - 1, count - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    old = new = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return False
        if index & 1 or index == last:
            old, new = _parents(node + old), _parents(node + new)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            new = _parents(new + node)
        index, last = index >> 1, last >> 1
    return last == 0 and (old, new) == (first_root, root)


def chunks(data: bytes) -> Iterator[bytes]:
    """The leaves of tensor data, of 1,024 bytes each; the last one may be shorter."""
    return (data[start : start + LEAF_BYTES] for start in range(0, len(data), LEAF_BYTES))
