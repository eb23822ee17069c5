"""Code of depthwise convolutions: each lane of a vector computes one channel.

Up to four rows of a window are interleaved into the bytes of 32-bit lanes, so that one dot product adds one column of
the window for as many channels as there are lanes. A column is interleaved once and then used for all outputs of a
strip whose windows contain it. The instructions interleave within 128 bits. So lane e of 128-bit block b of vector q
holds channel 16 b + 4 q + e; weights and parameters are packed in that order.

Few channels do not fill vectors. Then the same lanes hold the channels of several neighbouring pixels, and vectors of
weights and parameters are repeated for each pixel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cvm.executors.native.descriptions.sums import ROWS, Block, Depthwise, Pixels, Segment
from cvm.executors.native.emit.contraction import each_block, parameters, starting, tile_start
from cvm.executors.native.emit.epilogue import TOGETHER, Epilogue
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.packs import joined_lanes, repeated, unpacked
from cvm.records import dataclass

__all__ = ["emit_depthwise"]

MANY = 32
"""A machine with at least this many registers runs an epilogue while other outputs are still being summed. With fewer
registers, all finished sums are stored in memory first.
"""
SPARE = 4
"""The registers that pairs of rows take while sums lie in the others."""


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
        code, kernel, tile = self.code, self.kernel, self.segment.tile
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
        if kernel.per == 4:
            self._by_column(source, channel, weights, every, epilogue)
            return
        room = (self._by_vector if self.machine.one_shift else self._by_pairs)(source, channel, weights)
        epilogue.line(room, self.tiles, [(base, tile * pixels.column * size) for pixels, size, base in every])

    @property
    def _columns(self) -> range:
        """The columns of the input that the windows of a strip span."""
        kernel = self.kernel
        last = kernel.step * self.segment.tile * (self.tiles - 1)
        return range(last + kernel.dilation * (kernel.window[1] - 1) + 1)

    def _by_column(
        self,
        source: V,
        channel: Scalar,
        weights: V,
        every: Sequence[tuple[Pixels, int, V]],
        epilogue: Epilogue,
    ) -> None:
        """Write the sums and the epilogues of a strip, one column of the input after the other."""
        code, kernel, tile = self.code, self.kernel, self.segment.tile
        room = None if self.machine.registers >= MANY else code.alloca(vector(32, self.lane), 4 * self.tiles)
        sums: dict[int, list[V]] = {}
        done: dict[int, list[V]] = {}
        for column in self._columns:
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
                for output, totals in done.items():
                    self._spill(output, dict(enumerate(totals)), room)
                done.clear()
            elif done and (len(done) >= TOGETHER or not sums):
                addresses = [
                    [code.at(base, output * tile * pixels.column * size) for pixels, size, base in every]
                    for output in done
                ]
                epilogue.pixels(list(done.values()), addresses)
                done.clear()
        if room is not None:
            epilogue.line(room, self.tiles, [(base, tile * pixels.column * size) for pixels, size, base in every])

    def _by_pairs(self, source: V, channel: Scalar, weights: V) -> V:
        """Write the sums of a strip: as many vectors at a time as the registers hold of all tiles that share a column.

        Returns the address of the sums.
        """
        kernel, tile = self.kernel, self.segment.tile
        room = self.code.alloca(vector(32, self.lane), 4 * self.tiles)
        window = kernel.dilation * (kernel.window[1] - 1) + 1
        live = min(self.tiles, -(-window // (kernel.step * tile)))
        together = 4 if 4 * live <= self.machine.registers - SPARE else 2
        for first in range(0, 4, together):
            self._vectors(source, self._starts(channel), weights, range(first, first + together), room)
        return room

    def _vectors(self, source: V, begun: list[V], weights: V, vectors: range, room: V) -> None:
        """Write the sums of some vectors of a strip, by a loop over its tiles.

        An iteration adds the columns of the input behind those of the tile before it, up to the last one of its own
        windows. That finishes the tile. The columns also lie in windows of the tiles that follow, whose sums the
        iterations carry on: those of ``ahead`` tiles.
        """
        code, kernel = self.code, self.kernel
        last = kernel.dilation * (kernel.window[1] - 1)
        apart = kernel.step * self.segment.tile
        ahead = last // apart
        sums = [{q: begun[q] for q in vectors} for _ in range(ahead)]
        self._add_columns(sums, source, range(last - apart + 1), weights, vectors)

        def tile(index: V, carried: Sequence[V]) -> list[V]:
            values = iter(carried)
            sums = [*({q: next(values) for q in vectors} for _ in range(ahead)), {q: begun[q] for q in vectors}]
            at = code.at(source, code.mul(index, apart * kernel.source.column))
            self._add_columns(sums, at, range(last - apart + 1, last + 1), weights, vectors)
            done, *others = sums
            self._spill(index, done, room)
            return [total for one in others for total in one.values()]

        code.loop(0, self.tiles, 1, tile, [total for one in sums for total in one.values()])

    def _add_columns(self, sums: list[dict[int, V]], source: V, columns: range, weights: V, vectors: range) -> None:
        """Add some columns of the input to the sums of successive tiles, of which the first begins at column 0.

        Of each column, two rows at a time are widened: their bytes become 16-bit integers.
        """
        code, kernel = self.code, self.kernel
        for column in columns:
            uses = [(output, tap) for output, tap in self._uses(column) if output < len(sums)]
            at = code.at(source, column * kernel.source.column)
            for first in range(0, kernel.window[0] if uses else 0, 2):
                for q, words in self._widened(at, first, vectors):
                    for output, tap in uses:
                        begins = (tap, first) == (0, 0)
                        sums[output][q] = self._with_rows(sums[output][q], words, weights, tap, first, q, begins)

    def _widened(self, at: V, first: int, vectors: range) -> Iterator[tuple[int, V]]:
        """Row ``first`` of a column and the row after it, interleaved as pairs of 16-bit integers, for each vector."""
        code, kernel, lane = self.code, self.kernel, self.lane
        zero = V(vector(8, 4 * lane), "zeroinitializer")
        low, high = (
            self._loaded(code.at(at, kernel.row(number) * kernel.taps[0])) if number < kernel.window[0] else zero
            for number in (first, first + 1)
        )
        for half in range(vectors.start // 2, vectors.stop // 2):
            both = unpacked(code, low, high, 16, half)
            for end in (0, 1):
                yield 2 * half + end, code.bitcast(unpacked(code, both, zero, 16, end), vector(32, lane))

    def _with_rows(self, total: V, words: V, weights: V, tap: int, first: int, q: int, begins: bool) -> V:
        """Add the products of two rows, from row ``first`` on, of one column of the window to a vector of sums.

        ``begins``: whether these are the first products.
        """
        code, kernel, block = self.code, self.kernel, self.segment.block
        group, row = divmod(first, ROWS)
        place = ((tap * kernel.groups + group) * block.vectors + q % block.vectors) * 2 + row // 2
        at = code.at(weights, place * 4 * block.lane)
        if self.segment.tile == 1 and (kernel.starts or not begins):
            return self.machine.dot2_at(code, total, words, at)
        taps = self._repeated(code.load(vector(32, block.lane), at))
        return self.machine.dot2(code, total, words, taps)  # LLVM adds no zeros, with which sums may begin

    def _by_vector(self, source: V, channel: Scalar, weights: V) -> V:
        """The sums of a strip in memory, computed for one vector of channels after the other.

        Then all weights of a vector and the sums that a column adds to lie in registers.
        """
        code, kernel, block = self.code, self.kernel, self.segment.block
        kind, size = vector(32, block.lane), 4 * block.lane
        room = code.alloca(kind, block.vectors * self.tiles)
        each = 2 * ROWS * block.lane

        def one(number: Scalar) -> None:
            start = code.at(self.pointers[-1], code.mul(code.add(channel, code.mul(number, block.lane)), 4))
            begun = code.load(kind, start) if kernel.starts else typed(kind, 0)
            at, own = code.at(source, code.mul(number, block.lane)), code.at(weights, code.mul(number, each))
            taps = self._taps(own, block.vectors * each)
            target = code.at(room, code.mul(number, size))
            sums: dict[int, V] = {}
            for column in self._columns:
                uses = self._uses(column)
                pairs = self._pairs(code.at(at, column * kernel.source.column)) if uses else []
                for output, tap in uses:
                    total = sums.pop(output, begun)
                    for pair, factor in zip(pairs, taps[tap], strict=True):
                        total = self.machine.dot2(code, total, pair, factor)
                    if tap == kernel.window[1] - 1:
                        code.store(total, code.at(target, output * block.vectors * size), size)
                    else:
                        sums[output] = total

        code.each(0, -(-block.valid // block.lane), one)
        return room

    def _taps(self, weights: V, size: int) -> list[list[V]]:
        """The weights of one vector of channels: for each column of the window, those of every pair of rows. ``size``
        is the number of bytes of all vectors of a group of rows.
        """
        code, kernel, lane = self.code, self.kernel, self.segment.block.lane
        groups = [divmod(pair, ROWS // 2) for pair in range(-(-kernel.window[0] // 2))]
        found = []
        for tap in range(kernel.window[1]):
            offsets = [(tap * kernel.groups + group) * size + pair * 4 * lane for group, pair in groups]
            found.append([code.load(vector(32, lane), code.at(weights, at)) for at in offsets])
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

    def _spill(self, output: Scalar, totals: Mapping[int, V], room: V) -> None:
        """Store vectors of finished sums of a tile in memory, which frees their registers."""
        code, size = self.code, 4 * self.lane
        target = code.at(room, code.mul(output, 4 * size))
        for q, total in totals.items():
            code.store(total, code.at(target, q * size), size)

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
