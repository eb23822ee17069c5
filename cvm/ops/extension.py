"""Extension ops: what this project adds to the document's ops.

Each has a FORMAL definition like any op, and an exact expansion into the document's ops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from cvm.limits import INT64_MAX
from cvm.ops.attributes import INT32, Attribute, TypedAttributes, Word
from cvm.ops.broadcast import Broadcast, broadcasts_to
from cvm.ops.declaration import Call, Constraint, Input, InputKind, Op, register
from cvm.ops.ranges import Bounds, Range, Shape, aligned, blocks, pointwise

__all__ = ["MAX_TERMS", "BroadcastGreater", "Requantize", "terms"]

MAX_TERMS = 8
"""The largest number of terms of a requantize."""


def terms(count: int) -> int:
    """The number n of terms of a requantize with ``count`` inputs x_1, .., x_n, m_1, .., m_n, c, s."""
    return max(0, count - 2) // 2


def _tensors_fit(call: Call) -> bool:
    return broadcasts_to(call.shapes[1 : terms(len(call.shapes))], call.shapes[0])


def _parameters_fit(call: Call) -> bool:
    return broadcasts_to(call.shapes[terms(len(call.shapes)) :], call.shapes[0])


def _shifts_fit(call: Call) -> bool:
    lo, hi = call.ranges[-1].hull()
    return lo >= 0 and hi <= 62


def _multipliers_fit(call: Call) -> bool:
    n = terms(len(call.ranges))
    return all(multiplier.magnitude() < 2**62 for multiplier in call.ranges[n : 2 * n])


def _summands(operands: Sequence[Range]) -> list[Range]:
    """The ranges of all m_i * x_i and of c, in order, in integers wide enough for any sum of them."""
    n = terms(len(operands))
    products = [x * m for x, m in zip(operands[:n], operands[n : 2 * n], strict=True)]
    summands = [*products, operands[2 * n]]
    if sum(part.magnitude() for part in summands) + 2**61 > INT64_MAX:
        summands = [part.monotone(lambda bounds: bounds.astype(object)) for part in summands]
    return summands


def _sum_fits(call: Call) -> bool:
    if _fits([Range.uniform(1, *operand.hull()) for operand in call.ranges]):
        return True
    return all(_fits(operands) for _, operands in blocks(aligned(call.ranges, len(call.shapes[0]))))


def _fits(operands: Sequence[Range]) -> bool:
    """Whether the sum of the positive parts and the rounding addend fits 64 bits, and the sum of the negative parts."""
    positive: Bounds = _halves(operands[-1].hi)
    negative: Bounds = np.zeros_like(positive)
    for part in _summands(operands):
        positive = positive + np.maximum(part.hi, 0)
        negative = negative + np.minimum(part.lo, 0)
    return bool((positive <= INT64_MAX).all() and (negative >= -INT64_MAX).all())


def _halves(shifts: Bounds) -> Bounds:
    """2^(s - 1) for s >= 1, and 0 for s = 0."""
    return np.asarray((1 << shifts) >> 1)


def _rounded(v: Bounds, shifts: Bounds, rounding: str) -> Bounds:
    """``v / 2^s`` rounded to integers."""
    if rounding == "half_up":
        return np.asarray((v + _halves(shifts)) >> shifts)
    if rounding == "toward_zero":
        return np.asarray(np.where(v < 0, -(-v >> shifts), v >> shifts))
    floor = v >> shifts
    rest, half = v - (floor << shifts), _halves(shifts)
    up = (rest > half) | ((rest == half) & (floor % 2 == 1) & (shifts > 0))
    return np.asarray(floor + up)


class _RequantizeAttributes(TypedAttributes):
    """How to round, and the bounds of the result."""

    rounding = Attribute(
        Word("half_up", "half_even", "toward_zero"),
        "to the nearest integer, ties upward or to the even one; or toward zero",
    )
    lo = Attribute(INT32, "the lower bound")
    hi = Attribute(INT32, "the upper bound")


@register
class Requantize(Op):
    """A weighted sum divided by a power of two, rounded once and clipped: clip(round((sum m_i x_i + c) / 2^s), lo, hi).

    The inputs are x_1, .., x_n, m_1, .., m_n, c, s, with n from 1 to 8; all are broadcast to the shape of x_1, which is
    that of the result. All partial sums, in any order and with the rounding addend, fit 64 bits (C7).
    """

    name = "requantize"
    family = "extension"
    source = "extension op of cvm"
    inputs = (
        Input("x", "n tensors, the second and further of which broadcast to the first one's shape", many=True),
        Input("m", "n multipliers, which broadcast to x_1's shape", kind="parameter", many=True),
        Input("c", "the offset, which broadcasts to x_1's shape", kind="parameter"),
        Input("s", "the shift, which broadcasts to x_1's shape", kind="parameter"),
    )
    Attributes = _RequantizeAttributes
    constraints = (
        Constraint("C1", "inputs x_1, .., x_n, m_1, .., m_n, c, s: an even number", lambda c: len(c.shapes) % 2 == 0),
        Constraint("C2", "x_2, .., x_n of extents that, aligned at the right, are 1 or those of x_1", _tensors_fit),
        Constraint("C3", "m_i, c and s of extents that, aligned at the right, are 1 or those of x_1", _parameters_fit),
        Constraint("C4", "lo <= hi", lambda c: c.attributes.lo <= c.attributes.hi),
        Constraint("C5", "0 <= s <= 62", _shifts_fit, on="ranges"),
        Constraint("C6", "|m_i| < 2^62", _multipliers_fit, on="ranges"),
        Constraint(
            "C7",
            "the positive parts of all m_i * x_i and of c, plus 2^(s - 1) if s > 0, that add up to at most 2^63 - 1, "
            "and the negative parts to at least -(2^63 - 1)",
            _sum_fits,
            on="ranges",
        ),
    )

    def arity(self) -> tuple[int, int | None]:
        return 4, 2 * MAX_TERMS + 2

    def input_kinds(self, count: int) -> tuple[InputKind, ...]:
        n = terms(count)
        return tuple("tensor" if index < n else "parameter" for index in range(count))

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        def rounded(*operands: Range) -> Range:
            total, *others = _summands(operands)
            for part in others:
                total = total + part
            # Rounding is monotone in the sum, and for a given sum in the shift. So the extremes are at the corners.
            a, shifts = call.attributes, operands[-1]
            least, largest = (
                total.monotone(partial(_rounded, shifts=s, rounding=a.rounding)) for s in (shifts.lo, shifts.hi)
            )
            return least.union(largest).monotone(lambda y: np.clip(y, a.lo, a.hi).astype(np.int64))

        return (pointwise(aligned(call.ranges, len(call.shapes[0])), rounded),)

    def work(self, call: Call) -> int:
        return 2 * terms(len(call.shapes)) * math.prod(call.shapes[0])


@register
class BroadcastGreater(Broadcast):
    """The comparison: Y[d] = 1 if A[a] > B[b], else 0."""

    name = "broadcast_greater"
    family = "extension"
    source = "extension op of cvm; broadcast_greater of CVM-Runtime"

    def combine(self, a: Range, b: Range) -> Range:
        return Range((a.lo > b.hi).astype(np.int64), (a.hi > b.lo).astype(np.int64))
