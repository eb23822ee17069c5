"""Work is split into boxes (`cvm.blocks.boxes`), so that temporary arrays stay small even if tensors are large.

Operands that broadcast are cut into the same boxes.
"""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.numpy.step import Array, known
from cvm.ops.declaration import Call

__all__ = ["BLOCK_ELEMENTS", "aligned", "parameter", "part"]

BLOCK_ELEMENTS = 2**16
"""Elements of one block: the int64 arrays that are made of it stay in the cache."""


def parameter(call: Call, position: int) -> Array:
    """The elements of a parameter constant."""
    elements = known(call.ranges[position], call.shapes[position])
    assert elements is not None, "a parameter is a constant"
    return elements


def aligned(elements: Array, rank: int) -> Array:
    """An operand that broadcasts, with leading extents of 1 up to the rank of the output."""
    return elements.reshape((1,) * (rank - elements.ndim) + elements.shape)


def part(elements: Array, box: Sequence[slice]) -> Array:
    """The part of an aligned operand that belongs to a box of the output."""
    return elements[tuple(slice(None) if n == 1 else cut for n, cut in zip(elements.shape, box, strict=True))]
