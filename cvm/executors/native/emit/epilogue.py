"""Epilogues: from finished sums in registers to codes in memory.

The sums of one pixel are vectors of output channels. The epilogue applies the formula of the ops that follow the
contraction, and stores the results. Besides the sums, a formula reads tensors: either one value per channel, packed in
the order of the lanes, or an element for every pixel and channel.

Channels lie in the lanes in their order, or interleaved. In an interleaved block of n = 2 or 4 vectors, lane e of
128-bit block b of vector q holds channel 4nb + 4q + e. Two saturating packs, which work within 128 bits, then put all
bytes in order, and clip them to [0, 255].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from cvm.executors.native.descriptions.expressions import Formula, Residual
from cvm.executors.native.descriptions.formats import SHORT
from cvm.executors.native.descriptions.sums import Block, Output, Pixels, Read
from cvm.executors.native.emit.elements import decoded, encoded, load
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Code, Scalar, V, lanes, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.packs import in_order, repeated, to_bytes, to_words, unpacked, widened
from cvm.executors.native.emit.residual import residual, results
from cvm.records import dataclass

__all__ = ["TOGETHER", "Epilogue", "joined", "narrow"]


TOGETHER = 2
"""The number of pixels whose epilogues are written together, so that they share the loads of parameters."""


def narrow(output: Output, machine: Machine) -> bool:
    """Whether results lie side by side in bytes, or in the 16-bit integers of a machine that multiplies these."""
    format_ = output.format
    bytes_ = format_.bits == 8 and not format_.signed
    return output.pixels.channel == 1 and (bytes_ or (machine.words and format_ == SHORT))


def joined(formula: Formula, reads: Sequence[Read], machine: Machine) -> Residual | None:
    """The formula as a sum of two tensors of codes, or None if it is no such sum or the machine cannot pack words."""
    if not machine.packs:
        return None
    biases = {
        number: read.format.bias
        for number, read in enumerate(reads, 1)
        if read.pixels is not None and read.pixels.channel == 1 and read.format.bits == 8 and not read.format.signed
    }
    return residual(formula, biases)


@dataclass(slots=True)
class Epilogue:
    """Writes the epilogue of one block of channels.

    ``channel`` is the first channel of the block; ``pointers`` are the addresses of the tensors in ``reads``.
    """

    code: Code
    formula: Formula
    reads: Sequence[Read]
    output: Output
    block: Block
    pointers: Sequence[V]
    channel: Scalar
    machine: Machine
    joint: Residual | None = None
    """The formula as a sum of codes in 16-bit words, which interleaved blocks use."""
    pixel: Block | None = None
    """The channels of one pixel, if the lanes of ``block`` hold those of several neighbouring pixels."""
    _parameters: dict[tuple[int, int, int], V] = field(default_factory=dict)

    def addresses(self, image: Scalar, y: Scalar, x: Scalar, target: V) -> list[tuple[Pixels, int, V]]:
        """(strides, element size in bytes, address of the block's first channel) at a pixel: for the output, then for
        every tensor that the formula reads per pixel.
        """
        found = [(self.output.pixels, self.output.format.bytes, target)]
        for read, pointer in zip(self.reads, self.pointers, strict=True):
            if read.pixels is not None:
                found.append((read.pixels, read.format.bytes, pointer))
        moved = []
        for pixels, size, pointer in found:
            strides = (pixels.image, pixels.row, pixels.column, pixels.channel)
            for index, stride in zip((image, y, x, self.channel), strides, strict=True):
                pointer = self.code.at(pointer, self.code.mul(index, stride * size))
            moved.append((pixels, size, pointer))
        return moved

    def pixels(self, sums: Sequence[Sequence[V]], addresses: Sequence[Sequence[V]]) -> None:
        """Compute the codes of some pixels from their sums, and store them.

        ``addresses`` holds for each pixel the addresses that the method `addresses` gives. The pixels share the loads
        of parameters.
        """
        self._parameters.clear()
        numbers = [number for number, read in enumerate(self.reads, 1) if read.pixels is not None]
        tensors = [dict(zip(numbers, others, strict=True)) for _, *others in addresses]
        expanded: list[dict[int, list[V]]] = [{} for _ in sums]
        values: list[list[V]] = [[] for _ in sums]
        joint = self.joint if self.block.interleaved else None
        formula = joint.codes if joint else self.formula
        for q in range(len(sums[0])):
            for one, totals in enumerate(sums):
                reader = _Sums(self, totals[q], q, tensors[one], expanded[one])
                values[one].append(evaluate(self.code, formula, reader, self.block.lane))
        for one, (target, *_) in enumerate(addresses):
            if joint:
                row = self.code.load(vector(8, self.block.vectors * self.block.lane), tensors[one][joint.read])
                values[one] = results(self.code, joint, values[one], row, self.machine)
            self._store_block(values[one], target)

    def line(
        self,
        room: V,
        count: Scalar,
        addresses: Sequence[tuple[V, int]],
        meanwhile: Callable[[Scalar], None] = lambda first: None,
    ) -> None:
        """Compute and store the codes of ``count`` pixels whose sums lie in ``room``, pixel by pixel and vector by
        vector.

        ``addresses`` are those of the first pixel, each with the distance from one pixel to the next in bytes.
        ``meanwhile`` is called with the first of every few pixels, and may write further code to run there.
        """
        code, block = self.code, self.block
        kind, size = vector(32, block.lane), 4 * block.lane

        def group(first: Scalar, number: int) -> None:
            sums, moved = [], []
            for index in (code.add(first, k) for k in range(number)):
                at = code.at(room, code.mul(index, block.vectors * size))
                sums.append([code.load(kind, code.at(at, v * size), size) for v in range(block.vectors)])
                moved.append([code.at(base, code.mul(index, step)) for base, step in addresses])
            self.pixels(sums, moved)
            meanwhile(first)

        whole = code.mul(code.quotient(count, TOGETHER), TOGETHER)
        code.each(0, whole, lambda index: group(index, TOGETHER), step=TOGETHER)
        code.each(whole, count, lambda index: group(index, 1))

    def _store_block(self, values: list[V], target: V) -> None:
        if self.block.interleaved:
            self._store_interleaved(values, target)
            return
        for q, value in enumerate(values):
            count = min(self.block.lane, self.block.valid - q * self.block.lane)
            apart = q * self.block.lane * self.output.pixels.channel * self.output.format.bytes
            self._store(value, self.code.at(target, apart), count)

    def parameter(self, number: int, q: int, part: int, type_: str) -> V:
        """Load a packed parameter for vector ``q``: the whole of it, or the ``part``-th half, as ``type_`` says."""
        key = (number, q, part)
        if key not in self._parameters:
            size, block = self.reads[number - 1].format.bytes, self.pixel or self.block
            base = self.code.at(self.pointers[number - 1], self.code.mul(self.channel, size))
            offset = (q % block.vectors * block.lane + part * block.lane // 2) * size
            count = lanes(type_) * block.lane // self.block.lane
            loaded = self.code.load(vector(8 * size, count), self.code.at(base, offset))
            self._parameters[key] = repeated(self.code, loaded, lanes(type_))
        return self._parameters[key]

    def _encoded(self, value: V) -> V:
        """The stored integers of values, clipped to the clamp if there is one."""
        if self.output.clamp is None:
            return encoded(self.code, self.output.format, value)
        lo, hi = self.output.clamp
        clipped = self.code.intrinsic("smin", self.code.intrinsic("smax", value, lo), hi)
        return self.code.cast("trunc", clipped, self.output.format.bits)

    def _store(self, value: V, pointer: V, count: int) -> None:
        """Store the first ``count`` lanes, with the stride of the output's channels."""
        code, format_, stride = self.code, self.output.format, self.output.pixels.channel
        raw = self._encoded(value)
        if stride != 1:
            for lane in range(count):
                code.store(code.extract(raw, lane), code.at(pointer, lane * stride * format_.bytes))
            return
        self._store_pieces(raw, pointer, count)

    def _store_pieces(self, raw: V, pointer: V, count: int) -> None:
        """Store the first ``count`` lanes side by side, in pieces of powers of two."""
        code, most = self.code, lanes(raw.type)
        done = 0
        while done < count:
            piece = min(1 << ((count - done).bit_length() - 1), most)
            part = raw if piece == most else code.shuffle(raw, raw, range(done, done + piece))
            code.store(part, code.at(pointer, done * self.output.format.bytes))
            done += piece

    def _store_pixels(self, packed: V, one: Block, pointer: V) -> None:
        """Store the bytes of neighbouring pixels, each with the channels of the block ``one``."""
        code, apart, each = self.code, self.output.pixels.column, one.lane * one.vectors
        if one.valid == each == apart:
            code.store(packed, pointer)
            return
        for pixel in range(lanes(packed.type) // each):
            part = code.shuffle(packed, packed, range(pixel * each, (pixel + 1) * each))
            self._store_pieces(part, code.at(pointer, pixel * apart), one.valid)

    def _store_interleaved(self, values: list[V], pointer: V) -> None:
        """Store the vectors in the order of the channels."""
        code, block, format_ = self.code, self.block, self.output.format
        stride = self.output.pixels.channel
        if self.machine.narrows and narrow(self.output, self.machine):
            if format_.bits == 16:
                self._store_words(values, pointer)
                return
            packed = self._packed(values)
            if self.pixel is None:
                self._store_pieces(packed, pointer, block.valid)
            else:
                self._store_pixels(packed, self.pixel, pointer)
            return
        for q, value in enumerate(values):
            raw = self._encoded(value)
            for first in range(0, block.lane, 4):
                channel = block.vectors * first + 4 * q
                count = min(4, block.valid - channel)
                if count == 4 and stride == 1:
                    piece = code.shuffle(raw, raw, range(first, first + 4))
                    code.store(piece, code.at(pointer, channel * format_.bytes))
                    continue
                for e in range(count):
                    at = code.at(pointer, (channel + e) * stride * format_.bytes)
                    code.store(code.extract(raw, first + e), at)

    def _store_words(self, values: list[V], pointer: V) -> None:
        """Store two or four vectors as 16-bit integers: saturated, then clipped to the clamp."""
        code, lane, size = self.code, self.block.lane, self.output.format.bytes
        halves = [to_words(code, values[k], values[k + 1]) for k in range(0, self.block.vectors, 2)]
        for k, packed in zip(range(0, self.block.vectors, 2), in_order(code, halves), strict=True):
            if self.output.clamp is not None:
                lo, hi = self.output.clamp
                packed = code.intrinsic("smin", code.intrinsic("smax", packed, lo), hi)
            if self.block.valid > k * lane:
                self._store_pieces(
                    packed, code.at(pointer, k * lane * size), min(self.block.valid - k * lane, 2 * lane)
                )

    def _packed(self, values: list[V]) -> V:
        """Two or four vectors as bytes: saturated to 16 bits, then to [0, 255], then clipped to the clamp."""
        code, lane, format_ = self.code, self.block.lane, self.output.format
        if self.output.clamp is None and format_.bias:
            values = [code.binary("add", value, format_.bias) for value in values]
        halves = [to_words(code, values[k], values[k + 1]) for k in range(0, self.block.vectors, 2)]
        packed = to_bytes(code, halves[0], halves[-1])
        if len(halves) == 1:  # the pack of one vector with itself holds every 64 bits twice
            quads = code.bitcast(packed, vector(64, lane // 2))
            packed = code.bitcast(code.shuffle(quads, quads, range(0, lane // 2, 2)), vector(8, 2 * lane))
        lo, hi = self.output.clamp or (0, 255)
        if lo > 0:
            packed = code.intrinsic("umax", packed, lo)
        return code.intrinsic("umin", packed, hi) if hi < 255 else packed


@dataclass(slots=True)
class _Sums:
    """One vector of finished sums, as a `Reader`: value 0 is the sum itself."""

    epilogue: Epilogue
    total: V
    q: int
    tensors: dict[int, V]
    expanded: dict[int, list[V]]

    def value(self, number: int) -> V:
        """See `Reader.value`."""
        if number == 0:
            return self.total
        epilogue, block = self.epilogue, self.epilogue.block
        code, read = epilogue.code, epilogue.reads[number - 1]
        if read.pixels is None:
            raw = epilogue.parameter(number, self.q, 0, vector(read.format.bits, block.lane))
            return decoded(code, read.format, raw)
        pointer, stride, size = self.tensors[number], read.pixels.channel, read.format.bytes
        if stride == 0:
            return load(code, read.format, pointer, 1)
        first = self.q * block.lane
        in_order = not block.interleaved or (block.lane == 4 and size > 1)
        if in_order and stride == 1 and block.valid - first >= block.lane:
            return load(code, read.format, code.at(pointer, first * size), block.lane)
        if block.interleaved and stride == 1 and size == 1:
            if number not in self.expanded:
                self.expanded[number] = self._expanded(pointer)
            return decoded(code, read.format, self.expanded[number][self.q])
        if block.interleaved and stride == 1 and size == 2:
            every = code.load(vector(16, block.vectors * block.lane), pointer)
            return decoded(code, read.format, code.shuffle(every, every, block.channels(self.q)))
        kind = vector(read.format.bits, 1)
        channels = [min(channel, block.valid - 1) for channel in block.channels(self.q)]
        raws = [code.load(kind, code.at(pointer, channel * stride * size)) for channel in channels]
        return decoded(code, read.format, code.gathered(raws))

    def _expanded(self, pointer: V) -> list[V]:
        """All bytes of a block at one pixel, extended with zeros to the interleaved vectors of i32."""
        code, lane, vectors = self.epilogue.code, self.epilogue.block.lane, self.epilogue.block.vectors
        found = []
        for words in widened(code, code.load(vector(8, vectors * lane), pointer), lane):
            for end in (0, 1):
                longs = unpacked(code, words, typed(words.type, 0), 8, end)
                found.append(code.bitcast(longs, vector(32, lane)))
        return found

    def halves(self, number: int) -> tuple[V, V]:
        """See `Reader.halves`."""
        epilogue, lane = self.epilogue, self.epilogue.block.lane
        if epilogue.reads[number - 1].pixels is None:
            type_ = vector(64, lane // 2)
            return epilogue.parameter(number, self.q, 0, type_), epilogue.parameter(number, self.q, 1, type_)
        value, code = self.value(number), epilogue.code
        if lanes(value.type) == 1:
            half = code.splat(value, lane // 2)
            return half, half
        even = code.shuffle(value, value, range(0, lane, 2))
        return even, code.shuffle(value, value, range(1, lane, 2))

    def addresses(self, number: int) -> tuple[V, list[int]]:
        """See `Reader.addresses`."""
        read, block = self.epilogue.reads[number - 1], self.epilogue.block
        assert read.pixels is not None
        apart = read.pixels.channel * read.format.bytes
        return self.tensors[number], [min(channel, block.valid - 1) * apart for channel in block.channels(self.q)]
