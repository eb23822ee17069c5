"""Threads that are at the same place: their numbers, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tools.cuda_emulator.kinds import Array, Value
from tools.cuda_emulator.shadows import Conflict

__all__ = ["WARP", "Group", "joined", "part"]

WARP = 32


class Group:
    """Threads of several blocks of one launch, at the segment ``at``.

    ``threads`` are their numbers in rising order: the block (counted from the first one of these) times the ``block``
    size, plus the thread. ``values`` are their values by slot: one entry for each thread, or one for all.
    """

    def __init__(self, at: int, threads: Array, block: int, values: list[Value]) -> None:
        self.at, self.threads, self.block, self.values = at, threads, block, values
        self._blocks: Array | None = None
        self._warps = False

    def __len__(self) -> int:
        return len(self.threads)

    @property
    def blocks(self) -> Array:
        """The block of each thread."""
        if self._blocks is None:
            self._blocks = self.threads // self.block
        return self._blocks

    def full(self, a: Array) -> Array:
        """The values with one entry for each thread."""
        return a if len(a) == len(self) else np.broadcast_to(a, (len(self), *a.shape[1:]))

    def by_warps(self, a: Array) -> Array:
        """The values by warp and lane. Raises the defect of an instruction that only some threads of a warp reach."""
        if not self._warps:
            self._check_warps()
        full = self.full(a)
        return full.reshape(-1, WARP, *full.shape[1:])

    def _check_warps(self) -> None:
        starts = self.threads // WARP
        counts = np.unique(starts, return_counts=True)
        short = counts[1] != WARP
        if self.block % WARP or short.any():
            warp = counts[0][int(np.argmax(short))]
            entry = int(np.argmax(starts == warp))
            reached = int(counts[1][int(np.argmax(short))])
            message = f"all {WARP} threads of a warp must reach the instruction together, and {reached} do"
            raise Conflict("divergent", entry, message)
        self._warps = True


def part(value: Value, chosen: Array) -> Value:
    """The values of some threads."""
    if isinstance(value, tuple):
        return tuple(part(one, chosen) for one in value)
    return value if value is None or len(value) == 1 else value[chosen]


def joined(groups: Sequence[Group], slots: Sequence[int], template: Sequence[Value]) -> Group:
    """Groups that are at the same place as one group. ``slots`` are the values that matter there."""
    if len(groups) == 1:
        return groups[0]
    threads = np.concatenate([group.threads for group in groups])
    order = np.argsort(threads, kind="stable")
    values: list[Any] = list(template)
    for slot in slots:
        values[slot] = _joined([group.values[slot] for group in groups], [len(group) for group in groups], order)
    return Group(groups[0].at, threads[order], groups[0].block, values)


def _joined(parts: list[Value], counts: list[int], order: Array) -> Value:
    if isinstance(parts[0], tuple):
        fields = zip(*parts, strict=True)
        return tuple(_joined(list(field), counts, order) for field in fields)
    first = parts[0]
    if all(len(one) == 1 and (one is first or np.array_equal(one, first)) for one in parts):
        return first
    full = [np.broadcast_to(one, (count, *one.shape[1:])) for one, count in zip(parts, counts, strict=True)]
    return np.concatenate(full)[order]
