"""Maxima of windows: one thread for each pixel and channel, or for four neighbouring channels of bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.codes import moved
from cvm.executors.cuda.emit.permutations import permuted
from cvm.executors.cuda.emit.threads import THREADS, Kernel, Shapes, covering, digits
from cvm.executors.cuda.emit.tiling import WIDEST
from cvm.executors.native.emit.ir import Module, V, typed
from cvm.executors.native.kernels.windows import Pool, Window, store_largest, window_at

__all__ = ["emit_pool", "emit_words"]

CHANNELS = 4
"""The channels of a thread: the bytes of a word."""
MOST_TAPS = 25
"""The most taps of a window whose loads are written one by one."""
SIGNS = -0x7F7F7F80
"""The word of four sign bits. Bytes with a sign are in the order of bytes without one after a change of their signs."""
EVEN, ODD, JOINED = 0x4240, 0x4341, 0x6240
"""Selectors: bytes 0 and 2 of a word, or bytes 1 and 3, each above a zero byte; and both pairs in turn."""


def emit_pool(module: Module, name: str, pool: Pool, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (source, target)."""
    code = Kernel(module, name, 2)
    extents = (pool.images.extent, pool.rows.outputs, pool.columns.outputs, pool.channels.extent)

    def element(index: V) -> None:
        n, p, q, c = digits(code, index, extents)
        read, write = code.arguments
        for number, loop in ((n, pool.images), (c, pool.channels)):
            read = code.at(read, code.mul(number, loop.strides[0] * pool.source.bytes))
            write = code.at(write, code.mul(number, loop.strides[1] * pool.target.bytes))
        corner, out, rows, columns = window_at(code, pool, (p, q), read, write)
        store_largest(code, pool, corner, out, rows, columns, 1)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)


def emit_words(module: Module, name: str, pool: Pool, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (source, target) for bytes whose channels lie side by side in words; None for others.

    A tap outside the map is read where the window's next tap inside it lies, which changes no maximum.
    """
    if not _in_words(pool, alignments) or not all(_meets(window) for window in (pool.rows, pool.columns)):
        return None
    groups = pool.channels.extent // CHANNELS
    extents = pool.images.extent, pool.rows.outputs, pool.columns.outputs, groups
    count = math.prod(extents)
    if max(_span(pool), count + THREADS) >= WIDEST or pool.rows.taps * pool.columns.taps > MOST_TAPS:
        return None
    code = Kernel(module, name, 2)

    def work(index: V) -> None:
        rest, group = code.binary("udiv", index, groups), code.binary("urem", index, groups)
        row, q = code.binary("udiv", rest, extents[2]), code.binary("urem", rest, extents[2])
        n, p = code.binary("udiv", row, extents[1]), code.binary("urem", row, extents[1])
        channel = code.binary("mul", group, CHANNELS)
        largest = _largest(code, pool, (n, p, q), channel)
        target = code.binary("add", channel, code.binary("mul", n, pool.images.strides[1]))
        for number, window in ((p, pool.rows), (q, pool.columns)):
            target = code.binary("add", target, code.binary("mul", number, window.target))
        code.store(largest, moved(code, code.arguments[1], target), CHANNELS)

    return (code.single(count, work),)


def _in_words(pool: Pool, alignments: Sequence[int]) -> bool:
    """Whether both tensors have the same bytes, and four channels of any pixel are a word at a multiple of 4 bytes."""
    if pool.source != pool.target or pool.source.bits != 8 or pool.channels.strides != (1, 1):
        return False
    steps = [*pool.images.strides] if pool.images.extent > 1 else []
    for window in (pool.rows, pool.columns):
        steps += [window.source] if window.extent > 1 else []
        steps += [window.target] if window.outputs > 1 else []
    return math.gcd(pool.channels.extent, *alignments, *steps) % CHANNELS == 0


def _meets(window: Window) -> bool:
    """Whether each window has a tap inside the map, next to every tap outside it."""
    last = (window.outputs - 1) * window.stride - window.padding
    return window.dilation == 1 and window.padding < window.taps and last < window.extent


def _span(pool: Pool) -> int:
    """The most bytes of a tensor."""
    windows = pool.rows, pool.columns
    ends = sum(w.extent * abs(w.source) for w in windows), sum(w.outputs * abs(w.target) for w in windows)
    images = (pool.images.extent * abs(stride) for stride in pool.images.strides)
    return pool.channels.extent + max(end + image for end, image in zip(ends, images, strict=True))


def _largest(code: Kernel, pool: Pool, at: tuple[V, V, V], channel: V) -> V:
    """The maxima of four channels over the window of the output (image, row, column), as a word."""
    image, *outputs = at
    base = code.binary("add", channel, code.binary("mul", image, pool.images.strides[0]))
    rows, columns = (
        [_tap(code, window, output, tap) for tap in range(window.taps)]
        for window, output in zip((pool.rows, pool.columns), outputs, strict=True)
    )
    pairs = [typed("<2 x i16>", 0)] * 2
    for row in rows:
        line = code.binary("add", base, row)
        for column in columns:
            word = code.load("i32", moved(code, code.arguments[0], code.binary("add", line, column)), CHANNELS)
            if pool.source.signed:
                word = code.binary("xor", word, SIGNS)
            split = (permuted(code, word, typed("i32", 0), selector) for selector in (EVEN, ODD))
            pairs = [
                code.intrinsic("umax", pair, code.bitcast(half, "<2 x i16>"))
                for pair, half in zip(pairs, split, strict=True)
            ]
    even, odd = (code.bitcast(pair, "i32") for pair in pairs)
    word = permuted(code, even, odd, JOINED)
    return code.binary("xor", word, SIGNS) if pool.source.signed else word


def _tap(code: Kernel, window: Window, output: V, tap: int) -> V:
    """The distance of a tap of an output, or of the nearest place inside the map, along an axis."""
    place = code.binary("add", code.binary("mul", output, window.stride), tap - window.padding)
    place = code.intrinsic("smin", code.intrinsic("smax", place, 0), window.extent - 1)
    return code.binary("mul", place, window.source)
