"""Ops of op-set 2: what attention and normalisation need between computed tensors.

Each has a FORMAL definition like any op, and an exact expansion into the document's ops.
"""

from __future__ import annotations

import math

from pydantic import Field

from cvm.ops.declaration import AttributeModel, Call, Constraint, Input, Op, register
from cvm.ops.ranges import Range, Shape, contracted

__all__ = ["Matmul"]


class _MatmulAttributes(AttributeModel):
    """Which operands are transposed."""

    transpose_a: bool = Field(default=False, description="whether A is (.., K, M) and not (.., M, K)")
    transpose_b: bool = Field(default=False, description="whether B is (.., N, K) and not (.., K, N)")


def _contracted_axes(call: Call) -> tuple[int, int]:
    """The axes of A and of B that are summed over."""
    rank, a = len(call.shapes[0]), call.attributes
    return rank - 2 if a.transpose_a else rank - 1, rank - 1 if a.transpose_b else rank - 2


def _terms_agree(call: Call) -> bool:
    of_a, of_b = _contracted_axes(call)
    return call.shapes[0][of_a] == call.shapes[1][of_b]


@register
class Matmul(Op):
    """A product of matrices in batches: Y[b, m, n] = sum over k of A[b, m, k] * B[b', k, n].

    The batch axes are all but the last two. Along each of them B has an extent that divides that of A, and every matrix
    of B serves so many neighbouring ones of A: 1 broadcasts, and fewer heads of keys than of queries are shared.
    """

    name = "matmul"
    family = "computed"
    source = "op-set 2 of cvm"
    op_set = 2
    inputs = (
        Input("A", "matrices, (.., M, K), or (.., K, M) if transpose_a"),
        Input("B", "matrices, (.., K, N), or (.., N, K) if transpose_b"),
    )
    Attributes = _MatmulAttributes
    constraints = (
        Constraint(
            "C1", "A of 2 or more dimensions, and B of as many", lambda c: 2 <= len(c.shapes[0]) == len(c.shapes[1])
        ),
        Constraint(
            "C2",
            "extents of B that divide those of A, but for the last two",
            lambda c: all(n % m == 0 for n, m in zip(c.shapes[0][:-2], c.shapes[1][:-2], strict=True)),
        ),
        Constraint("C3", "A and B of the same K", _terms_agree),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        (A, B), a = call.shapes, call.attributes
        return ((*A[:-2], A[-1] if a.transpose_a else A[-2], B[-2] if a.transpose_b else B[-1]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        rank, axes = len(call.shapes[0]), _contracted_axes(call)
        a, b = (
            bounds.over([axis for axis in range(rank) if axis != along])
            for bounds, along in zip(call.ranges, axes, strict=True)
        )
        row, column = a.moved(lambda ends: ends.reshape(1, 1, -1)), b.moved(lambda ends: ends.reshape(1, -1, 1))
        sums = contracted(row, column, call.shapes[0][axes[0]])
        return (sums.moved(lambda ends: ends.reshape((1,) * rank)),)

    def work(self, call: Call) -> int:
        return math.prod(self.shape(call)[0]) * call.shapes[0][_contracted_axes(call)[0]]
