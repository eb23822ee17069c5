"""Blocks: work is split into boxes, so that temporary arrays stay small even if tensors are large."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cvm.ops.ranges import Shape

__all__ = ["blocks"]


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
