"""Products of computed matrices in their plain form: one thread for each element of the result.

Nothing is packed: elements are read where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.elements import walked
from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.matrices import Matrices, RowProducts
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Module, V, typed
from cvm.executors.native.kernels.windows import Products, product

__all__ = ["emit_matrices", "emit_products", "emit_rows"]


def emit_matrices(module: Module, name: str, kernel: Matrices, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (A, B, room, Y), which needs no room."""
    inner, output = kernel.product, kernel.product.output
    rows = Loop(inner.columns, (inner.source.column, 0, output.pixels.column))
    columns = Loop(inner.channels, (0, kernel.across, output.pixels.channel))
    loops = (*kernel.outer, *kernel.shared, rows, columns)
    formats = (inner.input, kernel.weights, output.format)
    code = Kernel(module, name, 4)
    a, b, _, y = code.arguments
    return _multiplied(code, name, loops, [a, b, y], formats, inner.run, kernel.along)


def emit_rows(module: Module, name: str, kernel: RowProducts, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (A, B, Y)."""
    loops = (*kernel.loops, Loop(kernel.columns, (0, kernel.across, kernel.step)))
    code = Kernel(module, name, 3)
    return _multiplied(code, name, loops, code.arguments, kernel.formats, kernel.depth, kernel.along)


def _multiplied(
    code: Kernel, name: str, loops: Sequence[Loop], at: list[V], formats: Sequence[Format], depth: int, along: int
) -> Shapes:
    """Write sums of ``depth`` products modulo 2^32, for A with stride 1 and B with stride ``along``."""
    extents, sizes = [loop.extent for loop in loops], [format_.bytes for format_ in formats]

    def element(index: V) -> None:
        a, b, y = walked(code, loops, digits(code, index, extents), sizes, at)

        def term(k: V, now: list[V]) -> list[V]:
            x = load(code, formats[0], code.at(a, code.mul(k, sizes[0])), 1)
            w = load(code, formats[1], code.at(b, code.mul(k, along * sizes[1])), 1)
            return [code.binary("add", now[0], code.binary("mul", x, w))]

        store(code, formats[2], code.loop(0, depth, 1, term, [typed("i32", 0)])[0], y)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)


def emit_products(module: Module, name: str, kernel: Products, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (input, weights, [bias,] output)."""
    code = Kernel(module, name, len(kernel.formats))
    sizes = [format_.bytes for format_ in kernel.formats]
    which = (0, 1, 2, 3) if kernel.biased else (0, 1, 3)
    every = kernel.loops if kernel.lanes is None else (*kernel.loops, kernel.lanes)
    loops = [Loop(loop.extent, tuple(loop.strides[number] for number in which)) for loop in every]
    extents = [*(loop.extent for loop in loops), kernel.rows.outputs, kernel.columns.outputs]

    def element(index: V) -> None:
        *outer, p, q = digits(code, index, extents)
        product(code, kernel, walked(code, loops, outer, sizes, code.arguments), p, q)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)
