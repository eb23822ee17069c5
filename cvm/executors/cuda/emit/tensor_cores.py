"""Convolutions and products on tensor cores: the sums of a tile of pixels and channels, then their codes.

A block of threads copies pieces of its pixels and of the packed weights to stages of shared memory (`staging`), and its
warps multiply what lies in the oldest stage (`fragments`). Weights have the order of the plan, words of 4 bytes of
neighbouring channels side by side. Bytes of activations are unsigned and those of weights signed, as one instruction
takes them. Elements of 16 bits are split in registers into an upper byte with a sign and a lower one without: four
products, whose sums are added up with shifts. All sums are numbers modulo 2^32, so any order gives the proven result.

Shared memory holds 64 bytes of a pixel side by side, in an order of its four pieces in which ldmatrix finds the pieces
of eight rows in different banks (`fragments.shifted`). Of the weights, a thread loads up to 16 bytes of a row of words;
the threads that the hardware serves together read 32 bytes of each of four rows, which lie in different banks
(`Tile.pitch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from cvm.executors.cuda.emit.codes import moved
from cvm.executors.cuda.emit.fragments import (
    LANES,
    MATRIX_ROW,
    MEMBERS,
    ROWS,
    STEPS,
    WORDS,
    load_a,
    multiply,
    word,
)
from cvm.executors.cuda.emit.permutations import permuted
from cvm.executors.cuda.emit.staging import Staging, shared_memory
from cvm.executors.cuda.emit.threads import Kernel, Shape, Shapes
from cvm.executors.cuda.emit.tile_epilogue import Epilogue
from cvm.executors.cuda.emit.tiling import PIECE, ROW_BYTES, SAMPLES, Tile, Tiling, tiling
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.emit.ir import Module, V, typed, vector
from cvm.records import dataclass

__all__ = ["emit_contraction", "emit_tiled", "write_tiles"]

LOWER, UPPER = 0x6420, 0x7531
"""Which bytes of two words with two elements each are the lower ones, and the upper ones, of the four elements."""
PRODUCTS = ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2))
"""The products of digits: the digit of A and that of B (0: lower, 1: upper), and the sum that takes them."""
SIGNS = ("u8", "s8")


def emit_contraction(module: Module, name: str, kernel: Contraction, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (input, weights, [start of sums,] reads.., output), or None where tensor cores do not serve."""
    chosen, crowded = (tiling(kernel, samples, alignments[0]) for samples in (1, SAMPLES))
    if chosen is None or crowded is None:
        return None
    shape = emit_tiled(module, name, chosen, alignments)
    if crowded.tiles != chosen.tiles:
        shape = replace(shape, crowded=emit_tiled(module, f"{name}_many", crowded, alignments))
    return (shape,)


def emit_tiled(module: Module, name: str, chosen: Tiling, alignments: Sequence[int]) -> Shape:
    """Write the kernel with the tiling given."""
    kernel = chosen.kernel
    code = Kernel(module, name, (3 if kernel.starts else 2) + len(kernel.reads) + 1)
    return write_tiles(module, name, code, chosen, alignments, code.register("ctaid", "y"))


def write_tiles(
    module: Module, name: str, code: Kernel, chosen: Tiling, alignments: Sequence[int], block: V, batch: int = 1
) -> Shape:
    """Write the code of a kernel whose arguments are those of `emit_contraction`, for the tile of channels ``block``.

    The grid has ``batch`` times as many tiles of channels.
    """
    assert alignments[1] % PIECE == 0, "the first weights lie at a multiple of a piece"
    shared, requested = shared_memory(module, code, chosen.shared)
    thread = code.register("tid")
    pixel = code.binary("mul", code.register("ctaid"), chosen.tiles[0].pixels)
    before = 0
    for tile in chosen.tiles:
        number = code.binary("sub", block, before)
        staging = Staging(code, chosen, tile, shared, alignments[0], thread, pixel, number)
        writer = _Writer(code, chosen, tile, staging, alignments)
        if len(chosen.tiles) == 1:
            writer.write()
        else:
            after = code.compare("uge", block, before)
            code.when(code.binary("and", after, code.compare("ult", block, before + tile.count)), writer.write)
        before += tile.count
    code.finish()
    limited = f'nounwind "nvvm.maxntid"="{chosen.threads}" {{'
    module.functions[name] = module.functions[name].replace("nounwind {", limited, 1)
    across, down, _ = chosen.blocks
    return Shape(name, (across, down * batch, 1), chosen.threads, requested)


@dataclass(slots=True)
class _Writer:
    """Writes the code of one segment."""

    code: Kernel
    tiling: Tiling
    tile: Tile
    staging: Staging
    alignments: Sequence[int]

    @property
    def split(self) -> bool:
        """Whether elements of 16 bits are split into bytes."""
        return self.tiling.kernel.per == 2

    @property
    def _steps(self) -> int:
        """The instructions for each row of a stage."""
        return self.tiling.depth * STEPS // WORDS

    def write(self) -> None:
        """Write the sums of a tile and their epilogue."""
        code, tile, kernel = self.code, self.tile, self.tiling.kernel
        self.staging.prepare()
        warp, lane = code.binary("udiv", self.staging.thread, LANES), code.binary("urem", self.staging.thread, LANES)
        m, n, _ = tile.warps
        column, rest = code.binary("urem", warp, n), code.binary("udiv", warp, n)
        row, slice_ = code.binary("urem", rest, m), code.binary("udiv", rest, m)
        group, member = code.binary("udiv", lane, MEMBERS), code.binary("urem", lane, MEMBERS)
        reads = self._operands((row, column, slice_), lane, (group, member))
        zeros = [typed("i32", 0)] * (tile.sums * (3 if self.split else 1))
        if len(kernel.shifts) == 1:
            sums = self._pass(0, zeros, reads)
        else:
            sums = zeros
            for number, shift in enumerate(kernel.shifts):
                if number:
                    code.barrier()
                if shift:
                    sums = [code.binary("shl", total, shift) for total in sums]
                sums = self._pass(number, sums, reads)
        if self.split:
            sums = [self._joined(*sums[3 * k : 3 * k + 3]) for k in range(tile.sums)]
        Epilogue.of(self.staging, self.alignments, (row, column, slice_), (group, member)).write(sums)

    def _operands(self, warp: tuple[V, V, V], lane: V, part: tuple[V, V]) -> tuple[list[V], V]:
        """Places in a stage: of the row of pixels that a thread names to ldmatrix in each step, and of its weights.

        ``warp`` is (row, column, slice) of the warp, ``part`` the group of the lane and its member there.
        """
        code, tile, (row, column, slice_), (group, member) = self.code, self.tile, warp, part
        within, piece = code.binary("and", lane, ROWS - 1), code.binary("lshr", lane, 4)  # `fragments.a_row`
        pixel = code.binary("add", code.binary("mul", row, ROWS * tile.rows), within)
        first = code.binary("mul", pixel, ROW_BYTES)
        shift = code.binary("and", code.binary("lshr", within, 1), 3)  # `fragments.shifted`
        channel = code.binary("mul", column, tile.groups * tile.group)
        channel = code.binary("add", channel, code.binary("mul", group, tile.beside))
        weights = code.binary("add", code.binary("mul", channel, 4), code.binary("mul", member, tile.pitch))
        weights = code.binary("add", weights, tile.pixel_bytes)
        if tile.warps[2] > 1:
            first = code.binary("add", first, code.binary("mul", slice_, tile.pixels * ROW_BYTES))
            weights = code.binary("add", weights, code.binary("mul", slice_, WORDS * tile.pitch))
        pixels = []
        for step in range(self._steps):
            place = code.binary("xor", code.binary("add", piece, 2 * step), shift)
            pixels.append(code.binary("add", first, code.binary("mul", place, MATRIX_ROW)))
        return pixels, weights

    def _pass(self, number: int, sums: list[V], reads: tuple[list[V], V]) -> list[V]:
        """Write the loop over the chunks of one pass. A stage is filled again after all have multiplied it."""
        code, staging, stages, size = self.code, self.staging, self.tiling.stages, self.tile.stage
        chunks = staging.chunks
        for ahead in range(stages - 1):
            if ahead < chunks:
                staging.fill(ahead, number, ahead * size)
            staging.commit()
        full = typed("i32", 0), typed("i32", (stages - 1) * size)

        def chunk(index: V, values: list[V]) -> list[V]:
            taken, free, *now = values
            staging.wait(stages - 2)
            following = code.binary("add", code.cast("trunc", index, 32), stages - 1)
            if chunks >= stages:
                inside = code.compare("ult", following, chunks)
                code.when(inside, partial(staging.fill, following, number, free))
            staging.commit()
            now = self._products(taken, reads, now)
            return [*(self._next(place) for place in (taken, free)), *now]

        _, _, *sums = code.loop(0, chunks, 1, chunk, [*full, *sums])
        return sums

    def _next(self, place: V) -> V:
        """The stage behind one, or the first one."""
        code, size = self.code, self.tile.stage
        after = code.binary("add", place, size)
        return code.select(code.compare("eq", after, self.tiling.stages * size), typed("i32", 0), after)

    def _products(self, stage: V, reads: tuple[list[V], V], sums: Sequence[V]) -> list[V]:
        """Add the products of one slice of a stage."""
        code, tile = self.code, self.tile
        steps, weights = [self._read(stage, read) for read in reads[0]], self._read(stage, reads[1])
        a = [[load_a(code, code.at(at, ROWS * row * ROW_BYTES)) for at in steps] for row in range(tile.rows)]
        each, size = vector(32, tile.beside), 4 * tile.beside
        rows = [e * MEMBERS * tile.pitch for e in range(self.tiling.depth // MEMBERS)]
        places = [[row + 4 * group * tile.group for group in range(tile.groups)] for row in rows]
        b = [[self._lanes(code.load(each, code.at(weights, place), size)) for place in row] for row in places]
        found = list(sums)
        for group in range(tile.groups):
            for beside in range(tile.beside):
                words = [row[group][beside] for row in b]
                slots = [(row * tile.groups + group) * tile.beside + beside for row in range(tile.rows)]
                if self.split:
                    self._digit_products(found, slots, a, words)
                else:
                    self._byte_products(found, slots, a, words)
        return found

    def _lanes(self, value: V) -> list[V]:
        count = 1 if value.type == "i32" else int(value.type[1])
        return [self.code.extract(value, lane) for lane in range(count)]

    def _read(self, stage: V, place: V) -> V:
        return moved(self.code, self.staging.shared, self.code.binary("add", place, stage))

    def _byte_products(self, sums: list[V], slots: Sequence[int], a: Sequence[list[list[V]]], b: list[V]) -> None:
        """Add the products of tiles of 16 pixels and 8 channels to the sums of their slots.

        ``a`` has a fragment for each tile and step. The same fragment of B serves all tiles, one after the other: the
        assembler copies its two words to neighbouring registers, and does so again if others are used in between.
        """
        for step in range(self._steps):
            right = [b[word(0, step, half) // MEMBERS] for half in (0, 1)]
            for slot, left in zip(slots, a, strict=True):
                here = slice(4 * slot, 4 * slot + 4)
                sums[here] = multiply(self.code, ("u8", "s8"), left[step], right, sums[here])

    def _digit_products(self, sums: list[V], slots: Sequence[int], a: Sequence[list[list[V]]], b: list[V]) -> None:
        """The same for elements of 16 bits: the products of their digits, which three sums take."""
        code = self.code
        digits_b = [self._digits(b, digit) for digit in (LOWER, UPPER)]
        for slot, fragment in zip(slots, a, strict=True):
            for of_a, of_b, target in PRODUCTS:
                digit = (LOWER, UPPER)[of_a]
                left = [permuted(code, one[row], one[row + 2], digit) for one in fragment for row in (0, 1)]
                places = [3 * (4 * slot + number) + target for number in range(4)]
                kinds = SIGNS[of_a], SIGNS[of_b]
                made = multiply(code, kinds, left, digits_b[of_b], [sums[place] for place in places])
                for place, total in zip(places, made, strict=True):
                    sums[place] = total

    def _digits(self, words: Sequence[V], which: int) -> list[V]:
        """The lower or the upper bytes of eight elements of 16 bits, as two words."""
        return [permuted(self.code, words[k], words[k + 1], which) for k in (0, 2)]

    def _joined(self, low: V, middle: V, high: V) -> V:
        """The sum of products of 16 bits, from those of their digits."""
        code = self.code
        total = code.binary("add", low, code.binary("shl", middle, 8))
        return code.binary("add", total, code.binary("shl", high, 16))
