"""Winograd's convolution: elements transformed for every square, products at every position, and results of squares.

The first kernel makes 36 16-bit integers of the 6x6 bytes that a square reads in an input channel. The second one
multiplies them by transformed weights, 36 times a product of matrices: squares by input channels, times input channels
by output channels. It keeps the sums of a few squares and of one block of output channels on the stack, turns them into
the 16 results of each square, and ends as other contractions do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cvm.executors.native.descriptions.sums import Segment
from cvm.executors.native.descriptions.winograd import POSITIONS, SHIFTS, SIDE, SQUARE, Squares, Winograd, WinogradInput
from cvm.executors.native.emit.contraction import Place, TileEmitter, each_block, parameters, tile_start
from cvm.executors.native.emit.epilogue import Epilogue
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector, whole
from cvm.executors.native.emit.machine import Machine

__all__ = ["emit_winograd", "emit_winograd_input"]

NINTH = pow(9, -1, 2**32) - 2**32 * (pow(9, -1, 2**32) >> 31)
"""The inverse of 9 modulo 2^32, as an int32."""


def emit_winograd_input(module: Module, name: str, kernel: WinogradInput, machine: Machine) -> None:
    """Write the function (input, output, first unit, end of units)."""
    source, target, lo, hi = V("ptr", "%input"), V("ptr", "%output"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])
    squares, strides = kernel.squares, kernel.source
    lane = next(n for n in (2 * machine.width, 16, 8, 4, 2) if squares.channels % n == 0)

    def square(unit: Scalar) -> None:
        image, y, x = _place(code, squares, unit)
        read = source
        for index, stride in ((image, strides.image), (y, strides.row), (x, strides.column)):
            read = code.at(read, code.mul(index, stride))
        write = code.at(target, code.mul(unit, 2 * squares.channels))

        def channels(channel: Scalar) -> None:
            at, to = code.at(read, channel), code.at(write, code.mul(channel, 2))

            def element(i: int, j: int) -> V:
                raw = code.load(vector(8, lane), code.at(at, i * strides.row + j * strides.column))
                return code.cast("zext", raw, 16)

            for i, values in enumerate(_both(element, SIDE, lambda line: _transformed(code, line))):
                for j, value in enumerate(values):
                    code.store(value, code.at(to, 2 * squares.apart * (i * SIDE + j)))

        code.each(0, squares.channels, channels, step=lane)

    code.each(lo, hi, square)
    code.finish()


def emit_winograd(module: Module, name: str, kernel: Winograd, machine: Machine) -> None:
    """Write the function (transformed input, transformed weights, [start of sums,] reads.., output, first unit, end of
    units).
    """
    products, squares = kernel.products, kernel.squares
    pointers, reads, target, (lo, hi) = parameters(products)
    code = Code(module, name, [*pointers, *reads, target, lo, hi])
    blocks, tiles = products.blocks, kernel.tiles
    widest = 4 * max(one.channels for one in products.segments)
    rooms = tuple(code.alloca("i8", count * widest) for count in (POSITIONS * kernel.together, SQUARE**2))

    def group(number: Scalar) -> None:
        touched = code.quotient(lo, tiles), code.quotient(code.add(hi, tiles - 1), tiles)
        bounds = tuple(whole(code.minus(bound, code.mul(number, blocks))) for bound in touched)

        def block(segment: Segment, place: Scalar) -> None:
            before = code.add(place, sum(one.count for one in products.segments if one.start < segment.start))
            unit = code.mul(code.add(code.mul(number, blocks), before), tiles)
            first, last = code.larger(code.minus(lo, unit), 0), code.smaller(code.minus(hi, unit), tiles)
            begin, end = (
                code.smaller(code.add(code.mul(number, kernel.together), code.mul(tile, segment.tile)), squares.count)
                for tile in (first, last)
            )
            channel = code.add(code.mul(place, segment.channels), segment.start)
            emitter = TileEmitter(code, products, machine, segment, pointers, reads, target, before)
            _block(emitter, kernel, channel, (begin, end), rooms)

        each_block(code, products.segments, bounds, block)

    every = blocks * tiles
    code.each(code.quotient(lo, every), code.quotient(code.add(hi, every - 1), every), group)
    code.finish()


def _block(
    emitter: TileEmitter, kernel: Winograd, channel: Scalar, bounds: tuple[Scalar, Scalar], rooms: tuple[V, ...]
) -> None:
    """Write the squares within two bounds for the block of output channels that begins at ``channel``.

    ``rooms`` is memory for the sums of all squares of a group, and for the results of one square.
    """
    code, products, segment, (begin, end), (room, results) = (
        emitter.code,
        kernel.products,
        emitter.segment,
        bounds,
        rooms,
    )
    squares, tile, vectors, lane = kernel.squares, segment.tile, segment.block.vectors, segment.block.lane
    kind, size = vector(32, lane), 4 * lane
    apart = kernel.together * vectors * size
    pixels = [2 * squares.channels * number for number in range(tile)]
    position_bytes = products.step_bytes * products.steps * segment.channels
    source = code.at(emitter.pointers[0], code.mul(begin, 2 * squares.channels))
    packed = code.at(emitter.pointers[1], code.mul(channel, products.step_bytes * products.step_words))
    count = code.quotient(code.add(code.minus(end, begin), tile - 1), tile)

    def position(which: Scalar) -> None:
        at, own, to = (
            code.at(base, code.mul(which, step))
            for base, step in ((source, 2 * squares.apart), (packed, position_bytes), (room, apart))
        )

        def products_of(number: Scalar) -> None:
            weights = emitter.sharing(own, position_bytes, Place(number, kernel.tiles))
            elements = code.at(at, code.mul(number, 2 * squares.channels * tile))
            sums = emitter.run(elements, weights, [typed(kind, 0)] * (tile * vectors), pixels)
            first = code.at(to, code.mul(number, tile * vectors * size))
            for slot, total in enumerate(sums):
                code.store(total, code.at(first, slot * size), size)

        code.each(0, count, products_of)

    def square(which: Scalar) -> None:
        sums = code.at(room, code.mul(code.minus(which, begin), vectors * size))
        _results(emitter, sums, apart, results, channel)
        _finish(emitter, squares, results, channel, which)

    code.each(0, POSITIONS, position)
    code.each(begin, end, square)


def _results(emitter: TileEmitter, sums: V, apart: int, results: V, channel: Scalar) -> None:
    """Write the 16 results of one square: pixel by pixel and vector by vector.

    ``sums`` is the address of the sums at the first position, ``apart`` the distance to the next one.
    """
    code, vectors, lane = emitter.code, emitter.segment.block.vectors, emitter.segment.block.lane
    kind, size = vector(32, lane), 4 * lane

    def one(number: Scalar) -> None:
        at, to = (code.at(base, code.mul(number, size)) for base in (sums, results))
        start = None
        if emitter.kernel.starts:
            begin = code.at(emitter.pointers[2], code.mul(code.add(channel, code.mul(number, lane)), 4))
            start = code.load(kind, begin)

        def element(i: int, j: int) -> V:
            return code.load(kind, code.at(at, apart * (i * SIDE + j)), size)

        for i, values in enumerate(_both(element, SIDE, lambda line: _summed(code, line))):
            for j, value in enumerate(values):
                value = code.binary("ashr", code.binary("mul", value, NINTH), SHIFTS[i] + SHIFTS[j])
                if start is not None:
                    value = code.binary("add", value, start)
                code.store(value, code.at(to, vectors * size * (i * SQUARE + j)), size)

    code.each(0, vectors, one)


def _finish(emitter: TileEmitter, squares: Squares, results: V, channel: Scalar, which: Scalar) -> None:
    """Write the codes of one square, but not those of rows and columns that the square before it has computed."""
    code, kernel, block = emitter.code, emitter.kernel, emitter.segment.block
    image, y, x = _place(code, squares, which)
    above, before = _computed(code, y, squares.rows), _computed(code, x, squares.columns)
    epilogue = Epilogue(
        code, kernel.formula, kernel.reads, kernel.output, block, emitter.reads, channel, emitter.machine, kernel.joint
    )
    every = epilogue.addresses(image, y, x, emitter.target)
    size = 4 * block.lane * block.vectors

    def line(number: Scalar) -> None:
        room = code.at(results, code.mul(code.add(code.mul(number, SQUARE), before), size))
        steps = []
        for pixels, bytes_, base in every:
            at = code.at(base, code.mul(number, pixels.row * bytes_))
            steps.append((code.at(at, code.mul(before, pixels.column * bytes_)), pixels.column * bytes_))
        epilogue.line(room, code.minus(SQUARE, before), steps)

    code.each(above, SQUARE, line)


def _place(code: Code, squares: Squares, number: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The image of a square, and the row and the column of its first result."""
    row, across = _divided(code, number, squares.across, squares.images * squares.down)
    image, down = _divided(code, row, squares.down, squares.images)
    return image, tile_start(code, down, SQUARE, squares.rows), tile_start(code, across, SQUARE, squares.columns)


def _divided(code: Code, number: Scalar, size: int, count: int) -> tuple[Scalar, Scalar]:
    """Quotient and remainder of a number below ``count`` * ``size``."""
    if count == 1:
        return 0, number
    quotient = code.quotient(number, size)
    return quotient, code.minus(number, code.mul(quotient, size))


def _computed(code: Code, start: Scalar, extent: int) -> Scalar:
    """How many rows or columns of a square that begins at ``start`` the square before it has computed."""
    if extent % SQUARE == 0:
        return 0
    return code.minus(code.mul(code.quotient(code.add(start, SQUARE - 1), SQUARE), SQUARE), start)


def _both(element: Callable[[int, int], V], side: int, change: Callable[[Sequence[V]], list[V]]) -> list[list[V]]:
    """Apply a transformation to the columns of a square, then to the rows of what that gives."""
    columns = [change([element(i, j) for i in range(side)]) for j in range(side)]
    return [change(row) for row in zip(*columns, strict=True)]


def _operations(code: Code) -> tuple[Callable[[V, Scalar], V], ...]:
    """A + b, a - b, and a times a power of two."""
    return partial(code.binary, "add"), partial(code.binary, "sub"), partial(code.binary, "shl")


def _transformed(code: Code, d: Sequence[V]) -> list[V]:
    """INPUT times six elements."""
    plus, minus, shifted = _operations(code)
    even, odd = minus(d[4], shifted(d[2], 2)), minus(d[3], shifted(d[1], 2))
    apart, twice = minus(d[4], d[2]), shifted(minus(d[3], d[1]), 1)
    return [
        plus(shifted(minus(d[0], d[2]), 2), apart),
        plus(even, odd),
        minus(even, odd),
        plus(apart, twice),
        minus(apart, twice),
        minus(minus(d[5], d[3]), shifted(twice, 1)),
    ]


def _summed(code: Code, m: Sequence[V]) -> list[V]:
    """OUTPUT times the sums at six positions."""
    plus, minus, shifted = _operations(code)
    near, difference = plus(m[1], m[2]), minus(m[2], m[1])
    far, other = plus(m[3], m[4]), minus(m[3], m[4])
    return [
        minus(plus(m[0], far), shifted(near, 2)),
        plus(shifted(difference, 1), other),
        minus(far, near),
        plus(plus(difference, m[5]), shifted(other, 1)),
    ]
