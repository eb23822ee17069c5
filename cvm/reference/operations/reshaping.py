"""Tensor shape operations: NNEF 1.0.1 section 4.5.

`reshape` and `slice` also know the attributes that current Khronos tools add to them; their defaults change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.reference.registry import Array, Integers, operation

__all__: list[str] = []


@operation("4.5.1")
def reshape(input: Array, shape: Integers, axis_start: int = 0, axis_count: int = -1) -> Array:
    """The elements in row-major order under new extents; 0 keeps an extent, -1 stands for the extent that the volume
    leaves.

    Khronos: only the ``axis_count`` axes from ``axis_start`` on are replaced; -1 means all the rest.
    """
    stop = input.ndim if axis_count == -1 else axis_start + axis_count
    items = [input.shape[axis_start + index] if item == 0 else item for index, item in enumerate(shape)]
    return input.reshape(*input.shape[:axis_start], *items, *input.shape[stop:])


@operation("4.5.1")
def squeeze(input: Array, axes: Integers) -> Array:
    """The tensor without the given axes, which have extent 1."""
    return np.squeeze(input, tuple(axes))


@operation("4.5.1")
def unsqueeze(input: Array, axes: Integers) -> Array:
    """The tensor with axes of extent 1 inserted; ``axes`` counts them in the output."""
    return np.expand_dims(input, tuple(axes))


@operation("4.5.2")
def transpose(input: Array, axes: Integers) -> Array:
    """Axis k of the output is axis axes[k] of the input; further axes keep their order."""
    return np.transpose(input, (*axes, *range(len(axes), input.ndim)))


@operation("4.5.3")
def split(value: Array, axis: int, ratios: Integers) -> tuple[Array, ...]:
    """Consecutive sections along the axis, whose extents stand in the given ratios."""
    unit = value.shape[axis] // sum(ratios)
    return tuple(np.split(value, np.cumsum(ratios)[:-1] * unit, axis))


@operation("4.5.3")
def concat(values: Sequence[Array], axis: int) -> Array:
    """The tensors one after the other along the axis."""
    return np.concatenate(list(values), axis)


@operation("4.5.3")
def stack(values: Sequence[Array], axis: int) -> Array:
    """The tensors one after the other along a new axis."""
    return np.stack(list(values), axis)


@operation("4.5.3")
def unstack(value: Array, axis: int) -> tuple[Array, ...]:
    """One slice for each index of the axis, without that axis."""
    return tuple(np.moveaxis(value, axis, 0))


@operation("4.5.4", "slice")
def slice_(input: Array, axes: Integers, begin: Integers, end: Integers, stride: Integers = ()) -> Array:
    """The slices from begin to end along the axes; negative bounds count from the end, and an end of 0 is the end.

    Khronos: every stride-th element; a negative stride goes down from begin to, but not including, end, where 0 is the
    first index and -extent - 1 lies before it.
    """
    sections = [slice(None)] * input.ndim
    for axis, first, last, step in zip(axes, begin, end, stride or (1,) * len(axes), strict=True):
        extent = input.shape[axis]
        start = first + extent if first < 0 else first
        stop = last + extent if last < 0 or (last == 0 and step > 0) else last
        sections[axis] = slice(start, None if stop < 0 else stop, step)
    return input[tuple(sections)]
