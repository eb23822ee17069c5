"""Kernels of convolutions and of products of matrices, as data: blocks of channels, pixels, taps, and the output."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Formula, Residual
from cvm.executors.native.descriptions.formats import Format
from cvm.records import dataclass

__all__ = ["ROWS", "TAPS", "Block", "Contraction", "Depthwise", "Output", "Pixels", "Read", "Segment",
           "WindowSums", "interleaved"]  # fmt: skip

ROWS = 4
"""The number of rows of a depthwise window that one dot product multiplies."""
TAPS = 64
"""The code of a depthwise window of more taps than this has a loop over its columns."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """The strides of a tensor, in elements, per image, row, column and channel of the output."""

    image: int
    row: int
    column: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor that the formula reads besides the sums.

    Without ``pixels`` it has one element per channel, in packed order; with ``pixels``, these are its strides.
    """

    format: Format
    pixels: Pixels | None


@dataclass(frozen=True, slots=True)
class Output:
    """How results are stored. With ``clamp``, the formula yields stored integers, and the store clips them to it."""

    format: Format
    pixels: Pixels
    clamp: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """``vectors`` vectors of ``lane`` lanes, one channel per lane. Only the first ``valid`` channels exist.

    The order of the channels is that of the lanes, or the one that `interleaved` returns.
    """

    lane: int
    vectors: int
    valid: int
    interleaved: bool

    def channels(self, q: int) -> list[int]:
        """The channels in the lanes of vector ``q``."""
        if not self.interleaved:
            return list(range(q * self.lane, (q + 1) * self.lane))
        return [4 * self.vectors * block + 4 * q + e for block in range(self.lane // 4) for e in range(4)]


def interleaved(lane: int, vectors: int) -> npt.NDArray[np.intp]:
    """The channels of an interleaved block in the order of its lanes, vector by vector."""
    return np.arange(vectors * lane).reshape(lane // 4, vectors, 4).transpose(1, 0, 2).reshape(-1)


@dataclass(frozen=True, slots=True)
class Segment:
    """``count`` equal blocks of output channels from channel ``start`` on, and the pixels of one register tile.

    The pixels of a tile of a depthwise convolution are neighbours whose channels lie in the same vectors: a vector of
    weights of the block is repeated for each of them. In every step of other contractions, the weights of ``together``
    vectors lie side by side; 0 means all vectors of the block.
    """

    start: int
    count: int
    block: Block
    tile: int
    together: int = 0

    @property
    def channels(self) -> int:
        """The number of channels of one block, from its first channel to that of the next block."""
        return self.block.lane * self.block.vectors


@dataclass(frozen=True, slots=True)
class Contraction:
    """One kernel of a convolution or a product of matrices.

    ``images``, ``rows``, ``columns`` and ``channels`` are extents of the output. ``per`` elements are multiplied by one
    step of the dot product. ``taps`` are the loops (count, distance in elements) around a run of ``run`` elements.
    ``shifts`` has one entry for each pass over all taps: the number of bits by which the sums are shifted left before
    the pass. Without ``starts`` the sums start with zero.
    """

    images: int
    rows: int
    columns: int
    channels: int
    per: Literal[1, 2, 4]
    taps: tuple[tuple[int, int], ...]
    run: int
    shifts: tuple[int, ...]
    input: Format
    source: Pixels
    output: Output
    reads: tuple[Read, ...]
    formula: Formula
    starts: bool
    segments: tuple[Segment, ...] = ()
    joint: Residual | None = None
    widened: bool = False
    """Whether the weights of 16-bit products are stored in bytes."""
    listed: bool = False
    """Whether products of bytes may saturate. Then the weights of each block are a list of steps, which are multiplied
    in pairs or alone (see `packed_weights`).
    """

    @property
    def step_bytes(self) -> int:
        """The number of bytes of the weights of one output channel in one step."""
        return 2 if self.widened else 4

    @property
    def steps(self) -> int:
        """The number of steps of one run."""
        return -(-self.run // self.per)

    @property
    def step_words(self) -> int:
        """The number of steps of one output channel, each with one word of weights: all taps in all passes."""
        return self.steps * math.prod(count for count, _ in self.taps) * len(self.shifts)

    @property
    def blocks(self) -> int:
        """The number of blocks of output channels."""
        return sum(segment.count for segment in self.segments)

    @property
    def fixed(self) -> bool:
        """Whether each tile of an image has code of its own, without loops over tiles: so for small maps."""
        return self.rows > 1 and self.rows * self.columns <= 4 * min(segment.tile for segment in self.segments)

    @property
    def parts(self) -> int:
        """The number of parts of a block that may run at the same time: tiles that have code of their own, rows, or the
        columns of the only row.
        """
        if self.fixed:
            return max(-(-self.rows * self.columns // segment.tile) for segment in self.segments)
        return self.rows if self.rows > 1 else self.columns

    @property
    def by_block(self) -> bool:
        """Whether the units of a block follow one another; otherwise those of all blocks for the same part do.

        A thread reads the weights of few blocks, or few parts of the input.
        """
        if not self.fixed and self.rows >= max(8, self.blocks):
            return False
        return self.rows > 1 or self.columns < 64 * self.blocks

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.blocks * self.parts


@dataclass(frozen=True, slots=True)
class WindowSums:
    """A kernel that adds up the bytes of the window of each pixel, and multiplies the sum by one number.

    ``images``, ``rows``, ``columns``, ``taps``, ``run`` and ``source`` are as in `Contraction`. The results lie side by
    side, in 32 bits.
    """

    images: int
    rows: int
    columns: int
    taps: tuple[tuple[int, int], ...]
    run: int
    source: Pixels

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time: rows, or groups of columns of the only row."""
        return self.rows if self.rows > 1 else -(-self.columns // self.together)

    @property
    def together(self) -> int:
        """The number of pixels whose sums are computed together."""
        return 4 if self.columns >= 4 else 1


@dataclass(frozen=True, slots=True)
class Depthwise:
    """One kernel of a depthwise convolution.

    ``images``, ``rows``, ``columns`` and ``channels`` are extents of the output. ``window`` is the extent (rows,
    columns) of a window, ``taps`` the distance from one tap to the next in both directions, in elements. ``step`` and
    ``dilation`` are the stride and the dilation along a row. ``parts`` is the number of digits of the weights. The last
    rows of the window may be rows before them that are multiplied once more: ``repeats`` lists these. ``per`` rows are
    multiplied by one dot product: four bytes, or two bytes that become 16-bit integers, whose weights are stored so.
    A strip has at most ``longest`` outputs, if fewer do not share vectors.
    """

    images: int
    rows: int
    columns: int
    channels: int
    window: tuple[int, int]
    taps: tuple[int, int]
    step: int
    dilation: int
    parts: int
    source: Pixels
    output: Output
    reads: tuple[Read, ...]
    formula: Formula
    starts: bool
    segments: tuple[Segment, ...]
    joint: Residual | None = None
    repeats: tuple[int, ...] = ()
    per: Literal[2, 4] = 4
    longest: int = 8

    def strip(self, tile: int) -> int:
        """The number of outputs of one strip, a multiple of the ``tile`` neighbours that share vectors.

        The last strip of a row may overlap the one before it. The windows of a strip share their common columns, unless
        there is a loop over columns.
        """
        if self.loops:
            return tile
        if tile == 1:
            count = -(-self.columns // self.longest)
            return -(-self.columns // count)
        fitting = [size for size in range(tile, max(self.longest, tile) + 1, tile) if size <= self.columns]
        return min(fitting, key=lambda size: (-(-self.columns // size) * size, -size))

    @property
    def loops(self) -> bool:
        """Whether there is a loop over the columns of a window."""
        return self.window[0] * self.window[1] > TAPS

    def row(self, number: int) -> int:
        """Which row of the map the kernel reads for row ``number`` of a window, counted from the window's first row."""
        own = self.window[0] - len(self.repeats)
        return number if number < own else self.repeats[number - own]

    @property
    def groups(self) -> int:
        """The number of dot products that one column of a window takes."""
        return -(-self.window[0] // ROWS)

    @property
    def blocks(self) -> int:
        """The number of blocks of channels."""
        return sum(segment.count for segment in self.segments)

    @property
    def by_rows(self) -> bool:
        """Whether threads share the rows; otherwise they share the blocks of channels."""
        return self.rows >= min(8, self.blocks)

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.rows if self.by_rows else self.blocks
