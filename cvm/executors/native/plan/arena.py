"""Offsets in one arena for buffers that are needed during a part of the run only."""

from __future__ import annotations

from collections.abc import Iterable

from cvm.executors.native.plan.homes import Buffer

__all__ = ["ALIGNMENT", "allocate"]

ALIGNMENT = 64
"""Every buffer starts at a multiple of this many bytes, the size of a cache line and of the widest vector."""


def allocate(buffers: Iterable[Buffer]) -> tuple[dict[Buffer, int], int]:
    """Return the offset of each buffer and the size of the arena, in bytes.

    The largest buffer is placed first. Each one gets the lowest offset at which no other buffer lies while it is used.
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
