"""Depthwise convolutions: each lane of a vector computes one channel.

Up to four rows of a window are interleaved into the bytes of 32-bit lanes, so that one dot product adds one column of
the window for as many channels as there are lanes. A column is interleaved once and then used for all outputs of a
strip whose windows contain it. The instructions interleave within 128 bits. So lane e of 128-bit block b of vector q
holds channel 16 b + 4 q + e; weights and parameters are packed in that order.

Few channels do not fill vectors. Then the same lanes hold the channels of several neighbouring pixels, and vectors of
weights and parameters are repeated for each pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import ROWS, Block, Depthwise, Output, Pixels, Segment
from cvm.executors.native.emit.contraction import each_block, parameters, starting, tile_start
from cvm.executors.native.emit.epilogue import TOGETHER, Epilogue, joined
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.packs import joined_lanes, repeated, unpacked
from cvm.executors.native.kernels.formulas import Build
from cvm.executors.native.kernels.operands import KernelOperand, arguments
from cvm.executors.native.kernels.packing import packed_taps, parts
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning
from cvm.program.model import Node

__all__ = ["emit_depthwise", "plan_depthwise", "segments", "suits"]

Integers = npt.NDArray[np.signedinteger[Any]]
MANY = 32
"""A machine with at least this many registers runs an epilogue while other outputs are still being summed. With fewer
registers, all finished sums are stored in memory first.
"""
TALLEST = 64
"""Windows of more rows than this are computed as general contractions."""
WIDEST = 256
"""Weights of a larger magnitude than this are computed as general contractions. Two bytes add up to -256 .. 254, and
codes of eight bits minus their zero point to -255 .. 255.
"""


def suits(shape: tuple[int, ...], groups: int, format_: Format, weights: Integers) -> bool:
    """Whether a convolution is depthwise, with inputs of 8 bits, weights up to `WIDEST` and at most `TALLEST` rows."""
    OC, IC, KH, _ = shape
    narrow = int(weights.min()) >= -WIDEST and int(weights.max()) <= WIDEST
    return groups == OC > 1 and IC == 1 and KH <= TALLEST and format_.bits == 8 and not format_.signed and narrow


def segments(channels: int, machine: Machine, columns: int = 1) -> tuple[Segment, ...]:
    """Divide the channels into blocks of four interleaved vectors, the widest vectors first. The last block may have
    lanes without a channel.

    Blocks of narrower vectors compute as many neighbouring pixels together as fill the widest vectors, where the codes
    of as many pixels as ``columns`` can be packed. Two pixels are worth it only if all their channels lie side by side.
    """
    found: list[Segment] = []
    done = 0
    while done < channels:
        left, lane = channels - done, min((machine.width, *machine.narrower))
        fitting = [n for n in (machine.width, *machine.narrower) if 4 * n <= left]
        if machine.one_shift and left <= 2 * lane:
            block, count = Block(lane, 2, left, True), 1
        elif fitting:
            block, count = Block(fitting[0], 4, 4 * fitting[0], True), left // (4 * fitting[0])
        elif left <= 2 * lane < 2 * machine.width <= columns * lane:
            block, count = Block(lane, 2, left, True), 1
        else:
            block, count = Block(lane, 4, left, True), 1
        size = block.lane * block.vectors
        pixels = 4 * machine.width // size
        worth = pixels <= columns and (pixels > 2 or channels == size)
        found.append(Segment(done, count, block, pixels if worth else 1))
        done += count * size
    return tuple(found)


def plan_depthwise(
    planner: Planning,
    root: Node,
    node: Node,
    home: Home,
    weights: Integers,
    built: Build,
    operands: Sequence[KernelOperand],
    target: Home,
) -> None:
    """Plan the call of a depthwise convolution. The border of its input ``home`` is at least as wide as its padding."""
    machine = planner.machine
    a = planner.call_of(node).attributes
    images, _, rows, columns = node.outputs[0].shape
    strides = home.map_strides()
    out = [target.view.stride(axis) or 0 for axis in range(4)]
    channels, _, KH, KW = weights.shape
    taps, repeats = _repeated(weights[:, 0], machine)
    digits = parts(taps, machine, 255)
    reads = tuple(operand.read for operand in operands)
    output = Output(target.format, Pixels(out[0], out[2], out[3], out[1]), built.clamp)
    packs = machine.packs and output.format == Format(8, False, output.format.bias) and output.pixels.channel == 1
    alike = columns if packs and all(read.pixels is None for read in reads) else 1
    kernel = Depthwise(
        images, rows, columns, channels, taps.shape[1:], (a.dilation[0] * strides[2], a.dilation[1] * strides[3]),
        a.stride[1], a.dilation[1], len(digits),
        Pixels(strides[0], a.stride[0] * strides[2], strides[3], 1),
        output, reads, built.formula, built.start is not None,
        segments(channels, machine, alike), None, repeats,
    )  # fmt: skip
    pairs = machine.one_shift and not kernel.loops
    kernel = replace(kernel, joint=joined(kernel.formula, kernel.reads, machine), per=2 if pairs else 4)
    function = planner.kernel(kernel, "depthwise")
    homes = tuple(operand.home for operand in operands)
    planner.claim(Computes(root, kernel, homes, (target,), planner.next_call, home))
    moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]
    packed = planner.constants.add(packed_taps(digits, kernel))
    others = arguments(planner, built.start, operands, kernel.segments, slice(0, channels))
    given = [home.at(moved), packed, *others, target.at()]
    note = f"{machine.name} depthwise, {len(digits)} part{'s' if len(digits) > 1 else ''}, strips of {_strips(kernel)}"
    note += f"; sums + {built.note}" if built.note != "sums" else ""
    cost = math.prod(node.outputs[0].shape) * (0.5 + 0.01 * KH * KW * len(digits))
    planner.call(function, given, kernel.units, root.outputs[0].name, note, cost)


def _strips(kernel: Depthwise) -> str:
    """The strips of all segments in words."""
    tiles = [segment.tile for segment in kernel.segments]
    return " and ".join(
        f"{kernel.strip(tile)}{f', {tile} pixels in a vector' if tile > 1 else ''}" for tile in dict.fromkeys(tiles)
    )


def _repeated(weights: Integers, machine: Machine) -> tuple[Integers, tuple[int, ...]]:
    """Weights (channels, KH, KW) with rows appended that are multiplied once more, and the numbers of these rows.

    Dot products multiply `ROWS` rows at a time, so there may be room for further rows. They take what exceeds a byte in
    the rows before them, if only as many rows as there is room for have such weights.
    """
    narrow = weights.clip(-128, 127)
    wide = np.flatnonzero((weights != narrow).any(axis=(0, 2)))
    if machine.saturates or len(wide) > -weights.shape[1] % ROWS:
        return weights, ()
    return np.concatenate([narrow, (weights - narrow)[:, wide]], axis=1), tuple(wide.tolist())


def emit_depthwise(module: Module, name: str, kernel: Depthwise, machine: Machine) -> None:
    """Write the function (input, weights, [start of sums,] reads.., output, first unit, end of units)."""
    pointers, reads, target, (lo, hi) = parameters(kernel)
    code = Code(module, name, [*pointers, *reads, target, lo, hi])

    def block(segment: Segment, number: Scalar) -> None:
        emitter = _Emitter(code, kernel, machine, segment, pointers, reads, target)
        emitter.block_rows(number, (lo, hi) if kernel.by_rows else (0, kernel.rows))

    each_block(code, kernel.segments, None if kernel.by_rows else (lo, hi), block)
    code.finish()


@dataclass(slots=True)
class _Emitter:
    """Writes the code of one segment. A *tile* is the neighbouring outputs whose channels lie in the same vectors."""

    code: Code
    kernel: Depthwise
    machine: Machine
    segment: Segment
    pointers: list[V]
    reads: list[V]
    target: V

    @property
    def lane(self) -> int:
        """The number of lanes of a vector that holds a tile."""
        return self.segment.block.lane if self.segment.tile == 1 else self.machine.width

    @property
    def tiles(self) -> int:
        """The number of tiles of a strip."""
        return self.kernel.strip(self.segment.tile) // self.segment.tile

    def block_rows(self, number: Scalar, bounds: tuple[Scalar, Scalar]) -> None:
        """Write the given rows of all images, for one block of channels."""
        code, kernel = self.code, self.kernel
        channel = code.add(code.mul(number, self.segment.channels), self.segment.start)
        size = kernel.window[1] * kernel.parts * kernel.groups * ROWS * (1 if kernel.per == 4 else 2)
        weights = code.at(self.pointers[1], code.mul(channel, size))
        size = kernel.strip(self.segment.tile)

        def image(index: Scalar) -> None:
            def row(y: Scalar) -> None:
                def strip(number: Scalar) -> None:
                    x = tile_start(code, number, size, kernel.columns)
                    self.strip(index, channel, y, x, weights)

                code.each(0, -(-kernel.columns // size), strip)

            code.each(*bounds, row)

        code.each(0, kernel.images, image)

    def strip(self, image: Scalar, channel: Scalar, y: Scalar, x: Scalar, weights: V) -> None:
        """Write one strip of outputs: their sums, one column of the input after the other, and their epilogues."""
        code, kernel, lane, tile = self.code, self.kernel, self.lane, self.segment.tile
        source = self.pointers[0]
        for index, stride in ((image, kernel.source.image), (y, kernel.source.row)):
            source = code.at(source, code.mul(index, stride))
        source = code.at(source, code.mul(x, kernel.step * kernel.source.column))
        source = code.at(source, channel)
        epilogue = self.epilogue(channel)
        every = epilogue.addresses(image, y, x, self.target)
        if kernel.loops:
            epilogue.pixels([self._looped(source, channel, weights)], [[base for _, _, base in every]])
            return
        if kernel.per == 2:
            sums_at = self._by_vector(source, channel, weights)
            epilogue.line(sums_at, self.tiles, [(base, pixels.column * size) for pixels, size, base in every])
            return
        room = None if self.machine.registers >= MANY else code.alloca(vector(32, lane), 4 * self.tiles)
        sums: dict[int, list[V]] = {}
        done: dict[int, list[V]] = {}
        columns = (self.tiles - 1) * tile * kernel.step + (kernel.window[1] - 1) * kernel.dilation + 1
        for column in range(columns):
            uses = self._uses(column)
            if not uses:
                continue
            at = code.at(source, column * kernel.source.column)
            words = [self._interleaved(at, group) for group in range(kernel.groups)]
            for output, tap in uses:
                if output not in sums:
                    sums[output] = self._starts(channel)
                sums[output] = self._with_column(sums[output], words, weights, tap)
                if tap == kernel.window[1] - 1:
                    done[output] = sums.pop(output)
            if room is not None:
                self._spill(done, room)
            elif done and (len(done) >= TOGETHER or not sums):
                addresses = [
                    [code.at(base, output * tile * pixels.column * size) for pixels, size, base in every]
                    for output in done
                ]
                epilogue.pixels(list(done.values()), addresses)
                done.clear()
        if room is not None:
            epilogue.line(room, self.tiles, [(base, tile * pixels.column * size) for pixels, size, base in every])

    def _by_vector(self, source: V, channel: Scalar, weights: V) -> V:
        """The sums of a strip in memory, computed for one vector of channels after the other.

        Then all weights of a vector and the sums that a column adds to lie in registers.
        """
        code, kernel, block = self.code, self.kernel, self.segment.block
        kind, size = vector(32, block.lane), 4 * block.lane
        room = code.alloca(kind, block.vectors * self.tiles)
        columns = (self.tiles - 1) * kernel.step + (kernel.window[1] - 1) * kernel.dilation + 1
        each = 2 * ROWS * block.lane

        def one(number: Scalar) -> None:
            start = code.at(self.pointers[-1], code.mul(code.add(channel, code.mul(number, block.lane)), 4))
            begun = code.load(kind, start) if kernel.starts else typed(kind, 0)
            at, own = code.at(source, code.mul(number, block.lane)), code.at(weights, code.mul(number, each))
            taps = self._taps(own, block.vectors * each)
            target = code.at(room, code.mul(number, size))
            sums: dict[int, V] = {}
            for column in range(columns):
                uses = self._uses(column)
                pairs = self._pairs(code.at(at, column * kernel.source.column)) if uses else []
                for output, tap in uses:
                    total = sums.pop(output, begun)
                    for products in taps[tap]:
                        for pair, factor in zip(pairs, products, strict=True):
                            total = self.machine.dot2(code, total, pair, factor)
                    if tap == kernel.window[1] - 1:
                        code.store(total, code.at(target, output * block.vectors * size), size)
                    else:
                        sums[output] = total

        code.each(0, -(-block.valid // block.lane), one)
        return room

    def _taps(self, weights: V, size: int) -> list[list[list[V]]]:
        """The weights of one vector of channels: for each column of the window and each part, those of every pair of
        rows. ``size`` is the number of bytes of all vectors of a group of rows.
        """
        code, kernel, lane = self.code, self.kernel, self.segment.block.lane
        groups = [divmod(pair, ROWS // 2) for pair in range(-(-kernel.window[0] // 2))]
        found = []
        for tap in range(kernel.window[1]):
            before = [(tap * kernel.parts + part) * kernel.groups for part in range(kernel.parts)]
            offsets = [[(first + group) * size + pair * 4 * lane for group, pair in groups] for first in before]
            found.append([[code.load(vector(32, lane), code.at(weights, at)) for at in part] for part in offsets])
        return found

    def _pairs(self, at: V) -> list[V]:
        """The rows of a window at one column, two at a time: pairs of 16-bit integers, one for each channel."""
        code, kernel, lane = self.code, self.kernel, self.segment.block.lane
        found = []
        for first in range(0, kernel.window[0], 2):
            numbers = range(first, min(first + 2, kernel.window[0]))
            rows = [self._quad(code.at(at, kernel.row(number) * kernel.taps[0])) for number in numbers]
            if len(rows) == 2:
                rows = [unpacked(code, rows[0], rows[1], 16, 0)]
            shorts = code.cast("zext", code.shuffle(rows[0], rows[0], range(2 * lane)), 16)
            if len(numbers) == 1:
                shorts = code.cast("zext", code.shuffle(shorts, shorts, range(lane)), 32)
            found.append(code.bitcast(shorts, vector(32, lane)))
        return found

    def _quad(self, at: V) -> V:
        """The bytes of four channels, with zeros behind them."""
        code, lane = self.code, self.segment.block.lane
        word = code.load("i32", at)
        whole = code.value(vector(32, lane), f"insertelement <{lane} x i32> zeroinitializer, {word}, i64 0")
        return code.bitcast(whole, vector(8, 4 * lane))

    def _looped(self, source: V, channel: Scalar, weights: V) -> list[V]:
        """The sums of one tile, by a loop over the columns of its windows."""
        code, kernel, block = self.code, self.kernel, self.segment.block
        size = kernel.parts * kernel.groups * ROWS * block.vectors * block.lane

        def column(tap: V, sums: Sequence[V]) -> list[V]:
            at = code.at(source, code.mul(tap, kernel.dilation * kernel.source.column))
            words = [self._interleaved(at, group) for group in range(kernel.groups)]
            return self._with_column(list(sums), words, code.at(weights, code.mul(tap, size)), 0)

        return code.loop(0, kernel.window[1], 1, column, self._starts(channel))

    def epilogue(self, channel: Scalar) -> Epilogue:
        """The epilogue of a tile, from channel ``channel`` on."""
        kernel, block = self.kernel, self.segment.block
        whole, one = (block, None) if self.segment.tile == 1 else (Block(self.lane, 4, 4 * self.lane, True), block)
        return Epilogue(
            self.code, kernel.formula, kernel.reads, kernel.output, whole, self.reads, channel, self.machine,
            kernel.joint, one,
        )  # fmt: skip

    def _starts(self, channel: Scalar) -> list[V]:
        """The values that the sums of a tile start with."""
        found = starting(self.code, self.pointers, channel, self.segment.block)
        return [self._repeated(found[q % len(found)]) for q in range(4)]

    def _repeated(self, value: V) -> V:
        """A vector of the block, repeated until it fills the lanes."""
        return repeated(self.code, value, self.lane)

    def _spill(self, done: dict[int, list[V]], room: V) -> None:
        """Store finished sums in memory, which frees their registers."""
        size = 4 * self.lane
        for output, totals in done.items():
            for q, total in enumerate(totals):
                self.code.store(total, self.code.at(room, (4 * output + q) * size), size)
        done.clear()

    def _uses(self, column: int) -> list[tuple[int, int]]:
        """The tiles of a strip whose first windows contain a column of the input, each with its tap that reads the
        column.
        """
        kernel = self.kernel
        uses = []
        for tap in range(kernel.window[1]):
            output, rest = divmod(column - tap * kernel.dilation, kernel.step * self.segment.tile)
            if rest == 0 and 0 <= output < self.tiles:
                uses.append((output, tap))
        return uses

    def _with_column(self, sums: list[V], words: list[list[V]], weights: V, tap: int) -> list[V]:
        """Add the products of one column of the window to the sums of all four vectors."""
        code, kernel, block = self.code, self.kernel, self.segment.block
        size = 4 * block.lane
        for part in range(kernel.parts):
            for group in range(kernel.groups):
                offset = ((tap * kernel.parts + part) * kernel.groups + group) * block.vectors
                at = code.at(weights, offset * size)
                taps = [code.load(vector(32, block.lane), code.at(at, q * size)) for q in range(block.vectors)]
                taps = [self._repeated(taps[q % block.vectors]) for q in range(4)]
                sums = [self.machine.dot4(code, sums[q], words[group][q], taps[q]) for q in range(4)]
        return sums

    def _interleaved(self, at: V, group: int) -> list[V]:
        """Interleave up to four rows into the bytes of 32-bit lanes: four vectors."""
        code, kernel, lane = self.code, self.kernel, self.lane
        zero = V(vector(8, 4 * lane), "zeroinitializer")
        rows = [
            self._loaded(code.at(at, kernel.row(row) * kernel.taps[0])) if row < kernel.window[0] else zero
            for row in range(group * ROWS, group * ROWS + ROWS)
        ]
        if self.machine.signed_bytes:
            rows = [row if row == zero else code.binary("xor", row, -128) for row in rows]
        pairs = [[unpacked(code, rows[k], rows[k + 1], 16, half) for half in (0, 1)] for k in (0, 2)]
        words = vector(16, 2 * lane)
        found = []
        for half in (0, 1):
            low, high = (code.bitcast(pairs[k][half], words) for k in (0, 1))
            found += [code.bitcast(unpacked(code, low, high, 8, end), vector(32, lane)) for end in (0, 1)]
        return found

    def _loaded(self, at: V) -> V:
        """The elements of one row that the windows of a tile have at one tap: for each pixel, those of all channels of
        the block.
        """
        code, kernel, step = self.code, self.kernel, self.kernel.step * self.kernel.source.column
        kind, each = vector(8, 4 * self.lane), self.segment.channels
        if self.segment.tile == 1 or step == each:  # the elements lie side by side
            return code.load(kind, at)
        if step == 2 * each == 2 * kernel.source.column:  # every second one of two vectors
            low, high = (code.load(kind, code.at(at, half * 4 * self.lane)) for half in (0, 1))
            chosen = [2 * each * pixel + k for pixel in range(self.segment.tile) for k in range(each)]
            return code.shuffle(low, high, chosen)
        pieces = [code.load(vector(64, each // 8), code.at(at, pixel * step)) for pixel in range(self.segment.tile)]
        return code.bitcast(joined_lanes(code, pieces), kind)
