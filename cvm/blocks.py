"""Arrays, block by block: what is computed of them takes bounded memory beside them, or stays in the cache."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST", "blocks", "boxes", "finite", "greatest", "made_in_blocks"]

MOST = 2**18
"""The most items of a block: in 64 bits, 2 MiB."""


def boxes(shape: tuple[int, ...], limit: int) -> Iterator[tuple[slice, ...]]:
    """Partition the indices of ``shape``, with extents >= 1, into boxes of at most ``limit`` >= 1, in row-major order.

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


def blocks(shape: tuple[int, ...], most: int = MOST) -> Iterator[tuple[Any, ...]]:
    """Indices of blocks that together have every item of an array of ``shape`` once, in row-major order.

    They are the `boxes` of at most ``most`` items. An index has an ellipsis behind them, so that a block of an array of
    rank 0 is an array too. Arrays without items have none.
    """
    if 0 not in shape:
        for box in boxes(shape, most) if shape else ((),):
            yield (*box, ...)


def finite(values: npt.NDArray[Any]) -> bool:
    """Whether no item is NaN or infinite. Takes no memory: both extremes of an array with a NaN are NaN."""
    return not values.size or bool(np.isfinite(values.min()) and np.isfinite(values.max()))


def greatest(values: npt.NDArray[Any], axes: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """The greatest magnitudes of floats over ``axes``, which are kept with extent 1."""
    least, most = values.min(axis=axes, keepdims=True), values.max(axis=axes, keepdims=True)
    found: npt.NDArray[np.float64] = np.maximum(-least.astype(np.float64), most.astype(np.float64))
    return found


LEAST_FILED = 2**24
"""The bytes from which on an array that is made in blocks lies in a file."""


def made_in_blocks(
    shape: tuple[int, ...], dtype: npt.DTypeLike, make: Callable[[tuple[Any, ...]], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """An array whose blocks ``make`` returns for their indices, in the order of `blocks`; it cannot be written to.

    A large array lies in a temporary file that has no name, and is mapped: the system writes out what does not fit into
    memory. Where no such file can be written, it lies in memory.
    """
    dtype = np.dtype(dtype)
    if math.prod(shape) * dtype.itemsize >= LEAST_FILED:
        filed = _filed(shape, dtype, make)
        if filed is not None:
            return filed
    found = np.empty(shape, dtype)
    for block in blocks(shape):
        found[block] = make(block)
    found.flags.writeable = False
    return found


def _filed(
    shape: tuple[int, ...], dtype: np.dtype[Any], make: Callable[[tuple[Any, ...]], npt.NDArray[Any]]
) -> npt.NDArray[Any] | None:
    """The same in a temporary file; None where it cannot be written."""
    import tempfile  # imports much, and few arrays are so large

    try:
        with tempfile.TemporaryFile() as file:
            for block in blocks(shape):
                part = np.ascontiguousarray(make(block))
                assert part.dtype == dtype
                file.write(part.data)
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    return np.frombuffer(mapped, dtype).reshape(shape)
