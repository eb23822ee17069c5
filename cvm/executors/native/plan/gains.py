"""Which convolutions are computed in squares of results, by Winograd's algorithm (`descriptions.winograd`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.winograd import BITS, POSITIONS, SQUARE, squares_of
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.machine import Machine

__all__ = ["Gain", "chosen", "fits", "gain"]

Integers = npt.NDArray[np.signedinteger[Any]]
Gain = tuple[float, int]
"""The nanoseconds that a convolution takes less in squares, and the bytes that its weights take more."""

CHANNELS = 16
"""The numbers of input and of output channels are multiples of this one."""
PER_THREAD = 2
"""The largest number of chunks for each thread. A chunk reads all weights of its blocks of channels, so four chunks
make ResNet-18 on two threads take a twelfth longer.
"""
TILE = 5
"""About so many squares have their sums in registers at a time, and are not divided among threads."""
WORTH = 0.9
"""The most time that a convolution in squares may take, as a part of the time of the direct one."""
ROOM = 2**24
"""The most bytes that the transformed weights of a program take more than its weights."""


def fits(weights: Integers) -> bool:
    """Whether bytes times weights (OC, IC, 3, 3) give the exact sums: whether these fit in `BITS` bits."""
    if int(weights.min()) < -128 or int(weights.max()) > 127:
        return False
    rows = weights.reshape(weights.shape[0], -1)
    below = np.minimum(rows, 0).sum(axis=1, dtype=np.int64)
    above = rows.sum(axis=1, dtype=np.int64) - below
    end = 1 << BITS - 1
    return 255 * int(above.max()) < end and -255 * int(below.min()) <= end


def gain(shape: tuple[int, ...], weights: tuple[int, ...], machine: Machine, threads: int = 1) -> Gain | None:
    """What a convolution of 3x3 windows gains in squares on a machine; None if that is too little.

    ``shape`` (N, OC, OH, OW) is that of its results, ``weights`` (OC, IC, 3, 3) that of its weights.
    Several ``threads`` share the squares and the blocks of output channels; each chunk reads all weights of its blocks.
    """
    images, _, rows, columns = shape
    pairs, speeds = math.prod(weights[:2]), machine.squares
    if speeds is None or min(rows, columns) < SQUARE or any(n % CHANNELS for n in weights[:2]):
        return None
    squares = squares_of(images, rows, columns)
    direct = images * rows * columns * 9 * pairs / speeds.bytes
    products = max(POSITIONS * squares * pairs / speeds.words, 2 * POSITIONS * pairs / speeds.read)
    found = products + speeds.transformed * POSITIONS * squares * sum(weights[:2])
    if threads > 1:
        outputs, inputs = weights[:2]
        block = segments(outputs, squares, packs=True, machine=machine)[0].channels
        parts = -(-outputs // block) * -(-squares // TILE)
        read = PER_THREAD * 2 * POSITIONS * inputs * block / speeds.read
        direct, found = direct / threads, max(found / min(threads, parts), read)
    return (direct - found, (2 * POSITIONS - 9) * pairs) if found < WORTH * direct else None


def chosen(gains: Mapping[str, Gain]) -> frozenset[str]:
    """The convolutions that are computed in squares: those that gain most for their bytes, as many as have room."""
    found, room = set(), ROOM
    for name in sorted(gains, key=lambda one: -gains[one][0] / gains[one][1]):
        _, more = gains[name]
        if more <= room:
            found.add(name)
            room -= more
    return frozenset(found)
