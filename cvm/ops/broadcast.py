"""Broadcast ops (the document's section "Broadcast Operators")."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from cvm.limits import INT32_MAX
from cvm.ops.declaration import Call, Constraint, Input, Op, register
from cvm.ops.ranges import Bounds, Range, Shape, aligned, pointwise

__all__ = ["Broadcast", "BroadcastAdd", "BroadcastDiv", "BroadcastMax", "BroadcastMul", "BroadcastSub",
           "broadcastable", "broadcasts_to"]  # fmt: skip


def broadcastable(shapes: Sequence[Shape]) -> bool:
    """Whether the extents of the shapes, aligned at the right, are equal or 1 in every dimension."""
    columns = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return all(len(set(column) - {1}) <= 1 for column in columns)


def broadcasts_to(operands: Sequence[Shape], shape: Shape) -> bool:
    """Whether the extents of all operands, aligned at the right, are 1 or those of ``shape``."""
    return all(
        len(operand) <= len(shape)
        and all(extent in (1, n) for extent, n in zip(reversed(operand), reversed(shape), strict=False))
        for operand in operands
    )


class Broadcast(Op):
    """An op on the elements of two tensors whose shapes are aligned at the right; extents of 1 are repeated."""

    family = "broadcast"
    inputs = (Input("A", "any tensor"), Input("B", "a tensor whose shape broadcasts with A's"))
    constraints = (
        Constraint(
            "C1",
            "extents of A and B, aligned at the right, that are equal or of which one is 1",
            lambda c: broadcastable(c.shapes),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        columns = zip_longest(*(reversed(shape) for shape in call.shapes), fillvalue=1)
        return (tuple(max(column) for column in columns)[::-1],)

    def range(self, call: Call) -> tuple[Range, ...]:
        rank = max(len(shape) for shape in call.shapes)
        return (pointwise(aligned(call.ranges, rank), self.combine),)

    @abstractmethod
    def combine(self, a: Range, b: Range) -> Range:
        """The range of ``a`` OP ``b``."""


@register
class BroadcastAdd(Broadcast):
    """The sum: Y[d] = A[a] + B[b]."""

    name = "broadcast_add"
    source = "Broadcast Operators, broadcast_add"

    def combine(self, a: Range, b: Range) -> Range:
        return a + b


@register
class BroadcastSub(Broadcast):
    """The difference: Y[d] = A[a] - B[b]."""

    name = "broadcast_sub"
    source = "Broadcast Operators, broadcast_sub"

    def combine(self, a: Range, b: Range) -> Range:
        return a - b


@register
class BroadcastMul(Broadcast):
    """The product: Y[d] = A[a] * B[b]."""

    name = "broadcast_mul"
    source = "Broadcast Operators, broadcast_mul"

    def combine(self, a: Range, b: Range) -> Range:
        return a * b


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    """``a / b`` truncated toward zero, for b != 0."""
    magnitude = np.abs(a) // np.abs(b)
    return np.asarray(np.where((a < 0) == (b < 0), magnitude, -magnitude))


@register
class BroadcastDiv(Broadcast):
    """The quotient, truncated toward zero; 0 where the divisor is 0: Y[d] = A[a] / B[b]."""

    name = "broadcast_div"
    source = "Broadcast Operators, broadcast_div"

    def combine(self, a: Range, b: Range) -> Range:
        # For divisors of one sign, the quotient is monotone in each operand. So its extremes are at the corners.
        shape = np.broadcast_shapes(a.shape, b.shape)
        lo, hi = np.full(shape, INT32_MAX + 1), np.full(shape, -INT32_MAX - 1)
        for least, largest in ((np.maximum(b.lo, 1), b.hi), (b.lo, np.minimum(b.hi, -1))):
            exists = least <= largest
            for divisor in (np.where(exists, least, 1), np.where(exists, largest, 1)):
                for quotient in (_quotient(a.lo, divisor), _quotient(a.hi, divisor)):
                    lo = np.where(exists, np.minimum(lo, quotient), lo)
                    hi = np.where(exists, np.maximum(hi, quotient), hi)
        zero = (b.lo <= 0) & (b.hi >= 0)
        return Range(np.where(zero, np.minimum(lo, 0), lo), np.where(zero, np.maximum(hi, 0), hi))

    def work(self, call: Call) -> int:
        return 8 * math.prod(self.shape(call)[0])  # a division takes as long as about eight multiplications


@register
class BroadcastMax(Broadcast):
    """The larger of both: Y[d] = max(A[a], B[b])."""

    name = "broadcast_max"
    source = "Broadcast Operators, broadcast_max"

    def combine(self, a: Range, b: Range) -> Range:
        return Range(np.maximum(a.lo, b.lo), np.maximum(a.hi, b.hi))
