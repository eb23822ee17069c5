"""Tilings: how a convolution or a product is divided among blocks of threads, warps and instructions.

A block of threads computes some pixels of some output channels. Its warps share the pixels, the channels and the words
of the sums; slices of the sums that several warps have computed are added up at the end. Several stages of shared
memory are filled while others are multiplied. A formula estimates the time of each candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from cvm.executors.cuda.emit.fragments import COLUMNS, LANES, ROWS, STEPS, WORDS
from cvm.executors.cuda.launch import CROWD
from cvm.executors.native.descriptions.sums import Contraction, Pixels, Segment
from cvm.records import dataclass

__all__ = ["MOST_ROWS", "MOST_SHARED", "PIECE", "ROW_BYTES", "SAMPLES", "STATIC", "WIDEST", "Tile", "Tiling",
           "candidates", "piece", "reaches", "tiling"]  # fmt: skip

ROW_BYTES = 4 * WORDS
"""The bytes of one row of pixels in a slice of a stage."""
PROCESSORS = 132
"""The multiprocessors that the estimate counts on; an A100 has 108, an H100 132, a B200 148."""
STATIC, MOST_SHARED = 48 * 1024, 96 * 1024
"""The bytes of shared memory that a block may have without and with a request; devices of 8.6 and 8.9 have 99 KiB."""
STAGES = (4, 3, 2)
SAMPLES = 4 * CROWD
"""For how many samples the kernels for many samples are chosen."""
MOST_ROWS = 65535
"""The most blocks of a grid in its second direction."""
PIECE = 16
"""The bytes of the largest piece that an asynchronous copy takes, and of each piece of weights."""
REGISTERS, GATHERING = 128, 64
"""The most 32-bit sums of one thread, and of one that loads pixels element by element, which takes registers too."""
WIDEST = 2**31
"""Distances in bytes are computed in 32 bits, so all must be below this."""
CYCLES, WAIT, LAUNCHED = 6.5, 120, 2500
"""Cycles that a quarter of a multiprocessor takes for a product, that a warp waits for a stage and its first products,
and that a block waits for memory at its start and end.
"""
FILLED, SERVED = 30, 128
"""The bytes that a multiprocessor reads in a cycle from the second-level cache, and from or to shared memory."""
PROLOGUE, PIXEL, CODE = 300, 16, 6
"""The instructions of a warp before its first stage, and in the epilogue for a pixel and for each of its codes."""
HELD = 80
"""The registers of a thread besides its sums."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block of threads computes of one segment.

    It is some whole blocks of channels (``together``), or one of several equal ``parts`` of a block. ``warps`` says how
    many warps share (pixels, channels, words).
    """

    segment: Segment
    together: int
    parts: int
    pixels: int
    warps: tuple[int, int, int]

    @property
    def each(self) -> int:
        """The channels of one block that belong to the tile."""
        return self.segment.channels // self.parts

    @property
    def channels(self) -> int:
        """The channels of the tile."""
        return self.together * self.each

    @property
    def count(self) -> int:
        """The number of such tiles beside each other."""
        return -(-self.segment.count // self.together) * self.parts

    @property
    def beside(self) -> int:
        """The neighbouring tiles of 8 columns whose columns a thread reads with one load."""
        return next(n for n in (4, 2, 1) if self.each % (COLUMNS * n) == 0)

    @property
    def group(self) -> int:
        """The channels of such neighbouring tiles."""
        return COLUMNS * self.beside

    @property
    def groups(self) -> int:
        """The groups of channels of one warp."""
        return self.channels // self.group // self.warps[1]

    @property
    def rows(self) -> int:
        """The tiles of 16 pixels of one warp."""
        return self.pixels // ROWS // self.warps[0]

    @property
    def sums(self) -> int:
        """The 32-bit sums of one thread."""
        return self.rows * self.groups * self.beside * 4

    @property
    def pitch(self) -> int:
        """The bytes from one word of all channels to the next one in shared memory.

        Four neighbouring rows must lie in different quarters of the banks (128 bytes).
        """
        return 4 * self.channels + (32 if 4 * self.channels % 64 == 0 else 0)

    @property
    def pixel_bytes(self) -> int:
        """The bytes of the pixels of one stage."""
        return self.warps[2] * self.pixels * ROW_BYTES

    @property
    def stage(self) -> int:
        """The bytes of one stage: pixels, then weights."""
        return self.pixel_bytes + self.warps[2] * WORDS * self.pitch

    @property
    def exchanged(self) -> int:
        """The bytes in which slices of the sums meet."""
        return 4 * self.pixels * self.channels * self.warps[2] if self.warps[2] > 1 else 0

    @property
    def fits(self) -> bool:
        """Whether every warp has whole instructions to compute, and registers for its sums."""
        m, n, _ = self.warps
        whole = self.pixels % (ROWS * m) == 0 and self.channels % (self.group * n) == 0
        return whole and self.sums <= REGISTERS


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of all segments of a kernel, equal in pixels and in threads, and the number of stages.

    ``samples`` is for how many samples at the same time the time is estimated.
    """

    kernel: Contraction
    tiles: tuple[Tile, ...]
    stages: int
    samples: int = 1

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return LANES * math.prod(self.tiles[0].warps)

    @property
    def count(self) -> int:
        """The number of pixels of all images."""
        return self.kernel.images * self.kernel.rows * self.kernel.columns

    @property
    def blocks(self) -> tuple[int, int, int]:
        """The grid: tiles of pixels by tiles of channels of all segments."""
        return -(-self.count // self.tiles[0].pixels), sum(tile.count for tile in self.tiles), 1

    @property
    def shared(self) -> int:
        """The bytes of shared memory of a block."""
        return max(max(self.stages * tile.stage, tile.exchanged) for tile in self.tiles)

    @property
    def cost(self) -> float:
        """The estimated cycles: a multiprocessor's work, or its waves of blocks that wait, whichever is longer."""
        first = self.tiles[0]
        chunks = -(-self.words // (WORDS * first.warps[2])) * len(self.kernel.shifts)
        registers = self.threads * min(255, HELD + first.sums * (3 if self.kernel.per == 2 else 1))
        together = max(1, min(2 * MOST_SHARED // self.shared, 2048 // self.threads, 65536 // registers))
        blocks = math.prod(self.blocks) * self.samples
        each = -(-blocks // PROCESSORS)
        work = chunks * max(self._multiplied, self._moved / SERVED, self._traffic / FILLED) + self._around
        return max(each * work, -(-each // together) * (work + chunks * WAIT + LAUNCHED))

    @property
    def _multiplied(self) -> float:
        """The cycles of a multiprocessor for the products of a stage."""
        first = self.tiles[0]
        each = first.rows * first.groups * first.beside * (4 if self.kernel.per == 2 else self.depth * STEPS // WORDS)
        return each * CYCLES * max(1, math.prod(first.warps) / 4)

    @property
    def _around(self) -> float:
        """The cycles of a multiprocessor for the prologue and the epilogue of a block."""
        first = self.tiles[0]
        codes = first.pixels * first.channels / LANES
        return (PROLOGUE * math.prod(first.warps) + codes * (CODE + PIXEL / (2 * first.beside))) / 4

    @property
    def _moved(self) -> int:
        """The bytes that are written to a stage, and that its warps read."""
        first = self.tiles[0]
        read = ROW_BYTES * (ROWS * first.rows + first.group * first.groups)
        return self._traffic + read * math.prod(first.warps)

    @property
    def words(self) -> int:
        """The words of weights of one channel in one pass."""
        return self.kernel.step_words // len(self.kernel.shifts)

    @property
    def depth(self) -> int:
        """The words of a row that a warp multiplies in a stage: half of them where a pass has no more."""
        return WORDS // 2 if self.kernel.per == 4 and self.words <= WORDS // 2 else WORDS

    @property
    def _traffic(self) -> int:
        """The bytes that a stage reads."""
        first = self.tiles[0]
        return first.pixel_bytes + 4 * first.channels * WORDS * first.warps[2]


def piece(kernel: Contraction, alignment: int) -> int:
    """The bytes of a piece of pixels: the most that one asynchronous copy takes, or 0 where there is none.

    ``alignment`` is a power of two that divides the address of the input.
    """
    size = kernel.input.bytes
    steps = [kernel.source.column, *(apart for _, apart in kernel.taps)]
    steps += [kernel.source.row] if kernel.rows > 1 else []
    steps += [kernel.source.image] if kernel.images > 1 else []
    aligned = math.gcd(alignment, *(step * size for step in steps))
    runs = 4 * kernel.steps if kernel.taps else PIECE
    return next((n for n in (16, 8, 4) if aligned % n == 0 and runs % n == 0), 0)


def tiling(kernel: Contraction, samples: int = 1, alignment: int = PIECE) -> Tiling | None:
    """The cheapest tiling of a contraction for so many samples at a time, or None if tensor cores do not serve it.

    They multiply bytes, and pairs of digits of 16 bits. The first blocks of channels decide; a block of fewer than
    eight channels fills no instruction. ``alignment`` divides the address of the input (see `piece`).
    """
    if kernel.per == 1 or not kernel.segments or not reaches(kernel):
        return None
    if any(one.channels % COLUMNS or one.block.interleaved or one.together for one in kernel.segments):
        return None
    most = REGISTERS if piece(kernel, alignment) else GATHERING
    found = [
        replace(one, samples=samples)
        for one in candidates(kernel)
        if one.shared <= MOST_SHARED and max(tile.sums for tile in one.tiles) <= most and one.blocks[1] <= MOST_ROWS
    ]
    return min(found, key=lambda one: one.cost, default=None)


def reaches(kernel: Contraction) -> bool:
    """Whether all distances within the tensors of a kernel are below 2^31 bytes."""
    extents = kernel.images, kernel.rows, kernel.columns, kernel.channels
    every = [(kernel.source, kernel.input.bytes), (kernel.output.pixels, kernel.output.format.bytes)]
    every += [(read.pixels, read.format.bytes) for read in kernel.reads if read.pixels is not None]
    taps = sum((count - 1) * abs(apart) for count, apart in kernel.taps) + kernel.run
    weights = (
        4 * kernel.step_words * (kernel.segments[-1].start + kernel.segments[-1].count * kernel.segments[-1].channels)
    )
    most = max(_span(pixels, extents) * size for pixels, size in every) + taps * kernel.input.bytes
    return max(most, weights) < WIDEST


def _span(pixels: Pixels, extents: Sequence[int]) -> int:
    strides = pixels.image, pixels.row, pixels.column, pixels.channel
    return sum((n - 1) * abs(step) for n, step in zip(extents, strides, strict=True)) + 1


def candidates(kernel: Contraction) -> Iterator[Tiling]:
    """All tilings that are compared."""
    pixels = kernel.images * kernel.rows * kernel.columns
    for size in (16, 32, 64, 128, 256):
        if size > 16 and size >= 2 * pixels:
            continue
        for total in (4, 8):
            tiles = [_tile(kernel, segment, size, total, number == 0) for number, segment in enumerate(kernel.segments)]
            for first in tiles[0]:
                rest = [_beside(first, others) for others in tiles[1:]]
                if None not in rest:
                    yield from _staged(kernel, (first, *(one for one in rest if one is not None)))


def _beside(first: Tile, tiles: Sequence[Tile]) -> Tile | None:
    """The tile of a later segment: the most channels that need no more memory or sums than the first segment's tile.

    Among equal ones, it is the tile whose warps read the least.
    """
    fitting = [one for one in tiles if one.stage <= first.stage and one.sums <= first.sums]
    if not fitting:
        return min(tiles, key=lambda tile: (tile.stage, tile.parts), default=None)
    return min(fitting, key=lambda tile: (-tile.channels, ROWS * tile.rows + tile.group * tile.groups))


def _staged(kernel: Contraction, tiles: tuple[Tile, ...]) -> Iterator[Tiling]:
    words = kernel.step_words // len(kernel.shifts)
    chunks = -(-words // (WORDS * tiles[0].warps[2]))
    for stages in (some for some in STAGES if some <= max(chunks, STAGES[-1])):
        found = Tiling(kernel, tiles, stages)
        if found.shared <= MOST_SHARED:
            yield found
            return


def _tile(kernel: Contraction, segment: Segment, pixels: int, total: int, first: bool) -> list[Tile]:
    """The tiles of a segment with ``total`` warps; those of later segments take one block of channels."""
    words = kernel.step_words // len(kernel.shifts)
    most = REGISTERS // 3 if kernel.per == 2 else REGISTERS
    shares = [(1, parts) for parts in (1, 2, 4, 8) if segment.channels % (COLUMNS * parts) == 0]
    if first:
        shares += [(together, 1) for together in (2, 4) if together <= segment.count]
    found = []
    for (together, parts), m, n in product(shares, (1, 2, 4, 8), (1, 2, 4)):
        k, left = divmod(total, m * n)
        if left or k not in (1, 2, 4, 8) or (k > 1 and words < WORDS * k):
            continue
        tile = Tile(segment, together, parts, pixels, (m, n, k))
        if tile.fits and tile.sums <= most:
            found.append(tile)
    return found
