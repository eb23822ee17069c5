"""Shapes that broadcast as NumPy broadcasts them: aligned at the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Shape", "broadcast"]

Shape: TypeAlias = tuple[int, ...]


def broadcast(*shapes: Sequence[int]) -> Shape | None:
    """The shape that all shapes broadcast to, or None where there is none."""
    rank = max(map(len, shapes))
    found = []
    for extents in zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        larger = {extent for extent in extents if extent != 1}
        if len(larger) > 1:
            return None
        found.append(larger.pop() if larger else 1)
    return tuple(found)
