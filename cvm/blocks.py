"""Large arrays, block by block: what is computed of them takes bounded memory beside them."""

from __future__ import annotations

import math
import mmap
import tempfile
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST", "blocks", "finite", "greatest", "made_in_blocks"]

MOST = 2**18
"""The most items of a block: in 64 bits, 2 MiB."""


def blocks(shape: tuple[int, ...], most: int = MOST) -> Iterator[tuple[Any, ...]]:
    """Indices of blocks that together have every item of an array of ``shape`` once, in row-major order.

    An index is a slice per axis, and an ellipsis, so that a block of an array of rank 0 is an array too. Each block has
    at most ``most`` items, with whole trailing axes as far as they fit. Arrays without items have none.
    """
    left, extents = most, []
    for extent in reversed(shape):
        extents.append(max(1, min(extent, left)))
        left //= extents[-1]
    starts = [range(0, extent, step) for extent, step in zip(shape, reversed(extents), strict=True)]
    for start in product(*starts):
        yield (*(slice(k, min(k + step.step, step.stop)) for k, step in zip(start, starts, strict=True)), ...)


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
