"""Convolutions in squares of results (`descriptions.winograd`): what both kernels read, and the transformed weights.

The first kernel must read the windows of the node, each from the address of its first element on, and the second one
what the first one writes. The weights at the 36 positions must be the node's, transformed in exact integers, and all
sums must fit in the bits that the kernel's last shift leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.executors.native.checker.addresses import Array, require
from cvm.executors.native.checker.packed import segments_of, weights_of
from cvm.executors.native.descriptions.formats import SHORT
from cvm.executors.native.descriptions.winograd import (
    BITS,
    POSITIONS,
    SQUARE,
    WEIGHTS,
    Winograd,
    WinogradInput,
)
from cvm.executors.native.plan.claims import Prepares
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.steps import Plan

__all__ = ["require_squares", "require_weights"]


def require_squares(
    plan: Plan,
    made: Prepares,
    call: int,
    kernel: Winograd,
    source: Home,
    window: Array,
    steps: Sequence[tuple[int, int]],
) -> None:
    """Prove that ``call`` reads the transformed elements of the windows that the node multiplies.

    ``window`` (IC, 3, 3) holds the addresses in ``source`` of the elements that the first output pixel reads, ``steps``
    (extent, distance in elements) of the images, rows and columns of the output. Raises `Unproven`.
    """
    first, squares, between = made.kernel, kernel.squares, made.target
    require(isinstance(first, WinogradInput), "the elements are not transformed")
    assert isinstance(first, WinogradInput)
    using = [n for n, one in enumerate(plan.calls) if any(buffer is between.buffer for buffer, _ in one.arguments)]
    require(using == [made.call, call], "other calls use the transformed elements")
    (buffer, start), target = plan.calls[made.call].arguments
    bytes_ = (source.format.bits, source.format.signed) == (8, False)
    require(buffer is source.buffer and bytes_, "squares of another tensor")
    require(target == between.at() == plan.calls[call].arguments[0], "the transformed elements lie elsewhere")
    require(between.format == kernel.products.input == SHORT, "the transformed elements have another format")
    require(first.squares == squares, "the transformed elements are those of other squares")
    _require_room(kernel, between.buffer.size - between.at()[1])
    extents = [n for n, _ in steps]
    require([squares.images, squares.rows, squares.columns] == extents, "another number of results")
    require(min(squares.rows, squares.columns) >= SQUARE, "a map has fewer rows or columns than a square")
    strides = first.source
    given = (strides.image, strides.row, strides.column)
    moves = all(n == 1 or step == own for (n, step), own in zip(steps, given, strict=True))
    channel, row, column = np.indices((squares.channels, 3, 3))
    read = start + channel + row * strides.row + column * strides.column
    require(moves and np.array_equal(read, window), "the squares hold other elements")


def _require_room(kernel: Winograd, size: int) -> None:
    """Prove that each transformed element has a place of its own in memory that the kernels may read and write.

    ``size`` is the number of bytes from the first of them to the end of their buffer.
    """
    products, squares = kernel.products, kernel.squares
    require(squares.count <= squares.room and squares.room * squares.channels <= squares.apart, "positions overlap")
    require(squares.bytes <= size, "the transformed elements do not fit in their buffer")
    tiles = {one.tile for one in products.segments}
    alike = all(squares.room % tile == 0 and kernel.together % tile == 0 for tile in tiles)
    require(alike and kernel.together > 0, "squares lie outside the buffer")
    order = (products.taps, products.run, products.source.column)
    require(order == (((POSITIONS, squares.apart),), squares.channels, squares.channels), "another order of elements")
    require((products.per, products.shifts, products.widened) == (2, (0,), False), "other products")


def require_weights(data: memoryview, kernel: Winograd, weights: Array) -> None:
    """Prove that the packed weights are those of the node, (OC, IC, 3, 3), transformed, and that all sums fit.

    Raises `Unproven`.
    """
    require(int(weights.min()) >= -128 and int(weights.max()) <= 127, "a byte does not hold a weight")
    rows = weights.reshape(weights.shape[0], -1).astype(np.int32)
    above, below = np.maximum(rows, 0).sum(axis=1, dtype=np.int64), np.minimum(rows, 0).sum(axis=1, dtype=np.int64)
    end = 1 << BITS - 1
    require(255 * int(above.max()) < end and 255 * int(below.min()) >= -end, "a sum may not fit")
    both = np.kron(WEIGHTS, WEIGHTS).astype(np.int32)
    expected = rows.reshape(-1, both.shape[1]) @ both.T  # at most 49 * 128
    found = weights_of(segments_of(data, kernel.products), kernel.products)
    require(np.array_equal(found.transpose(0, 2, 1).reshape(-1, POSITIONS), expected), "other weights")
