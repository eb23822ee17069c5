"""What is stated of the ops of op-set 2."""

from __future__ import annotations

from cvm.ops.specification.operands import constant, given, parameter
from cvm.ops.specification.statement import Each, Example, Statement

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
    "quotient": Statement(
        shapes=("x[0].shape",),
        work="(4 * len(x) + 32) * Y.size",
        interval=Each(
            "clip(min(ends), lo, hi)",
            "clip(max(ends), lo, hi)",
            (
                "P = [(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi) for a, b in zip(x, m)]",
                "N = (sum([min(p) for p in P[:terms]]) + c.lo, sum([max(p) for p in P[:terms]]) + c.hi)",
                "D = (sum([min(p) for p in P[terms:]]) + e.lo, sum([max(p) for p in P[terms:]]) + e.hi)",
                "ends = [ratio(N[i], D[j], rounding) for i in (0, 1) for j in (0, 1)]",
            ),
        ),
        example=Example(
            (
                given((1, 3), (100, -30, 7), (-128, 127)),
                given((1, 1), (12,), (0, 20)),
                *(parameter((1,), (item,)) for item in (5, 2, 1, 3)),
            ),
            {"terms": 1, "rounding": "half_up", "lo": -9, "hi": 255},
        ),
        formulas=(
            "round(N / D), exactly: half_up is floor(N / D + 1/2); toward_zero drops the fraction; half_even is the",
            "nearest integer, and of two equally near ones the even one.",
            "In the lines below, x and m are all tensors and all factors: the first n = terms are those of N, the",
            "others y and w. Of j inputs the first floor((j - 2) / 2) are tensors and the others parameters, also if",
            "j is odd (C1). C6 holds for each bound D[0] of the interval below, whose operands are made to fit first.",
        ),
    ),
    "normalize": Statement(
        shapes=("X.shape",),
        work="256 * X.size",
        interval=("One interval for all of Y: [lo, hi].",),
        example=Example(
            (
                given((1, 4), (1, 7, -2, 2), (-8, 7)),
                parameter((4,), (10, 10, 10, -20)),
                *(parameter((1,), (item,)) for item in (1, 2, 1, 16)),
            ),
            {"axes": (1,), "statistic": "variance", "rounding": "half_even", "lo": -128, "hi": 127},
        ),
        formulas=(
            "t and Q are n x - S_1 and n S_2 - S_1^2 (variance), n x and n S_2 (mean_square), x and S_2 (square_sum),",
            "for x = X[d]. With u = (m t / sqrt(Q + e 2^shift / r^2) + c) / k, exactly: Y[d] is the greatest of",
            "lo and of all integers q <= hi with u >= q - 1/2; with half_even, for an odd q, u > q - 1/2.",
            "In integers: with V = r^2 Q + e 2^shift > 0, A = 2 m t r and T = (2 q - 1) k - 2 c, u >= q - 1/2 if",
            "A |A| >= T |T| V. In C7 and C8, X, k and c stand for the largest magnitudes in R(X), R(k) and R(c).",
        ),
    ),
    "update_slice": Statement(
        shapes=("X.shape",),
        interval=("One interval for all of Y: the hull of the hulls of R(X) and R(U).",),
        example=Example(
            (
                given((2, 3), (1, 2, 3, 4, 5, 6), (0, 9)),
                given((2, 2), (-1, -2, -3, -4), (-9, 0)),
                given((1,), (7,), (0, 9)),
            ),
            {"axis": -1},
        ),
    ),
}
