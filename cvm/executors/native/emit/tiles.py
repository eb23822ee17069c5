"""Contractions on a processor's tile registers: one instruction multiplies a tile of pixels by a tile of channels.

A tile register holds rows of 64 bytes. One instruction multiplies the bytes of up to 16 pixels with those of up to 16
output channels over up to 64 elements of a run, and adds the products to a tile of 32-bit sums, modulo 2^32. The pixels
of a tile only have to lie at equal distances, so rows of a map are read without a copy. A tile may extend over the
border into the next row; the sums that it computes there are not used. Weights are packed as for `contraction`. The
sums of a block of tiles are stored on the stack, where the epilogue reads them.

Registers 0 to 3 hold sums, 4 and 5 pixels, 6 and 7 weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from cvm.executors.native.descriptions.sums import Block, Contraction, Pixels, Segment
from cvm.executors.native.emit.contraction import each_block, parameters, tile_start
from cvm.executors.native.emit.epilogue import TOGETHER, Epilogue
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, vector
from cvm.executors.native.emit.machine import Machine
from cvm.records import dataclass

__all__ = ["ROWS", "Tiled", "Walk", "configure", "emit_tiles", "product", "tiled", "way"]

ROWS = 16
"""The number of rows of a tile register, and of 32-bit lanes of a row."""
ROW_BYTES = 64
WORTH = 0.14
"""Tiles are faster than dot products of vectors if at least this share of their products is needed."""
LEAST = 8
"""A tile of fewer rows than this takes as long as a tile of this many."""
NAP = 32
"""During an epilogue, a product is computed once per this many pixels, which keeps the multipliers awake."""
AHEAD = 8192
"""Weights that do not stay in the nearest cache are prefetched this many bytes ahead."""
NEAR = 40_000
"""Weights of a block stay in the nearest cache if they take at most this many bytes."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How tiles cover a map: with ``lines`` times ``spans`` blocks, each of ``tiles`` tiles of ``pixels`` pixels.

    A block covers ``tall`` rows of ``long`` pixels. With ``pitch``, the whole map is treated as one line of pixels; a
    row begins ``pitch`` pixels behind the previous one.
    """

    lines: int
    spans: int
    tiles: int
    pixels: int
    tall: int
    long: int
    pitch: int = 0

    @property
    def starts(self) -> list[tuple[int, int]]:
        """(row, first pixel) of every tile of a block. Tiles overlap where they do not fill the block evenly."""
        if self.tall > 1:
            return [(tile, 0) for tile in range(self.tiles)]
        return [(0, (self.long - self.pixels) * tile // max(1, self.tiles - 1)) for tile in range(self.tiles)]

    @property
    def size(self) -> int:
        """The number of rows of all tiles. A tile with fewer than `LEAST` rows counts as one with `LEAST`."""
        return self.lines * self.spans * self.tiles * max(self.pixels, LEAST)

    def cost(self, weights: int) -> int:
        """The estimated cycles for one chunk of a run and four tiles of channels.

        ``weights`` is the size of the weights of a block, in bytes.
        """
        loading = 64 if weights <= NEAR else 96
        return 4 * self.size + self.lines * self.spans * loading


def way(rows: int, columns: int, source: Pixels, weights: int) -> Walk:
    """The walk over a map of ``rows`` x ``columns`` pixels that costs least."""
    found = []
    for tiles in (1, 2, 4):
        found.append(_along(rows, columns, tiles))
        if columns <= ROWS and rows >= tiles > 1:
            found.append(Walk(-(-rows // tiles), 1, tiles, columns, tiles, columns))
        if rows > 1 and source.column and source.row % source.column == 0 and source.row // source.column >= columns:
            pitch = source.row // source.column
            found.append(replace(_along(1, (rows - 1) * pitch + columns, tiles), pitch=pitch))
    return min(found, key=lambda walk: walk.cost(weights))


def _along(rows: int, columns: int, tiles: int) -> Walk:
    """The walk whose blocks are ``tiles`` tiles in one row each."""
    spans = -(-columns // (ROWS * tiles))
    pixels = -(-columns // (spans * tiles))
    return Walk(rows, spans, tiles, pixels, 1, min(columns, tiles * pixels))


@dataclass(frozen=True, slots=True)
class Tiled:
    """A contraction on tiles. One instruction takes a chunk of a run: ``chunk`` steps of 4 elements."""

    kernel: Contraction
    walk: Walk
    chunk: int

    @property
    def shares_blocks(self) -> bool:
        """Whether threads share the blocks of channels; otherwise they share the lines, or the spans of the only
        line.
        """
        return self._stretch < min(8, self.kernel.blocks)

    @property
    def note(self) -> str:
        """A short description for the listing of the plan."""
        walk = self.walk
        way = f"{walk.tall} rows" if walk.tall > 1 else "the whole map" if walk.pitch else "a row"
        return f"8-bit tiles, {walk.tiles} of {walk.pixels} pixels in {way} at a time"

    @property
    def _stretch(self) -> int:
        return self.walk.lines if self.walk.lines > 1 else self.walk.spans

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.kernel.blocks if self.shares_blocks else self._stretch


def tiled(kernel: Contraction, packs: bool, machine: Machine) -> Tiled | None:
    """The contraction on tiles, or None if the elements are not bytes or the tiles would be mostly empty.

    Runs are padded to whole chunks, with zeros as weights.
    """
    if not machine.tiles or kernel.per != 4 or kernel.shifts != (0,):
        return None
    chunks = -(-kernel.run // ROW_BYTES)
    chunk = -(-kernel.run // (4 * chunks))
    taps = math.prod(count for count, _ in kernel.taps)
    walk = way(kernel.rows, kernel.columns, kernel.source, taps * chunks * chunk * 4 * 4 * ROWS)
    vectors = -(-kernel.channels // ROWS)
    room = walk.size * chunks * ROW_BYTES * vectors * ROWS
    if kernel.rows * kernel.columns * kernel.run * kernel.channels < WORTH * room:
        return None
    full = kernel.channels // (4 * ROWS)
    width = 4 // walk.tiles
    found = [Segment(0, full, Block(ROWS, 4, 4 * ROWS, packs), walk.pixels, width)] if full else []
    done = full * 4 * ROWS
    while done < kernel.channels:
        left = -(-(kernel.channels - done) // ROWS)
        count = 4 if left >= 4 else 2 if left >= 2 else 1
        valid = min(kernel.channels - done, count * ROWS)
        found.append(Segment(done, 1, Block(ROWS, count, valid, packs and count > 1), walk.pixels, min(width, count)))
        done += valid
    return Tiled(replace(kernel, run=4 * chunks * chunk, segments=tuple(found)), walk, chunk)


def emit_tiles(module: Module, name: str, tiled: Tiled, machine: Machine) -> None:
    """Write the function (input, weights, [start of sums,] reads.., output, first unit, end of units)."""
    kernel = tiled.kernel
    pointers, reads, target, units = parameters(kernel)
    code = Code(module, name, [*pointers, *reads, target, *units])
    sums, pixels = (tiled.walk.pixels, ROW_BYTES), (tiled.walk.pixels, 4 * tiled.chunk)
    configure(code, [sums] * 4 + [pixels] * 2 + [(tiled.chunk, ROW_BYTES)] * 2)

    def image(index: Scalar) -> None:
        def block(segment: Segment, number: Scalar) -> None:
            channel = code.add(code.mul(number, segment.channels), segment.start)
            emitter = _Emitter(code, tiled, machine, segment, pointers, reads, target, index, channel)
            _each_stretch(code, tiled, None if tiled.shares_blocks else units, emitter.pixels)
            emitter.finish()

        each_block(code, kernel.segments, units if tiled.shares_blocks else None, block)

    code.each(0, kernel.images, image)
    code.call("void", "llvm.x86.tilerelease")
    code.finish()


def _each_stretch(code: Code, tiled: Tiled, units: tuple[V, V] | None, body: Callable[[Scalar, Scalar], None]) -> None:
    """Write ``body(y, x)`` for the first pixel of every block of tiles.

    ``units`` (first, end) limits the lines, or the spans if there is only one line.
    """
    kernel, walk = tiled.kernel, tiled.walk
    lines: tuple[Scalar, Scalar] = (0, walk.lines)
    spans: tuple[Scalar, Scalar] = (0, walk.spans)
    if units is not None:
        lines, spans = (units, spans) if walk.lines > 1 else (lines, units)
    extent = (kernel.rows - 1) * walk.pitch + kernel.columns

    def line(index: Scalar) -> None:
        y = 0 if walk.pitch else tile_start(code, index, walk.tall, kernel.rows)
        code.each(*spans, lambda index: body(y, tile_start(code, index, walk.long, extent)))

    code.each(*lines, line)


def configure(code: Code, shapes: Sequence[tuple[int, int]]) -> None:
    """Configure the rows and the bytes per row of all tile registers.

    The processor reads 64 bytes: the bytes per row as 16-bit numbers from byte 16 on, the rows from byte 48 on.
    """
    layout = bytearray(64)
    layout[0] = 1
    for register, (rows, width) in enumerate(shapes):
        layout[16 + 2 * register], layout[48 + register] = width, rows
    room = code.alloca(vector(8, 64), 1)
    code.store(code.bytes(bytes(layout)), room, 64)
    code.call("void", "llvm.x86.ldtilecfg", room)


def product(code: Code, sums: int, pixels: int, weights: int) -> None:
    """Add the product of the registers ``pixels`` and ``weights`` to the register ``sums``."""
    code.call("void", "llvm.x86.tdpbusd", *(V("i8", str(register)) for register in (sums, pixels, weights)))


class _Emitter:
    """Writes the code of one block of channels of one image.

    The epilogue of a block of tiles is deferred if the pixels of the block lie at equal distances in all tensors and if
    the sums are long enough. A deferred epilogue is computed between the products of the next block of tiles, two
    pixels after each chunk, so that neither waits for the other. Sums are then stored in two buffers alternately, and
    the code keeps the next pixel of the deferred epilogue and its addresses in memory.
    """

    def __init__(
        self,
        code: Code,
        tiled: Tiled,
        machine: Machine,
        segment: Segment,
        pointers: list[V],
        reads: list[V],
        target: V,
        image: Scalar,
        channel: Scalar,
    ) -> None:
        self.code, self.tiled, self.segment, self.pointers = code, tiled, segment, pointers
        self.target, self.image, self.channel = target, image, channel
        kernel, walk, block = tiled.kernel, tiled.walk, segment.block
        self.epilogue = Epilogue(
            code, kernel.formula, kernel.reads, kernel.output, block, reads, channel, machine, kernel.joint
        )
        self.deferred = walk.tall == 1 and not walk.pitch and walk.long > 1 and self._each_time <= TOGETHER
        size = walk.tall * walk.long * block.vectors
        rooms = [code.alloca(vector(32, ROWS), size) for _ in range(2 if self.deferred else 1)]
        self.room = rooms[0]
        self.steps = [pixels.column * width for pixels, width, _ in self.epilogue.addresses(0, 0, 0, target)]
        if self.deferred:
            self.next = code.alloca("i64", 1)
            code.store(V("i64", str(walk.long)), self.next)
            self.kept = [code.alloca("ptr", 1) for _ in (*rooms, *self.steps)]
            for room, kept in zip(rooms, self.kept, strict=False):
                code.store(room, kept)

    def pixels(self, y: Scalar, x: Scalar) -> None:
        """Write the sums of the block of tiles that begins at pixel (y, x), and the epilogue unless it is deferred."""
        code, kernel, walk, block = self.code, self.tiled.kernel, self.tiled.walk, self.segment.block
        source = self.pointers[0]
        strides = (kernel.source.image, kernel.source.row, kernel.source.column)
        for index, stride in zip((self.image, y, x), strides, strict=True):
            source = code.at(source, code.mul(index, stride))
        weights = code.at(self.pointers[1], code.mul(self.channel, 4 * kernel.step_words))
        room, *before = [code.load("ptr", kept) for kept in self.kept] if self.deferred else [self.room]
        together = self.segment.together
        sums = [(tile, v) for tile in range(walk.tiles) for v in range(together)]

        def group(index: Scalar) -> None:
            first = code.mul(index, together * ROW_BYTES)
            sides = code.at(room, first)
            for register, (_, v) in enumerate(sums):
                if kernel.starts:
                    start = code.at(code.at(self.pointers[2], code.mul(self.channel, 4)), first)
                    self._tile("load", register, code.at(start, ROW_BYTES * v), 0)
                else:
                    code.call("void", "llvm.x86.tilezero", V("i8", str(register)))
            self._taps(0, source, code.at(weights, code.mul(first, kernel.step_words)), sums, before)
            for register, (tile, v) in enumerate(sums):
                row, pixel = walk.starts[tile]
                offset = ((row * walk.long + pixel) * block.vectors + v) * ROW_BYTES
                self._tile("store", register, code.at(sides, offset), ROW_BYTES * block.vectors)

        code.each(0, block.vectors // together, group)
        if not self.deferred:
            self._finish(room, y, x)
            return
        addresses = [address for _, _, address in self.epilogue.addresses(self.image, y, x, self.target)]
        for address, kept in zip((before[0], room, *addresses), self.kept, strict=True):
            code.store(address, kept)
        code.store(V("i64", "0"), self.next)

    def finish(self) -> None:
        """Write the deferred epilogue of the last block of tiles."""
        if self.deferred:
            _, *before = [self.code.load("ptr", kept) for kept in self.kept]
            self._continue_deferred(before, self.tiled.walk.long)

    def _continue_deferred(self, before: Sequence[V], count: int) -> None:
        """Continue the deferred epilogue by up to ``count`` pixels, two at a time.

        If the number of pixels is odd, the last pair computes one pixel of the pair before it again.
        """
        code, long = self.code, self.tiled.walk.long
        room, *addresses = before
        first = code.load("i64", self.next)
        end = code.intrinsic("smin", code.binary("add", first, -(-count // TOGETHER) * TOGETHER), long)

        def pair(index: Scalar) -> None:
            at = code.smaller(index, long - TOGETHER)
            pairs = zip(addresses, self.steps, strict=True)
            moved = [(code.at(address, code.mul(at, step)), step) for address, step in pairs]
            size = ROW_BYTES * self.segment.block.vectors
            self.epilogue.line(code.at(room, code.mul(at, size)), TOGETHER, moved)

        code.each(first, end, pair, step=TOGETHER)
        code.store(end, self.next)

    def _tile(self, what: str, register: int, pointer: V, stride: int) -> None:
        name = {"load": "llvm.x86.tileloadd64", "store": "llvm.x86.tilestored64"}[what]
        self.code.call("void", name, V("i8", str(register)), pointer, V("i64", str(stride)))

    def _taps(self, depth: int, source: V, weights: V, sums: list[tuple[int, int]], before: list[V]) -> None:
        """Write the loops over the taps, and inside them the loop over the chunks of a run."""
        code, kernel, chunk = self.code, self.tiled.kernel, self.tiled.chunk
        step = ROW_BYTES * self.segment.together
        if depth == len(kernel.taps):

            def one_chunk(index: Scalar) -> None:
                at = code.at(source, code.mul(index, 4 * chunk))
                self._products(at, code.at(weights, code.mul(index, chunk * step)), sums)
                if self.deferred:
                    self._continue_deferred(before, self._each_time)

            code.each(0, kernel.steps // chunk, one_chunk)
            return
        count, between = kernel.taps[depth]
        size = math.prod(n for n, _ in kernel.taps[depth + 1 :]) * kernel.steps * step

        def tap(index: Scalar) -> None:
            at = code.at(source, code.mul(index, between))
            self._taps(depth + 1, at, code.at(weights, code.mul(index, size)), sums, before)

        code.each(0, count, tap)

    def _products(self, source: V, weights: V, sums: list[tuple[int, int]]) -> None:
        """Multiply every tile of pixels by every tile of channels, for one chunk.

        Pixels or channels, whichever has fewer tiles, stay in their registers.
        """
        code, walk, together = self.code, self.tiled.walk, self.segment.together
        strides = self.tiled.kernel.source
        far = 4 * self.tiled.kernel.step_words * self.segment.channels > NEAR
        loaded: dict[int, tuple[str, int]] = {}

        def operand(what: str, number: int) -> int:
            register = (4 if what == "pixels" else 6) + number % 2
            if loaded.get(register) != (what, number):
                loaded[register] = (what, number)
                if what == "pixels":
                    row, pixel = walk.starts[number]
                    at = code.at(source, row * strides.row + pixel * strides.column)
                    self._tile("load", register, at, strides.column)
                else:
                    self._tile("load", register, code.at(weights, ROW_BYTES * number), ROW_BYTES * together)
                    if far and number == 0:
                        for line in range(self.tiled.chunk * together):
                            code.prefetch(code.at(weights, AHEAD + line * ROW_BYTES))
            return register

        order = sorted(enumerate(sums), key=lambda one: one[1][::-1] if walk.tiles > together else one[1])
        for register, (tile, v) in order:
            product(code, register, operand("pixels", tile), operand("weights", v))

    @property
    def _each_time(self) -> int:
        """The number of pixels by which the deferred epilogue must continue after each chunk."""
        kernel, together = self.tiled.kernel, self.segment.together
        chunks = kernel.step_words // self.tiled.chunk * (self.segment.block.vectors // together)
        return -(-self.tiled.walk.long // chunks)

    def _finish(self, room: V, y: Scalar, x: Scalar) -> None:
        """Write the epilogues of those pixels of a block that lie within the map."""
        code, kernel, walk = self.code, self.tiled.kernel, self.tiled.walk
        if walk.pitch:
            last = code.add(x, walk.long - 1)
            rows = (code.quotient(x, walk.pitch), code.add(code.quotient(last, walk.pitch), 1))

            def row(index: Scalar) -> None:
                before = code.mul(index, walk.pitch)
                first = code.larger(code.minus(x, before), 0)
                end = code.smaller(code.add(code.minus(last, before), 1), kernel.columns)
                count = code.larger(code.minus(end, first), 0)  # negative if the block begins on the border
                self._line(room, code.minus(code.add(before, first), x), index, first, count)

            code.each(*rows, row)
            return
        for number in range(walk.tall):
            self._line(room, number * walk.long, code.add(y, number), x, walk.long)

    def _line(self, room: V, skipped: Scalar, y: Scalar, x: Scalar, count: Scalar) -> None:
        """Write the epilogues of ``count`` pixels of row y, from x on.

        Their sums lie in ``room``, behind the sums of ``skipped`` other pixels.
        """
        addresses = [address for _, _, address in self.epilogue.addresses(self.image, y, x, self.target)]
        sums = self.code.at(room, self.code.mul(skipped, ROW_BYTES * self.segment.block.vectors))
        self.epilogue.line(sums, count, list(zip(addresses, self.steps, strict=True)), self._keep_awake)

    def _keep_awake(self, pixel: Scalar) -> None:
        """Compute a product that is not needed once every `NAP` pixels.

        The multipliers of tiles sleep after half a microsecond without work, and take a fifth of a microsecond to wake.
        An epilogue that is a single requantize is too short for that.
        """
        code, steps = self.code, self.tiled.kernel.formula.steps
        if isinstance(pixel, int) or sum(step.op != "immediate" for step in steps) < 2:
            return

        code.when(code.compare("eq", code.binary("and", pixel, NAP - 1), 0), lambda: product(code, 0, 4, 6))
