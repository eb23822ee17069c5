"""Index based sampling: NNEF 1.0.1 section 4.3.3."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.reference.operations.windows import (
    AS_DECLARED,
    Sliding,
    Window,
    down_windows,
    extended,
    require_coverage,
    sliding_operation,
    sources,
    taps,
    up_windows,
)
from cvm.reference.registry import Array, Integers, along

__all__ = ["maxima"]


def maxima(input: Array, size: Integers, sliding: Sliding) -> tuple[Array, Array]:
    """The largest element of each window, and its index among the taps in row-major order (the first of equal
    elements).
    """
    windows = down_windows(input.shape, size, sliding)
    reached = extended(input, windows, sliding.border)
    counted: Array | None = None
    if sliding.border == "ignore":
        require_coverage(windows)
        counted = extended(np.ones(input.shape, np.bool_), windows, sliding.border, False)
    shape = tuple(window.x for window in windows)
    best, index, seen = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    for number, tap in enumerate(taps(windows)):
        better = ~seen | (reached[tap] > best)
        if counted is not None:
            better &= counted[tap]
        best = np.where(better, reached[tap], best)
        index[better] = number
        seen |= better
    return best, index


@sliding_operation("4.3.3")
def argmax_pool(input: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """``index[i] = argmax over j of input~[i*s + j*d - p]``."""
    return maxima(input, size, sliding)[1]


def _positions(index: Array, size: Integers, windows: Sequence[Window]) -> list[npt.NDArray[np.int64]]:
    """The up-scaled index i*s + index[i]*d - p of each sampled element, for each dimension."""
    volume = math.prod(size)
    outside = (index < 0) | (index >= volume)
    if outside.any():
        raise Invalid("reference.index", f"index {index[outside][0]} is outside of a window of {volume} elements")
    offsets = np.unravel_index(index, tuple(size))
    return [
        along(np.arange(window.x) * window.s - window.p, axis, index.ndim) + offset * window.d
        for axis, (window, offset) in enumerate(zip(windows, offsets, strict=True))
    ]


@sliding_operation("4.3.3")
def sample(input: Array, index: Array, size: Integers, sliding: Sliding = AS_DECLARED) -> Array:
    """``output[i] = input~[i*s + index[i]*d - p]``."""
    windows = down_windows(input.shape, size, sliding)
    where, valid = [], np.ones(index.shape, np.bool_)
    for positions, extent in zip(_positions(index, size, windows), input.shape, strict=True):
        found, inside = sources(positions, extent, sliding.border)
        where.append(found)
        valid &= inside
    return np.where(valid, input[tuple(where)], 0.0)


@sliding_operation("4.3.3")
def desample(
    input: Array, index: Array, size: Integers, sliding: Sliding = AS_DECLARED, output_shape: Integers = ()
) -> Array:
    """``output[i] = sum of the input[t] for which t*s + index[t]*d - p = i``; the border has no items."""
    windows = up_windows(input.shape, size, sliding, output_shape)
    positions = _positions(index, size, windows)
    valid = np.ones(index.shape, np.bool_)
    for position, window in zip(positions, windows, strict=True):
        valid &= (position >= 0) & (position < window.X)
    output = np.zeros(tuple(window.X for window in windows))
    np.add.at(output, tuple(position[valid] for position in positions), input[valid])
    return output
