"""Blocks: work is split into boxes, so that temporary arrays stay small even if tensors are large.

Operands that broadcast are cut into the same boxes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from cvm.executors.numpy.step import Array, known
from cvm.ops.declaration import Call
from cvm.ops.ranges import Shape

__all__ = ["BLOCK_ELEMENTS", "aligned", "blocks", "parameter", "part"]

BLOCK_ELEMENTS = 2**16
"""Elements of one block: the int64 arrays that are made of it stay in the cache."""


def blocks(shape: Shape, limit: int) -> Iterator[tuple[slice, ...]]:
    """Partition the indices of ``shape`` into boxes of at most ``limit`` >= 1 indices, in row-major order.

    A box has one index in the leading axes, a run of indices in one axis, and all indices in the axes after it. The
    runs have about equal lengths.
    """
    pivot = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= limit)
    extent = shape[pivot]
    count = -(-extent // max(1, limit // math.prod(shape[pivot + 1 :])))
    run = -(-extent // count)
    tail = tuple(slice(0, n) for n in shape[pivot + 1 :])
    for lead in np.ndindex(shape[:pivot]):
        head = tuple(slice(i, i + 1) for i in lead)
        for start in range(0, extent, run):
            yield (*head, slice(start, min(start + run, extent)), *tail)


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
