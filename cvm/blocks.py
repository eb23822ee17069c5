"""Large arrays, block by block: what is computed of them in a wider type takes bounded memory beside them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MOST", "blocks", "finite"]

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
