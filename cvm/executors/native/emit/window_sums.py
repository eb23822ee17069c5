"""Sums over windows of bytes: one 32-bit number for each pixel of the output.

The bytes of a run are loaded as whole vectors, and a dot product with ones adds up four bytes in each lane. Behind the
end of a run, zeros take the place of ones. The lanes of four pixels are then added up together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.native.descriptions.sums import WindowSums
from cvm.executors.native.emit.contraction import tile_start
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, lanes, typed, vector
from cvm.executors.native.emit.machine import HIGHEST_BITS, Machine
from cvm.executors.native.emit.packs import unpacked

__all__ = ["emit_window_sums"]

UNROLLED = 16
"""The code of windows of at most this many vectors has no loops."""


def emit_window_sums(module: Module, name: str, kernel: WindowSums, machine: Machine) -> None:
    """Write the function (input, factor, output, first unit, end of units)."""
    source, factor, target, lo, hi = (
        V("ptr", "%input"), V("ptr", "%factor"), V("ptr", "%output"), V("i64", "%lo"), V("i64", "%hi"),
    )  # fmt: skip
    code = Code(module, name, [source, factor, target, lo, hi])
    together = kernel.together
    times = code.splat(code.load("i32", factor, 4), together)
    tiles = -(-kernel.columns // together)
    shared: tuple[Scalar, Scalar] = (lo, hi)

    def image(n: Scalar) -> None:
        def row(y: Scalar) -> None:
            def tile(number: Scalar) -> None:
                x = tile_start(code, number, together, kernel.columns)
                read, write = source, target
                for index, step, extent in (
                    (n, kernel.source.image, kernel.rows * kernel.columns),
                    (y, kernel.source.row, kernel.columns),
                    (x, kernel.source.column, 1),
                ):
                    read, write = code.at(read, code.mul(index, step)), code.at(write, code.mul(index, 4 * extent))
                code.store(code.binary("mul", _totals(code, kernel, machine, read), times), write, 4)

            first, end = shared if kernel.rows == 1 else (0, tiles)
            code.each(first, end, tile)

        first, end = (0, 1) if kernel.rows == 1 else shared
        code.each(first, end, row)

    code.each(0, kernel.images, image)
    code.finish()


def _totals(code: Code, kernel: WindowSums, machine: Machine, source: V) -> V:
    """The sums of some neighbouring pixels, in the lanes of a vector."""
    fitting = [lane for lane in (*machine.narrower[::-1], machine.width) if 4 * lane >= kernel.run]
    lane = fitting[0] if fitting else machine.width
    pixels = [code.at(source, pixel * kernel.source.column) for pixel in range(kernel.together)]
    zeros = [typed(vector(32, lane), 0)] * len(pixels)
    sums = _taps(code, kernel, machine, lane, kernel.taps, pixels, zeros)
    if len(sums) == 1:
        return code.call("i32", f"llvm.vector.reduce.add.v{lane}i32", sums[0])
    for per in (4, 2):  # pairs of vectors, first by words, then by pairs of words within 128 bits
        sums = [_paired(code, sums[k], sums[k + 1], per) for k in range(0, len(sums), 2)]
    (total,) = sums
    while lanes(total.type) > 4:
        half = lanes(total.type) // 2
        low, high = (code.shuffle(total, total, range(first, first + half)) for first in (0, half))
        total = code.binary("add", low, high)
    return total


def _paired(code: Code, a: V, b: V, per: int) -> V:
    """Add the lower half of every 128 bits of a and b to the upper half; ``per`` parts of them are interleaved."""
    kind = vector(128 // per, lanes(a.type) * per // 4)
    left, right = code.bitcast(a, kind), code.bitcast(b, kind)
    halves = [code.bitcast(unpacked(code, left, right, per, half), a.type) for half in (0, 1)]
    return code.binary("add", *halves)


def _taps(
    code: Code,
    kernel: WindowSums,
    machine: Machine,
    lane: int,
    taps: Sequence[tuple[int, int]],
    pixels: Sequence[V],
    sums: Sequence[V],
) -> list[V]:
    """Add the runs of all taps of some pixels to their sums."""
    if not taps:
        return _run(code, kernel, machine, lane, pixels, sums)
    (count, apart), *inner = taps

    def body(index: Scalar, values: Sequence[V]) -> list[V]:
        moved = [code.at(pixel, code.mul(index, apart)) for pixel in pixels]
        return _taps(code, kernel, machine, lane, inner, moved, values)

    if math.prod(n for n, _ in taps) * -(-kernel.run // (4 * lane)) > UNROLLED:
        return code.loop(0, count, 1, body, list(sums))
    for index in range(count):
        sums = body(index, sums)
    return list(sums)


def _run(
    code: Code, kernel: WindowSums, machine: Machine, lane: int, pixels: Sequence[V], sums: Sequence[V]
) -> list[V]:
    """Add one run of some pixels to their sums."""
    kind, size = vector(32, lane), 4 * lane
    whole, rest = divmod(kernel.run, size)

    def added(index: Scalar, values: Sequence[V], ones: V) -> list[V]:
        found = []
        for pixel, value in zip(pixels, values, strict=True):
            read = code.load(kind, code.at(pixel, code.mul(index, size)))
            if machine.signed_bytes:
                read = code.binary("xor", read, HIGHEST_BITS)
            found.append(machine.dot4(code, value, read, ones))
        return found

    every = typed(kind, 0x01010101)
    if whole > UNROLLED:
        sums = code.loop(0, whole, 1, lambda index, values: added(index, values, every), list(sums))
    else:
        for index in range(whole):
            sums = added(index, sums, every)
    if rest:
        words = (sum(1 << 8 * byte for byte in range(4) if 4 * word + byte < rest) for word in range(lane))
        sums = added(whole, sums, V(kind, f"<{', '.join(f'i32 {word}' for word in words)}>"))
    return list(sums)
