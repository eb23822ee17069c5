"""Convolutions and matrix products: register tiles of dot products over constant, packed weights.

A contraction computes, for every pixel and output channel, the sum over runs of elements that lie side by side in the
input. A tile is a few pixels times a few vectors of output channels: for every step of a run it broadcasts one 32-bit
word of each pixel (4, 2 or 1 elements) and multiplies it with packed weights. The accumulators begin with the bias and
with what the input's format adds (stored = value + b, so -b * sum of weights), and end in the formula of the ops that
follow, so that only final codes are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvm.executors.native.formats import Format
from cvm.executors.native.formula import Formula, evaluate
from cvm.executors.native.ir import Code, Module, Scalar, V, lanes, typed, vector
from cvm.executors.native.machine import Machine, multiply_add

__all__ = ["Contraction", "Pixels", "Read", "emit_contraction"]

Integers = npt.NDArray[np.int64]
UNROLLED = 2
"""Pixels up to which the ops after the sums are written out for each; more of them share the code through the stack."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """Elements that a tensor moves by per image, row, column and channel of the output."""

    image: int
    row: int
    column: int
    channel: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor that the formula reads besides the sums: per channel in packed order (``pixels`` None), or anywhere."""

    format: Format
    pixels: Pixels | None


@dataclass(frozen=True, slots=True)
class Contraction:
    """One kernel.

    ``images``, ``rows`` and ``columns`` are the output's; ``taps`` the loops (count, elements apart) around a run of
    ``run`` elements; ``lane`` the number of 32-bit lanes, ``vectors`` those of one block of channels. ``shifts``: one
    pass over all taps each; before the pass the sums are shifted left by so many bits.
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
    output: Format
    target: Pixels
    reads: tuple[Read, ...]
    formula: Formula
    lane: int
    vectors: int
    tile: int

    @property
    def block(self) -> int:
        """Output channels of one block."""
        return self.lane * self.vectors

    @property
    def blocks(self) -> int:
        """Blocks of output channels."""
        return -(-self.channels // self.block)

    @property
    def steps(self) -> int:
        """Steps of one run."""
        return -(-self.run // self.per)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one tile of pixels; the last ones overlap their neighbours."""
        best = (1, 1)
        cost = float("inf")
        for rows in range(1, min(self.tile, self.rows) + 1):
            columns = min(self.tile // rows, self.columns)
            columns = -(-self.columns // -(-self.columns // columns))
            tiles = -(-self.rows // rows) * -(-self.columns // columns)
            found = tiles * (rows * columns + 1.5)
            if found < cost:
                best, cost = (rows, columns), found
        return best

    @property
    def fixed(self) -> bool:
        """Whether all tiles of an image are written out, each with its own pixels."""
        return self.rows > 1 and self.rows * self.columns <= 4 * self.tile and self.rows * self.columns > 1

    @property
    def by_rows(self) -> bool:
        """Whether threads share the rows of tiles, else the blocks of channels."""
        return not self.fixed and -(-self.rows // self.shape[0]) >= max(8, self.blocks)

    @property
    def by_columns(self) -> bool:
        """Whether a single row of tiles is shared along its columns."""
        return self.rows == 1 and -(-self.columns // self.shape[1]) >= max(8, self.blocks)

    @property
    def units(self) -> int:
        """Parts that may run at the same time."""
        if self.by_columns:
            return -(-self.columns // self.shape[1])
        return -(-self.rows // self.shape[0]) if self.by_rows else self.blocks


@dataclass(slots=True)
class _Tile:
    """What one tile shares: vectors of channel parameters are loaded once."""

    code: Code
    kernel: Contraction
    reads: list[V]
    channel: Scalar
    parameters: dict[tuple[int, int, int], V] = field(default_factory=dict)

    def parameter(self, number: int, vector_: int, part: int, type_: str) -> V:
        """The ``part``-th piece of a packed parameter for one vector of channels."""
        key = (number, vector_, part)
        if key not in self.parameters:
            read = self.kernel.reads[number - 1]
            size = read.format.bytes
            base = self.code.at(self.reads[number - 1], self.code.mul(self.channel, size))
            offset = (vector_ * self.kernel.lane + part * self.kernel.lane // 2) * size
            self.parameters[key] = self.code.load(type_, self.code.at(base, offset))
        return self.parameters[key]


@dataclass(slots=True)
class _Sum:
    """One vector of finished sums, as a `Reader`: value 0 is the sum itself."""

    tile: _Tile
    total: V
    vector: int
    count: int
    place_of: Callable[[int], V]

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        if number == 0:
            return self.total
        read, kernel = self.tile.kernel.reads[number - 1], self.tile.kernel
        code = self.tile.code
        if read.pixels is None:
            raw = self.tile.parameter(number, self.vector, 0, vector(read.format.bits, kernel.lane))
            return read.format.decoded(code, raw)
        address, apart = self.places(number)
        if apart == 0:
            return read.format.load(code, address, 1)
        if apart == read.format.bytes and self.count == kernel.lane:
            return read.format.load(code, address, kernel.lane)
        kind = vector(read.format.bits, 1)
        raw_lanes = [code.load(kind, code.at(address, lane * apart)) for lane in range(self.count)]
        raw_lanes += [raw_lanes[0]] * (kernel.lane - self.count)
        return read.format.decoded(code, code.gathered(raw_lanes))

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`."""
        read, kernel = self.tile.kernel.reads[number - 1], self.tile.kernel
        if read.pixels is None:
            type_ = vector(64, kernel.lane // 2)
            return tuple(self.tile.parameter(number, self.vector, part, type_) for part in (0, 1))  # type: ignore[return-value]
        value = self.value(number)
        code = self.tile.code
        if lanes(value.type) == 1:
            half = code.splat(value, kernel.lane // 2)
            return half, half
        even = code.shuffle(value, value, range(0, kernel.lane, 2))
        return even, code.shuffle(value, value, range(1, kernel.lane, 2))

    def places(self, number: int) -> tuple[V, int]:
        """See `Reader.places`."""
        read = self.tile.kernel.reads[number - 1]
        assert read.pixels is not None
        base = self.place_of(number)
        offset = self.vector * self.tile.kernel.lane * read.pixels.channel * read.format.bytes
        return self.tile.code.at(base, offset), read.pixels.channel * read.format.bytes


def emit_contraction(module: Module, name: str, kernel: Contraction, machine: Machine) -> None:
    """The function of a contraction: (input, weights, start of sums, reads.., output, first unit, end of units)."""
    pointers = [V("ptr", f"%{what}") for what in ("input", "weights", "start")]
    reads = [V("ptr", f"%r{number}") for number in range(len(kernel.reads))]
    target = V("ptr", "%output")
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, *reads, target, lo, hi])
    emitter = _Emitter(code, kernel, machine, pointers, reads, target)

    def image(index: Scalar) -> None:
        whole, rest = divmod(kernel.channels, kernel.block)
        shared = kernel.by_rows or kernel.by_columns

        def block(number: Scalar, valid: int) -> None:
            emitter.block(index, number, valid, (lo, hi))

        def each(number: V, _: list[V]) -> list[V]:
            block(number, kernel.block)
            return []

        if shared:
            code.loop(0, whole, 1, each)
            if rest:
                block(whole, rest)
            return
        end = code.intrinsic("smin", hi, whole)
        code.loop(lo, end, 1, each)
        if rest:
            code.when(code.compare("sgt", hi, whole), lambda: block(whole, rest))

    def each_image(index: V, _: list[V]) -> list[V]:
        image(index)
        return []

    if kernel.images == 1:
        image(0)
    else:
        code.loop(0, kernel.images, 1, each_image)
    code.finish()


@dataclass(slots=True)
class _Emitter:
    code: Code
    kernel: Contraction
    machine: Machine
    pointers: list[V]
    reads: list[V]
    target: V

    def block(self, image: Scalar, number: Scalar, valid: int, units: tuple[Scalar, Scalar]) -> None:
        """All tiles of one image for one block of channels, of which ``valid`` exist."""
        code, kernel = self.code, self.kernel
        rows, columns = kernel.shape
        if kernel.fixed:
            places = [(y, x) for y in range(kernel.rows) for x in range(kernel.columns)]
            count = -(-len(places) // kernel.tile)
            cuts = [len(places) * k // count for k in range(count + 1)]
            for first, last in pairwise(cuts):
                self.tile(image, number, valid, 0, 0, places[first:last])
            return
        offsets = [(y, x) for y in range(rows) for x in range(columns)]
        down, across = -(-kernel.rows // rows), -(-kernel.columns // columns)

        def along(y: Scalar, bounds: tuple[Scalar, Scalar]) -> None:
            def one(index: V, _: list[V]) -> list[V]:
                x = _start(code, index, columns, kernel.columns)
                self.tile(image, number, valid, y, x, offsets)
                return []

            if across == 1:
                self.tile(image, number, valid, y, 0, offsets)
            else:
                code.loop(*bounds, 1, one)

        def row(index: V, _: list[V]) -> list[V]:
            along(_start(code, index, rows, kernel.rows), (0, across))
            return []

        if kernel.by_columns:
            along(0, units)
        elif down == 1:
            along(0, (0, across))
        else:
            code.loop(*(units if kernel.by_rows else (0, down)), 1, row)

    def tile(
        self, image: Scalar, block: Scalar, valid: int, y: Scalar, x: Scalar, offsets: list[tuple[int, int]]
    ) -> None:
        """The pixels at (y, x) + offsets."""
        code, kernel = self.code, self.kernel
        vectors = -(-valid // kernel.lane)
        channel = code.mul(block, kernel.block)
        size = kernel.input.bytes
        source = self.place(self.pointers[0], kernel.source, size, image, y, x)
        taps = int(np.prod([count for count, _ in kernel.taps], dtype=np.int64))
        step_bytes = 4 * kernel.lane * kernel.vectors
        block_bytes = len(kernel.shifts) * taps * kernel.steps * step_bytes
        weights = code.at(self.pointers[1], code.mul(block, block_bytes))
        start = code.at(self.pointers[2], code.mul(channel, 4))
        kind = vector(32, kernel.lane)
        first = [code.load(kind, code.at(start, 4 * kernel.lane * v)) for v in range(vectors)]
        first = [first[v] for _ in offsets for v in range(vectors)]
        last_shift = max((place for place, shift in enumerate(kernel.shifts) if shift), default=0)
        sums = first if last_shift == 0 else [typed(kind, 0)] * len(first)
        pixels = [(row * kernel.source.row + column * kernel.source.column) * size for row, column in offsets]
        for number, shift in enumerate(kernel.shifts):
            if shift:
                sums = [code.binary("shl", total, shift) for total in sums]
                if number == last_shift:
                    sums = [code.binary("add", total, begin) for total, begin in zip(sums, first, strict=True)]
            at = code.at(weights, number * taps * kernel.steps * step_bytes)
            sums = self.taps(0, source, at, sums, pixels, vectors)
        self.finish(sums, image, channel, valid, y, x, offsets)

    def taps(self, depth: int, source: V, weights: V, sums: list[V], pixels: list[int], vectors: int) -> list[V]:
        """The loops over the taps, then the run."""
        code, kernel = self.code, self.kernel
        if depth == len(kernel.taps):
            return self.run(source, weights, sums, pixels, vectors)
        count, apart = kernel.taps[depth]
        inner = int(np.prod([n for n, _ in kernel.taps[depth + 1 :]], dtype=np.int64))
        size = inner * kernel.steps * 4 * kernel.lane * kernel.vectors
        if count == 1:
            return self.taps(depth + 1, source, weights, sums, pixels, vectors)

        def body(index: V, values: list[V]) -> Sequence[V]:
            at = code.at(source, code.mul(index, apart * kernel.input.bytes))
            return self.taps(depth + 1, at, code.at(weights, code.mul(index, size)), values, pixels, vectors)

        return code.loop(0, count, 1, body, sums)

    def run(self, source: V, weights: V, sums: list[V], pixels: list[int], vectors: int) -> list[V]:
        """One run, unrolled a little."""
        code, kernel = self.code, self.kernel
        step = 4 * kernel.lane * kernel.vectors
        unrolled = kernel.steps if kernel.steps <= 8 else next(n for n in (4, 3, 2, 1) if kernel.steps % n == 0)
        move = kernel.per * kernel.input.bytes

        def some(at: V, packed: V, values: Sequence[V]) -> list[V]:
            current = list(values)
            for k in range(unrolled):
                row = [self.weights(code.at(packed, k * step + 4 * kernel.lane * v)) for v in range(vectors)]
                for number, pixel in enumerate(pixels):
                    word = self.word(code.at(at, pixel + k * move))
                    for v in range(vectors):
                        place = number * vectors + v
                        current[place] = self.dot(current[place], word, row[v])
            return current

        if kernel.steps == unrolled:
            return some(source, weights, sums)

        def body(index: V, values: list[V]) -> Sequence[V]:
            return some(code.at(source, code.mul(index, move)), code.at(weights, code.mul(index, step)), values)

        return code.loop(0, kernel.steps, unrolled, body, sums)

    def weights(self, pointer: V) -> V:
        return self.code.load(vector(32, self.kernel.lane), pointer)

    def word(self, pointer: V) -> V:
        """One word of a pixel in all lanes."""
        if self.kernel.per == 1:
            return self.code.splat(self.kernel.input.load(self.code, pointer, 1), self.kernel.lane)
        return self.code.splat(self.code.load("i32", pointer), self.kernel.lane)

    def dot(self, total: V, word: V, weights: V) -> V:
        dot = {4: self.machine.dot4, 2: self.machine.dot2, 1: multiply_add}[self.kernel.per]
        return dot(self.code, total, word, weights)

    def finish(
        self,
        sums: list[V],
        image: Scalar,
        channel: Scalar,
        valid: int,
        y: Scalar,
        x: Scalar,
        offsets: list[tuple[int, int]],
    ) -> None:
        """The formula on every vector of sums, and its codes stored."""
        code, kernel = self.code, self.kernel
        vectors = -(-valid // kernel.lane)
        tile = _Tile(code, kernel, self.reads, channel)
        target = self.place(self.target, kernel.target, kernel.output.bytes, image, y, x)
        target = code.at(target, code.mul(channel, kernel.target.channel * kernel.output.bytes))
        bases: dict[int, V] = {}
        every = [(kernel.target, kernel.output.bytes, target)]
        for number, read in enumerate(kernel.reads, 1):
            if read.pixels is not None:
                size = read.format.bytes
                base = self.place(self.reads[number - 1], read.pixels, size, image, y, x)
                bases[number] = code.at(base, code.mul(channel, read.pixels.channel * size))
                every.append((read.pixels, size, bases[number]))

        def pixel(totals: Sequence[V], at: V, read_at: Callable[[int], V]) -> None:
            for v in range(vectors):
                count = min(kernel.lane, valid - v * kernel.lane)
                value = evaluate(code, kernel.formula, _Sum(tile, totals[v], v, count, read_at), kernel.lane)
                self.store(value, code.at(at, v * kernel.lane * kernel.target.channel * kernel.output.bytes), count)

        lines = [line for pixels, _, _ in every if (line := _line(offsets, pixels)) is not None]
        if len(offsets) <= UNROLLED or len(lines) < len(every):
            for number, (row, column) in enumerate(offsets):
                moved = [
                    code.at(base, (row * pixels.row + column * pixels.column) * size) for pixels, size, base in every
                ]
                after = dict(zip(bases, moved[1:], strict=True))
                pixel(sums[number * vectors : (number + 1) * vectors], moved[0], after.__getitem__)
            return
        kind = vector(32, kernel.lane)
        room = code.alloca(kind, len(sums))
        for number, total in enumerate(sums):
            code.store(total, code.at(room, number * 4 * kernel.lane), 64)

        def each(index: V, _: list[V]) -> list[V]:
            at = code.at(room, code.mul(index, 4 * kernel.lane * vectors))
            totals = [code.load(kind, code.at(at, 4 * kernel.lane * v), 64) for v in range(vectors)]
            moved = [
                code.at(code.at(base, first * size), code.mul(index, step * size))
                for (_, size, base), (first, step) in zip(every, lines, strict=True)
            ]
            after = dict(zip(bases, moved[1:], strict=True))
            tile.parameters.clear()
            pixel(totals, moved[0], after.__getitem__)
            return []

        code.loop(0, len(offsets), 1, each)
        tile.parameters.clear()

    def store(self, value: V, pointer: V, count: int) -> None:
        """The first ``count`` lanes, in pieces of powers of two."""
        code, kernel = self.code, self.kernel
        raw = kernel.output.encoded(code, value)
        if kernel.target.channel != 1:
            apart = kernel.target.channel * kernel.output.bytes
            for lane in range(count):
                code.store(code.extract(raw, lane), code.at(pointer, lane * apart))
            return
        done = 0
        while done < count:
            piece = min(1 << ((count - done).bit_length() - 1), kernel.lane)
            part = raw if piece == kernel.lane else code.shuffle(raw, raw, range(done, done + piece))
            code.store(part, code.at(pointer, done * kernel.output.bytes))
            done += piece

    def place(self, pointer: V, pixels: Pixels, size: int, image: Scalar, y: Scalar, x: Scalar) -> V:
        """The address of a pixel's first channel."""
        code = self.code
        for index, stride in ((image, pixels.image), (y, pixels.row), (x, pixels.column)):
            pointer = code.at(pointer, code.mul(index, stride * size))
        return pointer


def _line(offsets: Sequence[tuple[int, int]], pixels: Pixels) -> tuple[int, int] | None:
    """The first pixel's place and the distance from each to the next, in elements, if it is always the same."""
    places = [y * pixels.row + x * pixels.column for y, x in offsets]
    apart = {b - a for a, b in pairwise(places)}
    return (places[0], apart.pop() if apart else 0) if len(apart) <= 1 else None


def _start(code: Code, index: V, size: int, extent: int) -> Scalar:
    """Where a tile starts: the last one where it still fits."""
    start = code.mul(index, size)
    if extent % size == 0 or isinstance(start, int):
        return start
    return code.intrinsic("smin", start, extent - size)
