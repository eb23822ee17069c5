"""Convolutions and matrix products: register tiles of dot products over constant, packed weights.

A contraction computes, for every pixel and output channel, the sum over runs of elements that lie side by side in the
input. A tile is a few pixels times a few vectors of output channels. For every step of a run, the code broadcasts one
32-bit word of each pixel (4, 2 or 1 elements) to all lanes and multiplies it with packed weights. The accumulators
start with the bias of the channel minus b * sum of weights, since the input's format stores value + b. The epilogue
turns them into codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from cvm.executors.native.descriptions.sums import Block, Contraction, Depthwise, Pixels, Segment
from cvm.executors.native.emit.cover import Grid, cover
from cvm.executors.native.emit.elements import load
from cvm.executors.native.emit.epilogue import Epilogue
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector, whole
from cvm.executors.native.emit.machine import HIGHEST_BITS, Machine
from cvm.records import dataclass

__all__ = ["LINE", "Place", "TileEmitter", "each_block", "emit_contraction", "parameters", "segments", "starting",
           "tile_start"]  # fmt: skip

UNROLLED = 2
"""Each pixel of a tile of up to this many pixels has its own code for the epilogue. More pixels share one loop, which
reads their sums from the stack.
"""
FEW = 16
"""With at most this many registers, a tile of several pixels has at most two vectors of channels."""
PRODUCTS = 5
"""The registers that the products of two steps take beside sums and weights: two words, two products, ones."""
LINE = 64
"""The bytes of a cache line."""
FAR = 2**14
"""Weights of at least this many bytes are prefetched into the second-level cache before they are read: a network has
more weights than it holds.
"""
SHORT = 64
"""Where a sum has at most this many steps, the epilogue is most of the work, and each pixel has its own code for it."""


FITS = 0.94
"""With at most `FEW` registers, tiles of pairs of steps have a pixel more than fits if their cost is at most this
fraction then: of a row of 49 pixels, 5 to 9 % less time.
"""


def segments(
    channels: int, pixels: int, packs: bool, machine: Machine, listed: bool = False, row: bool = False
) -> tuple[Segment, ...]:
    """Divide output channels into blocks, and choose the largest tile of pixels that the registers allow.

    The registers must hold the sums of the tile, one vector of weights for each vector of the block, and two words; for
    weights that are ``listed``, what the products of two steps take, and all vectors of weights but one. Blocks of two
    and of four vectors are interleaved if their codes can be packed. With 16 registers, tiles of 4 or 6 pixels by 2
    vectors hold more sums than those of 2 by 4. For a single pixel, blocks have up to a quarter as many vectors as
    there are registers. If the pixels are a ``row``, tiles may have one more than fits (`FITS`).
    """
    lane = machine.width
    for narrower in machine.narrower:
        if channels <= narrower:
            lane = narrower
    most = machine.registers // 4 if pixels == 1 else 4 if packs and machine.packs and machine.registers > FEW else 2
    found = []
    done = 0
    while done < channels:
        left = channels - done
        vectors = min(most, -(-left // lane))
        count = max(1, left // (vectors * lane))
        valid = min(left, vectors * lane)
        others = 2 * vectors + 4 if listed else vectors + 2
        tile = max(1, (machine.registers - others) // vectors)
        few = listed and row and vectors == 2 and machine.registers <= FEW
        if few and _costs(pixels, tile + 1) <= FITS * _costs(pixels, tile):
            tile += 1
        block = Block(lane, vectors, valid, packs and most <= 4 and vectors in (2, 4))
        found.append(Segment(done, count, block, min(tile, pixels)))
        done += count * vectors * lane
    return tuple(found)


def _costs(pixels: int, tile: int) -> float:
    """The estimated cost of the tiles that cover a row of pixels."""
    return sum(grid.cost for grid in cover(1, pixels, tile))


def emit_contraction(module: Module, name: str, kernel: Contraction, machine: Machine) -> None:
    """Write the function (input, weights, [start of sums,] reads.., output, first unit, end of units)."""
    pointers, reads, target, (lo, hi) = parameters(kernel)
    code = Code(module, name, [*pointers, *reads, target, lo, hi])

    parts = kernel.parts
    blocks = code.quotient(lo, parts), code.quotient(code.add(hi, parts - 1), parts)
    touched = tuple(whole(bound) for bound in blocks) if kernel.by_block else None

    def image(index: Scalar) -> None:
        def block(segment: Segment, number: Scalar) -> None:
            before = sum(one.count for one in kernel.segments if one.start < segment.start)
            place = code.add(number, before)
            units = _units(code, kernel, place, (lo, hi))
            TileEmitter(code, kernel, machine, segment, pointers, reads, target, place).block(index, number, units)

        each_block(code, kernel.segments, touched, block)

    code.each(0, kernel.images, image)
    code.finish()


def _units(code: Code, kernel: Contraction, block: Scalar, bounds: tuple[V, V]) -> tuple[Scalar, Scalar]:
    """The first part of a block among the units between two bounds, and the end of these parts."""
    if kernel.blocks == 1:
        return bounds
    if kernel.by_block:
        moved = (code.minus(bound, code.mul(block, kernel.parts)) for bound in bounds)
        first, end = (code.smaller(code.larger(bound, 0), kernel.parts) for bound in moved)
    else:  # unit p * blocks + block is part p of the block
        first, end = (
            code.quotient(code.add(code.minus(bound, block), kernel.blocks - 1), kernel.blocks) for bound in bounds
        )
    return first, end


def parameters(kernel: Contraction | Depthwise) -> tuple[list[V], list[V], V, tuple[V, V]]:
    """The parameters of a function: (input, weights, [start of sums]), reads, output, (first unit, end of units)."""
    pointers = [V("ptr", f"%{what}") for what in ("input", "weights", "start")[: 3 if kernel.starts else 2]]
    reads = [V("ptr", f"%r{number}") for number in range(len(kernel.reads))]
    return pointers, reads, V("ptr", "%output"), (V("i64", "%lo"), V("i64", "%hi"))


def each_block(
    code: Code,
    segments: Sequence[Segment],
    units: tuple[V, ...] | None,
    body: Callable[[Segment, Scalar], None],
) -> None:
    """Write ``body(segment, number)`` for the blocks of all segments.

    ``units`` (first, end) limits the blocks, which are numbered through all segments.
    """
    before = 0
    for segment in segments:
        low: Scalar = 0
        high: Scalar = segment.count
        if units is not None:
            low = code.larger(code.minus(units[0], before), 0)
            high = code.smaller(code.minus(units[1], before), segment.count)
        code.each(low, high, partial(body, segment))
        before += segment.count


def starting(code: Code, pointers: Sequence[V], channel: Scalar, block: Block) -> list[V]:
    """The values that the sums of a block start with: zeros, unless the kernel has an argument for them."""
    kind = vector(32, block.lane)
    if len(pointers) < 3:
        return [typed(kind, 0)] * block.vectors
    start = code.at(pointers[2], code.mul(channel, 4))
    return [code.load(kind, code.at(start, 4 * block.lane * v)) for v in range(block.vectors)]


def tile_start(code: Code, index: Scalar, size: int, extent: int) -> Scalar:
    """The start of tile ``index`` of ``size`` elements in an extent.

    If the extent is no multiple of ``size``, the last tile ends with the extent and overlaps the tile before it.
    """
    start = code.mul(index, size)
    return start if extent % size == 0 else code.smaller(start, extent - size)


@dataclass(frozen=True, slots=True)
class Place:
    """The number of a tile among the ``count`` tiles of a block of channels in one image."""

    number: Scalar
    count: int

    def after(self, code: Code, tiles: Scalar) -> Place:
        """The place of the tile that is ``tiles`` later."""
        return replace(self, number=code.add(self.number, tiles))


@dataclass(frozen=True, slots=True)
class Weights:
    """The address of the weights that are read, and of those that are prefetched: none, or one ``share``-th of those of
    the next block, so that as many tiles prefetch all of them. Behind the last block, these are the constants of later
    kernels, which are prefetched as well.
    """

    own: V
    ahead: V | None = None
    share: int = 1

    def moved(self, code: Code, size: Scalar) -> Weights:
        """The addresses when ``size`` bytes have been read."""
        own = code.at(self.own, size)
        if self.ahead is None:
            return Weights(own)
        return Weights(own, code.at(self.ahead, code.quotient(size, self.share)), self.share)

    def prefetch(self, code: Code, size: int) -> None:
        """Prefetch what is to be prefetched while ``size`` bytes are read."""
        if self.ahead is not None:
            for line in range(0, size // self.share, LINE):
                code.prefetch(code.at(self.ahead, line), near=False)


@dataclass(slots=True)
class TileEmitter:
    """Writes the code of one segment."""

    code: Code
    kernel: Contraction
    machine: Machine
    segment: Segment
    pointers: list[V]
    reads: list[V]
    target: V
    place: Scalar
    """The number of the block among those of all segments."""

    def block(self, image: Scalar, number: Scalar, units: tuple[Scalar, Scalar]) -> None:
        """Write all tiles of one image, for one block of channels."""
        code, kernel, tile = self.code, self.kernel, self.segment.tile
        channel = code.add(code.mul(number, self.segment.channels), self.segment.start)
        if kernel.fixed:
            pixels = [(y, x) for y in range(kernel.rows) for x in range(kernel.columns)]
            count = -(-len(pixels) // tile)
            bounds = list(pairwise(len(pixels) * k // count for k in range(count + 1)))
            for part, (first, last) in enumerate(bounds):
                begun, ended = (code.compare("sle", whole(bound), part) for bound in units)
                here = code.binary("and", begun, code.binary("xor", ended, -1))
                tile_ = partial(self.tile, image, channel, 0, 0, pixels[first:last], Place(part, count))
                code.when(here, tile_)
            return
        grids = cover(kernel.rows, kernel.columns, tile)
        if len(grids) > 2 and 1 < tile <= 1 + self.machine.spare and kernel.columns >= (tile - 1) * (tile - 2):
            self.in_order(image, channel, units)
            return
        place = Place(0, sum(grid.tiles for grid in grids))
        for grid in grids:
            self.grid(image, channel, grid, units, place)
            place = place.after(code, grid.tiles)

    def in_order(self, image: Scalar, channel: Scalar, units: tuple[Scalar, Scalar]) -> None:
        """Write tiles that take the pixels of some rows in their order, wherever a row ends: first tiles of the full
        size, then those of one pixel less, which leave no rest.

        That is less code than several grids, for as many tiles. The pixels of a tile lie at distances that differ from
        tile to tile, in registers.
        """
        code, columns, most = self.code, self.kernel.columns, self.segment.tile
        first, end = units
        begin = code.mul(first, columns)
        pixels = code.larger(code.minus(code.mul(end, columns), begin), 0)
        count = code.quotient(code.add(pixels, most - 1), most)
        # With count = ceil(pixels / most), full = pixels - count (most - 1) is 0 or more where there are at least
        # (most - 1) (most - 2) pixels, as a row has.
        full = code.minus(pixels, code.mul(count, most - 1))

        def tiles(size: int, begin: Scalar, number: Scalar) -> None:
            self._tile_from(image, channel, code.add(begin, code.mul(number, size)), size)

        code.each(0, full, partial(tiles, most, begin))
        code.each(0, code.minus(count, full), partial(tiles, most - 1, code.add(begin, code.mul(full, most))))

    def _tile_from(self, image: Scalar, channel: Scalar, first: Scalar, size: int) -> None:
        """Write the tile of ``size`` pixels from pixel ``first`` on, row by row."""
        code, columns, most = self.code, self.kernel.columns, self.segment.tile
        y = code.quotient(first, columns)
        x = code.minus(first, code.mul(y, columns))
        offsets: list[tuple[Scalar, Scalar]] = [(0, 0)]
        for k in range(1, size):
            down = code.quotient(code.add(x, k), columns)
            offsets.append((down, code.minus(k, code.mul(down, columns))))
        place = Place(code.quotient(first, most), -(-self.kernel.rows * columns // most))
        self.tile(image, channel, y, x, offsets, place)

    def grid(self, image: Scalar, channel: Scalar, grid: Grid, units: tuple[Scalar, Scalar], place: Place) -> None:
        """Write the tiles of a grid that begin among the units: rows, or the columns of the only row.

        ``place`` is the place of the first of them.
        """
        code, rows = self.code, self.kernel.rows > 1
        offsets: list[tuple[Scalar, Scalar]] = [(y, x) for y in range(grid.rows) for x in range(grid.columns)]

        def row(line: Scalar) -> None:
            y = code.add(tile_start(code, line, grid.rows, grid.down), grid.y)
            before = code.mul(line, -(-grid.across // grid.columns))

            def column(index: Scalar) -> None:
                x = code.add(tile_start(code, index, grid.columns, grid.across), grid.x)
                self.tile(image, channel, y, x, offsets, place.after(code, code.add(before, index)))

            code.each(*self._tiles(None if rows else units, grid.x, grid.columns, grid.across), column)

        code.each(*self._tiles(units if rows else None, grid.y, grid.rows, grid.down), row)

    def _tiles(self, units: tuple[Scalar, Scalar] | None, before: int, size: int, extent: int) -> tuple[Scalar, Scalar]:
        """The first tile of an extent that begins among the units, and the end of these tiles.

        ``before`` units lie before the extent. Without units, the result is all tiles.
        """
        code, count = self.code, -(-extent // size)
        if units is None:
            return 0, count
        first, end = (
            code.smaller(code.quotient(code.add(code.larger(code.minus(bound, before), 0), size - 1), size), count)
            for bound in units
        )
        return first, end

    def tile(
        self,
        image: Scalar,
        channel: Scalar,
        y: Scalar,
        x: Scalar,
        offsets: Sequence[tuple[Scalar, Scalar]],
        place: Place,
    ) -> None:
        """Write one tile: the pixels at (y, x) + offsets."""
        code, kernel, block = self.code, self.kernel, self.segment.block
        size = kernel.input.bytes
        source = self.pointers[0]
        strides = (kernel.source.image, kernel.source.row, kernel.source.column)
        for index, stride in zip((image, y, x), strides, strict=True):
            source = code.at(source, code.mul(index, stride * size))
        kind = vector(32, block.lane)
        first = starting(code, self.pointers, channel, block) * len(offsets)
        last_shift = max((number for number, shift in enumerate(kernel.shifts) if shift), default=0)
        sums = first if last_shift == 0 else [typed(kind, 0)] * len(first)
        pixels = [_distance(code, kernel.source, offset, size) for offset in offsets]
        pass_bytes = kernel.step_bytes * kernel.step_words // len(kernel.shifts) * self.segment.channels
        for number, shift in enumerate(kernel.shifts):
            if shift:
                sums = [code.binary("shl", total, shift) for total in sums]
                if number == last_shift:
                    sums = [code.binary("add", total, begin) for total, begin in zip(sums, first, strict=True)]
            if kernel.listed:
                sums = self.listed(number, source, sums, pixels, place)
            else:
                weights = self.weights_at(channel, place).moved(code, number * pass_bytes)
                sums = self.taps(0, source, weights, sums, pixels)
        self.finish(sums, image, channel, y, x, offsets)

    def taps(self, depth: int, source: V, weights: Weights, sums: list[V], pixels: Sequence[Scalar]) -> list[V]:
        """Write the loops over the taps, and inside them the run."""
        code, kernel = self.code, self.kernel
        if depth == len(kernel.taps):
            return self.run(source, weights, sums, pixels)
        count, apart = kernel.taps[depth]
        inner = math.prod(n for n, _ in kernel.taps[depth + 1 :])
        size = inner * kernel.steps * kernel.step_bytes * self.segment.channels

        def body(index: V, values: list[V]) -> Sequence[V]:
            at = code.at(source, code.mul(index, apart * kernel.input.bytes))
            return self.taps(depth + 1, at, weights.moved(code, code.mul(index, size)), values, pixels)

        return code.loop(0, count, 1, body, sums)

    @property
    def unrolled(self) -> int:
        """The number of steps of a run that are written one after the other."""
        steps, most = self.kernel.steps, self.machine.unrolls
        return steps if steps <= most else next(n for n in (4, 3, 2, 1) if n <= most and steps % n == 0)

    @property
    def far(self) -> bool:
        """Whether there are so many weights that those of the next block are prefetched."""
        kernel = self.kernel
        return kernel.blocks * kernel.step_words * kernel.step_bytes * self.segment.channels >= FAR

    def weights_at(self, channel: Scalar, place: Place) -> Weights:
        """The weights that the block at a channel reads, and those of the next block that a tile of it prefetches."""
        code, kernel, channels = self.code, self.kernel, self.segment.channels
        own = code.at(self.pointers[1], code.mul(channel, kernel.step_bytes * kernel.step_words))
        return self.sharing(own, kernel.step_bytes * kernel.step_words * channels, place)

    def sharing(self, own: V, size: int, place: Place) -> Weights:
        """Weights of ``size`` bytes that the tiles of a place read in turn. Each prefetches a part of those behind
        them.
        """
        code, kernel, channels = self.code, self.kernel, self.segment.channels
        # A tile prefetches at least one line in each round of its loop, or the loop would have to count rounds.
        most = min(place.count, self.unrolled * kernel.step_bytes * channels // LINE)
        if not self.far or most < 2 or kernel.steps == self.unrolled or self.machine.unrolls == 1:
            return Weights(own)
        share = 1 << most.bit_length() - 1
        part = code.mul(code.smaller(place.number, share - 1), size // share)
        return Weights(own, code.at(code.at(own, size), part), share)

    def run(self, source: V, weights: Weights, sums: list[V], pixels: Sequence[Scalar]) -> list[V]:
        """Write the products of one run; a few steps are unrolled."""
        code, kernel, unrolled = self.code, self.kernel, self.unrolled
        step = kernel.step_bytes * self.segment.channels
        move = kernel.per * kernel.input.bytes
        if kernel.steps == unrolled:
            return self.products(unrolled, source, weights.own, sums, pixels)

        def body(index: V, values: list[V]) -> Sequence[V]:
            packed = weights.moved(code, code.mul(index, step))
            packed.prefetch(code, unrolled * step)
            return self.products(unrolled, code.at(source, code.mul(index, move)), packed.own, values, pixels)

        return code.loop(0, kernel.steps, unrolled, body, sums)

    def listed(self, number: int, source: V, sums: list[V], pixels: Sequence[Scalar], place: Place) -> list[V]:
        """Write the products of the steps that the list of pass ``number`` has: two at a time, then one at a time."""
        code, constant, size = self.code, self.pointers[1], 4 * self.segment.channels

        def numbers(at: V, count: int) -> list[V]:
            return [code.cast("sext", code.load("i32", code.at(at, 4 * k)), 64) for k in range(count)]

        at = code.mul(code.add(code.mul(self.place, len(self.kernel.shifts)), number), 16)
        first, packed, pairs, alone = numbers(code.at(constant, at), 4)
        steps = code.at(constant, first)
        weights = self.prefetched(code.at(constant, packed), code.add(code.mul(pairs, 2), alone), place)
        ones = self.machine.ones(code, self.segment.block.lane)

        def pair(index: V, values: list[V]) -> Sequence[V]:
            own = weights.moved(code, code.mul(index, 2 * size))
            own.prefetch(code, 2 * size)
            one, other = (code.at(source, step) for step in numbers(code.at(steps, code.mul(index, 8)), 2))
            return self.two_steps(one, other, own.own, ones, values, pixels)

        sums = code.loop(0, pairs, 1, pair, sums)
        rest, more = code.at(steps, code.mul(pairs, 8)), code.at(weights.own, code.mul(pairs, 2 * size))

        def single(index: V, values: list[V]) -> Sequence[V]:
            (one,) = numbers(code.at(rest, code.mul(index, 4)), 1)
            return self.products(1, code.at(source, one), code.at(more, code.mul(index, size)), values, pixels)

        return code.loop(0, alone, 1, single, sums)

    def prefetched(self, own: V, steps: Scalar, place: Place) -> Weights:
        """The weights of a list of so many steps at ``own``. A tile prefetches half of those behind them."""
        code, size = self.code, 4 * self.segment.channels
        if not self.far or place.count < 2 or size < LINE:
            return Weights(own)
        block = code.mul(steps, size)
        part = code.binary("mul", whole(code.smaller(place.number, 1)), whole(code.quotient(block, 2)))
        return Weights(own, code.at(code.at(own, block), part), 2)

    def two_steps(self, one: V, other: V, weights: V, ones: V, sums: Sequence[V], pixels: Sequence[Scalar]) -> list[V]:
        """Write the products of two steps, whose sums 16 bits hold. Weights that more than one pixel is multiplied by
        are loaded once, as far as registers are left.
        """
        code, lane, vectors = self.code, self.segment.block.lane, self.segment.block.vectors
        current = list(sums)
        packed = [code.at(weights, 4 * lane * number) for number in range(2 * vectors)]
        if len(pixels) > 1:
            left = max(0, self.machine.registers - len(sums) - PRODUCTS)
            packed[:left] = [code.load(vector(32, lane), at) for at in packed[:left]]
        for number, pixel in enumerate(pixels):
            words = [code.splat(code.load("i32", code.at(at, pixel)), lane) for at in (one, other)]
            own = slice(number * vectors, (number + 1) * vectors)
            current[own] = self.machine.two_dots(code, current[own], words, packed, ones)
        return current

    def products(self, count: int, at: V, packed: V, sums: Sequence[V], pixels: Sequence[Scalar]) -> list[V]:
        """Write the products of ``count`` steps, one after the other."""
        code, kernel, vectors = self.code, self.kernel, self.segment.block.vectors
        step = kernel.step_bytes * self.segment.channels
        move = kernel.per * kernel.input.bytes
        together = 4 if self.machine.by_element and kernel.per == 4 and count % 4 == 0 else 1
        current = list(sums)
        for first in range(0, count, together):
            rows = [[self.weights(packed, k * step, v) for v in range(vectors)] for k in range(first, first + together)]
            for number, pixel in enumerate(pixels):
                words = self.words(code.at(at, code.add(pixel, first * move)), together)
                for word, row in zip(words, rows, strict=True):
                    for v in range(vectors):
                        slot = number * vectors + v
                        current[slot] = self.dot(current[slot], word, row[v])
        return current

    def weights(self, packed: V, step: int, number: int) -> V:
        """Load the weights of one vector of channels at a step; bytes become 16-bit integers."""
        code, lane, size = self.code, self.segment.block.lane, self.kernel.step_bytes
        at = code.at(packed, step + size * lane * number)
        if not self.kernel.widened:
            return code.load(vector(32, lane), at)
        return code.bitcast(code.cast("sext", code.load(vector(8, 2 * lane), at), 16), vector(32, lane))

    def words(self, pointer: V, count: int) -> list[V]:
        """Load ``count`` words of a pixel, and broadcast each to all lanes."""
        code, lane = self.code, self.segment.block.lane
        if self.kernel.per == 1:
            return [code.splat(load(code, self.kernel.input, pointer, 1), lane)]
        read = code.load(vector(32, count), pointer)
        if self.machine.signed_bytes and self.kernel.per == 4:
            read = code.binary("xor", read, HIGHEST_BITS)
        return [code.splat(read, lane)] if count == 1 else [code.shuffle(read, read, [k] * lane) for k in range(count)]

    def dot(self, total: V, word: V, weights: V) -> V:
        """Add the products of the elements of ``word`` and ``weights`` to ``total``."""
        return self.machine.tile_dot(self.kernel.per)(self.code, total, word, weights)

    def finish(
        self,
        sums: list[V],
        image: Scalar,
        channel: Scalar,
        y: Scalar,
        x: Scalar,
        offsets: Sequence[tuple[Scalar, Scalar]],
    ) -> None:
        """Write the epilogue of every pixel of a tile."""
        code, kernel, block = self.code, self.kernel, self.segment.block
        epilogue = Epilogue(
            code, kernel.formula, kernel.reads, kernel.output, block, self.reads, channel, self.machine, kernel.joint
        )
        every = epilogue.addresses(image, y, x, self.target)
        lines = [line for pixels, _, _ in every if (line := _line(offsets, pixels)) is not None]
        if len(offsets) <= UNROLLED or kernel.step_words <= SHORT or len(lines) < len(every):
            for number, offset in enumerate(offsets):
                addresses = [code.at(base, _distance(code, pixels, offset, size)) for pixels, size, base in every]
                epilogue.pixels([sums[number * block.vectors : (number + 1) * block.vectors]], [addresses])
            return
        kind = vector(32, block.lane)
        room = code.alloca(kind, len(sums))
        for number, total in enumerate(sums):
            code.store(total, code.at(room, number * 4 * block.lane), 4 * block.lane)

        steps = [
            (code.at(base, first * size), step * size)
            for (_, size, base), (first, step) in zip(every, lines, strict=True)
        ]
        epilogue.line(room, len(offsets), steps)


def _distance(code: Code, pixels: Pixels, offset: tuple[Scalar, Scalar], size: int) -> Scalar:
    """The distance in bytes of a pixel at ``offset`` (rows, columns) from the first one."""
    row, column = offset
    return code.add(code.mul(row, pixels.row * size), code.mul(column, pixels.column * size))


def _line(offsets: Sequence[tuple[Scalar, Scalar]], pixels: Pixels) -> tuple[int, int] | None:
    """(offset of the first pixel, distance from one pixel to the next), in elements; None if the distances differ, or
    are not known yet.
    """
    distances = [y * pixels.row + x * pixels.column for y, x in offsets if isinstance(y, int) and isinstance(x, int)]
    if len(distances) < len(offsets):
        return None
    apart = {b - a for a, b in pairwise(distances)}
    return (distances[0], apart.pop() if apart else 0) if len(apart) <= 1 else None
