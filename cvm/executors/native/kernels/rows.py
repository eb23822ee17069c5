"""Products of one row and a computed matrix, by dot products of bytes that are packed in registers.

Where the elements of a column of B lie side by side, each column is multiplied with the row, and the lanes of as many
products as a vector has lanes are added up together. Where those of a row of B do, four rows are interleaved, and each
four elements of A are multiplied with them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.descriptions.matrices import RowProducts
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, lanes, typed, vector
from cvm.executors.native.emit.machine import HIGHEST_BITS, Machine
from cvm.executors.native.emit.nest import walked
from cvm.executors.native.kernels.strided import write
from cvm.executors.native.kernels.zips import zipped
from cvm.executors.native.plan.homes import Home

__all__ = ["emit_rows", "rows"]


def rows(machine: Machine, loops: Sequence[Loop], a: Home, b: Home, target: Home, of_b: int) -> RowProducts | None:
    """The kernel for homes of bytes, the one of A with its elements side by side; None where lengths do not fit lanes.

    ``of_b`` is the axis of B that is summed over.
    """
    rank = len(b.view.axes)
    other = 2 * rank - 3 - of_b
    depth, columns = b.view.shape[of_b], b.view.shape[other]
    along, across, step = b.view.stride(of_b) or 0, b.view.stride(other) or 0, target.view.stride(rank - 1) or 0
    whole = depth // 4 if along == 1 else columns
    lane = next((lane for lane in (machine.width, *machine.narrower) if whole % lane == 0), None)
    if lane is None or (along == 1 and depth % 4):
        return None
    moved = a.format.bias - (128 if machine.signed_bytes else 0)
    formats = (a.format, b.format, target.format)
    return RowProducts(tuple(loops), depth, columns, along, across, step, formats, lane, moved)


def emit_rows(module: Module, name: str, kernel: RowProducts, machine: Machine) -> None:
    """Write the function (A, B, Y, first unit, end of units)."""
    pointers = [V("ptr", f"%{what}") for what in ("a", "b", "y")]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    sizes = [format_.bytes for format_ in kernel.formats]
    writer = _Writer(code, kernel, machine)
    walked(code, kernel.loops, (lo, hi), pointers, sizes, writer.columns if kernel.along == 1 else writer.strips)
    code.finish()


class _Writer:
    """Writes the products of one row and one matrix."""

    def __init__(self, code: Code, kernel: RowProducts, machine: Machine) -> None:
        self.code, self.kernel, self.machine = code, kernel, machine

    def columns(self, at: list[V]) -> None:
        """Columns whose elements lie side by side, as many at a time as a vector has lanes."""
        code, kernel = self.code, self.kernel
        lane, apart = kernel.lane, kernel.across
        kind = vector(32, lane)

        def some(first: Scalar, count: int) -> None:
            columns = [code.at(at[1], code.mul(code.add(first, min(k, count - 1)), apart)) for k in range(lane)]

            def step(index: V, totals: list[V]) -> list[V]:
                row = self._left(code.load(kind, code.at(at[0], index)))
                return [self._dot(total, row, code.load(kind, code.at(column, index)))
                        for column, total in zip(columns, totals, strict=True)]  # fmt: skip

            totals = code.loop(0, kernel.depth, 4 * lane, step, [typed(kind, 0)] * lane)
            self._put(_added(code, totals), at[2], first, count)

        whole = kernel.columns // lane * lane
        code.each(0, whole, lambda first: some(first, lane), step=lane)
        if whole < kernel.columns:
            some(whole, kernel.columns - whole)

    def strips(self, at: list[V]) -> None:
        """Rows whose elements lie side by side, four for each step."""
        self.code.strips(self.kernel.columns, 4 * self.kernel.lane, lambda first, count: self._strip(at, first, count))

    def _strip(self, at: list[V], first: Scalar, count: int) -> None:
        code, kernel = self.code, self.kernel
        column, kind = code.at(at[1], first), vector(8, count)
        lane = min(count, kernel.lane)

        def step(index: Scalar, existing: int, totals: Sequence[V]) -> list[V]:
            found = [
                code.load(kind, code.at(column, code.mul(code.add(index, e), kernel.along))) for e in range(existing)
            ]
            found += [typed(kind, kernel.formats[1].bias)] * (4 - existing)
            word = self._left(code.splat(code.load("i32", code.at(at[0], index)), lane))
            words = zipped(code, [[row] for row in found], 4 * lane)
            return [self._dot(total, word, code.bitcast(row, total.type))
                    for total, row in zip(totals, words, strict=True)]  # fmt: skip

        totals: Sequence[V] = [typed(vector(32, lane), 0)] * (count // lane)
        done = kernel.depth // 4 * 4
        totals = code.loop(0, done, 4, lambda index, now: step(index, 4, now), totals)
        if done < kernel.depth:
            totals = step(done, kernel.depth - done, totals)
        for number, total in enumerate(totals):
            self._put(total, at[2], code.add(first, number * lane), lane)

    def _left(self, words: V) -> V:
        return self.code.binary("xor", words, HIGHEST_BITS) if self.machine.signed_bytes else words

    def _dot(self, total: V, a: V, b: V) -> V:
        """Add the products of bytes of A and stored bytes of B to a total: of a + moved, less those of moved."""
        code, bias = self.code, self.kernel.formats[1].bias
        if bias:
            b = code.bitcast(code.binary("sub", code.bitcast(b, vector(8, 4 * lanes(b.type))), bias), b.type)
        total = self.machine.dot4(code, total, a, b)
        if not self.kernel.moved:
            return total
        word = typed(b.type, int.from_bytes(bytes([self.kernel.moved % 256] * 4), "little", signed=True))
        return code.binary("sub", total, self.machine.dot4(code, typed(b.type, 0), word, b))

    def _put(self, sums: V, target: V, first: Scalar, count: int) -> None:
        code, (_, _, format_) = self.code, self.kernel.formats
        here = code.at(target, code.mul(first, self.kernel.step * format_.bytes))
        if count < lanes(sums.type):
            for lane in range(count):
                at = code.at(here, lane * self.kernel.step * format_.bytes)
                write(code, format_, at, 1, code.extract(sums, lane), 1)
            return
        write(code, format_, here, self.kernel.step, sums, count)


def _added(code: Code, rows: Sequence[V]) -> V:
    """The sums of the lanes of each row, in one vector of as many lanes as there are rows."""
    left, count = list(rows), len(rows)
    assert count == lanes(rows[0].type), "as many rows as lanes"
    for _ in range(int(math.log2(count))):
        pairs = [(left[number], left[number + 1]) for number in range(0, len(left), 2)]
        left = [
            code.binary("add", *(code.shuffle(a, b, range(start, 2 * count, 2)) for start in (0, 1))) for a, b in pairs
        ]
    return left[0]
