"""Kernels of nests, exchanges of axes and reductions: one thread for each element that is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Exchange, Loop, Nest, Reduction
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.formula import evaluate
from cvm.executors.native.emit.ir import Module, Scalar, V, typed
from cvm.executors.native.emit.nest import Reading, moved

__all__ = ["emit_exchange", "emit_nest", "emit_reduction", "walked"]

LEAST = -(2**31)
"""Less than every element."""


def walked(
    code: Kernel, loops: Sequence[Loop], indices: Sequence[Scalar], sizes: Sequence[int], at: list[V]
) -> list[V]:
    """The addresses at an index of the loops: ``at`` are the first ones, ``sizes`` the bytes of an element of each."""
    for loop, number in zip(loops, indices, strict=True):
        at = moved(code, at, loop.strides, sizes, number)
    return at


def emit_nest(module: Module, name: str, nest: Nest, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (every tensor)."""
    if nest.copies:
        nest = replace(nest, formats=(Format(nest.formats[0].bits, raw=True),) * 2)
    code = Kernel(module, name, len(nest.formats))
    extents, sizes = [loop.extent for loop in nest.loops], [format_.bytes for format_ in nest.formats]

    def element(index: V) -> None:
        at = walked(code, nest.loops, digits(code, index, extents), sizes, code.arguments)
        here = Reading(code, nest, at, 1)
        here.write(evaluate(code, nest.formula, here, 1))

    return _finished(code, name, math.prod(extents), element)


def emit_exchange(module: Module, name: str, kernel: Exchange, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (source, target). Neighbouring threads write neighbouring elements."""
    inner = (kernel.along, kernel.across) if kernel.packs else (kernel.across, kernel.along)
    loops = (*kernel.outer, *inner)
    code = Kernel(module, name, 2)
    extents, sizes = [loop.extent for loop in loops], (kernel.source.bytes, kernel.target.bytes)

    def element(index: V) -> None:
        read, write = walked(code, loops, digits(code, index, extents), sizes, code.arguments)
        store(code, kernel.target, load(code, kernel.source, read, 1), write)

    return _finished(code, name, math.prod(extents), element)


def emit_reduction(module: Module, name: str, kernel: Reduction, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (source, target): one thread for each result."""
    code = Kernel(module, name, 2)
    extents, sizes = [loop.extent for loop in kernel.kept], (kernel.source.bytes, kernel.target.bytes)

    def result(index: V) -> None:
        read, write = walked(code, kernel.kept, digits(code, index, extents), sizes, code.arguments)
        store(code, kernel.target, _folded(code, kernel, read), write)

    return _finished(code, name, math.prod(extents), result)


def _folded(code: Kernel, kernel: Reduction, at: V) -> V:
    """The sum, modulo 2^32, or the maximum of the elements of one result."""

    def over(loops: Sequence[Loop], at: V, total: V) -> V:
        if not loops:
            value = load(code, kernel.source, at, 1)
            return code.binary("add", total, value) if kernel.kind == "sum" else code.intrinsic("smax", total, value)
        apart = loops[0].strides[0] * kernel.source.bytes
        (total,) = code.loop(
            0, loops[0].extent, 1, lambda index, now: [over(loops[1:], code.at(at, code.mul(index, apart)), now[0])],
            [total],
        )  # fmt: skip
        return total

    return over(kernel.taken, at, typed("i32", 0 if kernel.kind == "sum" else LEAST))


def _finished(code: Kernel, name: str, count: int, element: Callable[[V], None]) -> Shapes:
    code.elements(count, element)
    code.finish()
    return (covering(name, count),)
