"""Offsets in one arena for buffers that live for a part of the run."""

from __future__ import annotations

from collections.abc import Iterable

from cvm.executors.native.plan.homes import Buffer

__all__ = ["ALIGNMENT", "allocate"]

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


def allocate(buffers: Iterable[Buffer]) -> tuple[dict[Buffer, int], int]:
    """An offset for each buffer, and the size of all: the largest first, each at the lowest offset that is free while
    it lives.
    """
    taken: list[tuple[int, int, Buffer]] = []
    for buffer in sorted(buffers, key=lambda one: (-one.size, one.first)):
        size = -(-buffer.size // ALIGNMENT) * ALIGNMENT
        start = 0
        for low, high, other in taken:
            if other.first > buffer.last or buffer.first > other.last:
                continue
            if start + size <= low:
                break
            start = max(start, high)
        taken.append((start, start + size, buffer))
        taken.sort(key=lambda one: one[0])
    return {buffer: start for start, _, buffer in taken}, max((high for _, high, _ in taken), default=0)
