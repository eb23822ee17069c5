"""Depthwise convolutions by dot products of bytes: each thread computes four channels of some neighbouring outputs.

A thread loads the four bytes of its channels in up to four rows of the window, and permutes them: the word of a channel
has one byte of each row. One dot product then adds a column of the window to the sum of a channel. The words of a
column serve all outputs of the thread whose windows contain it. Neighbouring threads have neighbouring channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace

from cvm.executors.cuda.emit.channels import place_of
from cvm.executors.cuda.emit.codes import Codes, distance, moved
from cvm.executors.cuda.emit.permutations import transposed
from cvm.executors.cuda.emit.threads import THREADS, Kernel, Shape, Shapes
from cvm.executors.cuda.emit.tiling import PROCESSORS, SAMPLES, WIDEST
from cvm.executors.native.descriptions.sums import ROWS, Depthwise
from cvm.executors.native.emit.ir import Module, Scalar, V, typed, vector
from cvm.records import dataclass

__all__ = ["emit_depthwise", "strip"]

CHANNELS = 4
"""The channels of a thread: the bytes of a word."""
LONGEST = 8
"""The most outputs of a thread."""


def strip(kernel: Depthwise, samples: int = 1) -> int:
    """The outputs of a thread: as many as divide the columns, if enough threads are left for every processor."""
    if kernel.loops:
        return 1
    others = samples * kernel.images * kernel.rows * -(-kernel.channels // CHANNELS)
    fitting = [n for n in range(1, LONGEST + 1) if kernel.columns % n == 0]
    enough = [n for n in fitting if others * (kernel.columns // n) >= PROCESSORS * THREADS]
    return max(enough, default=1)


def emit_depthwise(module: Module, name: str, kernel: Depthwise, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (input, weights, [start of sums,] reads.., output), or None for distances beyond 32 bits."""
    if kernel.source.channel != 1 or not _reaches(kernel):
        return None
    short, long = strip(kernel), strip(kernel, SAMPLES)
    shape = _emit_strips(module, name, kernel, alignments, short)
    if long != short:
        shape = replace(shape, crowded=_emit_strips(module, f"{name}_many", kernel, alignments, long))
    return (shape,)


def _emit_strips(module: Module, name: str, kernel: Depthwise, alignments: Sequence[int], length: int) -> Shape:
    """Write the kernel whose threads compute ``length`` outputs each."""
    code = Kernel(module, name, (3 if kernel.starts else 2) + len(kernel.reads) + 1)
    groups, strips = -(-kernel.channels // CHANNELS), kernel.columns // length
    count = kernel.images * kernel.rows * strips * groups

    def work(index: V) -> None:
        rest, group = code.binary("udiv", index, groups), code.binary("urem", index, groups)
        row, number = code.binary("udiv", rest, strips), code.binary("urem", rest, strips)
        image, y = code.binary("udiv", row, kernel.rows), code.binary("urem", row, kernel.rows)
        at = image, y, code.binary("mul", number, length)
        _Strip(code, kernel, alignments, at, code.binary("mul", group, CHANNELS), length).write()

    return code.single(count, work)


def _reaches(kernel: Depthwise) -> bool:
    """Whether all distances, and the number of threads, are below 2^31."""
    extents = kernel.images, kernel.rows, kernel.columns, kernel.channels
    most = math.prod(extents)
    for pixels, size in [(kernel.source, 1), (kernel.output.pixels, kernel.output.format.bytes),
                         *((read.pixels, read.format.bytes) for read in kernel.reads if read.pixels)]:  # fmt: skip
        steps = pixels.image, pixels.row, pixels.column * kernel.step, pixels.channel
        span = sum(n * abs(step) for n, step in zip(extents, steps, strict=True))
        most = max(most, size * span + sum(n * abs(apart) for n, apart in zip(kernel.window, kernel.taps, strict=True)))
    return most < WIDEST - THREADS


@dataclass(slots=True)
class _Strip:
    """Writes the outputs of one thread: ``length`` neighbours from ``at`` (image, row, column) on."""

    code: Kernel
    kernel: Depthwise
    alignments: Sequence[int]
    at: tuple[V, V, V]
    channel: V
    length: int
    _weights: dict[tuple[int, int, int], list[V]] = field(default_factory=dict)

    def write(self) -> None:
        """Write the sums and the codes of all outputs."""
        code, kernel = self.code, self.kernel
        x = code.mul(self.at[2], kernel.step)
        source = moved(code, code.arguments[0], distance(code, (*self.at[:2], x), kernel.source, 1))
        place = place_of(code, kernel.segments, code.cast("zext", self.channel, 64))
        size = kernel.window[1] * kernel.parts * kernel.groups * ROWS
        packed = code.at(code.arguments[1], code.binary("mul", place.block, size))
        packed = code.at(packed, code.binary("mul", place.lane, ROWS))
        apart = code.binary("mul", place.lanes, ROWS)
        codes = Codes(code, kernel, self.alignments, CHANNELS, kernel.channels)
        codes.load(kernel.segments, self.channel)
        zeros = [typed("i32", 0)] * CHANNELS
        if kernel.loops:

            def column(tap: V, now: list[V]) -> list[V]:
                words = self._column(code.at(source, code.mul(tap, kernel.taps[1])))
                first = code.binary("mul", tap, kernel.parts * kernel.groups)
                self._weights.clear()
                return self._added(now, words, code.at(packed, code.binary("mul", first, apart)), apart, 0)

            every = [code.loop(0, kernel.window[1], 1, column, zeros)]
        else:
            every = self._unrolled(source, packed, apart, zeros)
        for number, sums in enumerate(every):
            codes.write((*self.at[:2], code.binary("add", self.at[2], number)), self.channel, sums)

    def _unrolled(self, source: V, packed: V, apart: V, zeros: list[V]) -> list[list[V]]:
        """The sums of all outputs: each column of the input is loaded once."""
        code, kernel = self.code, self.kernel
        every = [zeros] * self.length
        uses: dict[int, list[tuple[int, int]]] = {}
        for output in range(self.length):
            for tap in range(kernel.window[1]):
                uses.setdefault(output * kernel.step + tap * kernel.dilation, []).append((output, tap))
        for place in sorted(uses):
            words = self._column(code.at(source, place * kernel.source.column))
            for output, tap in uses[place]:
                every[output] = self._added(every[output], words, packed, apart, tap)
        return every

    def _added(self, sums: Sequence[V], words: list[list[V]], packed: V, apart: V, tap: int) -> list[V]:
        """Add the products of one column of the window to the sums of the channels."""
        code, kernel, found = self.code, self.kernel, list(sums)
        for part in range(kernel.parts):
            for group in range(kernel.groups):
                key = (tap, part, group)
                if key not in self._weights:
                    number = (tap * kernel.parts + part) * kernel.groups + group
                    at = code.at(packed, code.binary("mul", apart, number))
                    loaded = code.load(vector(32, CHANNELS), at, 4 * CHANNELS)
                    self._weights[key] = [code.extract(loaded, one) for one in range(CHANNELS)]
                weights = self._weights[key]
                for one in range(CHANNELS):
                    found[one] = code.call("i32", "llvm.nvvm.idp4a.u.s", words[group][one], weights[one], found[one])
        return found

    def _column(self, at: V) -> list[list[V]]:
        """For every four rows of the window, the word of each channel at one column of the input."""
        code, kernel = self.code, self.kernel
        rows = [self._loaded(code.at(at, kernel.row(row) * kernel.taps[0])) for row in range(kernel.window[0])]
        rows += [typed("i32", 0)] * (-len(rows) % ROWS)
        return [transposed(code, rows[first : first + ROWS]) for first in range(0, len(rows), ROWS)]

    def _loaded(self, at: V) -> V:
        """The bytes of the four channels at one place of the input. Bytes of channels that do not exist are others'."""
        code, kernel = self.code, self.kernel
        steps = (kernel.images, kernel.source.image), (kernel.rows, kernel.source.row)
        apart = [step for n, step in steps if n > 1]
        if kernel.columns > 1 or kernel.window[1] > 1:
            apart += [kernel.source.column]
        if kernel.window[0] > 1:
            apart += [kernel.taps[0]]
        if kernel.channels % CHANNELS == 0 and math.gcd(self.alignments[0], *apart) % CHANNELS == 0:
            return code.load("i32", moved(code, at, self.channel), 4)
        last = code.binary("sub", typed("i32", kernel.channels - 1), self.channel)
        total: Scalar = 0
        for one in range(CHANNELS):
            place = code.binary("add", self.channel, code.intrinsic("umin", last, one))
            byte = code.cast("zext", code.load("i8", moved(code, at, place), 1), 32)
            total = code.binary("or", byte if isinstance(total, int) else total, code.binary("shl", byte, 8 * one))
        assert isinstance(total, V)
        return total
