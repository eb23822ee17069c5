"""Reductions and normalised rows whose elements several threads share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.elements import LEAST, walked
from cvm.executors.cuda.emit.teams import Team, fitting, shape_of, team
from cvm.executors.cuda.emit.threads import Kernel, Shapes, digits
from cvm.executors.native.descriptions.computed import Normalization
from cvm.executors.native.descriptions.loops import Loop, Reduction
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed
from cvm.executors.native.kernels.normalization import row_with, store_codes, store_compared

__all__ = ["emit_normalization", "emit_reduction"]

SHORT = 64
"""Rows of fewer elements than this are computed by one thread each."""
MANY = 2**16
"""Of so many results that read neighbouring elements, each has a thread: they keep a GPU busy, and read whole lines."""


def _added(code: Code, a: V, b: V) -> V:
    return code.binary("add", a, b)


def _larger(code: Code, a: V, b: V) -> V:
    return code.intrinsic("smax", a, b)


def emit_reduction(module: Module, name: str, kernel: Reduction, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (source, target) with a team for each result; None where a thread for each is better."""
    rows, elements = (math.prod(loop.extent for loop in loops) for loops in (kernel.kept, kernel.taken))
    if elements < SHORT or (rows >= MANY and kernel.beside):
        return None
    code, size = Kernel(module, name, 2), fitting(elements)
    kept, taken = ([loop.extent for loop in loops] for loops in (kernel.kept, kernel.taken))
    sizes = kernel.source.bytes, kernel.target.bytes
    combine = _added if kernel.kind == "sum" else _larger

    def row(index: Scalar, mates: Team) -> None:
        read, write = walked(code, kernel.kept, digits(code, _value(index), kept), sizes, code.arguments)

        def element(number: V, now: list[V]) -> list[V]:
            at, _ = walked(code, kernel.taken, digits(code, number, taken), sizes, [read, write])
            return [combine(code, now[0], load(code, kernel.source, at, 1))]

        neutral = typed("i32", 0 if kernel.kind == "sum" else LEAST)
        (total,) = mates.combined(mates.each(elements, element, [neutral]), combine)
        alone = code.binary("and", mates.present, code.compare("eq", mates.lane, 0))
        code.when(alone, lambda: store(code, kernel.target, total, write))

    team(code, rows, size, 1, row)
    code.finish()
    return (shape_of(name, rows, size),)


def _value(index: Scalar) -> V:
    return typed("i64", index) if isinstance(index, int) else index


def emit_normalization(module: Module, name: str, kernel: Normalization, alignments: Sequence[int]) -> Shapes | None:
    """Write the kernel (X, m, c, k, r, e, [m / k, c / k,] target) with a team for each row; None for short rows."""
    if kernel.count < SHORT:
        return None
    code, size = Kernel(module, name, len(kernel.formats)), fitting(kernel.count)
    loops = kernel.taken or (Loop(1, (0,) * len(kernel.formats)),)
    kept, taken = [loop.extent for loop in kernel.kept], [loop.extent for loop in loops]
    rows, sizes = math.prod(kept), [format_.bytes for format_ in kernel.formats]

    def row(index: Scalar, mates: Team) -> None:
        at = walked(code, kernel.kept, digits(code, _value(index), kept), sizes, code.arguments)

        def terms(number: V, sums: list[V]) -> list[V]:
            here = walked(code, loops, digits(code, number, taken), sizes, at)
            x = code.cast("sext", load(code, kernel.formats[0], here[0], 1), 64)
            return [_added(code, sums[0], x), _added(code, sums[1], code.binary("mul", x, x))]

        zero = typed("i64", 0)
        known = row_with(code, kernel, at, mates.combined(mates.each(kernel.count, terms, [zero, zero]), _added))

        def code_of(number: V, _: list[V]) -> list[V]:
            here = walked(code, loops, digits(code, number, taken), sizes, at)
            store_codes(code, kernel, known, here, loops[-1].strides, 1,
                        lambda code, row, here: store_compared(code, kernel, row, here))  # fmt: skip
            return []

        mates.each(kernel.count, code_of)

    team(code, rows, size, 2, row)
    code.finish()
    return (shape_of(name, rows, size),)
