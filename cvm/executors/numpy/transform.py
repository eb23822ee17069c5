"""Transform ops: views if all elements keep their order, otherwise copies."""

from __future__ import annotations

import math

import numpy as np

from cvm.executors.numpy.step import Array, PlannedNode, plans, single
from cvm.ops.declaration import Call
from cvm.ops.ranges import Shape

__all__: list[str] = []


def _reshaped(shape: Shape) -> PlannedNode:
    return single(lambda X: X.reshape(shape), "view")


@plans("repeat")
def plan_repeat(call: Call) -> PlannedNode:
    """Each element repeated ``repeats`` times along an axis."""
    a = call.attributes
    return single(lambda X: np.repeat(X, a.repeats, a.axis), "copy")


@plans("tile")
def plan_tile(call: Call) -> PlannedNode:
    """The whole tensor repeated along its axes; shape and reps are aligned at the last axis."""
    reps = call.attributes.reps
    return single(lambda X: np.tile(X, reps), "copy")


@plans("flatten")
def plan_flatten(call: Call) -> PlannedNode:
    """The elements in one axis, in row-major order."""
    return _reshaped((math.prod(call.shapes[0]),))


@plans("concatenate")
def plan_concatenate(call: Call) -> PlannedNode:
    """The tensors concatenated along an axis."""
    axis = call.attributes.axis
    return single(lambda *tensors: np.concatenate(tensors, axis), "copy")


@plans("transpose")
def plan_transpose(call: Call) -> PlannedNode:
    """Axis i of Y is axis axes[i] of X; without axes, the reverse order."""
    axes = call.attributes.axes or None
    return single(lambda X: X.transpose(axes), "copy")


@plans("slice")
def plan_slice(call: Call) -> PlannedNode:
    """Along each axis, the elements begin, begin + stride, .. before end."""
    a = call.attributes
    slices = tuple(
        _slice_of(extent, *(given[axis] if axis < len(given) else None for given in (a.begin, a.end, a.strides)))
        for axis, extent in enumerate(call.shapes[0])
    )
    return single(lambda X: X[slices].copy(), "copy")


def _slice_of(extent: int, begin: int | None, end: int | None, stride: int | None) -> slice:
    """The Python slice of one axis. Missing bounds are 0 and ``extent``, a missing stride is 1.

    The extent is added once to a negative begin or end. Then both are clipped to [0, extent], or to [-1, extent - 1] if
    the stride is negative; -1 is the index before the first element.
    """
    stride = 1 if stride is None else stride
    lowest, highest = (0, extent) if stride > 0 else (-1, extent - 1)
    start = min(max(_from_front(0 if begin is None else begin, extent), lowest), highest)
    stop = min(max(_from_front(extent if end is None else end, extent), lowest), highest)
    return slice(start, None if stop == -1 else stop, stride)


def _from_front(bound: int, extent: int) -> int:
    return bound + extent if bound < 0 else bound


@plans("slice_like")
def plan_slice_like(call: Call) -> PlannedNode:
    """The first elements of X along the given axes, as many as shape_like has; without axes, along all axes."""
    X, like = call.shapes
    axes = {axis % len(X) for axis in call.attributes.axes} or set(range(len(like)))
    slices = tuple(slice(like[axis] if axis in axes else n) for axis, n in enumerate(X))
    return single(lambda X: X[slices].copy(), "copy", reads=(0,))


@plans("take")
def plan_take(call: Call) -> PlannedNode:
    """The elements, or the slices along an axis, at indices that are clipped to the extent."""
    axis = call.attributes.axis
    return single(lambda X, indices: np.take(X, indices, axis, mode="clip"), "gather, indices clipped")


@plans("cvm_lut")
def plan_cvm_lut(call: Call) -> PlannedNode:
    """`take` from the flattened table."""
    return single(lambda X, indices: np.take(X, indices, mode="clip"), "gather, indices clipped")


@plans("expand_dims")
def plan_expand_dims(call: Call) -> PlannedNode:
    """X with ``num_newaxis`` axes of extent 1 before axis ``axis``; to a negative axis, rank + 1 is added."""
    (X,), a = call.shapes, call.attributes
    axis = a.axis if a.axis >= 0 else a.axis + len(X) + 1
    return _reshaped((*X[:axis], *(1,) * a.num_newaxis, *X[axis:]))


@plans("reshape")
def plan_reshape(call: Call) -> PlannedNode:
    """The same elements in another shape."""
    return _reshaped(call.attributes.target_shape)


@plans("squeeze")
def plan_squeeze(call: Call) -> PlannedNode:
    """X without the given axes of extent 1, or without all such axes. If no axis is left, the shape is (1,)."""
    (X,) = call.shapes
    listed = {axis % len(X) for axis in call.attributes.axes}
    dropped = listed or {axis for axis, n in enumerate(X) if n == 1}
    return _reshaped(tuple(n for axis, n in enumerate(X) if axis not in dropped) or (1,))


@plans("where")
def plan_where(call: Call) -> PlannedNode:
    """A where the condition is not 0, else B. A condition of rank 1 chooses whole slices along axis 0."""
    condition, A, _ = call.shapes
    aligned = condition if condition == A else (*condition, *(1,) * (len(A) - 1))

    def run(C: Array, A: Array, B: Array) -> Array:
        return np.where(C.reshape(aligned) != 0, A, B)

    return single(run, "int32")
