"""Proofs of equal applications of ops, made once within a block: repeated blocks of a network need the same proofs.

What an op proves about its results is a function of its attributes and of the shapes and ranges of its operands
(`cvm.ops.Op.prove`). Within `remembering`, equal applications, compared item by item, get the result found before.
Lowering and optimisation use this. Verification (`cvm.program.verify`) does not: it proves everything anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from cvm.errors import Location
from cvm.ops.declaration import Call, Op
from cvm.ops.ranges import Bounds, Range, Stored
from cvm.records import dataclass

__all__ = ["Remembered", "proven", "remembering"]

MOST = 2**22
"""The most bounds that are remembered, some 32 MiB; the least recently used proof is dropped first."""
ITEMS = 2**12
"""Proofs with more bounds than this are not remembered."""
OVERHEAD = 2**8
"""How many bounds an entry counts in addition to its own."""


@dataclass(slots=True)
class Remembered:
    """The proofs of a block, and how many were asked for and found."""

    asked: int = 0
    found: int = 0
    _held: int = 0
    _proofs: OrderedDict[Hashable, tuple[tuple[Range, ...], int]] = field(default_factory=OrderedDict)

    def get(self, key: Hashable) -> tuple[Range, ...] | None:
        """The proof for a key."""
        self.asked += 1
        if key not in self._proofs:
            return None
        self.found += 1
        self._proofs.move_to_end(key)
        return self._proofs[key][0]

    def keep(self, key: Hashable, proof: tuple[Range, ...], size: int) -> None:
        """Remember a proof of ``size`` bounds, if there is room."""
        if size > ITEMS:
            return
        self._proofs[key] = proof, size + OVERHEAD
        self._held += size + OVERHEAD
        while self._held > MOST:
            self._held -= self._proofs.popitem(last=False)[1][1]


_current: ContextVar[Remembered | None] = ContextVar("remembered", default=None)


@contextmanager
def remembering() -> Iterator[Remembered]:
    """Make equal proofs within the block once."""
    memory = Remembered()
    token = _current.set(memory)
    try:
        yield memory
    finally:
        _current.reset(token)


def proven(op: Op, call: Call, location: Location | None) -> tuple[Range, ...]:
    """What the op proves about its results. Raises `Invalid` as `cvm.ops.Op.prove`; errors are never remembered."""
    memory = _current.get()
    size = 2 * sum(bounds.size for bounds in call.ranges)
    if memory is None or size > ITEMS:
        return op.prove(call, location)
    key = op.name, call.shapes, tuple(call.attributes), tuple(map(_content, call.ranges))
    known = memory.get(key)
    if known is not None:
        return known
    found = op.prove(call, location)
    memory.keep(key, found, size + 2 * sum(bounds.size for bounds in found))
    return found


def _content(bounds: Range) -> Hashable:
    """The whole content of a range: its kind, and its bounds item by item."""
    ends = (bounds.least, bounds.largest) if isinstance(bounds, Stored) else (bounds.lo, bounds.hi)
    return type(bounds), *((end.shape, end.dtype.str, _items(end)) for end in ends)


def _items(end: Bounds) -> Hashable:
    return tuple(end.ravel().tolist()) if end.dtype == object else end.tobytes()
