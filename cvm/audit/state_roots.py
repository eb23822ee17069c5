"""Roots of state that runs append to: only the leaves that changed are hashed again.

The trees of all tensors stand in one table of nodes. After a run, the changed leaves are hashed, then the nodes above
them, level by level for all tensors at once. The roots are those of `cvm.program.commitments.tensor_root`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from cvm.audit.hashing import LITTLE
from cvm.executors import Int32Array
from cvm.executors.held import Held
from cvm.program.appends import spans
from cvm.program.commitments import TensorClaim
from cvm.program.leaves import fast_hasher
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES

__all__ = ["ELEMENTS", "StateRoots", "changed_leaves", "leaves_of"]

ELEMENTS = LEAF_BYTES // 4
"""The number of elements of a leaf."""
FEW = 4
"""So few messages are hashed one by one."""

_Numbers = npt.NDArray[np.int64]
_BOTH = np.array([0, 1])


def leaves_of(spans: _Numbers) -> _Numbers:
    """The numbers of the leaves that hold the elements of spans (first, end), ascending."""
    firsts, lasts = spans[:, 0] // ELEMENTS, (spans[:, 1] - 1) // ELEMENTS
    counts = lasts - firsts + 1
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.unique(np.repeat(firsts, counts) + within)


@lru_cache(64)  # caches of equal shapes change together
def changed_leaves(shape: tuple[int, ...], axis: int, start: int, count: int) -> _Numbers:
    """The numbers of the leaves of a state in which ``count`` indices from ``start`` on along ``axis`` are replaced."""
    return leaves_of(spans(shape, axis, start, count))


class StateRoots:
    """The Merkle trees of the tensors of a program's state.

    ``shapes`` are those of the tensors by name. First `replace` every leaf; then `replace` those that change.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = dict(shapes)
        self._first: dict[str, int] = {}
        self._top: dict[str, int] = {}
        self._heads: dict[str, bytes] = {}
        """What stands before the root of the tree in the preimage of a tensor root."""
        parents: list[_Numbers] = []
        lefts: list[_Numbers] = []
        size = 0
        for name, shape in shapes.items():
            self._first[name] = size
            count, level = -(-math.prod(shape) // ELEMENTS), size
            below = np.full(count, -1, np.int64)
            while True:
                lefts.append(below)
                size = level + count
                if count == 1:
                    break
                parents.append(size + np.arange(count) // 2)
                below = level + 2 * np.arange(-(-count // 2))
                level, count = size, -(-count // 2)
            parents.append(np.full(1, -1, np.int64))
            self._top[name] = level
            self._heads[name] = TensorClaim("int32", shape, b"").preimage()
        self._parents, self._lefts = np.concatenate(parents), np.concatenate(lefts)
        self._nodes = np.zeros((size, HASH_BYTES), np.uint8)

    def read(self, held: Held, name: str, numbers: _Numbers | None = None) -> tuple[str, _Numbers, Int32Array]:
        """Leaves of a tensor as `replace` takes them; None: all leaves."""
        if numbers is None:
            numbers = np.arange(-(-math.prod(self._shapes[name]) // ELEMENTS))
        return name, numbers, held.blocks(name, numbers, ELEMENTS)

    def replace(self, changed: Sequence[tuple[str, _Numbers, Int32Array]]) -> None:
        """Replace leaves of tensors.

        For each tensor the ascending numbers of the leaves and their elements, (leaves, 256); of the last leaf of a
        tensor, only as many elements count as it has.
        """
        whole: list[tuple[_Numbers, Int32Array]] = []
        for name, numbers, elements in changed:
            size = math.prod(self._shapes[name])
            if size % ELEMENTS and numbers.size and numbers[-1] == size // ELEMENTS:
                last = elements[-1, : size % ELEMENTS].astype("<i4").tobytes()
                digest = sha256(b"\0" + last).digest()
                self._nodes[self._first[name] + numbers[-1]] = np.frombuffer(digest, np.uint8)
                numbers_, elements_ = numbers[:-1], elements[:-1]
            else:
                numbers_, elements_ = numbers, elements
            whole.append((self._first[name] + numbers_, elements_))
        if not whole:
            return
        data = np.concatenate([elements for _, elements in whole]).astype("<i4", copy=False)
        self._nodes[np.concatenate([numbers for numbers, _ in whole])] = _hashed(0, data.view(np.uint8))
        self._raise(np.sort(np.concatenate([self._first[name] + numbers for name, numbers, _ in changed])))

    def _raise(self, nodes: _Numbers) -> None:
        """Compute the nodes above some nodes of one level, up to the roots; both are in ascending order."""
        while True:
            above = self._parents[nodes]
            above = above[above >= 0]
            if not above.size:
                return
            above = above[np.concatenate([[True], above[1:] != above[:-1]])]
            left = self._lefts[above]
            paired = self._parents[np.minimum(left + 1, len(self._parents) - 1)] == above
            if paired.all():
                self._nodes[above] = self._of_pairs(left)
            else:
                self._nodes[above[~paired]] = self._nodes[left[~paired]]
                self._nodes[above[paired]] = self._of_pairs(left[paired])
            nodes = above

    def _of_pairs(self, left: _Numbers) -> npt.NDArray[np.uint8]:
        pairs = self._nodes[left[:, None] + _BOTH]
        return _hashed(1, pairs.reshape(-1, 2 * HASH_BYTES))

    def root(self, name: str) -> bytes:
        """The tensor root."""
        return sha256(self._heads[name] + self._nodes[self._top[name]].tobytes()).digest()


def _hashed(prefix: int, messages: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """SHA-256 of a byte and each row of (count, size): (count, 32)."""
    count, size = messages.shape
    digests = np.empty((count, HASH_BYTES), np.uint8)
    # as in `hashing.tensor_roots`, the fast hasher is made for much data, and then used for little data too
    worth = messages.size >= LITTLE or fast_hasher.cache_info().currsize
    run = fast_hasher() if count > FEW and worth else None
    if run is None:
        head = bytes([prefix])
        for number in range(count):
            digests[number] = np.frombuffer(sha256(head + messages[number].tobytes()).digest(), np.uint8)
    else:
        messages = np.ascontiguousarray(messages)
        run.messages(prefix, messages.ctypes.data, size, count, digests.ctypes.data)
    return digests
