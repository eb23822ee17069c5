"""Products of computed matrices on tensor cores: each matrix of B is packed by one kernel, another one multiplies.

The packed order is that of constant weights, in the room that the plan has for it. While a block of threads packs words
of some columns, it adds up their elements, since the sums of a column start with minus a multiple of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.channels import place_of
from cvm.executors.cuda.emit.tensor_cores import write_tiles
from cvm.executors.cuda.emit.threads import THREADS, Kernel, Shape, Shapes
from cvm.executors.cuda.emit.tiling import WIDEST, tiling
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.matrices import Matrices
from cvm.executors.native.emit.ir import Module, Scalar, V, typed, vector

__all__ = ["emit_matrices"]

LANES = 32
"""The columns that a block of threads packs."""
SLICES = THREADS // LANES
ONES = 0x01010101
MOST_ROWS = 65535
"""The most blocks of a grid in its second direction."""


def emit_matrices(module: Module, name: str, kernel: Matrices, alignments: Sequence[int]) -> Shapes | None:
    """Write the two kernels (A, B, room, Y), or None where tensor cores do not serve or the room is too small."""
    if len(kernel.outer) > 1:  # the matrices of a unit use one room in turn
        return None
    chosen = tiling(
        kernel.product, 1, math.gcd(alignments[0], *(loop.strides[0] for loop in (*kernel.outer, *kernel.shared)))
    )
    matrices, others = kernel.units, math.prod(loop.extent for loop in kernel.shared)
    if chosen is None or chosen.blocks[1] * matrices * others > MOST_ROWS or not _reaches(kernel):
        return None
    packing = _emit_pack(module, f"{name}_pack", kernel)
    code = Kernel(module, name, 4)
    a, _, room, y = code.arguments
    tile, batch = _divided(code, code.register("ctaid", "y"), chosen.blocks[1])
    matrix, shared_by = _divided(code, batch, matrices)
    indices, loops = [matrix, *_digits(code, shared_by, kernel.shared)], [*kernel.outer, *kernel.shared]
    indices = indices if kernel.outer else indices[1:]
    for index, loop in zip(indices, loops, strict=True):
        a = code.at(a, code.mul(_wide(code, index), loop.strides[0] * kernel.product.input.bytes))
        y = code.at(y, code.mul(_wide(code, index), loop.strides[2] * kernel.product.output.format.bytes))
    room = code.at(room, code.mul(_wide(code, matrix), kernel.room))
    starts = [code.at(room, kernel.packed)] if kernel.product.starts else []
    code.arguments = [a, room, *starts, y]
    of_a = [loop.strides[0] * kernel.product.input.bytes for loop in loops]
    of_y = [loop.strides[2] * kernel.product.output.format.bytes for loop in loops]
    aligned = [
        math.gcd(alignments[0], *of_a), math.gcd(alignments[2], 64), *([4] if starts else []),
        math.gcd(alignments[3], *of_y),
    ]  # fmt: skip
    return packing, write_tiles(module, name, code, chosen, aligned, tile, matrices * others)


def _reaches(kernel: Matrices) -> bool:
    """Whether all distances within one matrix are below 2^31 bytes, which `tiling` has tested for A and Y."""
    product = kernel.product
    span = product.run * abs(kernel.along) + product.channels * abs(kernel.across)
    return max(span * kernel.weights.bytes, kernel.room) < WIDEST


def _wide(code: Kernel, number: V) -> V:
    return code.cast("zext", number, 64)


def _divided(code: Kernel, number: V, extent: int) -> tuple[V, V]:
    """The remainder of a number, and its quotient."""
    if extent == 1:
        return typed("i32", 0), number
    return code.binary("urem", number, extent), code.binary("udiv", number, extent)


def _digits(code: Kernel, number: V, loops: Sequence[Loop]) -> list[V]:
    """The index along each of some loops, the innermost last."""
    found = []
    for loop in reversed(loops):
        index, number = _divided(code, number, loop.extent)
        found.append(index)
    return found[::-1]


def _emit_pack(module: Module, name: str, kernel: Matrices) -> Shape:
    """Write the kernel that packs all matrices of B: a block of threads packs 32 columns of one matrix."""
    product = kernel.product
    code = Kernel(module, name, 4)
    _, b, room, _ = code.arguments
    last = product.segments[-1]
    columns = last.start + last.count * last.channels
    thread, matrix = code.register("tid"), _wide(code, code.register("ctaid", "y"))
    lane, slice_ = code.binary("urem", thread, LANES), code.binary("udiv", thread, LANES)
    column = code.binary("add", code.binary("mul", code.register("ctaid"), LANES), lane)
    if kernel.outer:
        b = code.at(b, code.mul(matrix, kernel.outer[0].strides[1] * kernel.weights.bytes))
    room = code.at(room, code.mul(matrix, kernel.room))
    known = code.intrinsic("umin", column, columns - 1)
    place = place_of(code, product.segments, _wide(code, known))
    target = code.at(room, code.binary("mul", place.block, 4 * product.step_words))
    target = code.at(target, code.binary("mul", place.lane, 4))
    row = code.binary("mul", place.lanes, 4)
    inside, exists = code.compare("ult", column, columns), code.compare("ult", column, product.channels)
    source = code.at(b, code.mul(_wide(code, code.intrinsic("umin", column, product.channels - 1)),
                                 kernel.across * kernel.weights.bytes))  # fmt: skip

    def step(index: V, now: list[V]) -> list[V]:
        word = _word(code, kernel, source, index, exists)
        code.when(inside, lambda: code.store(word, code.at(target, code.binary("mul", index, row)), 4))
        if not product.starts:
            return now
        return [code.call("i32", "llvm.nvvm.idp4a.s.s", word, typed("i32", ONES), now[0])]

    sums = code.loop(_wide(code, slice_), product.step_words, SLICES, step, [typed("i32", 0)])
    if product.starts:
        at = code.at(room, code.add(code.mul(place.index(code), 4), kernel.packed))
        _store_starts(code, thread, sums[0], inside, at, kernel.moved)
    code.finish()
    return Shape(name, (-(-columns // LANES), kernel.units, 1), THREADS)


def _word(code: Kernel, kernel: Matrices, source: V, step: V, exists: V) -> V:
    """The elements of one step of a column, without the bias; those that do not exist are 0."""
    product, size = kernel.product, kernel.weights.bytes
    total = typed("i32", 0)
    for one in range(product.per):
        number: Scalar = code.add(code.mul(step, product.per), one)
        here = exists
        if product.run % product.per:
            assert isinstance(number, V)
            here = code.binary("and", exists, code.compare("ult", number, product.run))
            number = code.intrinsic("umin", number, product.run - 1)
        raw = code.load(vector(8 * size, 1), code.at(source, code.mul(number, kernel.along * size)), size)
        value = code.cast("zext", code.binary("sub", raw, kernel.weights.bias) if kernel.weights.bias else raw, 32)
        value = code.select(here, value, 0)
        total = code.binary("or", total, code.binary("shl", value, 8 * size * one)) if one else value
    return total


def _store_starts(code: Kernel, thread: V, total: V, inside: V, target: V, moved: int) -> None:
    """Add up the sums of the slices of each column, and write what the sums of the column start with."""
    shared = code.shared(4 * THREADS)
    code.store(total, code.at(shared, _wide(code, code.binary("mul", thread, 4))), 4)
    code.barrier()

    def write() -> None:
        every = typed("i32", 0)
        for number in range(SLICES):
            place = code.binary("mul", code.binary("add", thread, number * LANES), 4)
            every = code.binary("add", every, code.load("i32", code.at(shared, _wide(code, place)), 4))
        code.store(code.binary("mul", every, -moved), target, 4)

    code.when(code.binary("and", inside, code.compare("ult", thread, LANES)), write)
