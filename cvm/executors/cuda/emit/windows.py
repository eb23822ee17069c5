"""Sums over windows of bytes: eight threads for each pixel add up words by dot products with ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.codes import distance, moved, pixel_at
from cvm.executors.cuda.emit.threads import THREADS, Kernel, Shape, Shapes
from cvm.executors.cuda.emit.tiling import WIDEST
from cvm.executors.native.descriptions.sums import WindowSums
from cvm.executors.native.emit.ir import Module, V, typed

__all__ = ["emit_windows"]

TOGETHER = 8
"""The threads of a pixel, neighbours in a warp."""
ONES = 0x01010101
EVERY, WARP = -1, 0x1F
"""The threads of a warp that exchange values, and the operand of a shuffle within the whole warp."""


def emit_windows(module: Module, name: str, kernel: WindowSums, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (input, factor, sums), or None where runs are no whole words at multiples of 4 bytes."""
    source = kernel.source
    count = kernel.images * kernel.rows * kernel.columns
    steps = [source.column, *(apart for _, apart in kernel.taps), kernel.run]
    steps += [source.row] if kernel.rows > 1 else []
    steps += [source.image] if kernel.images > 1 else []
    span = kernel.images * abs(source.image) + kernel.rows * abs(source.row) + kernel.columns * abs(source.column)
    span += sum(n * abs(apart) for n, apart in kernel.taps) + kernel.run
    if math.gcd(alignments[0], *steps) % 4 or max(span, 4 * TOGETHER * count) >= WIDEST - THREADS:
        return None
    code = Kernel(module, name, 3)
    index = code.binary("add", code.binary("mul", code.register("ctaid"), THREADS), code.register("tid"))
    pixel, member = code.binary("udiv", index, TOGETHER), code.binary("urem", index, TOGETHER)
    known = code.intrinsic("umin", pixel, count - 1)  # all threads of a warp must take part in the shuffles
    at = pixel_at(code, (kernel.images, kernel.rows, kernel.columns), known)
    first = moved(code, code.arguments[0], distance(code, at, source, 1))
    total = _shared(code, _total(code, kernel, first, member))
    writes = code.binary("and", code.compare("ult", pixel, count), code.compare("eq", member, 0))

    def write() -> None:
        product = code.binary("mul", total, code.load("i32", code.arguments[1]))
        code.store(product, moved(code, code.arguments[2], code.binary("mul", pixel, 4)))

    code.when(writes, write)
    code.finish()
    return (Shape(name, (-(-count * TOGETHER // THREADS), 1, 1), THREADS),)


def _total(code: Kernel, kernel: WindowSums, first: V, member: V) -> V:
    """The sum of the words that belong to a thread: every eighth one of all taps."""
    words = kernel.run // 4
    every = words * math.prod(count for count, _ in kernel.taps)

    def some(index: V, now: list[V]) -> list[V]:
        number = code.binary("add", code.cast("trunc", index, 32), member)
        exists = code.compare("ult", number, every)
        number = code.intrinsic("umin", number, every - 1)
        tap, step = code.binary("udiv", number, words), code.binary("urem", number, words)
        at = moved(code, first, code.binary("mul", step, 4))
        for place, (count, apart) in reversed(list(enumerate(kernel.taps))):
            digit = code.binary("urem", tap, count) if place else tap
            at, tap = moved(code, at, code.mul(digit, apart)), code.binary("udiv", tap, count)
        ones = code.select(exists, typed("i32", ONES), 0)
        return [code.call("i32", "llvm.nvvm.idp4a.u.u", code.load("i32", at, 4), ones, now[0])]

    return code.loop(0, every, TOGETHER, some, [typed("i32", 0)])[0]


def _shared(code: Kernel, total: V) -> V:
    """The sum over the threads of a pixel, in all of them."""
    apart = TOGETHER // 2
    while apart:
        values = [V("i32", str(EVERY)), total, V("i32", str(apart)), V("i32", str(WARP))]
        total = code.binary("add", total, code.call("i32", "llvm.nvvm.shfl.sync.bfly.i32", *values))
        apart //= 2
    return total
