"""Products of one row and a computed matrix: a team of threads adds up the words of a column, or of four columns.

Both operands are stored as bytes with a bias. A dot product multiplies these bytes: with a + p and b + q in memory,
sum a b = sum (a + p) (b + q) - q sum (a + p) - p sum (b + q) + n p q, modulo 2^32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.elements import walked
from cvm.executors.cuda.emit.permutations import transposed
from cvm.executors.cuda.emit.teams import Team, fitting, shape_of, team
from cvm.executors.cuda.emit.threads import Kernel, Shapes, digits
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.matrices import RowProducts
from cvm.executors.native.emit.elements import store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, whole

__all__ = ["emit_rows"]

WORD = 4
"""The elements of a word, and the columns that a team computes where those of a row lie side by side."""
ONES = 0x01010101


def emit_rows(module: Module, name: str, kernel: RowProducts, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (A, B, Y), or None where operands are no words at multiples of 4 bytes."""
    if kernel.depth % WORD or any((one.bits, one.signed) != (8, False) for one in kernel.formats[:2]):
        return None
    of_a, of_b = ([loop.strides[number] for loop in kernel.loops] for number in (0, 1))
    beside = kernel.across == 1
    steps = [*of_b, kernel.along, kernel.columns] if beside else [*of_b, kernel.across]
    if math.gcd(alignments[0], *of_a) % WORD or math.gcd(alignments[1], *steps) % WORD:
        return None
    if not beside and kernel.along != 1:
        return None
    each = WORD if beside else 1
    loops = (*kernel.loops, Loop(kernel.columns // each, (0, each * kernel.across, each * kernel.step)))
    extents, sizes = [loop.extent for loop in loops], [format_.bytes for format_ in kernel.formats]
    code, rows = Kernel(module, name, 3), math.prod(extents)
    size = fitting(kernel.depth // WORD)

    def row(index: Scalar, mates: Team) -> None:
        a, b, y = walked(code, loops, digits(code, whole(index), extents), sizes, code.arguments)
        sums = mates.combined(_sums(code, kernel, mates, a, b, each), _added)
        alone = code.binary("and", mates.present, code.compare("eq", mates.lane, 0))

        def write() -> None:
            for number, total in enumerate(sums):
                store(code, kernel.formats[2], total, code.at(y, number * kernel.step * sizes[2]))

        code.when(alone, write)

    team(code, rows, size, each, row)
    code.finish()
    return (shape_of(name, rows, size),)


def _added(code: Code, a: V, b: V) -> V:
    return code.binary("add", a, b)


def _sums(code: Kernel, kernel: RowProducts, mates: Team, a: V, b: V, each: int) -> list[V]:
    """The sums of the words that belong to this thread, for each column of its team."""
    p, q = kernel.formats[0].bias, kernel.formats[1].bias

    def word(index: V, now: list[V]) -> list[V]:
        left = code.load("i32", code.at(a, code.mul(index, WORD)), WORD)
        if each == 1:
            right = [code.load("i32", code.at(b, code.mul(index, WORD)), WORD)]
        else:
            first = code.at(b, code.mul(index, WORD * kernel.along))
            right = transposed(code, [code.load("i32", code.at(first, e * kernel.along), WORD) for e in range(WORD)])
        ones = typed("i32", ONES)
        less = _dot(code, left, ones, typed("i32", -WORD * p)) if q else typed("i32", 0)
        found = []
        for one, total in zip(right, now, strict=True):
            total = _dot(code, left, one, total)
            if q:  # q (sum (a + p) - 4 p) = q sum a
                total = code.binary("sub", total, code.binary("mul", less, q))
            if p:
                total = code.binary("sub", total, code.binary("mul", _dot(code, one, ones, typed("i32", 0)), p))
            found.append(total)
        return found

    return mates.each(kernel.depth // WORD, word, [typed("i32", 0)] * each)


def _dot(code: Kernel, a: V, b: V, total: V) -> V:
    return code.call("i32", "llvm.nvvm.idp4a.u.u", a, b, total)
