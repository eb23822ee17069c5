"""Elementwise ops, in int32 wherever the proven range leaves room."""

from __future__ import annotations

import numpy as np

from cvm.executors.numpy.step import Array, PlannedNode, fits_int32, plans, plans_functions, single
from cvm.limits import INT32_MAX
from cvm.ops.declaration import Call

__all__ = ["clipped"]


# Sums are proven to be an int32, and no element is -2^31.
plans_functions({"abs": np.abs, "elemwise_add": np.add, "elemwise_sub": np.subtract, "negative": np.negative})


@plans("cvm_precision")
def plan_cvm_precision(call: Call) -> PlannedNode:
    """The number of powers of two that do not exceed |X|, at least 1."""
    powers = 2 ** np.arange(31, dtype=np.int32)

    def run(X: Array) -> Array:
        bits: Array = np.searchsorted(powers, np.abs(X), side="right").astype(np.int32)
        return np.maximum(bits, 1, out=bits)

    return single(run, "int32, binary search among the powers of two")


@plans("clip")
def plan_clip(call: Call) -> PlannedNode:
    """X clipped to [a_min, a_max]."""
    return clipped(call, call.attributes.a_min, call.attributes.a_max)


@plans("cvm_clip")
def plan_cvm_clip(call: Call) -> PlannedNode:
    """X clipped to [-alpha, alpha]."""
    alpha = _alpha(call)
    return clipped(call, -alpha, alpha)


def clipped(call: Call, lo: int, hi: int) -> PlannedNode:
    """The first input clipped to [lo, hi], or the input itself if it is proven to lie there."""
    least, largest = call.ranges[0].hull()
    if lo <= least and largest <= hi:
        return single(lambda X: X, f"identity: the input lies in [{least}, {largest}]")
    return single(lambda X: np.clip(X, lo, hi), "int32")


@plans("cvm_right_shift")
def plan_cvm_right_shift(call: Call) -> PlannedNode:
    """floor((t + 1) / 2) with t = floor(X / 2^(shift_bit - 1)).

    It is computed as floor(t / 2) + (t mod 2), which fits in int32 even if t + 1 = 2^31 does not.
    """
    shift, alpha = call.attributes.shift_bit, _alpha(call)

    def run(X: Array) -> Array:
        t = X >> (shift - 1)
        Y: Array = t >> 1
        Y += np.bitwise_and(t, 1, out=t)
        return np.clip(Y, -alpha, alpha, out=Y)

    return single(run, "int32")


@plans("cvm_left_shift")
def plan_cvm_left_shift(call: Call) -> PlannedNode:
    """X * 2^shift_bit, clipped. Its magnitude before the clip is at most 2^31 * 2^32, so it always fits in int64."""
    shift, alpha = call.attributes.shift_bit, _alpha(call)
    largest = call.ranges[0].magnitude() << shift
    if fits_int32(largest):
        return single(lambda X: np.clip(X << shift, -alpha, alpha), f"int32: |X| * 2^{shift} <= {largest}")

    def run(X: Array) -> Array:
        Y = X.astype(np.int64)
        Y <<= shift
        return np.clip(Y, -alpha, alpha, out=Y).astype(np.int32)

    return single(run, f"int64: |X| * 2^{shift} <= {largest} may exceed {INT32_MAX}")


def _alpha(call: Call) -> int:
    alpha: int = 2 ** (call.attributes.precision - 1) - 1
    return alpha
