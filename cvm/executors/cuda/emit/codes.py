"""From finished sums of neighbouring channels of a pixel to codes in memory, several channels in one store.

The plain form does the same for one channel (`channels`). Here a thread loads the packed elements of its channels once
for all its pixels, in pieces of up to 16 bytes, and stores bytes in words where addresses allow that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field

from cvm.executors.cuda.emit.channels import Place, place_of, placed
from cvm.executors.cuda.emit.permutations import clipped, permuted
from cvm.executors.cuda.emit.threads import Kernel
from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.sums import Contraction, Depthwise, Pixels, Segment
from cvm.executors.native.emit.elements import decoded
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Scalar, V, typed, vector
from cvm.records import dataclass

__all__ = ["Codes", "distance", "moved", "pixel_at"]

PAIRS = ((1, 0x0040), (2, 0x5410))
"""The bytes of an element, and the selector that puts the lowest so many bytes of two words beside each other."""
PIECE = 16
"""The bytes of the largest load and store."""


def moved(code: Kernel, pointer: V, distance: Scalar) -> V:
    """The address ``distance`` bytes behind a pointer; a number that the code computes has 32 bits."""
    if isinstance(distance, int):
        return code.at(pointer, distance)
    return code.value(pointer.type, f"getelementptr i8, {pointer}, {distance}")


def pixel_at(code: Kernel, extents: tuple[int, int, int], pixel: V) -> tuple[Scalar, Scalar, Scalar]:
    """The image, the row and the column of a pixel, in 32 bits. ``extents`` are those of the output."""
    images, rows, columns = extents
    if images == rows == 1:
        return 0, 0, pixel
    row = code.binary("udiv", pixel, columns)
    column = code.binary("sub", pixel, code.binary("mul", row, columns))
    if images == 1:
        return 0, row, column
    image = code.binary("udiv", row, rows)
    return image, code.binary("sub", row, code.binary("mul", image, rows)), column


def distance(code: Kernel, at: Sequence[Scalar], pixels: Pixels, size: int) -> Scalar:
    """The distance, in bytes, from the element of the first pixel to the element of the pixel ``at``."""
    total: Scalar = 0
    for index, step in zip(at, (pixels.image, pixels.row, pixels.column), strict=True):
        total = code.add(total, code.mul(index, step * size))
    return total


@dataclass(slots=True)
class Codes:
    """Writes the codes of ``width`` neighbouring channels of pixels: 2, 4 or 8, the first a multiple of that.

    The kernel has the parameters (input, weights, [start of sums,] reads.., output). ``end`` is the channel behind the
    last one that exists.
    """

    code: Kernel
    kernel: Contraction | Depthwise
    alignments: Sequence[int]
    width: int
    end: int
    elements: dict[tuple[int, int], V] = field(default_factory=dict)
    """The elements of a read by (its number, channel); 0 is what sums start with."""

    @property
    def first(self) -> int:
        """The number of the argument of the first read."""
        return 3 if self.kernel.starts else 2

    @property
    def whole(self) -> bool:
        """Whether all channels of a thread exist if its first one does."""
        return self.end % self.width == 0

    def load(self, segments: Sequence[Segment], channel: V) -> None:
        """Load the packed elements of the channels from ``channel`` on, which is an existing lane of the segments."""
        code, kernel = self.code, self.kernel
        self.elements.clear()
        packed = [(0, INT32, 2)] if kernel.starts else []
        packed += [(n + 1, read.format, self.first + n) for n, read in enumerate(kernel.reads) if read.pixels is None]
        if not packed:
            return
        place = place_of(code, segments, code.cast("zext", channel, 64))
        for number, format_, argument in packed:
            values = self._packed(code.arguments[argument], segments, place, format_.bits)
            self.elements.update({(number, one): decoded(code, format_, raw) for one, raw in enumerate(values)})

    def _packed(self, base: V, segments: Sequence[Segment], place: Place, bits: int) -> list[V]:
        """The stored elements of the channels. Of 64-bit values, the even lanes of a vector come first."""
        code, size = self.code, bits // 8
        at = code.at(base, placed(code, segments, place, size))
        if bits < 64:
            return self._loaded(at, bits, self.width)
        following = Place(place.block, place.lanes, code.binary("add", place.lane, 1))
        odd = code.at(base, placed(code, segments, following, size))
        pairs = zip(*(self._loaded(pointer, bits, self.width // 2) for pointer in (at, odd)), strict=True)
        return [value for pair in pairs for value in pair]

    def _loaded(self, at: V, bits: int, count: int) -> list[V]:
        """Elements that lie side by side, at an address that is a multiple of all their bytes, or of 16."""
        code, each = self.code, min(count, 8 * PIECE // bits)
        found = []
        for first in range(0, count, each):
            value = code.load(vector(bits, each), code.at(at, first * bits // 8), each * bits // 8)
            found += [code.extract(value, one) for one in range(each)]
        return found

    def aligned(self, pixels: Pixels, size: int, argument: int) -> int:
        """A power of two that divides the address of the first channel of a thread at any pixel."""
        kernel = self.kernel
        extents = (kernel.images, pixels.image), (kernel.rows, pixels.row), (kernel.columns, pixels.column)
        steps = [step * size for n, step in extents if n > 1]
        return math.gcd(PIECE, self.alignments[argument], self.width * pixels.channel * size, *steps)

    def write(self, at: Sequence[Scalar], channel: V, sums: Sequence[V]) -> None:
        """Write the codes of the channels of a pixel (image, row, column) that exists."""
        code, kernel = self.code, self.kernel
        reader = _Element(self, channel, at)
        values = []
        for one in range(self.width):
            total = code.binary("add", sums[one], self.elements[0, one]) if kernel.starts else sums[one]
            reader.select(one, total)
            values.append(evaluate(code, kernel.formula, reader, 1))
        self._store(values, channel, at)

    def _encoded(self, value: V, bytes_: bool = False) -> V:
        """The stored integer of a value in i32, clipped to the clamp if there is one.

        With ``bytes_``, it will be clipped to 0 .. 255 in any case.
        """
        output = self.kernel.output
        if output.clamp is None:
            return self.code.binary("add", value, output.format.bias) if output.format.bias else value
        lo, hi = output.clamp
        if not bytes_ or lo > 0:
            value = self.code.intrinsic("smax", value, lo)
        return value if bytes_ and hi >= 255 else self.code.intrinsic("smin", value, hi)

    def _store(self, values: Sequence[V], channel: V, at: Sequence[Scalar]) -> None:
        code, output = self.code, self.kernel.output
        size, step = output.format.bytes, output.pixels.channel
        target = moved(code, code.arguments[-1], distance(code, at, output.pixels, size))
        target = moved(code, target, code.mul(channel, step * size))
        aligned = self.aligned(output.pixels, size, len(code.arguments) - 1)
        beside = step == 1 and self.whole
        unsigned = not output.format.signed if output.clamp is None else output.clamp[0] >= 0
        if beside and size == 1 and unsigned and aligned >= min(4, self.width):
            self._store_bytes([self._encoded(value, True) for value in values], target, aligned)
            return
        values = [self._encoded(value) for value in values]
        if beside and aligned >= 4 and len(values) * size >= 4:
            self._store_words(values, target, size, aligned)
            return
        for one, value in enumerate(values):
            there, raw = code.at(target, one * step * size), code.cast("trunc", value, 8 * size)
            if self.whole:
                code.store(raw, there, size)
                continue
            exists = code.compare("ult", code.binary("add", channel, one), self.end)
            code.when(exists, lambda there=there, raw=raw: code.store(raw, there, size))  # type: ignore[misc]

    def _store_bytes(self, values: Sequence[V], target: V, aligned: int) -> None:
        """Store values clipped to 0 .. 255 as neighbouring bytes."""
        code = self.code
        if len(values) == 2:
            code.store(code.cast("trunc", clipped(code, values), 16), target, 2)
            return
        words = [clipped(code, values[first : first + 4]) for first in range(0, len(values), 4)]
        self._store_lines(words, target, aligned)

    def _store_words(self, values: Sequence[V], target: V, size: int, aligned: int) -> None:
        """Store the lowest ``size`` bytes of values side by side, in pieces as large as the alignment allows."""
        code, words = self.code, list(values)
        for bytes_, selector in PAIRS:
            if size <= bytes_:
                pairs = zip(words[::2], words[1::2], strict=True)
                words = [permuted(code, a, b, selector) for a, b in pairs]
        self._store_lines(words, target, aligned)

    def _store_lines(self, words: Sequence[V], target: V, aligned: int) -> None:
        code, each = self.code, min(aligned // 4, len(words))
        for first in range(0, len(words), each):
            code.store(code.gathered(words[first : first + each]), code.at(target, 4 * first), 4 * each)


@dataclass(slots=True)
class _Element:
    """One channel of a pixel, as a `Reader`: value 0 is its sum."""

    codes: Codes
    channel: V
    at: Sequence[Scalar]
    _one: int = 0
    _total: V = field(default_factory=lambda: typed("i32", 0))
    _pointers: dict[int, V] = field(default_factory=dict)
    _words: dict[int, list[V]] = field(default_factory=dict)

    def select(self, one: int, total: V) -> None:
        """Go to the ``one``-th of the neighbouring channels, whose sum is ``total``."""
        self._one, self._total = one, total

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        codes = self.codes
        if number == 0:
            return self._total
        code, read = codes.code, codes.kernel.reads[number - 1]
        if read.pixels is None:
            return codes.elements[number, self._one]
        raw = self._packed(number)
        if raw is None:
            raw = code.load(vector(read.format.bits, 1), self.addresses(number)[0], read.format.bytes)
        return decoded(code, read.format, raw)

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`. One lane has no halves."""
        raise AssertionError("one lane has no halves")

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`. Behind the last channel, the address is that of a channel that exists."""
        codes = self.codes
        code, pixels = codes.code, self._pixels(number)
        step = pixels.channel * codes.kernel.reads[number - 1].format.bytes
        if codes.whole or not step or not self._one:
            return code.at(self._pointer(number), self._one * step), [0]
        last = code.binary("sub", typed("i32", codes.end - 1), self.channel)
        return moved(code, self._pointer(number), code.mul(code.intrinsic("umin", last, self._one), step)), [0]

    def _pixels(self, number: int) -> Pixels:
        pixels = self.codes.kernel.reads[number - 1].pixels
        assert pixels is not None
        return pixels

    def _pointer(self, number: int) -> V:
        """The address of the first of the neighbouring channels."""
        codes = self.codes
        if number not in self._pointers:
            code, pixels = codes.code, self._pixels(number)
            size = codes.kernel.reads[number - 1].format.bytes
            pointer = code.arguments[codes.first + number - 1]
            pointer = moved(code, pointer, distance(code, self.at, pixels, size))
            self._pointers[number] = moved(code, pointer, code.mul(self.channel, pixels.channel * size))
        return self._pointers[number]

    def _packed(self, number: int) -> V | None:
        """The element out of words that hold all channels of the thread, or None where they are not aligned."""
        codes, pixels = self.codes, self._pixels(number)
        code, size = codes.code, codes.kernel.reads[number - 1].format.bytes
        aligned = codes.aligned(pixels, size, codes.first + number - 1)
        if not codes.whole or pixels.channel != 1 or size > 2 or aligned < 4 or codes.width * size < 4:
            return None
        if number not in self._words:
            each, pointer, words = min(aligned // 4, codes.width * size // 4), self._pointer(number), []
            for first in range(0, codes.width * size, 4 * each):
                loaded = code.load(vector(32, each), code.at(pointer, first), 4 * each)
                words += [code.extract(loaded, one) for one in range(each)]
            self._words[number] = words
        word, byte = divmod(self._one * size, 4)
        return code.cast("trunc", code.binary("lshr", self._words[number][word], 8 * byte), 8 * size)
