"""Convolutions and products of matrices, as data: blocks of channels, pixels, taps, and what is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Formula, Residual
from cvm.executors.native.descriptions.formats import Format

__all__ = ["ROWS", "Block", "Contraction", "Depthwise", "Output", "Pixels", "Read", "Segment", "interleaved"]

ROWS = 4
"""Rows of a depthwise window in one dot product."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """The strides of a tensor, in elements, per image, row, column and channel of the output."""

    image: int
    row: int
    column: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor that the formula reads besides the sums: one element per channel in packed order (``pixels`` is None),
    or a tensor with strides per pixel.
    """

    format: Format
    pixels: Pixels | None


@dataclass(frozen=True, slots=True)
class Output:
    """How results are stored. With ``clamp`` the formula gives stored integers that must still be clipped to it."""

    format: Format
    pixels: Pixels
    clamp: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """``vectors`` vectors of ``lane`` lanes, each lane a channel. Only the first ``valid`` channels exist."""

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
    """The channels of an interleaved block, vector by vector."""
    return np.arange(vectors * lane).reshape(lane // 4, vectors, 4).transpose(1, 0, 2).reshape(-1)


@dataclass(frozen=True, slots=True)
class Segment:
    """``count`` equal blocks of output channels from channel ``start`` on, and the pixels of one register tile.

    The weights of ``together`` vectors (0: of all of a block) lie side by side in every step.
    """

    start: int
    count: int
    block: Block
    tile: int
    together: int = 0

    @property
    def channels(self) -> int:
        """Channels from one block to the next."""
        return self.block.lane * self.block.vectors


@dataclass(frozen=True, slots=True)
class Contraction:
    """One kernel.

    ``images``, ``rows`` and ``columns`` are the output's; ``taps`` the loops (count, elements apart) around a run of
    ``run`` elements. ``shifts`` has one entry for each pass over all taps: before the pass the sums are shifted left by
    so many bits. Without ``starts`` the sums begin with zero.
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

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return -(-self.run // self.per)

    @property
    def step_words(self) -> int:
        """32-bit words of weights of one output channel: all steps of all taps in all passes."""
        return self.steps * math.prod(count for count, _ in self.taps) * len(self.shifts)

    @property
    def blocks(self) -> int:
        """Blocks of output channels."""
        return sum(segment.count for segment in self.segments)

    @property
    def fixed(self) -> bool:
        """Whether all tiles of an image are written out, each with its own pixels: for small maps."""
        return self.rows > 1 and self.rows * self.columns <= 4 * min(segment.tile for segment in self.segments)

    @property
    def shared(self) -> Literal["rows", "columns", "blocks"]:
        """The loop that threads share."""
        if not self.fixed and self.rows >= max(8, self.blocks):
            return "rows"
        return "columns" if self.rows == 1 and self.columns >= 64 * self.blocks else "blocks"

    @property
    def units(self) -> int:
        """Parts that may run at the same time."""
        return {"rows": self.rows, "columns": self.columns, "blocks": self.blocks}[self.shared]


@dataclass(frozen=True, slots=True)
class Depthwise:
    """One depthwise kernel. ``window`` and ``taps`` are extents and strides of rows and columns; the strides of
    ``source`` are those of one step of the output.
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

    @property
    def strip(self) -> int:
        """Outputs of one strip; the last strip of a row overlaps its neighbour."""
        count = -(-self.columns // 8)
        return -(-self.columns // count)

    @property
    def groups(self) -> int:
        """Dot products of one column of a window."""
        return -(-self.window[0] // ROWS)

    @property
    def blocks(self) -> int:
        """Blocks of channels."""
        return sum(segment.count for segment in self.segments)

    @property
    def by_rows(self) -> bool:
        """Whether threads share the rows, else the blocks."""
        return self.rows >= min(8, self.blocks)

    @property
    def units(self) -> int:
        """Parts that may run at the same time."""
        return self.rows if self.by_rows else self.blocks
