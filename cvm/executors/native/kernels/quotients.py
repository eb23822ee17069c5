"""Quotients: an estimate of each code in float64, and integers where its proven error leaves a doubt.

Where there is no estimate, or a doubt, sums are made in integers of 64 to 256 bits, as the proven intervals ask for.
There a code is found by comparing and subtracting, one bit after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from cvm.executors.native.descriptions.computed import Quotient
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit import doubles
from cvm.executors.native.emit.elements import load
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed
from cvm.executors.native.emit.nest import loops_in_order, moved, walked
from cvm.executors.native.kernels.strided import lanes_of, readable, strides, writable, write
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node

__all__ = ["PLANS", "codes_of", "emit_quotient", "store_estimated"]

LEAST_DOUBT, MOST_DOUBT = 4, 50
"""An estimate that is wrong by more than 2^-4 saves too little; 1/2 - 2^-50 is a float64 number."""


def plan_quotient(planner: Planning, node: Node) -> None:
    """A division in float64 with exact repairs, or by comparing and subtracting alone."""
    name = node.outputs[0].name
    call = planner.call_of(node)
    reads = [readable(planner, source) for source in node.inputs]
    target = writable(planner, name)
    rank, shape = len(target.view.axes), target.view.shape
    columns = [strides(home, rank) for home in (*reads, target)]
    loops = loops_in_order([Loop(n, tuple(column[axis] for column in columns)) for axis, n in enumerate(shape)])
    a, pairs = call.attributes, (len(reads) - 2) // 2
    formats = tuple(home.format for home in (*reads, target))
    kernel = Quotient(loops, formats, (a.terms, pairs - a.terms), a.rounding, a.lo, a.hi, 256)
    hulls = [planner.hull(source) for source in node.inputs]
    doubt = None if name in planner.plain else _doubt(kernel, hulls)
    kernel = replace(kernel, bits=_bits(kernel, hulls), doubt=doubt)
    function = planner.kernel(kernel, "quotient")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    note = f"exact in {kernel.bits}-bit integers, {kernel.digits} bits one after the other"
    cost = (0.5 if kernel.bits == 64 else 1.5) * kernel.digits
    if doubt is not None:
        note, cost = f"float64 estimates within 2^-{doubt}, else {note}", 1.5
    planner.call(function, [home.at() for home in (*reads, target)], kernel.units, name, note, cost * math.prod(shape))


def _largest(kernel: Quotient, hulls: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Bounds of the sums of the magnitudes of all terms, of the numerator and of the divisor."""
    largest = [max(-lo, hi) for lo, hi in hulls]
    n, k = kernel.terms
    products = [x * m for x, m in zip(largest[: n + k], largest[n + k : 2 * (n + k)], strict=True)]
    return sum(products[:n]) + largest[-2], sum(products[n:]) + largest[-1]


def _bits(kernel: Quotient, hulls: Sequence[tuple[int, int]]) -> int:
    """The bits that hold all numbers of a quotient: 64, 128 or 256."""
    numerator, divisor = _largest(kernel, hulls)
    most = 2 * numerator + divisor * (1 + 2 * abs(kernel.lo)) + (divisor << kernel.digits + 1)
    return 64 if most < 2**63 else 128 if most < 2**127 else 256


def _doubt(kernel: Quotient, hulls: Sequence[tuple[int, int]]) -> int | None:
    """The greatest d such that the estimate is surely wrong by at most 2^-d between lo - 1 and hi + 1; None if it might
    be wrong by more than is useful.

    Each of at most eight roundings of a term of the numerator, nine of the numerator's sum and five of the divisor's is
    counted as one of 32 of the largest number that might be rounded.
    """
    if kernel.rounding == "toward_zero":
        return None
    n, k = kernel.terms
    numerator, divisor = _largest(kernel, hulls)
    pairs = list(zip(hulls[n : n + k], hulls[2 * n + k : 2 * (n + k)], strict=True))
    least = hulls[-1][0] + sum(min(x * w for x in xs for w in ws) for xs, ws in pairs)
    if least < 1:
        return None
    no_less = all(xs[0] >= 0 and ws[0] >= 0 for xs, ws in [*pairs, ((0, 0), hulls[-1])])
    relative = Fraction(32, 2**53) * (1 if no_less else Fraction(divisor, least))
    if relative > Fraction(1, 8):
        return None
    most = max(abs(kernel.lo), abs(kernel.hi)) + 1
    error = 2 * relative * most + Fraction(32, 2**53) * Fraction(numerator, least)
    doubt = min((error.denominator // error.numerator).bit_length() - 1, MOST_DOUBT)
    return doubt if doubt >= LEAST_DOUBT else None


def emit_quotient(module: Module, name: str, kernel: Quotient, width: int) -> None:
    """The function: (x, y, m, w, c, e, target, first unit, end of units)."""
    exact = _emit_exact(module, f"{name}_exact", kernel) if kernel.doubt is not None else None
    pointers = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*pointers, lo, hi])
    *outer, inner = kernel.loops
    sizes = [format_.bytes for format_ in kernel.formats]
    wide = max(1, width // 2)
    lanes = 2 * wide if exact is not None else wide if kernel.bits == 64 else 1

    def innermost(at: list[V]) -> None:
        fixed = _fixed(code, kernel, at, inner) if exact is not None else {}

        def some(index: Scalar, count: int) -> None:
            here = moved(code, at, inner.strides, sizes, index)
            if exact is not None:
                store_estimated(code, kernel, fixed, here, inner, count, exact)
                return
            codes = code.cast("trunc", codes_of(code, kernel, here, inner, count), 32)
            write(code, kernel.formats[-1], here[-1], inner.strides[-1], codes, count)

        code.strips(inner.extent, lanes, some)

    walked(code, outer, (lo, hi), pointers, sizes, innermost)
    code.finish()


# Estimates


Exact = Callable[["Code", Sequence[V]], None]
"""Writes a call that computes one code, from the addresses of its operands and its own."""


def _fixed(code: Code, kernel: Quotient, at: Sequence[V], inner: Loop) -> dict[int, V]:
    """What does not change along the innermost loop, in float64, by the number of the operand.

    The divisor, where all its terms are so, stands under -1, as 1 / D.
    """
    n, k = kernel.terms
    found = {
        number: doubles.double_of(code, load(code, format_, pointer, 1))
        for number, (format_, pointer, stride) in enumerate(zip(kernel.formats, at, inner.strides, strict=True))
        if stride == 0 and number < len(kernel.formats) - 1
    }
    if all(number in found for number in range(n, n + k)):
        divisor = _sum(code, kernel, lambda number: found[number], n, k, len(kernel.formats) - 2)
        found[-1] = doubles.divide(code, doubles.constant(1.0), divisor)
    return found


def _sum(code: Code, kernel: Quotient, operand: Callable[[int], V], first: int, terms: int, constant: int) -> V:
    """A constant, and the products of a number of terms, added one after the other."""
    total, pairs = operand(constant), sum(kernel.terms)
    for number in range(first, first + terms):
        total = doubles.add(code, total, doubles.multiply(code, operand(number), operand(pairs + number)))
    return total


def store_estimated(
    code: Code, kernel: Quotient, fixed: dict[int, V], here: Sequence[V], inner: Loop, count: int, exact: Exact
) -> None:
    """Store the codes of ``count`` elements: by estimates, and where these leave a doubt exactly."""
    assert kernel.doubt is not None
    n, k = kernel.terms

    def operand(number: int) -> V:
        if number in fixed:
            return doubles.spread(code, fixed[number], count)
        stored = lanes_of(code, kernel.formats[number], here[number], inner.strides[number], count)
        return doubles.double_of(code, stored)

    numerator = _sum(code, kernel, operand, 0, n, len(kernel.formats) - 3)
    if -1 in fixed:
        estimate = doubles.multiply(code, numerator, operand(-1))
    else:
        estimate = doubles.divide(code, numerator, _sum(code, kernel, operand, n, k, len(kernel.formats) - 2))
    codes, doubtful = doubles.rounded(code, estimate, kernel.lo, kernel.hi, kernel.doubt)
    write(code, kernel.formats[-1], here[-1], inner.strides[-1], codes, count)

    def again(lane: Scalar) -> None:
        exact(code, moved(code, here, inner.strides, [format_.bytes for format_ in kernel.formats], lane))

    code.when(doubtful, lambda: code.each(0, count, again))


# Integers


def _emit_exact(module: Module, name: str, kernel: Quotient) -> Exact:
    """The function that computes one code: (addresses of operands and target)."""
    here = [V("ptr", f"%a{number}") for number in range(len(kernel.formats))]
    code = Code(module, name, here)
    found = code.cast("trunc", codes_of(code, kernel, here, kernel.loops[-1], 1), 32)
    write(code, kernel.formats[-1], here[-1], 1, found, 1)
    code.finish()
    return lambda code, here: code.line(f"call void @{name}({', '.join(map(str, here))})")


def codes_of(code: Code, kernel: Quotient, here: Sequence[V], inner: Loop, count: int) -> V:
    """The codes of ``count`` elements, in the bits of the kernel."""
    n, k = kernel.terms

    def operand(number: int) -> V:
        found = lanes_of(code, kernel.formats[number], here[number], inner.strides[number], count)
        return code.cast("sext", found, kernel.bits)

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


PLANS = {"quotient": OpPlan(plan_quotient)}
