"""Quotients, normalised rows and updated slices.

Float64 estimates and their proven errors are those of native code: each operation is one rounding of IEEE 754, which a
GPU computes too, and the codes that an estimate leaves in doubt are decided in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.elements import walked
from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.descriptions.computed import Normalization, Quotient, Update
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Module, Scalar, V
from cvm.executors.native.emit.nest import along, moved
from cvm.executors.native.kernels.normalization import row_of, store_codes, store_compared
from cvm.executors.native.kernels.quotients import codes_of, store_estimated

__all__ = ["emit_normalization", "emit_quotient", "emit_update"]


def emit_quotient(module: Module, name: str, kernel: Quotient, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (x, y, m, w, c, e, target): one thread for each code."""
    code = Kernel(module, name, len(kernel.formats))
    extents, sizes = [loop.extent for loop in kernel.loops], [format_.bytes for format_ in kernel.formats]
    inner = kernel.loops[-1]

    def exact(code_: object, here: Sequence[V]) -> None:
        found = code.cast("trunc", codes_of(code, kernel, here, inner, 1), 32)
        store(code, kernel.formats[-1], found, here[-1])

    def element(index: V) -> None:
        here = walked(code, kernel.loops, digits(code, index, extents), sizes, code.arguments)
        if kernel.doubt is None:
            exact(code, here)
        else:
            store_estimated(code, kernel, {}, here, inner, 1, exact)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)


def emit_normalization(module: Module, name: str, kernel: Normalization, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (X, m, c, k, r, e, [m / k, c / k,] target): one thread for each row."""
    code = Kernel(module, name, len(kernel.formats))
    extents, sizes = [loop.extent for loop in kernel.kept], [format_.bytes for format_ in kernel.formats]
    *outer, inner = kernel.taken or (Loop(1, (0,) * len(sizes)),)

    def row(index: V) -> None:
        at = walked(code, kernel.kept, digits(code, index, extents), sizes, code.arguments)
        known = row_of(code, kernel, at, 1)

        def one(index: Scalar, here: Sequence[V]) -> None:
            there = moved(code, here, inner.strides, sizes, index)
            store_codes(code, kernel, known, there, inner.strides, 1,
                        lambda code, row, here: store_compared(code, kernel, row, here))  # fmt: skip

        along(code, outer, at, sizes, lambda here: code.each(0, inner.extent, lambda index: one(index, here)))

    code.elements(math.prod(extents), row)
    code.finish()
    return (covering(name, math.prod(extents)),)


def emit_update(module: Module, name: str, kernel: Update, alignments: Sequence[int]) -> Shapes:
    """Write the kernels (X, U, I, target): one that copies X, unless X lies in the target, and one that writes U."""
    return (*(_kept(module, f"{name}_kept", kernel) if kernel.kept else ()), *_replaced(module, name, kernel))


def _kept(module: Module, name: str, kernel: Update) -> Shapes:
    code = Kernel(module, name, 4)
    return _copied(code, name, kernel.kept, 0, kernel, code.arguments[3])


def _replaced(module: Module, name: str, kernel: Update) -> Shapes:
    """U begins where I says, clipped to where it fits."""
    code = Kernel(module, name, 4)
    target = kernel.formats[-1]
    given = code.cast("sext", load(code, kernel.formats[2], code.arguments[2], 1), 64)
    start = code.intrinsic("smin", code.intrinsic("smax", given, 0), kernel.last)
    place = code.at(code.arguments[3], code.mul(start, kernel.stride * target.bytes))
    return _copied(code, name, kernel.replaced, 1, kernel, place)


def _copied(code: Kernel, name: str, loops: Sequence[Loop], source: int, kernel: Update, target: V) -> Shapes:
    extents, format_ = [loop.extent for loop in loops], kernel.formats[source]
    sizes = (format_.bytes, kernel.formats[-1].bytes)

    def element(index: V) -> None:
        read, write = walked(code, loops, digits(code, index, extents), sizes, [code.arguments[source], target])
        store(code, kernel.formats[-1], load(code, format_, read, 1), write)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)
