"""Convolutions over any number of spatial axes, with any border, stride or dilation, by means of ``conv2d``.

`cvm.lowering.forms.windows` describes the windows. `convolved` emits ops for a value of the program;
`correlated_constants` computes the same sums of constants when compiling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import holding, magnitude
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.gather import gathered, gathered_windows
from cvm.lowering.forms.windows import Axis

__all__ = ["convolved", "correlated_constants", "flipped", "own_padding"]

Array = npt.NDArray[Any]


def flipped(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The axes of a kernel (O, I, k_1, ..) that a reverse operation reads backwards."""
    return tuple(i + 2 for i, axis in enumerate(axes) if axis.reverse)


def convolved(value: Value, kernels: Sequence[Value], axes: Sequence[Axis], groups: int) -> list[Value]:
    """Emit the correlation of ``value`` (N, C, x_1, ..) with each kernel (O, C / groups, k_1, ..), already flipped.

    Returns one value (N, O, outputs_1, ..) per kernel. If there is one spatial axis, a second one of extent 1 is added.
    If there are more than two, the windows along the first one are gathered until two are left: the positions of the
    windows become a part of the batch, and the taps become a part of the channels.
    """
    batch = value.shape[0]
    outputs = tuple(axis.outputs for axis in axes)
    axes, kernels = list(axes), list(kernels)
    while len(axes) < 2:
        axes.insert(0, Axis(1, 1))
        value, *kernels = (_with_axis(name) for name in (value, *kernels))
    folded, plane = axes[:-2], axes[-2:]
    for axis in folded:
        value = _folded(value, axis)
        kernels = [_with_folded_taps(kernel) for kernel in kernels]
    padding = []
    for i, axis in enumerate(plane):
        pad = own_padding(axis)
        if pad is None:
            value = gathered(value, i + 2, axis.line())
        padding.append(pad or 0)
    totals = []
    for kernel in kernels:
        steps, dilations = tuple(axis.step for axis in plane), tuple(axis.dilation for axis in plane)
        geometry: dict[str, Any] = {"padding": tuple(padding), "stride": steps, "dilation": dilations}
        total = value.apply("conv2d", kernel, **geometry, groups=groups)
        channels = total.shape[1]
        if folded:
            extents = (*(axis.outputs for axis in folded), channels, *(axis.outputs for axis in plane))
            total = total.in_shape((batch, *extents))
            count = len(folded)
            order = (0, count + 1, *range(1, count + 1), count + 2, count + 3)
            total = total.transpose(order)
        totals.append(total.in_shape((batch, channels, *outputs)))
    return totals


def _with_folded_taps(kernel: Value) -> Value:
    shape = kernel.shape
    return kernel.in_shape((shape[0], shape[1] * shape[2], *shape[3:]))


def _with_axis(value: Value) -> Value:
    shape = value.shape
    return value.in_shape((*shape[:2], 1, *shape[2:]))


def own_padding(axis: Axis) -> int | None:
    """The ``padding`` attribute of ``conv2d`` that gives the windows of this axis, or None if there is none.

    ``conv2d`` pads with zeros, with the same number before and after.
    """
    line = axis.line()
    inside = np.flatnonzero(line >= 0)
    if not inside.size:
        return None
    pad, last = int(inside[0]), int(inside[-1])
    plain = np.array_equal(line[pad : last + 1], np.arange(last + 1 - pad))
    covered = (axis.size - 1) * axis.dilation + 1
    outputs = (axis.extent + 2 * pad - covered) // axis.step + 1
    # After the last item that is read, conv2d must find the same as the line has: no more items, or zeros of padding.
    behind = line.size - last - 1
    whole = last + 1 - pad == axis.extent
    return pad if plain and outputs == axis.outputs and (whole or behind == 0) and behind <= pad else None


def _folded(value: Value, axis: Axis) -> Value:
    """Gather the windows along axis 2 of (N, C, x, ..): (N * outputs, C * size, ..)."""
    shape = value.shape
    rest = shape[3:]
    starts = np.arange(axis.outputs)[:, None] * axis.step
    indices = axis.line()[starts + np.arange(axis.size)[None, :] * axis.dilation]
    value = value.in_shape((*shape[:3], math.prod(rest)))
    value = gathered_windows(value, 2, indices)
    value = value.transpose((0, 2, 1, 3, 4))
    return value.in_shape((shape[0] * axis.outputs, shape[1] * axis.size, *rest))


def correlated_constants(weights: Array, items: Array, axes: Sequence[Axis], groups: int) -> Array:
    """The sums of `convolved` for constant ``items`` (N, C or 1, x or 1, ..), where extent 1 means equal items.

    ``weights`` (O, C / groups, k_1, ..) are as the document has them, not flipped. The result has extent 1 along the
    spatial axes on which it does not vary.
    """
    tables: list[Array] = []
    expansions: list[Array | None] = []
    for i, axis in enumerate(axes):
        sources = axis.sources()
        if items.shape[2 + i] == 1:
            distinct, inverse = np.unique((sources >= 0).astype(np.int64), axis=0, return_inverse=True)
            tables.append(distinct)
            expansions.append(inverse.reshape(-1))
        else:
            tables.append(sources)
            expansions.append(None)
    total: Any = 0
    for taps in np.ndindex(*weights.shape[2:]):
        part = items
        for i, (tap, table, expansion) in enumerate(zip(taps, tables, expansions, strict=True)):
            along = [1] * items.ndim
            along[2 + i] = len(table)
            if expansion is None:
                part = np.take(part, np.maximum(table[:, tap], 0), 2 + i)
            part = part * (table[:, tap] >= (1 if expansion is not None else 0)).astype(object).reshape(along)
        total = total + _product(weights[(slice(None), slice(None), *taps)], part, groups)
    for i, expansion in enumerate(expansions):
        if expansion is not None and total.shape[2 + i] > 1:
            total = np.take(total, expansion, 2 + i)
    return np.asarray(total, dtype=object)


def _product(weights: Array, items: Array, groups: int) -> Array:
    """The product of weights (O, C / groups) with items (N, C or 1, ..) along the channels, group by group."""
    if items.shape[1] == 1 and weights.shape[1] * groups > 1:
        held = holding(weights, magnitude(weights) * weights.shape[1])
        sums = held.sum(axis=1).astype(object).reshape(1, -1, *(1,) * (items.ndim - 2))
        return np.asarray(sums * items)
    parts = [
        np.moveaxis(np.tensordot(w.astype(object), x, axes=([1], [1])), 0, 1)
        for w, x in zip(np.split(weights, groups), np.split(items, groups, axis=1), strict=True)
    ]
    return np.concatenate(parts, axis=1)
