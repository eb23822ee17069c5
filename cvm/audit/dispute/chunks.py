"""A reduction split into chunks: boxes of its index space, so small that one step opens few leaves of any operand.

The distance of an operand's elements in memory decides how many leaves a box touches. The size of the boxes follows
from shapes alone, so everyone who knows the shapes knows the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from cvm.program.merkle import LEAF_BYTES

__all__ = ["ALL_LEAVES", "LEAVES", "TERMS", "Chunks", "most_leaves"]

TERMS = 256
"""The most terms of a reduction in one step."""
LEAVES = 8
"""The most leaves of one operand that the terms of one step touch."""
ALL_LEAVES = 9
"""The most leaves of all operands together that the terms of one step touch."""
_LEAF = LEAF_BYTES // 4
"""Elements of a leaf of an int32 tensor."""


def most_leaves(strides: Sequence[int], extents: Sequence[int]) -> int:
    """The most leaves that a box of elements touches, wherever it begins.

    ``strides`` are the distances of neighbours along each axis of the box, in elements, the outermost first.
    """
    span = sum(stride * (extent - 1) for stride, extent in zip(strides, extents, strict=True)) + 1
    together = 1 + -(-(span - 1) // _LEAF)
    return min(together, extents[0] * most_leaves(strides[1:], extents[1:])) if extents else 1


class Chunks:
    """The index space of a reduction, split into boxes of one size; those at the ends may be smaller.

    ``operands`` are the strides of each operand along the axes of the space. The boxes grow from the innermost axis
    outward while they stay within `TERMS`, `LEAVES` and ``leaves`` for all operands together. Boxes are numbered
    row-major, and so are the indices in a box.
    """

    def __init__(self, space: Sequence[int], operands: Sequence[Sequence[int]], leaves: int = ALL_LEAVES) -> None:
        self._space = tuple(space)
        self._box = _box(self._space, operands, leaves)
        self._grid = [-(-n // b) for n, b in zip(self._space, self._box, strict=True)]

        self.leaves = tuple(most_leaves(strides, self._box) for strides in operands)
        """The most leaves of each operand that a box touches."""

    @property
    def count(self) -> int:
        """The number of boxes, 1 or more."""
        return prod(self._grid)

    def indices(self, number: int) -> Iterator[tuple[int, ...]]:
        """The indices in box ``number``."""
        ranges = []
        for grid, box, extent in zip(reversed(self._grid), reversed(self._box), reversed(self._space), strict=True):
            number, index = divmod(number, grid)
            ranges.append(range(index * box, min((index + 1) * box, extent)))
        return product(*reversed(ranges))


def _box(space: tuple[int, ...], operands: Sequence[Sequence[int]], leaves: int) -> list[int]:
    """The largest box that stays within all bounds."""

    def fits(box: Sequence[int]) -> bool:
        touched = [most_leaves(strides, box) for strides in operands]
        return prod(box) <= TERMS and max(touched, default=0) <= LEAVES and sum(touched) <= leaves

    box = [1] * len(space)
    for axis in reversed(range(len(space))):
        wider = range(min(space[axis], TERMS), 1, -1)
        box[axis] = next((n for n in wider if fits([*box[:axis], n, *box[axis + 1 :]])), 1)
        if box[axis] < space[axis]:
            break
    return box
