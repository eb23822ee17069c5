"""The statements about the extension ops."""

from __future__ import annotations

from cvm.ops.specification.broadcast import PAIR
from cvm.ops.specification.operands import given, parameter
from cvm.ops.specification.statement import Each, Example, Statement

__all__ = ["STATEMENTS"]

STATEMENTS = {
    "requantize": Statement(
        shapes=("x[0].shape",),
        work="2 * len(x) * Y.size",
        interval=Each(
            "clip(min(ends), lo, hi)",
            "clip(max(ends), lo, hi)",
            (
                "P = [(a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi) for a, b in zip(x, m)]",
                "v = sum([min(p) for p in P]) + c.lo, sum([max(p) for p in P]) + c.hi",
                "ends = [rounded(v[0], s.lo, rounding), rounded(v[0], s.hi, rounding)]",
                "ends += [rounded(v[1], s.lo, rounding), rounded(v[1], s.hi, rounding)]",
            ),
        ),
        example=Example(
            (
                given((1, 2, 2), (100, -100, 5, 6), (-128, 127)),
                parameter((2, 1), (3, -2)),
                parameter((1,), (1,)),
                parameter((1,), (2,)),
            ),
            {"rounding": "half_even", "lo": -60, "hi": 90},
        ),
        formulas=(
            "round(v / 2^s), exactly: half_up is floor(v / 2^s + 1/2); toward_zero drops the fraction; half_even is",
            "the nearest integer, and of two equally near ones the even one.",
            "Of k inputs the first floor((k - 2) / 2) are tensors and the others parameters, also where k is odd (C1).",
            "C5 and C6 hold for each bound of R(s) and R(m_i). For C7 the operands are first made to fit 2^18 bounds",
            "or as many as they have together, counted as those of their broadcast; then, for each bound of the",
            "broadcast, with P and c as in the interval below,",
            "  sum of max(0, max(P_i)) + max(0, c.hi) + 2^(s.hi - 1) if s.hi > 0  <=  2^63 - 1  and",
            "  sum of min(0, min(P_i)) + min(0, c.lo)  >=  -(2^63 - 1).",
        ),
    ),
    "broadcast_greater": Statement(
        shapes=("broadcast(A.shape, B.shape)",),
        interval=Each("1 if A.lo > B.hi else 0", "1 if A.hi > B.lo else 0"),
        example=PAIR,
    ),
}
