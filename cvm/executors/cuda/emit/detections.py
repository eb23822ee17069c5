"""`get_valid_count` and `non_max_suppression`: rows in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence

from cvm.executors.cuda.emit.threads import THREADS, Kernel, Shape, Shapes, covering
from cvm.executors.native.emit.elements import load
from cvm.executors.native.emit.ir import Module, Scalar, V, typed
from cvm.executors.native.kernels.vision import Suppression, ValidCount, count_valid, fill_rows, survivors

__all__ = ["emit_suppression", "emit_valid_count"]


def emit_valid_count(module: Module, name: str, kernel: ValidCount, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (rows, counts, target): one thread for each batch, row after row."""
    code = Kernel(module, name, 3)
    source, counts, target = code.arguments
    code.elements(kernel.source.shape[0], lambda b: count_valid(code, kernel, source, counts, target, b))
    code.finish()
    return (covering(name, kernel.source.shape[0]),)


def emit_suppression(module: Module, name: str, kernel: Suppression, alignments: Sequence[int]) -> Shapes:
    """Write the kernel (rows, counts, target, scores, order, kept boxes) of one block, batch after batch.

    All threads find the rank of every row; then one thread decides row after row.
    """
    code = Kernel(module, name, 6)
    source, counts, target, scores, order, kept = code.arguments
    batches, rows, _ = kernel.source.shape

    def batch(b: Scalar) -> None:
        given = load(code, kernel.count, code.at(counts, code.mul(b, kernel.count.bytes)), 1)
        total = code.cast("sext", code.intrinsic("smin", code.intrinsic("smax", given, 0), rows), 64)
        code.mine(total, lambda n: code.store(
            kernel.source.load(code, source, b, n, 1), code.at(scores, code.mul(n, 4))))  # fmt: skip
        code.barrier()
        code.mine(total, lambda n: _rank(code, scores, order, n, total))
        code.barrier()
        considered = code.intrinsic("smin", total, kernel.top)

        def decide() -> None:
            count = survivors(code, kernel, source, order, kept, target, b, considered)
            fill_rows(code, kernel.target, target, b, count)

        code.when(code.compare("eq", code.register("tid"), 0), decide)
        code.barrier()

    code.each(0, batches, batch)
    code.finish()
    return (Shape(name, (1, 1, 1), THREADS),)


def _rank(code: Kernel, scores: V, order: V, row: V, total: V) -> None:
    """Set order[rank of row] = row: before it are rows of a greater score, or of the same score and a smaller index."""
    mine = code.load("i32", code.at(scores, code.mul(row, 4)))

    def others(k: V, before: list[V]) -> list[V]:
        theirs = code.load("i32", code.at(scores, code.mul(k, 4)))
        same = code.binary("and", code.compare("eq", theirs, mine), code.compare("slt", k, row))
        ahead = code.binary("or", code.compare("sgt", theirs, mine), same)
        return [code.binary("add", before[0], code.cast("zext", ahead, 64))]

    (position,) = code.loop(0, total, 1, others, [typed("i64", 0)])
    code.store(code.cast("trunc", row, 32), code.at(order, code.mul(position, 4)))
