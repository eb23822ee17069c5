"""Which convolutions are computed in squares of results, by Winograd's algorithm (`descriptions.winograd`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.winograd import BITS, POSITIONS, SQUARE

__all__ = ["faster", "fits"]

Integers = npt.NDArray[np.signedinteger[Any]]

CHANNELS = 16
"""The numbers of input and of output channels are multiples of this one."""
BYTES, WORDS = 92, 66
"""The products of bytes and of 16-bit integers that AVX2 makes in a nanosecond."""
READ = 15
"""The bytes of weights that one core reads in a nanosecond if they are not in its own cache."""
TRANSFORMED = 0.07
"""The nanoseconds for one element of a square in both transformations."""
WORTH = 0.9
"""The most time that a convolution in squares may take, as a part of the time of the direct one."""
LARGEST = 2**23
"""The most bytes of transformed weights of one convolution: they are eight times as many as those of the weights."""


def fits(weights: Integers) -> bool:
    """Whether bytes times weights (OC, IC, 3, 3) give the exact sums: whether these fit in `BITS` bits."""
    if int(weights.min()) < -128 or int(weights.max()) > 127:
        return False
    rows = weights.reshape(weights.shape[0], -1)
    below = np.minimum(rows, 0).sum(axis=1, dtype=np.int64)
    above = rows.sum(axis=1, dtype=np.int64) - below
    end = 1 << BITS - 1
    return 255 * int(above.max()) < end and -255 * int(below.min()) <= end


def faster(shape: tuple[int, ...], weights: tuple[int, ...]) -> bool:
    """Whether a convolution of 3x3 windows with results of this shape takes less time in squares.

    ``shape`` is (N, OC, OH, OW), ``weights`` (OC, IC, 3, 3).
    """
    images, _, rows, columns = shape
    pairs = math.prod(weights[:2])
    if min(rows, columns) < SQUARE or any(n % CHANNELS for n in weights[:2]) or 2 * POSITIONS * pairs > LARGEST:
        return False
    squares = images * -(-rows // SQUARE) * -(-columns // SQUARE)
    direct = images * rows * columns * 9 * pairs / BYTES
    elements = POSITIONS * squares * sum(weights[:2])
    products = max(POSITIONS * squares * pairs / WORDS, 2 * POSITIONS * pairs / READ)
    return products + TRANSFORMED * elements < WORTH * direct
