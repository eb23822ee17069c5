"""Kernels of `sum` and `max` over axes, on vectors of stored integers.

If neighbouring results read neighbouring elements, a vector of results adds up vectors of elements. If the elements of
a result lie side by side, vectors of them are folded into the 32-bit lanes of one vector, by dot products with ones or
by maxima, and the lanes of as many rows as a vector has lanes are folded together. The bias of all elements is
subtracted at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cvm.executors.native.descriptions.loops import Loop, Reduction
from cvm.executors.native.emit.elements import decoded, encoded, load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, lanes, typed, vector
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.nest import walked

__all__ = ["emit_reduction"]

AT_ONCE = 256
"""The most bytes whose sum fits in 16 bits: 256 * 255 < 2^16."""
UNROLLED = 4


def emit_reduction(module: Module, name: str, reduction: Reduction, machine: Machine) -> None:
    """Write the function of a reduction: (source, target, first unit, end of units)."""
    source, target, lo, hi = V("ptr", "%source"), V("ptr", "%target"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])
    sizes = reduction.source.bytes, reduction.target.bytes
    rows = None if reduction.beside else _Rows.of(code, reduction, machine)
    if rows is None:
        one = _columns if reduction.beside else _element
        walked(code, reduction.outer, (lo, hi), [source, target], sizes, lambda at: one(code, reduction, machine, at))
    elif len(reduction.kept) == 1:
        rows.between(lo, hi, [source, target])
    else:
        extent = reduction.kept[-1].extent if reduction.kept else 1
        walked(code, reduction.kept[:-1], (lo, hi), [source, target], sizes, lambda at: rows.between(0, extent, at))
    code.finish()


def _element(code: Code, reduction: Reduction, machine: Machine, at: Sequence[V]) -> None:
    """One result, element by element."""
    neutral = typed("i32", 0 if reduction.kind == "sum" else -(2**31))
    (total,) = _over(code, reduction, list(reduction.taken), at[0], [neutral], lambda here, totals: [
        _folded(code, reduction.kind, totals[0], load(code, reduction.source, here, 1))])  # fmt: skip
    store(code, reduction.target, total, at[1])


def _over(
    code: Code,
    reduction: Reduction,
    loops: Sequence[Loop],
    at: V,
    totals: Sequence[V],
    body: Callable[[V, Sequence[V]], Sequence[V]],
) -> Sequence[V]:
    """Write ``body(address, totals)``, which returns the next totals, at every index of the loops over the source."""
    if not loops:
        return body(at, totals)
    loop, rest, size = loops[0], loops[1:], reduction.source.bytes

    def step(index: V, now: Sequence[V], count: int) -> Sequence[V]:
        here = code.at(at, code.mul(index, loop.strides[0] * size))
        for number in range(count):
            now = _over(code, reduction, rest, code.at(here, number * loop.strides[0] * size), now, body)
        return now

    unrolled = 1 if rest else UNROLLED
    whole = loop.extent // unrolled * unrolled
    totals = code.loop(0, whole, unrolled, lambda index, now: step(index, now, unrolled), totals)
    for index in range(whole, loop.extent):
        totals = _over(code, reduction, rest, code.at(at, index * loop.strides[0] * size), totals, body)
    return totals


def _columns(code: Code, reduction: Reduction, machine: Machine, at: Sequence[V]) -> None:
    """Vectors of neighbouring results, whose elements lie side by side in the source."""
    loop, format_ = reduction.kept[-1], reduction.source

    def some(index: Scalar, count: int) -> None:
        start = code.at(at[0], code.mul(index, format_.bytes))
        totals = _column_sums if reduction.kind == "sum" else _column_maxima
        address = code.at(at[1], code.mul(index, loop.strides[1] * reduction.target.bytes))
        _write(code, reduction, address, totals(code, reduction, start, count))

    # The sums of a vector of bytes take two registers in 16 bits and four in 32.
    at_once = max(1, machine.registers // (16 if reduction.kind == "sum" and format_.bits == 8 else 8))
    code.strips(loop.extent, at_once * machine.width * 32 // format_.bits, some)


def _write(code: Code, reduction: Reduction, address: V, values: V) -> None:
    """Store neighbouring results."""
    step, format_ = reduction.kept[-1].strides[1], reduction.target
    if step == 1 or lanes(values.type) == 1:
        store(code, format_, values, address)
        return
    raw = encoded(code, format_, values)
    for lane in range(lanes(values.type)):
        code.store(code.extract(raw, lane), code.at(address, lane * step * format_.bytes))


def _column_maxima(code: Code, reduction: Reduction, at: V, count: int) -> V:
    """The maxima of stored integers, which are in the order of the elements."""
    format_ = reduction.source
    kind = vector(format_.bits, count)
    first = typed(kind, -(2 ** (format_.bits - 1)) if format_.signed else 0)
    fold = "smax" if format_.signed else "umax"
    (total,) = _over(code, reduction, reduction.taken, at, [first], lambda here, totals: [
        code.intrinsic(fold, totals[0], code.load(kind, here))])  # fmt: skip
    return decoded(code, format_, total)


def _column_sums(code: Code, reduction: Reduction, at: V, count: int) -> V:
    """The sums of elements: of bytes in 16 bits, as many as fit, then in 32."""
    format_ = reduction.source
    wide, extend = vector(32, count), "sext" if format_.signed else "zext"

    def loaded(here: V, bits: int) -> V:
        return code.cast(extend, code.load(vector(format_.bits, count), here), bits)

    def run(here: V, totals: Sequence[V], extent: int, stride: int) -> Sequence[V]:
        """Add up one run of bytes."""
        (sums,) = _over(code, reduction, [Loop(extent, (stride, 0))], here, [typed(vector(16, count), 0)],
                        lambda at, now: [code.binary("add", now[0], loaded(at, 16))])  # fmt: skip
        return [code.binary("add", totals[0], code.cast("zext", sums, 32))]

    def runs(here: V, totals: Sequence[V], last: Loop) -> Sequence[V]:
        """Add up the bytes along the innermost loop, `AT_ONCE` at a time."""
        stride, whole = last.strides[0], last.extent // AT_ONCE * AT_ONCE
        totals = code.loop(0, whole, AT_ONCE, lambda index, now: run(
            code.at(here, code.mul(index, stride)), now, AT_ONCE, stride), totals)  # fmt: skip
        if whole < last.extent:
            totals = run(code.at(here, whole * stride), totals, last.extent - whole, stride)
        return totals

    *outer, last = reduction.taken or [Loop(1, (0, 0))]
    if format_.bits == 8:
        (total,) = _over(code, reduction, outer, at, [typed(wide, 0)], lambda here, now: runs(here, now, last))
    else:
        (total,) = _over(code, reduction, reduction.taken, at, [typed(wide, 0)], lambda here, now: [
            code.binary("add", now[0], loaded(here, 32))])  # fmt: skip
    return code.binary("sub", total, _moved(reduction, format_.bias))


def _moved(reduction: Reduction, each: int) -> int:
    """What all elements of a result add to its sum if each adds ``each``, modulo 2^32."""
    return (each * math.prod(loop.extent for loop in reduction.taken) + 2**31) % 2**32 - 2**31


def _folded(code: Code, kind: str, total: V, value: V) -> V:
    return code.binary("add", total, value) if kind == "sum" else code.intrinsic("smax", total, value)


class _Rows:
    """Writes results whose elements lie side by side. ``lane`` is the number of 32-bit lanes of its vectors."""

    def __init__(self, code: Code, reduction: Reduction, machine: Machine, lane: int) -> None:
        self.code, self.reduction, self.machine, self.lane = code, reduction, machine, lane
        self.format, self.last = reduction.source, reduction.taken[-1]
        self.raw = vector(self.format.bits, lane * 32 // self.format.bits)
        self.outer = list(reduction.taken[:-1])

    @staticmethod
    def of(code: Code, reduction: Reduction, machine: Machine) -> _Rows | None:
        """The writer, or None if the elements do not lie side by side or fill no vector."""
        last = reduction.taken[-1] if reduction.taken else Loop(1, (0, 0))
        if last.strides[0] != 1 or reduction.source.bits > 32:
            return None
        widths = (machine.width, *machine.narrower)
        lane = next((lane for lane in widths if 4 * lane <= last.extent * reduction.source.bytes), None)
        return None if lane is None else _Rows(code, reduction, machine, lane)

    def between(self, first: Scalar, end: Scalar, at: Sequence[V]) -> None:
        """The results from ``first`` to ``end`` along the last loop over results, as many at a time as there are lanes,
        then one by one.
        """
        code, count = self.code, self.lane
        done = code.add(first, code.mul(code.quotient(code.minus(end, first), count), count))
        code.each(first, done, lambda index: self._some(index, count, at), step=count)
        code.each(done, end, lambda index: self._some(index, 1, at))

    def _some(self, index: Scalar, count: int, at: Sequence[V]) -> None:
        code, reduction = self.code, self.reduction
        loop = reduction.kept[-1] if reduction.kept else Loop(1, (0, 0))
        apart, step = loop.strides[0] * self.format.bytes, loop.strides[1] * reduction.target.bytes
        start = code.at(at[0], code.mul(index, apart))
        totals = [self._lanes(total) for total in self._totals(start, apart, count)]
        address = code.at(at[1], code.mul(index, step))
        if count > 1:
            _write(code, reduction, address, self._finished(self._combined(totals)))
            return
        fold = "add" if reduction.kind == "sum" else "smax"
        one = code.call("i32", f"llvm.vector.reduce.{fold}.v{self.lane}i32", totals[0])
        store(code, reduction.target, self._finished(one), address)

    def _totals(self, start: V, apart: int, count: int) -> Sequence[V]:
        """A vector of partial results for each of ``count`` rows."""
        code, size = self.code, 4 * self.lane
        length = self.last.extent * self.format.bytes
        whole = length // size
        along = [*self.outer, Loop(whole, (size // self.format.bytes, 0))]
        first = typed(vector(32, self.lane), 0) if self.reduction.kind == "sum" else self._least()

        def step(here: V, totals: Sequence[V]) -> Sequence[V]:
            return [self._added(total, code.load(self.raw, code.at(here, number * apart)))
                    for number, total in enumerate(totals)]  # fmt: skip

        totals = _over(code, self.reduction, along, start, [first] * count, step)
        if whole * size == length:
            return totals
        end, known = code.at(start, length - size), size - (length - whole * size)

        def rest(here: V, totals: Sequence[V]) -> Sequence[V]:
            """The last vector of a row, without the bytes that were in the vectors before it."""
            return [self._added(total, code.load(self.raw, code.at(here, number * apart)), known)
                    for number, total in enumerate(totals)]  # fmt: skip

        return _over(code, self.reduction, self.outer, end, totals, rest)

    def _least(self) -> V:
        return typed(self.raw, -(2 ** (self.format.bits - 1)) if self.format.signed else 0)

    def _added(self, total: V, raw: V, known: int = 0) -> V:
        """Fold a vector into a total. Its first ``known`` bytes have been folded before, and a sum leaves them out."""
        code, bits = self.code, self.format.bits
        if self.reduction.kind == "max":
            return code.intrinsic("smax" if self.format.signed else "umax", total, raw)
        if self._flips:
            raw = code.binary("xor", raw, -(2 ** (bits - 1)))
        if known:
            mask = code.bytes(bytes([0] * known + [255] * (4 * self.lane - known)))
            raw = code.binary("and", raw, code.bitcast(mask, raw.type))
        words = code.bitcast(raw, total.type)
        if bits == 32:
            return code.binary("add", total, words)
        one = typed(total.type, 0x01010101 if bits == 8 else 0x00010001)
        return (self.machine.dot4 if bits == 8 else self.machine.dot2)(code, total, words, one)

    @property
    def _flips(self) -> bool:
        """Whether the highest bit of each element is flipped, which subtracts 2^(bits - 1): so where unsigned integers
        meet a dot product of signed ones.
        """
        return not self.format.signed and (self.machine.signed_bytes if self.format.bits == 8 else True)

    def _lanes(self, total: V) -> V:
        """Partial results in 32-bit lanes."""
        code, bits = self.code, self.format.bits
        if self.reduction.kind == "sum" or bits == 32:
            return total
        words = vector(32, self.lane)
        fold = "smax" if self.format.signed else "umax"
        for distance in (8, 16) if bits == 8 else (16,):
            other = code.bitcast(code.binary("lshr", code.bitcast(total, words), distance), total.type)
            total = code.intrinsic(fold, total, other)
        found = code.bitcast(total, words)
        if self.format.signed:
            return code.binary("ashr", code.binary("shl", found, 32 - bits), 32 - bits)
        return code.binary("and", found, 2**bits - 1)

    def _combined(self, rows: Sequence[V]) -> V:
        """The lanes of each row folded, in one vector of as many lanes as there are rows."""
        code, count = self.code, len(rows)
        left = list(rows)
        while len(left) > 1:
            pairs = zip(left[::2], left[1::2], strict=True)
            left = [
                _folded(
                    code, self.reduction.kind, *(code.shuffle(a, b, range(start, 2 * count, 2)) for start in (0, 1))
                )
                for a, b in pairs
            ]
        return left[0]

    def _finished(self, total: V) -> V:
        """The results: stored integers less their bias."""
        bias = self.format.bias
        if self.reduction.kind == "max":
            return self.code.binary("sub", total, bias)
        flipped = 2 ** (self.format.bits - 1) if self._flips else 0
        return self.code.binary("sub", total, _moved(self.reduction, bias - flipped))
