"""Winograd's convolution F(4x4, 3x3) in integers, as data.

A convolution of 3x3 windows and stride 1 is computed in squares of 4x4 results. Each reads a square of 6x6 elements. In
one dimension, with the matrices below,

    OUTPUT ((WEIGHTS g) * (INPUT d)) = 3 * diag(2^SHIFTS) (the four sums of the window g over the six elements d),

where * multiplies element by element (A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2015,
section 4.3, with the rows scaled so that all numbers are integers). In two dimensions, each matrix is applied to the
rows and to the columns: the 144 products of 16 sums become 36, and each sum is multiplied by 9 and by a power of two.

All of it is computed modulo 2^32, where 9 has an inverse. So an arithmetic shift to the right yields the sum itself,
if it fits in the bits that the largest shift leaves: in `BITS` bits. Nothing is rounded.
"""

from __future__ import annotations

from cvm.executors.native.descriptions.sums import Contraction, Pixels
from cvm.records import dataclass

__all__ = ["BITS", "INPUT", "OUTPUT", "POSITIONS", "SHIFTS", "SIDE", "SQUARE", "WEIGHTS", "Squares", "Winograd",
           "WinogradInput", "squares_of"]  # fmt: skip

SQUARE = 4
"""The rows and the columns of a square of results."""
SIDE = 6
"""The rows and the columns of the elements that a square reads."""
POSITIONS = SIDE * SIDE
"""The products that a square takes for each input and output channel."""

INPUT = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
"""From the elements of a row or column. In two dimensions, bytes become integers of magnitude 68 * 255 at most, which
16 bits hold.
"""
WEIGHTS = ((6, 0, 0), (1, 1, 1), (1, -1, 1), (1, 2, 4), (1, -2, 4), (0, 0, 6))
"""From the weights of a row or column. In two dimensions, bytes become integers of magnitude 49 * 128 at most."""
OUTPUT = (
    (1, -4, -4, 1, 1, 0),
    (0, -2, 2, 1, -1, 0),
    (0, -1, -1, 1, 1, 0),
    (0, -1, 1, 2, -2, 1),
)
"""To the results of a row or column."""
SHIFTS = (3, 2, 1, 1)
"""The power of two by which each result of a row or column is multiplied, beside the factor 3."""
BITS = 32 - 2 * max(SHIFTS)
"""The bits that a sum must fit in, with its sign."""


def squares_of(images: int, rows: int, columns: int) -> int:
    """The number of squares that cover maps of results."""
    return images * -(-rows // SQUARE) * -(-columns // SQUARE)


@dataclass(frozen=True, slots=True)
class Squares:
    """How a map of results is divided into squares, and where the transformed elements of each square lie.

    ``images``, ``rows`` and ``columns`` are extents of the output; no row or column is shorter than a square. Where an
    extent is no multiple of a square, the last square ends with it and overlaps the one before it. The transformed
    elements of one square at one position lie side by side: ``channels`` 16-bit integers, those of the next square
    behind them. ``apart`` is the distance from one position to the next, in elements. There is room for ``room``
    squares.
    """

    images: int
    rows: int
    columns: int
    channels: int
    apart: int
    room: int

    @property
    def down(self) -> int:
        """The number of squares in a column of squares."""
        return -(-self.rows // SQUARE)

    @property
    def across(self) -> int:
        """The number of squares in a row of squares."""
        return -(-self.columns // SQUARE)

    @property
    def count(self) -> int:
        """The number of all squares."""
        return squares_of(self.images, self.rows, self.columns)

    @property
    def bytes(self) -> int:
        """The bytes of all transformed elements."""
        return 2 * ((POSITIONS - 1) * self.apart + self.room * self.channels)


@dataclass(frozen=True, slots=True)
class WinogradInput:
    """A kernel that transforms the elements which each square reads: bytes, from the window of its first result on.

    ``source`` has the strides of the map per image, row and column of the output; channels lie side by side.
    """

    squares: Squares
    source: Pixels

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: squares."""
        return self.squares.count


@dataclass(frozen=True, slots=True)
class Winograd:
    """A kernel that multiplies transformed elements by transformed weights, and makes the results of each square.

    ``products`` describes the products of all positions as those of one contraction: its pixels are squares, its taps
    are positions, and its run are the input channels. The sums of each tap are kept apart, though. Its output, the
    tensors that it reads, and its formula are those of the convolution's results. ``together`` is the number of squares
    whose transformed elements are multiplied by all weights before those of the next ones.
    """

    squares: Squares
    products: Contraction
    together: int

    @property
    def tiles(self) -> int:
        """The number of register tiles of one group of squares. All segments have tiles of as many squares."""
        return self.together // self.products.segments[0].tile

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: unit (g * blocks + b) * tiles + t is tile t of group g,
        for block b of the output channels. Those of the last group may be empty, unless there is one block.
        """
        if self.products.blocks == 1:
            return self.squares.room // self.products.segments[0].tile
        return -(-self.squares.count // self.together) * self.products.blocks * self.tiles
