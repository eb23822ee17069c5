"""Epilogues of tiles: from the sums of a warp in registers to codes in memory.

A thread holds the sums of a few pixels, and for each of them the sums of neighbouring channels (`fragments.column`).
Where warps share the words of the sums, the slices meet in shared memory, and every slice finishes some of the pixels.
The formula is computed one element at a time, and codes of neighbouring channels are stored together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cvm.executors.cuda.emit.fragments import LANES, ROWS
from cvm.executors.cuda.emit.staging import Staging, distance, moved, pixel_at
from cvm.executors.cuda.emit.threads import Kernel
from cvm.executors.cuda.emit.tiling import Tile, Tiling
from cvm.executors.native.descriptions.formats import INT32, Format
from cvm.executors.native.descriptions.sums import Block, Contraction, Pixels
from cvm.executors.native.emit.elements import decoded, encoded
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Scalar, V, typed, vector

__all__ = ["Epilogue", "packed_at", "store_side_by_side"]

PAIR, QUAD = 0x0040, 0x5410
"""The selectors that put the lowest bytes, and the lower halves, of two words beside each other."""


@dataclass(slots=True)
class Epilogue:
    """Writes the epilogue of one tile. ``warp`` is the place of the warp (pixels, channels, slice), ``thread`` the
    group and the member of the thread.
    """

    code: Kernel
    tiling: Tiling
    tile: Tile
    staging: Staging
    alignments: Sequence[int]
    warp: tuple[V, V, V]
    thread: tuple[V, V]
    _elements: dict[tuple[int, int], V] = field(default_factory=dict)

    @property
    def kernel(self) -> Contraction:
        """The kernel."""
        return self.tiling.kernel

    @property
    def width(self) -> int:
        """The neighbouring channels of which a thread holds the sums."""
        return 2 * self.tile.beside

    def write(self, sums: Sequence[V]) -> None:
        """Write the codes of all sums of this thread."""
        tile = self.tile
        slices = tile.warps[2]
        room = self._exchange(sums) if slices > 1 else None
        rows = 2 * tile.rows
        for group in range(tile.groups):
            channel = self._channel(group)
            self._load_parameters(channel)
            for first in range(0, rows, slices):
                if room is None:
                    self._row(typed("i32", first), channel, self._sums(sums, first, group))
                    continue
                row = self.code.binary("add", self.warp[2], first)
                here = None if first + slices <= rows else self.code.compare("ult", row, rows)
                self._shared_row(room, row, group, channel, here)

    # Sums -----------------------------------------------------------------------------------------------------------

    def _slot(self, row: int, group: int, channel: int) -> int:
        """The number of the sum of a channel, counted among the neighbours, of a row of 8 pixels."""
        tile = self.tile
        place, beside = divmod(channel, tile.beside)
        return (((row // 2) * tile.groups + group) * tile.beside + beside) * 4 + 2 * (row % 2) + place

    def _sums(self, sums: Sequence[V], row: int, group: int) -> list[V]:
        return [sums[self._slot(row, group, channel)] for channel in range(self.width)]

    @property
    def _workers(self) -> int:
        """The threads of one slice."""
        return LANES * self.tile.warps[0] * self.tile.warps[1]

    def _exchange(self, sums: Sequence[V]) -> V:
        """Write all sums to shared memory. Returns the address of the first sum of this thread's pixels."""
        code, slices = self.code, self.tile.warps[2]
        code.barrier()
        place = code.binary("urem", self.staging.thread, self._workers)
        own = moved(code, self.staging.shared, code.binary("mul", place, 4))
        slice_ = moved(code, own, code.binary("mul", self.warp[2], 4 * self._workers * self.tile.sums))
        for number, total in enumerate(sums):
            code.store(total, code.at(slice_, 4 * self._workers * number), 4)
        code.barrier()
        assert slices > 1
        return own

    def _shared_row(self, room: V, row: V, group: int, channel: V, here: V | None) -> None:
        """Add up the slices of a row of pixels whose number the code computes, and write its codes."""
        code, tile = self.code, self.tile

        def finish() -> None:
            half, pair = code.binary("and", row, 1), code.binary("lshr", row, 1)
            number = code.binary("mul", pair, 4 * tile.groups * tile.beside)
            number = code.binary("add", number, code.binary("mul", half, 2))
            at = moved(code, room, code.binary("mul", number, 4 * self._workers))
            sums = []
            for one in range(self.width):
                total = typed("i32", 0)
                for slice_ in range(tile.warps[2]):
                    slot = slice_ * tile.sums + self._slot(0, group, one)
                    total = code.binary("add", total, code.load("i32", code.at(at, 4 * self._workers * slot), 4))
                sums.append(total)
            self._row(row, channel, sums)

        if here is None:
            finish()
        else:
            code.when(here, finish)

    # Parameters -----------------------------------------------------------------------------------------------------

    def _channel(self, group: int) -> V:
        """The first channel of this thread in a group. Behind the last block there are none."""
        code, tile = self.code, self.tile
        first = code.binary("mul", self.staging.block, tile.segment.channels)
        first = code.binary("add", first, tile.segment.start)
        within = code.binary("mul", self.warp[1], tile.groups * tile.group)
        within = code.binary("add", within, code.binary("mul", self.thread[1], self.width))
        return code.binary("add", code.binary("add", first, within), group * tile.group)

    def _load_parameters(self, channel: V) -> None:
        """Load the packed elements of the channels, and what their sums start with."""
        code, segment, kernel = self.code, self.tile.segment, self.kernel
        self._elements.clear()
        last = segment.start + segment.count * segment.channels - self.width
        known = code.intrinsic("umin", channel, last) if segment.count % self.tile.together else channel
        packed = [(0, INT32, 2)] if kernel.starts else []
        first = 3 if kernel.starts else 2
        packed += [(n + 1, read.format, first + n) for n, read in enumerate(kernel.reads) if read.pixels is None]
        for number, format_, argument in packed:
            values = packed_at(code, code.arguments[argument], format_, segment.block, known, self.width)
            self._elements.update({(number, one): decoded(code, format_, raw) for one, raw in enumerate(values)})

    # Rows -----------------------------------------------------------------------------------------------------------

    def _row(self, row: V, channel: V, sums: Sequence[V]) -> None:
        """Write the codes of one pixel, if it exists."""
        code, tile, kernel = self.code, self.tile, self.kernel
        first = code.binary("add", self.staging.pixel, code.binary("mul", self.warp[0], ROWS * tile.rows))
        pixel = code.binary("add", code.binary("add", first, self.thread[0]), code.binary("mul", row, 8))
        exists = code.compare("ult", pixel, self.tiling.count)
        segment = tile.segment
        end = min(kernel.channels, segment.start + segment.count * segment.channels)
        exists = code.binary("and", exists, code.compare("ult", channel, end))

        def codes() -> None:
            at = pixel_at(code, (kernel.images, kernel.rows, kernel.columns), pixel)
            reader = _Element(self, channel, at)
            values = []
            for one in range(self.width):
                total = sums[one]
                if kernel.starts:
                    total = code.binary("add", total, self._elements[0, one])
                reader.select(one, total)
                values.append(self._encoded(evaluate(code, kernel.formula, reader, 1)))
            self._store(values, channel, at)

        code.when(exists, codes)

    def _encoded(self, value: V) -> V:
        """The stored integer of a value in i32, clipped to the clamp if there is one."""
        output = self.kernel.output
        if output.clamp is None:
            return self.code.binary("add", value, output.format.bias) if output.format.bias else value
        lo, hi = output.clamp
        return self.code.intrinsic("smin", self.code.intrinsic("smax", value, lo), hi)

    def _store(self, values: Sequence[V], channel: V, at: Sequence[Scalar]) -> None:
        code, output, channels = self.code, self.kernel.output, self.kernel.channels
        size, step = output.format.bytes, output.pixels.channel
        target = moved(code, code.arguments[-1], distance(code, at, output.pixels, size))
        target = moved(code, target, code.mul(channel, step * size))
        aligned = self.aligned(output.pixels, size, len(code.arguments) - 1)
        if step == 1 and channels % self.width == 0:
            store_side_by_side(code, values, target, size, aligned)
            return
        for one, value in enumerate(values):
            there, raw = code.at(target, one * step * size), code.cast("trunc", value, 8 * size)
            if channels % self.width == 0:
                code.store(raw, there, size)
                continue
            exists = code.compare("ult", code.binary("add", channel, one), channels)
            code.when(exists, lambda there=there, raw=raw: code.store(raw, there, size))  # type: ignore[misc]

    def aligned(self, pixels: Pixels, size: int, argument: int) -> int:
        """A power of two that divides the address of the thread's first channel at any pixel."""
        kernel = self.kernel
        extents = (kernel.images, pixels.image), (kernel.rows, pixels.row), (kernel.columns, pixels.column)
        steps = [step * size for n, step in extents if n > 1]
        return math.gcd(16, self.alignments[argument], self.width * pixels.channel * size, *steps)


def packed_at(code: Kernel, base: V, format_: Format, block: Block, channel: V, count: int) -> list[V]:
    """The stored elements of ``count`` channels from ``channel`` on, of values packed one per channel.

    ``count`` is 1, or even and divides the channels of a vector. Of 64-bit values, the even lanes of a vector come
    first.
    """
    size = format_.bytes
    if format_.bits < 64 or block.lane == 1:
        at = moved(code, base, code.mul(channel, size))
        return _loaded(code, at, format_.bits, count)
    lane = code.binary("urem", channel, block.lane)
    vector_ = code.binary("sub", channel, lane)
    slot = code.binary("add", vector_, code.binary("lshr", lane, 1))
    if count == 1:
        slot = code.binary("add", slot, code.binary("mul", code.binary("and", lane, 1), block.lane // 2))
        return _loaded(code, moved(code, base, code.mul(slot, 8)), 64, 1)
    at = moved(code, base, code.mul(slot, 8))
    even, odd = (_loaded(code, code.at(at, half * 4 * block.lane), 64, count // 2) for half in (0, 1))
    return [value for pair in zip(even, odd, strict=True) for value in pair]


def _loaded(code: Kernel, at: V, bits: int, count: int) -> list[V]:
    """Elements that lie side by side, at an address that is a multiple of their bytes (at most 16)."""
    each = min(count, 128 // bits)
    found = []
    for first in range(0, count, each):
        value = code.load(vector(bits, each), code.at(at, first * bits // 8), each * bits // 8)
        found += [code.extract(value, one) for one in range(each)]
    return found


def store_side_by_side(code: Kernel, values: Sequence[V], target: V, size: int, aligned: int) -> None:
    """Store the lowest ``size`` bytes of values in i32 side by side, in pieces as large as the alignment allows."""
    if aligned < 4 or len(values) * size < 4:
        for one, value in enumerate(values):
            code.store(code.cast("trunc", value, 8 * size), code.at(target, one * size), size)
        return
    words = list(values)
    for bytes_, selector in ((1, PAIR), (2, QUAD)):
        if size <= bytes_:
            pairs = zip(words[::2], words[1::2], strict=True)
            words = [code.call("i32", "llvm.nvvm.prmt", a, b, V("i32", str(selector))) for a, b in pairs]
    each = min(aligned // 4, len(words))
    for first in range(0, len(words), each):
        piece = code.gathered(words[first : first + each])
        code.store(piece, code.at(target, 4 * first), 4 * each)


@dataclass(slots=True)
class _Element:
    """One element of a pixel, as a `Reader`: value 0 is its sum."""

    epilogue: Epilogue
    channel: V
    at: Sequence[Scalar]
    _one: int = 0
    _total: V = V("i32", "0")
    _alike: dict[int, V] = field(default_factory=dict)
    _words: dict[int, list[V]] = field(default_factory=dict)

    def select(self, one: int, total: V) -> None:
        """Go to the ``one``-th of the neighbouring channels, whose sum is ``total``."""
        self._one, self._total = one, total

    def _pointer(self, number: int) -> V:
        """The address of the thread's first channel."""
        epilogue = self.epilogue
        code, kernel = epilogue.code, epilogue.kernel
        if number not in self._alike:
            read = kernel.reads[number - 1]
            assert read.pixels is not None
            pointer = code.arguments[(3 if kernel.starts else 2) + number - 1]
            pointer = moved(code, pointer, distance(code, self.at, read.pixels, read.format.bytes))
            self._alike[number] = moved(code, pointer, code.mul(self.channel, read.pixels.channel * read.format.bytes))
        return self._alike[number]

    def _address(self, number: int) -> V:
        """The address of this element. Behind the last channel, it is that of a channel that exists."""
        epilogue = self.epilogue
        code, kernel = epilogue.code, epilogue.kernel
        read = kernel.reads[number - 1]
        assert read.pixels is not None
        step = read.pixels.channel * read.format.bytes
        if kernel.channels % epilogue.width == 0 or not step or not self._one:
            return code.at(self._pointer(number), self._one * step)
        last = code.binary("sub", typed("i32", kernel.channels - 1), self.channel)
        return moved(code, self._pointer(number), code.mul(code.intrinsic("umin", last, self._one), step))

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        epilogue = self.epilogue
        if number == 0:
            return self._total
        code, read = epilogue.code, epilogue.kernel.reads[number - 1]
        if read.pixels is None:
            return epilogue._elements[number, self._one]
        raw = self._packed(number)
        if raw is None:
            raw = code.load(vector(read.format.bits, 1), self._address(number), read.format.bytes)
        return decoded(code, read.format, raw)

    def _packed(self, number: int) -> V | None:
        """This element out of the words that hold all channels of the thread, or None where they are not aligned."""
        epilogue = self.epilogue
        code, kernel = epilogue.code, epilogue.kernel
        read = kernel.reads[number - 1]
        assert read.pixels is not None
        size = read.format.bytes
        argument = (3 if kernel.starts else 2) + number - 1
        if kernel.channels % epilogue.width or read.pixels.channel != 1 or size > 2:
            return None
        aligned = epilogue.aligned(read.pixels, size, argument)
        if aligned < 4 or epilogue.width * size < 4:
            return None
        if number not in self._words:
            each = min(aligned // 4, epilogue.width * size // 4)
            pointer = self._pointer(number)
            self._words[number] = []
            for first in range(0, epilogue.width * size, 4 * each):
                loaded = code.load(vector(32, each), code.at(pointer, first), 4 * each)
                self._words[number] += [code.extract(loaded, one) for one in range(each)]
        word, byte = divmod(self._one * size, 4)
        return code.cast("trunc", code.binary("lshr", self._words[number][word], 8 * byte), 8 * size)

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`. One lane has no halves."""
        raise AssertionError("one lane has no halves")

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`."""
        return self._address(number), [0]
