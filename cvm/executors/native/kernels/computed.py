"""Quotients, normalised rows and updated slices: the ops of op-set 2 that are no products.

Every comparison is made in integers that hold both sides: 64 to 256 bits for quotients, as the proven intervals ask
for, 256 for squares of normalised rows. A float64 estimate says where the search for a normalised code begins, so it
decides how long the search takes and never what it finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit.elements import encoded, load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed
from cvm.executors.native.emit.nest import loops_in_order, moved, walked
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node

__all__ = ["PLANS", "Normalization", "Quotient", "Update", "emit_normalization", "emit_quotient", "emit_update"]


def _readable(planner: Planning, name: str) -> Home:
    """Where a value lies, with one stride for each axis."""
    home = planner.home(name)
    if any(home.view.stride(axis) is None for axis in range(len(home.view.axes))):
        return planner.rearranged(home)
    return home


def _writable(planner: Planning, name: str) -> Home:
    home = planner.result(name)
    assert all(home.view.stride(axis) is not None for axis in range(len(home.view.axes))), "results are no views"
    return home


def _strides(home: Home, rank: int) -> list[int]:
    """The stride of every axis of a result of ``rank``, to which the value is broadcast: 0 where it repeats."""
    own = [home.view.stride(axis) or 0 for axis in range(len(home.view.axes))]
    return [0] * (rank - len(own)) + own


# Quotients


@dataclass(frozen=True, slots=True)
class Quotient:
    """clip(round(N / D), lo, hi) in loops: the strides and formats of x, y, m, w, c, e and the result, in this order.

    ``terms`` are those of numerator and divisor. Sums, and the divisor times the codes, fit ``bits`` bits.
    """

    loops: tuple[Loop, ...]
    formats: tuple[Format, ...]
    terms: tuple[int, int]
    rounding: str
    lo: int
    hi: int
    bits: int

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the indices of the outermost loop, unless vectors run along it."""
        return self.loops[0].extent if len(self.loops) > 1 else 1

    @property
    def digits(self) -> int:
        """The bits of the greatest number that is counted up to: of codes from lo on, or of magnitudes."""
        most = max(abs(self.lo), abs(self.hi)) if self.rounding == "toward_zero" else self.hi - self.lo
        return most.bit_length()


def plan_quotient(planner: Planning, node: Node) -> None:
    """A division by comparing and subtracting, one bit of the code after the other."""
    name = node.outputs[0].name
    call = planner.call_of(node)
    reads = [_readable(planner, source) for source in node.inputs]
    target = _writable(planner, name)
    rank, shape = len(target.view.axes), target.view.shape
    columns = [_strides(home, rank) for home in (*reads, target)]
    loops = loops_in_order([Loop(n, tuple(column[axis] for column in columns)) for axis, n in enumerate(shape)])
    a, pairs = call.attributes, (len(reads) - 2) // 2
    formats = tuple(home.format for home in (*reads, target))
    wide = Quotient(loops, formats, (a.terms, pairs - a.terms), a.rounding, a.lo, a.hi, 128)
    kernel = Quotient(loops, formats, wide.terms, a.rounding, a.lo, a.hi, _bits(planner, node, wide))
    function = planner.kernel(kernel, "quotient")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    note = f"exact in {kernel.bits}-bit integers, {kernel.digits} bits one after the other"
    cost = (0.5 if kernel.bits == 64 else 1.5) * kernel.digits * math.prod(shape)
    planner.call(function, [home.at() for home in (*reads, target)], kernel.units, name, note, cost)


def _bits(planner: Planning, node: Node, kernel: Quotient) -> int:
    """The bits that hold all numbers of a quotient: 64, 128 or 256."""
    hulls = [planner.hull(name) for name in node.inputs]
    largest = [max(-lo, hi) for lo, hi in hulls]
    n, k = kernel.terms
    products = [x * m for x, m in zip(largest[: n + k], largest[n + k : 2 * (n + k)], strict=True)]
    numerator = sum(products[:n]) + largest[-2]
    divisor = sum(products[n:]) + largest[-1]
    most = 2 * numerator + divisor * (1 + 2 * abs(kernel.lo)) + (divisor << kernel.digits + 1)
    return 64 if most < 2**63 else 128 if most < 2**127 else 256


def emit_quotient(module: Module, name: str, kernel: Quotient, width: int) -> None:
    """The function: (x, y, m, w, c, e, target, first unit, end of units)."""
    pointers = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    *outer, inner = kernel.loops
    sizes = [format_.bytes for format_ in kernel.formats]
    count_of_lanes = max(1, width // 2) if kernel.bits == 64 else 1

    def innermost(at: list[V]) -> None:
        def some(index: Scalar, count: int) -> None:
            here = moved(code, at, inner.strides, sizes, index)
            _write(code, kernel, here, inner, _quotient(code, kernel, here, inner, count), count)

        code.strips(inner.extent, count_of_lanes, some)

    walked(code, outer, (lo, hi), pointers, sizes, innermost)
    code.finish()


def _lanes(code: Code, kernel: Quotient, here: list[V], inner: Loop, number: int, count: int) -> V:
    """``count`` elements of one operand along the innermost loop, in the bits of the kernel."""
    format_, stride = kernel.formats[number], inner.strides[number]
    if count == 1 or stride == 1:
        found = load(code, format_, here[number], count)
    elif stride == 0:
        found = code.splat(load(code, format_, here[number], 1), count)
    else:
        apart = stride * format_.bytes
        found = code.gathered([load(code, format_, code.at(here[number], k * apart), 1) for k in range(count)])
    return code.cast("sext", found, kernel.bits)


def _write(code: Code, kernel: Quotient, here: list[V], inner: Loop, result: V, count: int) -> None:
    format_, stride, pointer = kernel.formats[-1], inner.strides[-1], here[-1]
    value = code.cast("trunc", result, 32)
    if count == 1 or stride == 1:
        store(code, format_, value, pointer)
        return
    raw = encoded(code, format_, value)
    for lane in range(count):
        code.store(code.extract(raw, lane), code.at(pointer, lane * stride * format_.bytes))


def _quotient(code: Code, kernel: Quotient, here: list[V], inner: Loop, count: int) -> V:
    """The codes of ``count`` elements."""
    n, k = kernel.terms

    def operand(number: int) -> V:
        return _lanes(code, kernel, here, inner, number, count)

    def total(first: int, terms: int, constant: int) -> V:
        found = operand(constant)
        for number in range(first, first + terms):
            found = code.binary("add", found, code.binary("mul", operand(number), operand(n + k + number)))
        return found

    numerator, divisor = total(0, n, len(kernel.formats) - 3), total(n, k, len(kernel.formats) - 2)
    if kernel.rounding == "toward_zero":
        return _truncated(code, kernel, numerator, divisor)
    # q counts the codes from lo on: 2 N + D - 2 lo D >= 2 q D.
    rest = code.binary("add", code.binary("shl", numerator, 1), code.binary("mul", divisor, 1 - 2 * kernel.lo))
    q, rest = _counted(code, kernel, rest, code.binary("shl", divisor, 1))
    found = code.binary("add", q, kernel.lo)
    if kernel.rounding == "half_even":  # a tie leaves no rest, and an odd code is not reached by it
        tie = code.cast("zext", code.compare("eq", rest, 0), kernel.bits)
        found = code.binary("sub", found, code.binary("and", tie, found))
    return _clipped(code, found, kernel.lo, kernel.hi)


def _truncated(code: Code, kernel: Quotient, numerator: V, divisor: V) -> V:
    negative = code.compare("slt", numerator, 0)
    opposite = code.binary("sub", typed(numerator.type, 0), numerator)
    q, _ = _counted(code, kernel, code.select(negative, opposite, numerator), divisor)
    signed = code.select(negative, code.binary("sub", typed(q.type, 0), q), q)
    return _clipped(code, signed, kernel.lo, kernel.hi)


def _counted(code: Code, kernel: Quotient, rest: V, divisor: V) -> tuple[V, V]:
    """The greatest q of `Quotient.digits` bits with q * divisor <= rest, 0 where there is none, and what is left."""
    q = typed(rest.type, 0)
    for bit in reversed(range(kernel.digits)):
        part = code.binary("shl", divisor, bit)
        fits = code.compare("sge", rest, part)
        rest = code.select(fits, code.binary("sub", rest, part), rest)
        q = code.select(fits, code.binary("or", q, 1 << bit), q)
    return q, rest


def _clipped(code: Code, value: V, lo: int, hi: int) -> V:
    return code.intrinsic("smin", code.intrinsic("smax", value, lo), hi)


# Normalised rows


@dataclass(frozen=True, slots=True)
class Normalization:
    """One kernel of `normalize`: loops over rows (``kept``) and along a row (``taken``).

    Strides and formats are those of X, m, c, k, r, e and the result. ``count`` is the number of elements of a row.
    """

    kept: tuple[Loop, ...]
    taken: tuple[Loop, ...]
    formats: tuple[Format, ...]
    statistic: str
    count: int
    shift: int
    half_even: bool
    lo: int
    hi: int

    @property
    def units(self) -> int:
        """Parts that may run at the same time: the indices of the outermost loop over rows."""
        return self.kept[0].extent if self.kept else 1


def plan_normalization(planner: Planning, node: Node) -> None:
    """The sums of a row, then each of its codes: an estimate, and exact comparisons of squares around it."""
    name = node.outputs[0].name
    a = planner.call_of(node).attributes
    reads = [_readable(planner, source) for source in node.inputs]
    target = _writable(planner, name)
    shape = target.view.shape
    rank = len(shape)
    columns = [_strides(home, rank) for home in (*reads, target)]
    loops = [Loop(n, tuple(column[axis] for column in columns)) for axis, n in enumerate(shape)]
    along = {axis % rank for axis in a.axes}
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
        kept, taken, tuple(home.format for home in (*reads, target)), a.statistic,
        math.prod(shape[axis] for axis in along), a.shift, a.rounding == "half_even", a.lo, a.hi,
    )  # fmt: skip
    function = planner.kernel(kernel, "normalization")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    note = "exact comparisons of squares in 256-bit integers, from a float64 estimate on"
    planner.call(function, [home.at() for home in (*reads, target)], kernel.units, name, note, 30.0 * math.prod(shape))


def emit_normalization(module: Module, name: str, kernel: Normalization) -> None:
    """The function: (X, m, c, k, r, e, target, first unit, end of units)."""
    pointers = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    sizes = [format_.bytes for format_ in kernel.formats]

    def row(at: list[V]) -> None:
        sums = _summed(code, kernel, list(kernel.taken), at[0], [typed("i64", 0), typed("i64", 0)])
        root = code.cast("sext", load(code, kernel.formats[4], at[4], 1), 128)
        epsilon = code.cast("sext", load(code, kernel.formats[5], at[5], 1), 128)
        square = code.cast("zext", _square(code, kernel, sums), 128)
        radicand = code.binary("mul", code.binary("mul", root, root), square)
        radicand = code.binary("add", radicand, code.binary("shl", epsilon, kernel.shift))
        inverse = _over(code, _float(code, root), code.call("double", "llvm.sqrt.f64", _float(code, radicand)))
        known = _Row(sums[0], root, radicand, inverse)
        _along(code, list(kernel.taken), at, sizes, lambda here: _normalized(code, kernel, known, here))

    walked(code, list(kernel.kept), (lo, hi), pointers, sizes, row)
    code.finish()


@dataclass(frozen=True, slots=True)
class _Row:
    """What all elements of a row share: its sum (i64), r and V = r^2 Q + e 2^s (i128), and r / sqrt(V) in float64."""

    total: V
    root: V
    radicand: V
    inverse: V


def _along(
    code: Code, loops: Sequence[Loop], at: list[V], sizes: Sequence[int], body: Callable[[list[V]], None]
) -> None:
    """Call ``body`` with the addresses of every element of a row."""
    if not loops:
        body(at)
        return
    loop, *rest = loops
    code.each(
        0, loop.extent, lambda index: _along(code, rest, moved(code, at, loop.strides, sizes, index), sizes, body)
    )


def _summed(code: Code, kernel: Normalization, loops: list[Loop], read: V, sums: list[V]) -> list[V]:
    """The sums of the elements and of their squares, added to ``sums``."""
    if not loops:
        x = code.cast("sext", load(code, kernel.formats[0], read, 1), 64)
        return [code.binary("add", sums[0], x), code.binary("add", sums[1], code.binary("mul", x, x))]
    loop, *rest = loops

    def body(index: V, values: list[V]) -> list[V]:
        at = code.at(read, code.mul(index, loop.strides[0] * kernel.formats[0].bytes))
        return _summed(code, kernel, rest, at, values)

    return code.loop(0, loop.extent, 1, body, sums)


def _square(code: Code, kernel: Normalization, sums: list[V]) -> V:
    """Q, which is below 2^62, from the sums of a row."""
    if kernel.statistic == "square_sum":
        return sums[1]
    scaled = code.binary("mul", sums[1], kernel.count)
    if kernel.statistic == "mean_square":
        return scaled
    return code.binary("sub", scaled, code.binary("mul", sums[0], sums[0]))


def _normalized(code: Code, kernel: Normalization, row: _Row, here: list[V]) -> None:
    """Store the code of one element."""
    x = code.cast("sext", load(code, kernel.formats[0], here[0], 1), 64)
    t = x if kernel.statistic == "square_sum" else code.binary("mul", x, kernel.count)
    if kernel.statistic == "variance":
        t = code.binary("sub", t, row.total)
    m, c, k = (code.cast("sext", load(code, kernel.formats[number], here[number], 1), 64) for number in (1, 2, 3))
    weighted = code.binary("mul", code.cast("sext", m, 128), code.cast("sext", t, 128))
    left = _signed_square(code, code.binary("shl", code.binary("mul", weighted, row.root), 1))
    estimate = code.value("double", f"fmul {_float_of_64(code, m)}, {_float_of_64(code, t).text}")
    estimate = code.value("double", f"fmul {estimate}, {row.inverse.text}")
    estimate = code.value("double", f"fadd {estimate}, {_float_of_64(code, c).text}")
    first = _near(code, _over(code, estimate, _float_of_64(code, k)), kernel.lo, kernel.hi)
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

    down = _while(code, first, too_high, -1)
    store(code, kernel.formats[-1], code.cast("trunc", _while(code, down, too_low, 1), 32), here[-1])


def _while(code: Code, first: V, condition: Callable[[V], V], step: int) -> V:
    """The first of first, first + step, .. for which the condition does not hold."""
    room = code.alloca(first.type, 1)
    code.store(first, room)
    top, inside, done = code.fresh(), code.fresh(), code.fresh()
    code.line(f"br label %{top}")
    code.label(top)
    value = code.load(first.type, room)
    code.line(f"br {condition(value)}, label %{inside}, label %{done}")
    code.label(inside)
    code.store(code.binary("add", value, step), room)
    code.line(f"br label %{top}")
    code.label(done)
    return value


def _signed_square(code: Code, x: V) -> V:
    """The square of an i128 with its sign, in i256."""
    wide = code.cast("sext", x, 256)
    opposite = code.binary("sub", typed("i256", 0), wide)
    return code.binary("mul", wide, code.select(code.compare("slt", wide, 0), opposite, wide))


def _near(code: Code, u: V, lo: int, hi: int) -> V:
    """An integer of [lo, hi] near u, in i64: u + 1/2 without its fraction."""
    moved_up = code.value("double", f"fadd {u}, 5.0e-1")
    above = code.value("i1", f"fcmp oge {moved_up}, {float(hi)!r}")
    below = code.value("i1", f"fcmp ole {moved_up}, {float(lo)!r}")
    least, most = V("double", repr(float(lo))), V("double", repr(float(hi)))
    inside = code.select(above, most, code.select(below, least, moved_up))
    return code.value("i64", f"fptosi {inside} to i64")


def _over(code: Code, a: V, b: V) -> V:
    return code.value("double", f"fdiv {a}, {b.text}")


def _float_of_64(code: Code, x: V) -> V:
    """The float64 nearest to an i64."""
    return code.value("double", f"sitofp {x} to double")


def _float(code: Code, x: V) -> V:
    """A float64 near an i128 >= 0, from its halves, since a conversion of 128 bits would be a library call."""
    high, low = code.cast("trunc", code.binary("lshr", x, 64), 64), code.cast("trunc", x, 64)
    parts = [code.value("double", f"uitofp {half} to double") for half in (high, low)]
    scaled = code.value("double", f"fmul {parts[0]}, {float(2**64)!r}")
    return code.value("double", f"fadd {scaled}, {parts[1].text}")


# Updated slices


@dataclass(frozen=True, slots=True)
class Update:
    """One kernel of `update_slice`: loops over X and over U, with the strides of the tensor and of the result.

    ``last`` is the greatest index at which U fits, ``stride`` that of the result along the axis. No loops over X mean
    that the result lies where X lay.
    """

    kept: tuple[Loop, ...]
    replaced: tuple[Loop, ...]
    formats: tuple[Format, ...]
    last: int
    stride: int


def plan_update(planner: Planning, node: Node) -> None:
    """A copy of X, then of U over it; without the first copy if X is a state that nothing else reads any more."""
    name = node.outputs[0].name
    reads = [_readable(planner, source) for source in node.inputs]
    place = planner.in_place(node)
    if place is not None:
        reads[0] = place
    target = place or _writable(planner, name)
    rank = len(target.view.axes)
    axis = planner.call_of(node).attributes.axis % rank
    written = _strides(target, rank)
    kept, replaced = (loops_in_order([Loop(n, strides) for n, strides in _paired(home, written)]) for home in reads[:2])
    last = reads[0].view.shape[axis] - reads[1].view.shape[axis]
    formats = tuple(home.format for home in (*reads, target))
    kernel = Update(() if place else kept, replaced, formats, last, written[axis])
    function = planner.kernel(kernel, "update")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    cost = 0.2 * math.prod((reads[1] if place else target).view.shape)
    note = "the slice, in the state's own storage" if place else "a copy, then the slice"
    planner.call(function, [home.at() for home in (*reads, target)], 1, name, note, cost)


def _paired(home: Home, written: Sequence[int]) -> list[tuple[int, tuple[int, int]]]:
    shape = home.view.shape
    return [(n, (stride, to)) for n, stride, to in zip(shape, _strides(home, len(shape)), written, strict=True)]


def emit_update(module: Module, name: str, kernel: Update, width: int) -> None:
    """The function: (X, U, I, target, first unit, end of units)."""
    names = [V("ptr", f"%a{number}") for number in range(4)]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*names, lo, hi])
    target = kernel.formats[-1]

    def copied(loops: tuple[Loop, ...], source: V, format_: Format, to: V) -> None:
        *outer, inner = loops
        sizes = [format_.bytes, target.bytes]
        beside = inner.strides == (1, 1)

        def innermost(at: list[V]) -> None:
            def some(index: Scalar, count: int) -> None:
                read, write = moved(code, at, inner.strides, sizes, index)
                store(code, target, load(code, format_, read, count), write)

            code.strips(inner.extent, width if beside else 1, some)

        _along(code, outer, [source, to], sizes, innermost)

    def whole() -> None:
        if kernel.kept:
            copied(kernel.kept, names[0], kernel.formats[0], names[3])
        given = code.cast("sext", load(code, kernel.formats[2], names[2], 1), 64)
        start = _clipped(code, given, 0, kernel.last)
        place = code.at(names[3], code.mul(start, kernel.stride * target.bytes))
        copied(kernel.replaced, names[1], kernel.formats[1], place)

    code.when(code.compare("slt", lo, hi), whole)
    code.finish()


PLANS = {
    "quotient": OpPlan(plan_quotient),
    "normalize": OpPlan(plan_normalization),
    "update_slice": OpPlan(plan_update),
}
