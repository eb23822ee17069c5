"""Normalised rows: exact sums of a row, an estimate of each code in float64, and integers where that leaves a doubt.

With V = r^2 Q + e 2^shift, a code is round(u), clipped, for u = (m / k) z + c / k and z = t r / sqrt(V). The factors
m / k and c / k are prepared as float64 numbers, and |z| <= sqrt(n): n Q >= t^2 for each statistic, because a square is
at most the sum of all, and Samuelson's inequality bounds (n x - S_1)^2 by (n - 1) (n S_2 - S_1^2). So the error of the
estimate has a bound that the planner states as `Normalization.doubt` and that `checker.estimates` proves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.computed import Normalization
from cvm.executors.native.descriptions.formats import INT64
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit import doubles
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, element, typed, vector
from cvm.executors.native.emit.nest import along, moved, walked
from cvm.executors.native.kernels.strided import lanes_of, readable, strides, writable, write
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["PLANS", "Row", "emit_normalization", "row_of", "row_with", "store_codes", "store_compared"]

MOST_FACTORS = 2**16
"""The most factors of which the error of an estimate is proven, which takes some microseconds for each."""
LEAST_DOUBT, MOST_DOUBT = 4, 50
"""An estimate that is wrong by more than 2^-4 saves too little; 1/2 - 2^-50 is a float64 number."""


def plan_normalization(planner: Planning, node: Node) -> None:
    """The sums of a row, then each of its codes."""
    name = node.outputs[0].name
    a = planner.call_of(node).attributes
    shape = planner.shape(name)
    rank = len(shape)
    along = {axis % rank for axis in a.axes}
    reads = [_rows(planner, node, along), *(readable(planner, source) for source in node.inputs[1:])]
    count = math.prod(shape[axis] for axis in along)
    estimate = None if name in planner.plain else _estimate(planner, node, count)
    if estimate is not None:
        reads += estimate.factors
    target = writable(planner, name)
    columns = [strides(home, rank) for home in (*reads, target)]
    loops = [Loop(n, tuple(column[axis] for column in columns)) for axis, n in enumerate(shape)]
    kept, taken = (
        tuple(
            sorted(
                (loop for axis, loop in enumerate(loops) if (axis in along) == inside and loop.extent > 1),
                key=lambda loop: -abs(loop.strides[-1]),
            )
        )
        for inside in (False, True)
    )
    kernel = Normalization(
        kept, taken, tuple(home.format for home in (*reads, target)), a.statistic, count, a.shift,
        a.rounding == "half_even", a.lo, a.hi, estimate.doubt if estimate else None,
    )  # fmt: skip
    function = planner.kernel(kernel, "normalization")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    note, each = "exact comparisons of squares in 256-bit integers", 30.0
    if estimate:
        note, each = f"float64 estimates within 2^-{estimate.doubt}, else {note}", 1.2
    planner.call(function, [home.at() for home in (*reads, target)], kernel.units, name, note, each * math.prod(shape))


SHORT = 16
"""Rows and columns of fewer elements are read where they lie."""


def _rows(planner: Planning, node: Node, along: set[int]) -> Home:
    """X, where the elements of a row lie side by side if they can: it is read twice, in vectors."""
    home = readable(planner, node.inputs[0])
    extents = planner.shape(node.inputs[0])
    inner = [axis for axis in along if home.view.stride(axis) == 1 and extents[axis] > 1]
    if (
        inner
        or math.prod(extents[axis] for axis in along) < SHORT
        or math.prod(extents) < SHORT**2
        or home.border != (0, 0)
    ):
        return home
    order = [*(axis for axis in range(len(extents)) if axis not in along), *sorted(along)]
    return planner.laid_out(node.inputs[0], home.format, order, (0, 0))


@dataclass(frozen=True, slots=True)
class _Estimate:
    """The homes of m / k and c / k in float64, and d: codes that are wrong by at most 2^-d before they are rounded."""

    factors: tuple[Home, Home]
    doubt: int


def _estimate(planner: Planning, node: Node, count: int) -> _Estimate | None:
    """The factors of an estimate, unless its error might be large.

    Each of seven roundings on the way to (m / k) z and of two on the way to c / k is counted as if there were sixteen.
    """
    m, c, k = (_integers(planner, name) for name in node.inputs[1:4])
    if max(math.prod(np.broadcast_shapes(one.shape, k.shape)) for one in (m, c)) > MOST_FACTORS:
        return None
    by_weight, by_offset = _divided(m, k), _divided(c, k)
    scale, offset = (Fraction(max(map(abs, one.ravel().tolist()))) for one in (by_weight, by_offset))
    error = 16 * (scale * (math.isqrt(count) + 1) + offset + 1) / 2**53
    doubt = min((error.denominator // error.numerator).bit_length() - 1, MOST_DOUBT)
    if doubt < LEAST_DOUBT:
        return None
    homes = [planner.constants.home(one.view(np.int64), INT64) for one in (by_weight, by_offset)]
    return _Estimate((homes[0], homes[1]), doubt)


def _integers(planner: Planning, name: str) -> npt.NDArray[Any]:
    values = planner.constant(name)
    assert values is not None, "parameters are constants"
    return values


def _divided(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The quotients of integers of 64 bits, each correctly rounded to float64, as Python divides its integers."""
    a, b = np.broadcast_arrays(a, b)
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    return np.array([one / other for one, other in pairs], np.float64).reshape(a.shape)


def emit_normalization(module: Module, name: str, kernel: Normalization, width: int) -> None:
    """The function: (X, m, c, k, r, e, [m / k, c / k,] target, first unit, end of units)."""
    exact = _emit_exact(module, f"{name}_exact", kernel)
    pointers = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    sizes = [format_.bytes for format_ in kernel.formats]
    wide = max(1, width // 2)

    def row(at: list[V]) -> None:
        known = row_of(code, kernel, at, wide)
        *outer, inner = kernel.taken or (Loop(1, (0,) * len(pointers)),)

        def innermost(here: list[V]) -> None:
            def some(index: Scalar, count: int) -> None:
                there = moved(code, here, inner.strides, sizes, index)
                store_codes(code, kernel, known, there, inner.strides, count, exact)

            code.strips(inner.extent, 2 * wide if kernel.doubt else 1, some)

        along(code, outer, at, sizes, innermost)

    walked(code, list(kernel.kept), (lo, hi), pointers, sizes, row)
    code.finish()


Exact = Callable[["Code", "Row", Sequence[V]], None]
"""Writes a call that computes one code, from the addresses of its operands and its own."""


@dataclass(frozen=True, slots=True)
class Row:
    """What all elements of a row share: its sum (i64), V = r^2 Q + e 2^s (i128), and r / sqrt(V) in float64."""

    total: V
    radicand: V
    inverse: V


def row_of(code: Code, kernel: Normalization, at: Sequence[V], wide: int) -> Row:
    """Write the code of what a row shares, with its sums in ``wide`` lanes of 64 bits."""
    return row_with(code, kernel, at, _sums(code, kernel, at[0], wide))


def row_with(code: Code, kernel: Normalization, at: Sequence[V], sums: Sequence[V]) -> Row:
    """Write the code of what a row shares, from the sums of its elements and of their squares, in i64."""
    root = code.cast("sext", load(code, kernel.formats[4], at[4], 1), 64)
    epsilon = code.cast("sext", load(code, kernel.formats[5], at[5], 1), 128)
    square = code.cast("zext", _square(code, kernel, sums), 128)
    long = code.cast("sext", root, 128)
    radicand = code.binary("mul", code.binary("mul", long, long), square)
    radicand = code.binary("add", radicand, code.binary("shl", epsilon, kernel.shift))
    divisor = doubles.root(code, doubles.add_halves(code, radicand))
    return Row(sums[0], radicand, doubles.divide(code, doubles.double_of(code, root), divisor))


def _sums(code: Code, kernel: Normalization, read: V, wide: int) -> list[V]:
    """The sums of the elements of a row and of their squares, in i64: whole vectors, then what is left of a line.

    Elements of 16 bits have squares of 32. Those of a vector of bytes are added up in 32 bits, as many as fit.
    """
    format_ = kernel.formats[0]
    *outer, inner = kernel.taken or (Loop(1, (0,)),)
    lines = math.prod(loop.extent for loop in outer)
    if wide > 1 and format_.bits <= 16 and inner.strides[0] == 1 and inner.extent >= 2 * wide:
        largest = max(map(abs, format_.hull))
        wide, narrow = 2 * wide, largest**2 * lines * (inner.extent // (2 * wide)) < 2**31
    else:
        wide, narrow = wide if inner.strides[0] == 1 and inner.extent >= wide else 1, False
    whole, bits = inner.extent // wide * wide, 32 if narrow else 64

    def terms(at: V, index: V, count: int, sums: Sequence[V]) -> list[V]:
        here = code.at(at, code.mul(index, inner.strides[0] * format_.bytes))
        x = load(code, format_, here, count)
        square = code.binary("mul", x, x) if format_.bits <= 16 else None
        bits = int(element(sums[0].type)[1:])
        wide_x = code.cast("sext", x, bits)
        wide_square = code.binary("mul", wide_x, wide_x) if square is None else code.cast("zext", square, bits)
        return [code.binary("add", sums[0], wide_x), code.binary("add", sums[1], wide_square)]

    def walk(loops: Sequence[Loop], at: V, sums: list[V]) -> list[V]:
        if not loops:
            vectors = code.loop(0, whole, wide, lambda index, now: terms(at, index, wide, now), sums[:2])
            left = code.loop(whole, inner.extent, 1, lambda index, now: terms(at, index, 1, now), sums[2:])
            return [*vectors, *left]
        apart = loops[0].strides[0] * format_.bytes
        return code.loop(
            0, loops[0].extent, 1,
            lambda index, now: walk(loops[1:], code.at(at, code.mul(index, apart)), now), sums,
        )  # fmt: skip

    zero = typed(vector(bits, wide), 0)
    *vectors, total, squares = walk(outer, read, [zero, zero, typed("i64", 0), typed("i64", 0)])
    vectors = [code.cast("sext", one, 64) for one in vectors]
    if wide == 1:
        both = vectors
    else:
        both = [code.call("i64", f"llvm.vector.reduce.add.v{wide}i64", one) for one in vectors]
    return [code.binary("add", one, other) for one, other in zip(both, (total, squares), strict=True)]


def _square(code: Code, kernel: Normalization, sums: Sequence[V]) -> V:
    """Q, which is below 2^62, from the sums of a row."""
    if kernel.statistic == "square_sum":
        return sums[1]
    scaled = code.binary("mul", sums[1], kernel.count)
    if kernel.statistic == "mean_square":
        return scaled
    return code.binary("sub", scaled, code.binary("mul", sums[0], sums[0]))


def store_codes(
    code: Code, kernel: Normalization, row: Row, here: Sequence[V], apart: Sequence[int], count: int, exact: Exact
) -> None:
    """Store the codes of ``count`` elements at strides ``apart``: by estimates, and where these leave a doubt exactly.

    n x and n x - S_1 are below 2^32, so they are float64 numbers.
    """
    if kernel.doubt is None:
        exact(code, row, here)
        return
    x = lanes_of(code, kernel.formats[0], here[0], apart[0], count)
    t = doubles.double_of(code, x)
    if kernel.statistic != "square_sum":
        t = doubles.multiply(code, t, doubles.constant(float(kernel.count), count))
    if kernel.statistic == "variance":
        t = doubles.subtract(code, t, doubles.spread(code, doubles.double_of(code, row.total), count))
    z = doubles.multiply(code, t, doubles.spread(code, row.inverse, count))
    factor, offset = (
        code.bitcast(lanes_of(code, INT64, here[number], apart[number], count), doubles.kind(count))
        for number in (6, 7)
    )
    estimate = doubles.add(code, doubles.multiply(code, factor, z), offset)
    codes, doubtful = doubles.rounded(code, estimate, kernel.lo, kernel.hi, kernel.doubt)
    write(code, kernel.formats[-1], here[-1], apart[-1], codes, count)

    def again(lane: Scalar) -> None:
        sizes = [format_.bytes for format_ in kernel.formats]
        exact(code, row, moved(code, here, apart, sizes, lane))

    code.when(doubtful, lambda: code.each(0, count, again))


def _emit_exact(module: Module, name: str, kernel: Normalization) -> Exact:
    """The function that computes one code: (addresses of operands and target, what a row shares)."""
    here = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    row = Row(V("i64", "%total"), V("i128", "%radicand"), V("double", "%inverse"))
    code = Code(module, name, [*here, row.total, row.radicand, row.inverse])
    store_compared(code, kernel, row, here)
    code.finish()

    def call(code: Code, row: Row, here: Sequence[V]) -> None:
        arguments = [*here, row.total, row.radicand, row.inverse]
        code.line(f"call void @{name}({', '.join(map(str, arguments))})")

    return call


def store_compared(code: Code, kernel: Normalization, row: Row, here: Sequence[V]) -> None:
    """Store the code of one element: comparisons of squares, from an estimate on.

    The estimate decides how long the search takes, and never what it finds.
    """
    x = code.cast("sext", load(code, kernel.formats[0], here[0], 1), 64)
    t = x if kernel.statistic == "square_sum" else code.binary("mul", x, kernel.count)
    if kernel.statistic == "variance":
        t = code.binary("sub", t, row.total)
    m, c, k, r = (code.cast("sext", load(code, kernel.formats[number], here[number], 1), 64) for number in (1, 2, 3, 4))
    weighted = code.binary("mul", code.cast("sext", m, 128), code.cast("sext", t, 128))
    twice = code.binary("shl", code.binary("mul", weighted, code.cast("sext", r, 128)), 1)
    left = _signed_square(code, twice)
    of_m, of_t, of_c, of_k = (doubles.double_of(code, one) for one in (m, t, c, k))
    estimate = doubles.multiply(code, doubles.multiply(code, of_m, of_t), row.inverse)
    estimate = doubles.divide(code, doubles.add(code, estimate, of_c), of_k)
    first, _ = doubles.rounded(code, estimate, kernel.lo, kernel.hi, MOST_DOUBT)
    step, offset = code.cast("sext", k, 128), code.binary("shl", code.cast("sext", c, 128), 1)
    radicand = code.cast("zext", row.radicand, 256)

    def reached(q: V) -> V:
        """Whether 2 m t r >= T sqrt(V) with T = (2 q - 1) k - 2 c; with half_even and an odd q, whether it is more."""
        odd = code.binary("sub", code.binary("shl", code.cast("sext", q, 128), 1), 1)
        threshold = code.binary("sub", code.binary("mul", odd, step), offset)
        right = code.binary("mul", _signed_square(code, threshold), radicand)
        found = code.compare("sge", left, right)
        if not kernel.half_even:
            return found
        more = code.compare("sgt", left, right)
        return code.select(code.cast("trunc", q, 1), more, found)

    def too_high(q: V) -> V:
        """Whether q is above lo and not reached."""
        missed = code.binary("xor", reached(q), typed("i1", -1))
        return code.binary("and", code.compare("sgt", q, kernel.lo), missed)

    def too_low(q: V) -> V:
        """Whether q is below hi and the next one is reached."""
        return code.binary("and", code.compare("slt", q, kernel.hi), reached(code.binary("add", q, 1)))

    down = code.search(code.cast("sext", first, 64), too_high, lambda q: code.binary("sub", q, 1))
    found = code.search(down, too_low, lambda q: code.binary("add", q, 1))
    store(code, kernel.formats[-1], code.cast("trunc", found, 32), here[-1])


def _signed_square(code: Code, x: V) -> V:
    """The square of an i128 with its sign, in i256."""
    wide = code.cast("sext", x, 256)
    opposite = code.binary("sub", typed("i256", 0), wide)
    return code.binary("mul", wide, code.select(code.compare("slt", wide, 0), opposite, wide))


PLANS = {"normalize": OpPlan(plan_normalization)}
