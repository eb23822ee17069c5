"""Reduce ops."""

from __future__ import annotations

import math

import numpy as np

from cvm.executors.numpy.step import Array, PlannedNode, fits_int32, plans, single
from cvm.ops.declaration import Call
from cvm.ops.ranges import Shape

__all__: list[str] = []


def reduction(call: Call) -> tuple[tuple[int, ...], Shape]:
    """The axes to reduce (R of the document) and the shape of the result."""
    (X,), a = call.shapes, call.attributes
    rank = len(X)
    listed = {axis % rank for axis in a.axes}
    reduced = {axis for axis in range(rank) if (axis in listed) != a.exclude}
    if not listed:  # no axes stand for all of them, with exclude too
        reduced = set(range(rank))
    elif not reduced:  # all axes are excluded, so nothing is reduced
        return (), X
    if a.keepdims:
        return tuple(sorted(reduced)), tuple(1 if axis in reduced else n for axis, n in enumerate(X))
    return tuple(sorted(reduced)), tuple(n for axis, n in enumerate(X) if axis not in reduced) or (1,)


@plans("sum")
def plan_sum(call: Call) -> PlannedNode:
    """Sums in int32 if every partial sum fits in it, else in int64. The result is proven to be an int32."""
    axes, shape = reduction(call)
    if not axes:
        return single(lambda X: X, "identity: nothing is reduced")
    largest = math.prod(call.shapes[0][axis] for axis in axes) * call.ranges[0].magnitude()
    dtype = np.int32 if fits_int32(largest) else np.int64

    def run(X: Array) -> Array:
        return np.add.reduce(X, axis=axes, dtype=dtype, keepdims=True).reshape(shape).astype(np.int32, copy=False)

    return single(run, f"{np.dtype(dtype).name}: sum |X| <= {largest}")


@plans("max")
def plan_max(call: Call) -> PlannedNode:
    """Maxima of the elements, without an initial value."""
    axes, shape = reduction(call)
    if not axes:
        return single(lambda X: X, "identity: nothing is reduced")
    return single(lambda X: np.maximum.reduce(X, axis=axes, keepdims=True).reshape(shape), "int32")
