"""The statements about the broadcast ops."""

from __future__ import annotations

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Each, Example, Statement

__all__ = ["PAIR", "STATEMENTS"]

PAIR = Example((given((1, 3), (5, -7, 0), (-8, 7)), constant((3,), (2, 0, -3))))


def _stated(interval: Each, work: str = "") -> Statement:
    return Statement(shapes=("broadcast(A.shape, B.shape)",), interval=interval, work=work, example=PAIR)


STATEMENTS = {
    "broadcast_add": _stated(Each("A.lo + B.lo", "A.hi + B.hi")),
    "broadcast_sub": _stated(Each("A.lo - B.hi", "A.hi - B.lo")),
    "broadcast_mul": _stated(Each("min(P)", "max(P)", ("P = (A.lo * B.lo, A.lo * B.hi, A.hi * B.lo, A.hi * B.hi)",))),
    "broadcast_div": _stated(
        Each(
            "min(Q)",
            "max(Q)",
            (
                "D = ([max(B.lo, 1), B.hi] if B.hi >= 1 else []) + ([B.lo, min(B.hi, -1)] if B.lo <= -1 else [])",
                "Q = [quotient(a, d) for a in (A.lo, A.hi) for d in D] + ([0] if B.lo <= 0 <= B.hi else [])",
            ),
        ),
        work="8 * Y.size",
    ),
    "broadcast_max": _stated(Each("max(A.lo, B.lo)", "max(A.hi, B.hi)")),
}
