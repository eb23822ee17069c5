"""Depthwise convolutions: every channel by itself, many channels side by side.

Up to four rows of a window are interleaved into the bytes of 32-bit lanes, so that one dot product adds a column of the
window for as many channels as there are lanes. A column that is interleaved once serves all outputs of a strip whose
windows contain it. Interleaving works within 128 bits, so the four vectors of a chunk hold the channels 16 b + 4 q + e
(b the block of 128 bits, q the vector, e the lane in it); weights and parameters are packed in that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.contraction import Pixels, Read
from cvm.executors.native.formats import INT32, Format
from cvm.executors.native.formula import Formula, evaluate
from cvm.executors.native.ir import Code, Module, Scalar, V, lanes, vector
from cvm.executors.native.machine import Machine
from cvm.executors.native.packing import ROWS, packed, packed_taps, passes
from cvm.executors.native.pointwise import Build
from cvm.executors.native.steps import Buffer, Home
from cvm.program.model import Node

if TYPE_CHECKING:
    from cvm.executors.native.plan import Planner

__all__ = ["Depthwise", "chunks", "emit_depthwise", "plan_depthwise", "suits"]

Integers = npt.NDArray[np.int64]
TAPS = 64
"""Windows of more taps are left to the general contraction."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """``count`` chunks of ``valid`` channels each, in vectors of ``lane`` lanes, from channel ``start`` on."""

    start: int
    lane: int
    count: int
    valid: int


@dataclass(frozen=True, slots=True)
class Depthwise:
    """One kernel. ``window`` and ``dilation`` are (rows, columns); strides of the output's step are in ``source``."""

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
    output: Format
    target: Pixels
    reads: tuple[Read, ...]
    formula: Formula
    chunks: tuple[Chunk, ...]

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
    def by_rows(self) -> bool:
        """Whether threads share the rows, else the chunks."""
        return self.rows >= min(8, len(self.places))

    @property
    def places(self) -> tuple[tuple[Chunk, int], ...]:
        """Every chunk with its number among its kind."""
        return tuple((chunk, number) for chunk in self.chunks for number in range(chunk.count))

    @property
    def units(self) -> int:
        """Parts that may run at the same time."""
        return self.rows if self.by_rows else sum(chunk.count for chunk in self.chunks)


def suits(shape: tuple[int, ...], groups: int, format_: Format, weights: Integers) -> bool:
    """Whether a convolution has one input and one output channel per group, bytes on both sides, and a small window."""
    OC, IC, KH, KW = shape
    narrow = int(weights.min()) >= -128 and int(weights.max()) <= 127
    return groups == OC > 1 and IC == 1 and KH * KW <= TAPS and format_.bits == 8 and not format_.signed and narrow


def chunks(channels: int, machine: Machine) -> tuple[Chunk, ...]:
    """The channels in chunks of four vectors, the widest first; the last one may not be full."""
    found: list[Chunk] = []
    done = 0
    for lane in (machine.width, *machine.narrower):
        count = (channels - done) // (4 * lane)
        if count:
            found.append(Chunk(done, lane, count, 4 * lane))
            done += count * 4 * lane
    if done < channels:
        lane = min((machine.width, *machine.narrower), key=lambda n: (4 * n < channels - done, n))
        found.append(Chunk(done, lane, 1, channels - done))
    return tuple(found)


def plan_depthwise(
    planner: Planner,
    root: Node,
    node: Node,
    home: Home,
    weights: Integers,
    bias: Integers,
    built: Build,
    operands: Sequence[tuple[Format, Pixels | None, Home | npt.NDArray[Any]]],
    target: Home,
) -> None:
    """The call of a depthwise convolution whose input ``home`` has the border that its padding wants."""
    machine = planner.machine
    a = planner.call_of(node).attributes
    images, _, rows, columns = node.outputs[0].shape
    strides = home.map_strides()
    places = [target.view.stride(axis) or 0 for axis in range(4)]
    channels, _, KH, KW = weights.shape
    flat = weights[:, 0]
    parts = [part for part, _ in passes(flat, machine, 4, 255)]
    kernel = Depthwise(
        images, rows, columns, channels, (KH, KW), (a.dilation[0] * strides[2], a.dilation[1] * strides[3]),
        a.stride[1], a.dilation[1], len(parts),
        Pixels(strides[0], a.stride[0] * strides[2], strides[3], 1),
        target.format, Pixels(places[0], places[2], places[3], places[1]),
        tuple(Read(format_, where) for format_, where, _ in operands), built.formula, chunks(channels, machine),
    )  # fmt: skip
    function = planner.kernel(
        ("depthwise", kernel), "depthwise", lambda module, name: emit_depthwise(module, name, kernel, machine)
    )
    start = bias - home.format.bias * flat.sum(axis=(1, 2))
    moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]
    arguments: list[tuple[Buffer, int]] = [
        home.at(moved),
        planner.constants.add(packed_taps(parts, kernel)),
        planner.constants.add(packed(start, kernel, INT32)),
    ]
    for format_, _, what in operands:
        arguments.append(what.at() if isinstance(what, Home) else planner.constants.add(packed(what, kernel, format_)))
    arguments.append(target.at())
    note = f"{machine.name} depthwise, {len(parts)} parts, strips of {kernel.strip}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    cost = math.prod(node.outputs[0].shape) * (0.5 + 0.01 * KH * KW)
    planner.call(function, arguments, kernel.units, root.outputs[0].name, note, cost)


def emit_depthwise(module: Module, name: str, kernel: Depthwise, machine: Machine) -> None:
    """The function: (input, weights, start of sums, reads.., output, first unit, end of units)."""
    pointers = [V("ptr", f"%{what}") for what in ("input", "weights", "start")]
    reads = [V("ptr", f"%r{number}") for number in range(len(kernel.reads))]
    target = V("ptr", "%output")
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, *reads, target, lo, hi])
    first = 0
    for chunk in kernel.chunks:
        emitter = _Emitter(code, kernel, machine, chunk, pointers, reads, target)

        def each(number: V, _: list[V], emitter: _Emitter = emitter) -> list[V]:
            emitter.chunk_rows(number, (lo, hi) if kernel.by_rows else (0, kernel.rows))
            return []

        if kernel.by_rows:
            code.loop(0, chunk.count, 1, each)
        else:
            low = code.intrinsic("smax", code.binary("sub", lo, first), 0)
            high = code.intrinsic("smin", code.binary("sub", hi, first), chunk.count)
            code.loop(low, high, 1, each)
        first += chunk.count
    code.finish()


@dataclass(slots=True)
class _Emitter:
    """The code of one kind of chunk."""

    code: Code
    kernel: Depthwise
    machine: Machine
    chunk: Chunk
    pointers: list[V]
    reads: list[V]
    target: V

    def chunk_rows(self, number: V, bounds: tuple[Scalar, Scalar]) -> None:
        """All images and the given rows of one chunk."""
        code, kernel, lane = self.code, self.kernel, self.chunk.lane
        channel = code.add(code.mul(number, 4 * lane), self.chunk.start)
        group_bytes = kernel.window[1] * kernel.parts * kernel.groups * ROWS
        weights = code.at(self.pointers[1], code.mul(channel, group_bytes))
        start = code.at(self.pointers[2], code.mul(channel, 4))

        def image(index: V, _: list[V]) -> list[V]:
            def row(y: V, _: list[V]) -> list[V]:
                def strip(x: V, _: list[V]) -> list[V]:
                    self.strip(index, channel, y, _overlapping(code, x, kernel), weights, start)
                    return []

                code.loop(0, -(-kernel.columns // kernel.strip), 1, strip)
                return []

            code.loop(*bounds, 1, row)
            return []

        code.loop(0, kernel.images, 1, image)

    def strip(self, image: Scalar, channel: Scalar, y: Scalar, x: Scalar, weights: V, start: V) -> None:
        """One strip of outputs, column after column of the input."""
        code, kernel, lane = self.code, self.kernel, self.chunk.lane
        source = self.pointers[0]
        for index, stride in ((image, kernel.source.image), (y, kernel.source.row)):
            source = code.at(source, code.mul(index, stride))
        source = code.at(source, code.mul(x, kernel.step * kernel.source.column))
        source = code.at(source, channel)
        finish = _Finish(self, image, channel, y, x)
        room = code.alloca(vector(32, lane), 4 * kernel.strip)
        sums: dict[int, list[V]] = {}
        kind = vector(32, lane)
        columns = (kernel.strip - 1) * kernel.step + (kernel.window[1] - 1) * kernel.dilation + 1
        for column in range(columns):
            uses = self._uses(column)
            if not uses:
                continue
            at = code.at(source, column * kernel.source.column)
            words = [self._interleaved(at, group) for group in range(kernel.groups)]
            for place, tap in uses:
                if place not in sums:
                    sums[place] = [code.load(kind, code.at(start, 4 * lane * q)) for q in range(4)]
                sums[place] = self._added(sums[place], words, weights, tap)
                if tap == kernel.window[1] - 1:
                    for q, total in enumerate(sums.pop(place)):
                        code.store(total, code.at(room, (4 * place + q) * 4 * lane), 64)

        def each(place: V, _: list[V]) -> list[V]:
            at = code.at(room, code.mul(place, 16 * lane))
            totals = [code.load(kind, code.at(at, q * 4 * lane), 64) for q in range(4)]
            finish.output(place, totals)
            return []

        code.loop(0, kernel.strip, 1, each)

    def _uses(self, column: int) -> list[tuple[int, int]]:
        """The outputs of a strip whose windows contain a column, and as which column."""
        kernel = self.kernel
        uses = []
        for tap in range(kernel.window[1]):
            place, rest = divmod(column - tap * kernel.dilation, kernel.step)
            if rest == 0 and 0 <= place < kernel.strip:
                uses.append((place, tap))
        return uses

    def _added(self, sums: list[V], words: list[list[V]], weights: V, tap: int) -> list[V]:
        """One column of the window, for all four vectors."""
        code, kernel, lane = self.code, self.kernel, self.chunk.lane
        size = 4 * lane
        for part in range(kernel.parts):
            for group in range(kernel.groups):
                place = ((tap * kernel.parts + part) * kernel.groups + group) * 4
                at = code.at(weights, place * size)
                taps = [code.load(vector(32, lane), code.at(at, q * size)) for q in range(4)]
                sums = [self.machine.dot4(code, sums[q], words[group][q], taps[q]) for q in range(4)]
        return sums

    def _interleaved(self, at: V, group: int) -> list[V]:
        """Up to four rows as the bytes of lanes: four vectors."""
        code, kernel, lane = self.code, self.kernel, self.chunk.lane
        kind = vector(8, 4 * lane)
        zero = V(kind, "zeroinitializer")
        rows = [
            code.load(kind, code.at(at, row * kernel.taps[0])) if row < kernel.window[0] else zero
            for row in range(group * ROWS, group * ROWS + ROWS)
        ]
        pairs = [[self._unpacked(rows[k], rows[k + 1], 16, half) for half in (0, 1)] for k in (0, 2)]
        words = vector(16, 2 * lane)
        found = []
        for half in (0, 1):
            low, high = (code.bitcast(pairs[k][half], words) for k in (0, 1))
            found += [code.bitcast(self._unpacked(low, high, 8, end), vector(32, lane)) for end in (0, 1)]
        return found

    def _unpacked(self, a: V, b: V, per: int, half: int) -> V:
        """The lower (0) or upper (1) halves of every 128 bits of a and b, element by element in turn."""
        count = lanes(a.type)
        indices = []
        for block in range(0, count, per):
            for k in range(per // 2):
                place = block + k + half * per // 2
                indices += [place, place + count]
        return self.code.shuffle(a, b, indices)


@dataclass(slots=True)
class _Finish:
    """The formula on the finished sums of one strip."""

    emitter: _Emitter
    image: Scalar
    channel: Scalar
    y: Scalar
    x: Scalar
    parameters: dict[tuple[int, int, int], V] = field(default_factory=dict)

    def output(self, place: Scalar, sums: list[V]) -> None:
        """One output of the strip."""
        kernel, chunk = self.emitter.kernel, self.emitter.chunk
        values = [
            evaluate(self.emitter.code, kernel.formula, _Sum(self, total, q, place), chunk.lane)
            for q, total in enumerate(sums)
        ]
        self.store(values, self.address(self.emitter.target, kernel.target, kernel.output, place))

    def address(self, pointer: V, pixels: Pixels, format_: Format, place: Scalar) -> V:
        """The address of an output's first channel in a tensor."""
        code, size = self.emitter.code, format_.bytes
        moves = (
            (self.image, pixels.image),
            (self.y, pixels.row),
            (self.x, pixels.column),
            (self.channel, pixels.channel),
        )
        for index, stride in moves:
            pointer = code.at(pointer, code.mul(index, stride * size))
        return code.at(pointer, code.mul(place, pixels.column * size))

    def parameter(self, number: int, q: int, part: int, type_: str) -> V:
        """A piece of a packed parameter."""
        key = (number, q, part)
        if key not in self.parameters:
            code, lane = self.emitter.code, self.emitter.chunk.lane
            size = self.emitter.kernel.reads[number - 1].format.bytes
            base = code.at(self.emitter.reads[number - 1], code.mul(self.channel, size))
            self.parameters[key] = code.load(type_, code.at(base, (q * lane + part * lane // 2) * size))
        return self.parameters[key]

    def store(self, values: list[V], pointer: V) -> None:
        """The four vectors in the order of the channels."""
        code, kernel, chunk = self.emitter.code, self.emitter.kernel, self.emitter.chunk
        format_ = kernel.output
        full = chunk.valid == 4 * chunk.lane and kernel.target.channel == 1
        if full and format_.bits == 8 and not format_.signed and self.emitter.machine.packs:
            moved = [code.binary("add", value, format_.bias) if format_.bias else value for value in values]
            code.store(_packed_bytes(code, moved), pointer)
            return
        for q, value in enumerate(values):
            raw = format_.encoded(code, value)
            for block in range(chunk.lane // 4):
                first = 16 * block + 4 * q
                count = min(4, chunk.valid - first)
                if count == 4 and kernel.target.channel == 1:
                    piece = code.shuffle(raw, raw, range(4 * block, 4 * block + 4))
                    code.store(piece, code.at(pointer, first * format_.bytes))
                    continue
                for e in range(count):
                    at = code.at(pointer, (first + e) * kernel.target.channel * format_.bytes)
                    code.store(code.extract(raw, 4 * block + e), at)


@dataclass(slots=True)
class _Sum:
    """One vector of finished sums, as a `Reader`: value 0 is the sum itself."""

    finish: _Finish
    total: V
    q: int
    place: Scalar

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        if number == 0:
            return self.total
        emitter = self.finish.emitter
        code, lane, read = emitter.code, emitter.chunk.lane, emitter.kernel.reads[number - 1]
        if read.pixels is None:
            return read.format.decoded(code, self.finish.parameter(number, self.q, 0, vector(read.format.bits, lane)))
        address, apart = self.places(number)
        if apart == 0:
            return read.format.load(code, address, 1)
        channels = [16 * block + 4 * self.q + e for block in range(lane // 4) for e in range(4)]
        raw = [
            code.load(vector(read.format.bits, 1), code.at(address, channel * apart))
            for channel in (min(channel, emitter.chunk.valid - 1) for channel in channels)
        ]
        return read.format.decoded(code, code.gathered(raw))

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`."""
        emitter = self.finish.emitter
        lane = emitter.chunk.lane
        if emitter.kernel.reads[number - 1].pixels is None:
            type_ = vector(64, lane // 2)
            return self.finish.parameter(number, self.q, 0, type_), self.finish.parameter(number, self.q, 1, type_)
        value = self.value(number)
        if lanes(value.type) == 1:
            half = emitter.code.splat(value, lane // 2)
            return half, half
        even = emitter.code.shuffle(value, value, range(0, lane, 2))
        return even, emitter.code.shuffle(value, value, range(1, lane, 2))

    def places(self, number: int) -> tuple[V, int]:
        """See `Reader.places`."""
        read = self.finish.emitter.kernel.reads[number - 1]
        assert read.pixels is not None
        pointer = self.finish.emitter.reads[number - 1]
        return self.finish.address(
            pointer, read.pixels, read.format, self.place
        ), read.pixels.channel * read.format.bytes


_PACKS = {
    16: ("llvm.x86.avx512.packusdw.512", "llvm.x86.avx512.packuswb.512"),
    8: ("llvm.x86.avx2.packusdw", "llvm.x86.avx2.packuswb"),
    4: ("llvm.x86.sse41.packusdw", "llvm.x86.sse2.packuswb.128"),
}
"""By lanes: 32 to 16 and 16 to 8 bits, within every 128 bits. Codes lie in [0, 255], so nothing saturates."""


def _packed_bytes(code: Code, values: list[V]) -> V:
    lane = lanes(values[0].type)
    words, codes = _PACKS[lane]
    halves = [code.call(vector(16, 2 * lane), words, values[k], values[k + 1]) for k in (0, 2)]
    return code.call(vector(8, 4 * lane), codes, *halves)


def _overlapping(code: Code, index: V, kernel: Depthwise) -> Scalar:
    start = code.mul(index, kernel.strip)
    if kernel.columns % kernel.strip == 0 or isinstance(start, int):
        return start
    return code.intrinsic("smin", start, kernel.columns - kernel.strip)
