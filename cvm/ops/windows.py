"""Windows of a convolution: which taps read elements of the image, and the range of their sums.

At a position inside the image every tap reads an element; near the border some taps read the zero padding and
contribute nothing. Along one axis the taps that read elements are consecutive, first <= k < last, and there are few
different pairs (first, last): at most two per tap. So the range of a convolution is the hull of one sum per pair; each
sum is a difference of prefix sums.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cvm.ops.ranges import Bounds, Range

__all__ = ["hull_of_sums", "valid_taps"]

Pairs = npt.NDArray[np.int64]


@lru_cache(64)  # a network has few different windows
def valid_taps(extent: int, taps: int, stride: int, padding: int, dilation: int) -> Pairs:
    """All different pairs (first, last) of the output positions along one axis of the given extent."""
    outputs = (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    # Only windows of the first and of the last `border` positions may overlap the padding; all others have equal pairs.
    border = -(-padding // stride) + 1
    positions = np.concatenate([np.arange(min(outputs, border)), np.arange(max(0, outputs - border), outputs)])
    starts = padding - positions * stride
    first = np.clip(-(-starts // dilation), 0, taps)
    last = np.clip(-(-(starts + extent) // dilation), 0, taps)
    pairs = np.sort(first * (taps + 1) + last)
    different = pairs[np.flatnonzero(np.diff(pairs, prepend=-1))]  # the first call of `np.unique` imports many modules
    found = np.stack(np.divmod(different, taps + 1), axis=1)
    found.flags.writeable = False  # later calls get it, too
    return found


def _sums(bounds: Bounds, axis: int, pairs: Pairs) -> Bounds:
    """The sums of ``bounds`` over the taps of each pair, along ``axis``."""
    first, last = pairs[:, 0], pairs[:, 1]
    if bounds.shape[axis] == 1:
        # With one bound for all taps, a sum depends only on the number of taps; the extremes are the least and largest.
        counts = np.array([(last - first).min(), (last - first).max()])
        return np.asarray(bounds * counts.reshape([-1 if k == axis else 1 for k in range(bounds.ndim)]))
    zeros = np.zeros_like(bounds.take([0], axis))
    prefix = np.concatenate([zeros, np.cumsum(bounds, axis=axis)], axis=axis)
    return np.asarray(prefix.take(last, axis) - prefix.take(first, axis))


def hull_of_sums(taps: Range, rows: Pairs, columns: Pairs) -> Range:
    """The range of a window's sum, from the ranges of its taps along the last two axes, which keep extent 1."""
    axes = (taps.rank - 2, taps.rank - 1)
    sums = taps.monotone(lambda bounds: _sums(_sums(bounds, axes[0], rows), axes[1], columns))
    return sums.over(axes)
