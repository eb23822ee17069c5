"""Maxima of windows: one thread for each pixel and channel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.cuda.emit.threads import Kernel, Shapes, covering, digits
from cvm.executors.native.emit.ir import Module, V
from cvm.executors.native.kernels.windows import Pool, store_largest, window_at

__all__ = ["emit_pool"]


def emit_pool(module: Module, name: str, pool: Pool, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (source, target)."""
    code = Kernel(module, name, 2)
    extents = (pool.images.extent, pool.rows.outputs, pool.columns.outputs, pool.channels.extent)

    def element(index: V) -> None:
        n, p, q, c = digits(code, index, extents)
        read, write = code.arguments
        for number, loop in ((n, pool.images), (c, pool.channels)):
            read = code.at(read, code.mul(number, loop.strides[0] * pool.source.bytes))
            write = code.at(write, code.mul(number, loop.strides[1] * pool.target.bytes))
        corner, out, rows, columns = window_at(code, pool, (p, q), read, write)
        store_largest(code, pool, corner, out, rows, columns, 1)

    code.elements(math.prod(extents), element)
    code.finish()
    return (covering(name, math.prod(extents)),)
