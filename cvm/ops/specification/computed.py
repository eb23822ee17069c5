"""What is stated of the ops of op-set 2."""

from __future__ import annotations

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Example, Statement

__all__ = ["STATEMENTS"]

STATEMENTS = {
    "matmul": Statement(
        where=(
            "M, K = (A.shape[-1], A.shape[-2]) if transpose_a else (A.shape[-2], A.shape[-1])",
            "N = B.shape[-2] if transpose_b else B.shape[-1]",
        ),
        shapes=("(*A.shape[:-2], M, N)",),
        work="Y.size * K",
        interval=(
            (
                "One interval for all of Y: the sum over k of the products of the intervals A[k] and B[k]. A[k] is the "
                "hull of R(A) over all axes but that of K, and B[k] that of R(B). Lower bounds and upper bounds are "
                "summed apart, and the product of two intervals is [least, largest] of the four products of their "
                "ends. A bound that stands for all k counts K times."
            ),
        ),
        example=Example(
            (given((2, 1, 2), (3, -4, 1, 2), (-4, 3)), constant((1, 2, 2), (1, 2, -3, 4))), {"transpose_b": True}
        ),
    ),
}
