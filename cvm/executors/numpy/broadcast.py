"""Broadcast ops. NumPy broadcasts as the document does: shapes are aligned at the last axis, extents of 1 repeat."""

from __future__ import annotations

import numpy as np

from cvm.executors.numpy.step import Array, PlannedNode, plans, plans_functions, single
from cvm.ops.declaration import Call

__all__: list[str] = []


# Sums, differences and products are proven to be an int32.
plans_functions(
    {
        "broadcast_add": np.add,
        "broadcast_sub": np.subtract,
        "broadcast_mul": np.multiply,
        "broadcast_max": np.maximum,
    }
)


@plans("broadcast_div")
def plan_broadcast_div(call: Call) -> PlannedNode:
    """A / B truncated toward zero, and 0 where B is 0.

    It is the quotient of the magnitudes, negated where the signs differ.
    """
    lo, hi = call.ranges[1].hull()
    may_be_zero = lo <= 0 <= hi
    nonnegative = min(lo, call.ranges[0].hull()[0]) >= 0

    def run(A: Array, B: Array) -> Array:
        a, b = np.abs(A), np.abs(B)
        if may_be_zero:
            Y = np.zeros(np.broadcast_shapes(A.shape, B.shape), np.int32)
            np.floor_divide(a, b, out=Y, where=b != 0)
        else:
            Y = np.floor_divide(a, b)
        if not nonnegative:
            np.negative(Y, out=Y, where=(A ^ B) < 0)
        return Y

    return single(run, f"int32, divisor in [{lo}, {hi}]")
