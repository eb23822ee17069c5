"""Stages: pieces of the operands of a tile, copied from global to shared memory while other stages are multiplied.

A stage holds, for every slice of the sums, 64 bytes of each pixel and 16 words of each channel. Where addresses are
multiples of 4 bytes, the copies are asynchronous, in pieces of 4, 8 or 16 bytes, and what lies behind the end of a run
or of all words is filled with zeros and not read. Elsewhere, the threads load single elements and write words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from cvm.executors.cuda.emit.codes import distance, moved, pixel_at
from cvm.executors.cuda.emit.threads import SHARED, Kernel
from cvm.executors.cuda.emit.tiling import PIECE, ROW_BYTES, STATIC, Tile, Tiling, piece
from cvm.executors.native.emit.ir import Module, Scalar, V, typed, vector
from cvm.records import dataclass

__all__ = ["Staging", "shared_memory"]


def shared_memory(module: Module, code: Kernel, size: int) -> tuple[V, int]:
    """The address of ``size`` bytes of shared memory, and how many of them the launch must request."""
    if size <= STATIC:
        return code.shared(size), 0
    module.declarations.add("@dynamic_shared = external addrspace(3) global [0 x i8], align 16")
    return V(SHARED, "@dynamic_shared"), size


def _value(number: Scalar) -> V:
    return typed("i32", number) if isinstance(number, int) else number


@dataclass(slots=True)
class Staging:
    """Writes the copies of one tile. ``pixel`` is its first pixel, ``number`` that of the tile in its segment."""

    code: Kernel
    tiling: Tiling
    tile: Tile
    shared: V
    alignment: int
    """A power of two that divides the address of the input."""
    thread: V
    pixel: V
    number: V
    _pixels: list[tuple[V, Scalar, V | None]] = field(default_factory=list)
    """(source, place in a stage, whether this thread has the piece) of the pieces of pixels that a thread copies."""
    _weights: list[tuple[V, Scalar, V, V | None]] = field(default_factory=list)
    """The same of weights, with the word of each in a stage."""
    _first: V = field(default_factory=lambda: V("i32", "0"))

    @property
    def piece(self) -> int:
        """See `tiling.piece`."""
        return piece(self.tiling.kernel, self.alignment)

    @property
    def chunks(self) -> int:
        """The number of stages of one pass."""
        return -(-self.tiling.words // self.words)

    @property
    def words(self) -> int:
        """The words of a stage."""
        return self.tiling.depth * self.tile.warps[2]

    def channel(self) -> V:
        """Write the number of the first channel of the tile."""
        code, tile = self.code, self.tile
        return code.binary("add", code.binary("mul", self.number, tile.channels), tile.segment.start)

    def prepare(self) -> None:
        """Write what all stages share: where the pieces of this thread come from, and their places."""
        self._prepare_pixels()
        self._prepare_weights()

    def _prepare_pixels(self) -> None:
        code, tile, kernel = self.code, self.tile, self.tiling.kernel
        size = self.piece or 4
        row_pieces = 4 * self.words // size
        place = code.binary("urem", self.thread, row_pieces)
        self._first = code.binary("mul", place, size // 4)
        within, part, slices = 4 * self.tiling.depth // size, code.binary("mul", place, size), None
        if tile.warps[2] > 1:
            slice_, rest = code.binary("udiv", place, within), code.binary("urem", place, within)
            part = code.binary("mul", rest, size)
            slices = code.binary("mul", slice_, tile.pixels * ROW_BYTES)
        first = code.binary("udiv", self.thread, row_pieces)
        together = self.tiling.threads // row_pieces
        assert together * row_pieces == self.tiling.threads, "a thread copies the same words of all its pixels"
        for start in range(0, tile.pixels, together):
            row = code.binary("add", first, start)
            here = None if start + together <= tile.pixels else code.compare("ult", row, tile.pixels)
            number = code.intrinsic("umin", code.binary("add", self.pixel, row), self.tiling.count - 1)
            at = pixel_at(code, (kernel.images, kernel.rows, kernel.columns), number)
            source = moved(code, code.arguments[0], distance(code, at, kernel.source, kernel.input.bytes))
            # `fragments.shifted`: bits 1 and 2 of the row change bits 4 and 5 of the place.
            shift = code.binary("shl", code.binary("and", row, 6), 3)
            there = code.binary("add", code.binary("mul", row, ROW_BYTES), code.binary("xor", part, shift))
            if slices is not None:
                there = code.binary("add", there, slices)
            self._pixels.append((source, there, here))

    def _prepare_weights(self) -> None:
        code, tile, segment = self.code, self.tile, self.tile.segment
        row_pieces = 4 * tile.each // PIECE
        first, part = code.binary("mul", self.number, tile.together), typed("i32", 0)
        if tile.parts > 1:
            first, part = code.binary("udiv", self.number, tile.parts), code.binary("urem", self.number, tile.parts)
        count = tile.together * self.words * row_pieces
        for start in range(0, count, self.tiling.threads):
            number = code.binary("add", self.thread, start)
            here = None if start + self.tiling.threads <= count else code.compare("ult", number, count)
            if here is not None:
                number = code.intrinsic("umin", number, count - 1)
            rest, piece = code.binary("udiv", number, row_pieces), code.binary("urem", number, row_pieces)
            block, word = code.binary("udiv", rest, self.words), code.binary("urem", rest, self.words)
            of_block = code.intrinsic("umin", code.binary("add", first, block), segment.count - 1)
            channel = code.add(code.mul(of_block, segment.channels), segment.start)
            source = moved(code, code.arguments[1], code.mul(channel, 4 * self.tiling.kernel.step_words))
            offset = code.binary(
                "add", code.binary("mul", word, 4 * segment.channels), code.binary("mul", piece, PIECE)
            )
            source = moved(code, source, code.binary("add", offset, code.binary("mul", part, 4 * tile.each)))
            place = code.binary("add", code.binary("mul", word, tile.pitch), code.binary("mul", piece, PIECE))
            place = code.binary("add", place, code.binary("mul", block, 4 * tile.each))
            self._weights.append((source, code.add(place, tile.pixel_bytes), word, here))

    def fill(self, chunk: Scalar, number: Scalar, stage: Scalar) -> None:
        """Write the copies of chunk ``chunk`` of pass ``number`` to the stage that begins at byte ``stage``."""
        code = self.code
        first = code.mul(chunk, self.words)
        self._fill_pixels(first, stage)
        row_bytes = 4 * self.tile.segment.channels
        ahead = code.mul(code.add(code.mul(number, self.tiling.words), first), row_bytes)
        whole_chunks = self.tiling.words % self.words == 0
        for source, place, word, here in self._weights:
            there = moved(code, self.shared, code.add(place, stage))
            read = PIECE if whole_chunks else self._existing(code.add(word, first), PIECE)
            self._copy(there, moved(code, source, ahead), PIECE, read, here)

    def _existing(self, word: Scalar, size: int) -> V:
        """``size`` if the word exists, else 0."""
        return self.code.select(self.code.compare("ult", _value(word), self.tiling.words), typed("i32", size), 0)

    def _fill_pixels(self, first: Scalar, stage: Scalar) -> None:
        code, kernel = self.code, self.tiling.kernel
        word = _value(code.add(self._first, first))
        offset, step = self._along(word)
        size = self.piece or 4
        bytes_ = kernel.run * kernel.input.bytes
        ends = self.tiling.words % self.words != 0
        read: V | int = size
        if bytes_ % size:
            left = code.binary("sub", typed("i32", bytes_), code.binary("mul", step, 4))
            read = code.intrinsic("smax", code.intrinsic("smin", left, size), 0)
        elif ends:
            read = self._existing(word, size)
        if ends and bytes_ % size:
            read = code.select(code.compare("ult", word, self.tiling.words), _value(read), 0)
        word_at = None if self.piece else self._gatherer(offset, read)
        for source, place, here in self._pixels:
            there = moved(code, self.shared, code.add(place, stage))
            if word_at is None:
                self._copy(there, moved(code, source, offset), size, read, here)
            elif here is None:
                code.store(word_at(source), there, 4)
            else:
                code.when(here, lambda there=there, source=source: code.store(word_at(source), there, 4))  # type: ignore[misc]

    def _along(self, word: V) -> tuple[Scalar, V]:
        """How many bytes a word of a pass lies behind the first one in the input, and its number in its run."""
        code, kernel = self.code, self.tiling.kernel
        if not kernel.taps:
            return code.mul(word, 4), word
        tap = code.binary("udiv", word, kernel.steps)
        step = code.binary("sub", word, code.binary("mul", tap, kernel.steps))
        total = code.mul(step, 4)
        for number, (count, apart) in reversed(list(enumerate(kernel.taps))):
            index, rest = (code.binary("urem", tap, count), code.binary("udiv", tap, count)) if number else (tap, tap)
            total, tap = code.add(total, code.mul(index, apart * kernel.input.bytes)), rest
        return total, step

    def _copy(self, there: V, at: V, size: int, read: V | int, here: V | None) -> None:
        """Copy ``read`` bytes and fill the rest of ``size`` bytes with zeros, if this thread has the piece."""
        code = self.code
        name = f"llvm.nvvm.cp.async.{'cg' if size == PIECE else 'ca'}.shared.global.{size}"

        def copy() -> None:
            if isinstance(read, int):
                code.call("void", name, there, at)
            else:
                code.call("void", f"{name}.s", there, at, read)

        if here is None:
            copy()
        else:
            code.when(here, copy)

    def _gatherer(self, offset: Scalar, read: V | int) -> Callable[[V], V]:
        """The function that loads a word element by element, ``offset`` bytes behind the first element of a pixel.

        Of the word, ``read`` bytes exist; the others are 0. What all pixels share is written here. A word at the end of
        a run is loaded together with elements before it, which are shifted out, so that all addresses exist.
        """
        code, size = self.code, self.tiling.kernel.input.bytes
        if isinstance(read, int):
            return lambda source: self._word(moved(code, source, offset))
        exists = code.compare("sgt", read, 0)
        if self.tiling.kernel.run * size < 4:
            units = [code.compare("sgt", read, start) for start in range(0, 4, size)]
            places = [code.select(unit, _value(code.add(offset, size * n)), 0) for n, unit in enumerate(units)]
            return lambda source: self._joined(
                [code.select(unit, self._element(moved(code, source, place)), 0)
                 for unit, place in zip(units, places, strict=True)]
            )  # fmt: skip
        missing = code.select(exists, code.binary("sub", typed("i32", 4), read), 0)
        first = code.select(exists, code.binary("sub", _value(offset), missing), 0)
        shift = code.binary("shl", missing, 3)
        whole = self.tiling.words % self.words == 0
        keep = None if whole else code.select(exists, typed("i32", -1), 0)

        def load(source: V) -> V:
            word = code.binary("lshr", self._word(moved(code, source, first)), shift)
            return word if keep is None else code.binary("and", word, keep)

        return load

    def _word(self, at: V) -> V:
        size = self.tiling.kernel.input.bytes
        return self._joined([self._element(self.code.at(at, start)) for start in range(0, 4, size)])

    def _element(self, at: V) -> V:
        size = self.tiling.kernel.input.bytes
        return self.code.cast("zext", self.code.load(vector(8 * size, 1), at, size), 32)

    def _joined(self, elements: Sequence[V]) -> V:
        """Elements as a word, the first one lowest."""
        code, bits, (total, *others) = self.code, 8 * self.tiling.kernel.input.bytes, elements
        for number, element in enumerate(others, 1):
            total = code.binary("or", total, code.binary("shl", element, bits * number))
        return total

    def commit(self) -> None:
        """End a group of asynchronous copies."""
        self.code.call("void", "llvm.nvvm.cp.async.commit.group")

    def wait(self, left: int) -> None:
        """Wait until all but the last ``left`` groups have arrived, and for the other threads of the block."""
        self.code.call("void", "llvm.nvvm.cp.async.wait.group", V("i32", str(left)))
        self.code.barrier()
