"""Who read and who wrote each byte last, and whether that conflicts with another access.

A key has 64 bits: the block (counted over all launches, from bit 32 on), the number of barriers that the block has
passed (21 bits), and the thread (11 bits). Two accesses of one launch conflict if one of them writes, and their blocks
differ, or their blocks and barriers are the same and their threads differ. The last key tells enough: an earlier access
of the same block, before a barrier, conflicts with whatever the later one conflicts with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tools.cuda_emulator.kinds import Array

__all__ = ["ATOMIC", "BLOCK", "PHASE", "Access", "Conflict", "Shadows"]

BLOCK, PHASE = 1 << 32, 1 << 11
"""What a key grows by from one block to the next, and at a barrier."""
MANY = PHASE - 1
"""In the place of a thread: several threads of the block."""
ATOMIC = PHASE - 2
"""In the place of a thread: atomic operations, which do not conflict with each other."""


class Conflict(Exception):
    """A defect: its kind, the entry of the values that shows it, and what is wrong.

    It becomes a `KernelDefect` where the instruction is known.
    """

    def __init__(self, kind: str, entry: int, message: str) -> None:
        super().__init__(message)
        self.kind, self.entry, self.message = kind, entry, message


@dataclass(frozen=True, slots=True)
class Access:
    """``size`` bytes at each place, by the threads of ``keys`` (one for each place).

    The blocks of this launch have keys above ``floor``. Places and sizes are multiples of ``grain``, but for
    copies that read a part only.
    """

    places: Array
    size: int
    keys: Array
    floor: int
    grain: int

    @property
    def per(self) -> int:
        """How many cells each access touches. A copy that reads fewer bytes than ``grain`` counts as one cell."""
        return max(1, self.size // self.grain)

    def cells(self) -> tuple[Array, Array]:
        """The numbers of the ``grain`` bytes that are touched, and the key of each."""
        per = self.per
        if per == 1:
            return (self.places // self.grain if self.grain > 1 else self.places), self.keys
        cells = (self.places // self.grain)[:, None] + np.arange(per)
        return cells.reshape(-1), np.repeat(self.keys, per)


class Shadows:
    """The keys of the last reads and of the last writes of a memory. ``place`` says a place in words."""

    def __init__(self, place: Callable[[int], str], size: int) -> None:
        self._place, self._size = place, size
        self._keys: dict[int, tuple[Array, Array]] = {}

    def _noted(self, grain: int) -> tuple[Array, Array]:
        if grain not in self._keys:
            count = self._size // grain
            self._keys[grain] = np.zeros(count, np.int64), np.zeros(count, np.int64)
        return self._keys[grain]

    def read(self, access: Access, frozen: bool = False) -> None:
        """Note reads. ``frozen``: the instruction promises that nobody writes there during the launch."""
        reads, writes = self._noted(access.grain)
        cells, keys = access.cells()
        self._against(writes[cells], access, cells, keys, ("reads", "written"), frozen)
        _note(reads, cells, np.full_like(keys, access.floor) if frozen else keys, access.floor)

    def write(self, access: Access, atomic: bool = False) -> None:
        """Note writes."""
        reads, writes = self._noted(access.grain)
        cells, keys = access.cells()
        if atomic:
            self._atomic(reads, writes, access, cells, keys)
            return
        self._against(writes[cells], access, cells, keys, ("writes", "written"))
        self._against(reads[cells], access, cells, keys, ("writes", "read"))
        writes[cells] = keys
        last = writes[cells]
        if not np.array_equal(last, keys):
            entry = int(np.argmax(last != keys))
            raise self._conflict(access, int(cells[entry]), entry, (int(keys[entry]), int(last[entry])),
                                 ("writes", "written"))  # fmt: skip

    def _atomic(self, reads: Array, writes: Array, access: Access, cells: Array, keys: Array) -> None:
        """Atomic operations agree with each other in all blocks, and with nothing else."""
        keys = keys // PHASE * PHASE + ATOMIC
        noted = writes[cells]
        plain = (noted >= access.floor) & (noted % PHASE != ATOMIC)
        self._against(np.where(plain, noted, 0), access, cells, keys, ("writes", "written"))
        self._against(reads[cells], access, cells, keys, ("writes", "read"))
        _note(writes, cells, keys, access.floor, ATOMIC)

    def _against(
        self, noted: Array, access: Access, cells: Array, keys: Array, words: tuple[str, str], frozen: bool = False
    ) -> None:
        """Refuse accesses that conflict with those noted before."""
        if np.maximum.reduce(noted) < access.floor:
            return
        apart = noted ^ keys
        wrong = (noted >= access.floor) & (frozen | (apart >= BLOCK) | ((apart > 0) & (apart < PHASE)))
        if wrong.any():
            entry = int(np.argmax(wrong))
            raise self._conflict(access, int(cells[entry]), entry, (int(keys[entry]), int(noted[entry])), words)

    def _conflict(
        self, access: Access, cell: int, entry: int, keys: tuple[int, int], words: tuple[str, str]
    ) -> Conflict:
        now, then = words
        key, noted = keys
        where, entry = self._place(cell * access.grain), entry // access.per
        if noted >> 32 != key >> 32:
            return Conflict("block race", entry, f"the block {now} {where}, which another block has {then}")
        if abs(noted - key) >= PHASE:
            return Conflict("race", entry, f"the thread {now} {where}, which it promises not to change in this launch")
        who = {MANY: "several threads have", ATOMIC: "atomic operations have"}.get(noted % PHASE)
        who = who or f"thread {noted % PHASE} has"
        return Conflict("race", entry, f"the thread {now} {where}, which {who} {then} since the last barrier")


def _note(noted: Array, cells: Array, keys: Array, floor: int, many: int = MANY) -> None:
    """Note keys. Cells that several blocks touch in this launch get the key ``floor`` (with the lowest bits of `many`
    for atomics), and cells that several threads of a block touch since a barrier get ``many`` in place of the thread.
    """
    blocks = floor + (many if many == ATOMIC else 0)
    before = noted[cells]
    if np.maximum.reduce(before) >= floor:
        apart = before ^ keys
        same = np.where((apart > 0) & (apart < PHASE), keys // PHASE * PHASE + many, keys)
        keys = np.where(before < floor, keys, np.where(apart >= BLOCK, blocks, same))
        if np.array_equal(before, keys):
            return
    noted[cells] = keys
    last = noted[cells]
    others = last != keys
    if others.any():
        cells, keys, last = cells[others], keys[others], last[others]
        noted[cells] = keys // PHASE * PHASE + many
        noted[cells[keys ^ last >= BLOCK]] = blocks
