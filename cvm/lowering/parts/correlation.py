"""conv2d for any number of axes and any layout of the input on the lines of its windows (`cvm.lowering.forms.windows`).

`convolved` emits it for a tensor of integers, `correlated_constants` computes the same sums for constants, which differ
from position to position only where taps read nothing.
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
    """The dimensions of a kernel (O, I, k_1, ..) that a reverse operation reads backwards."""
    return tuple(i + 2 for i, axis in enumerate(axes) if axis.reverse)


def convolved(value: Value, kernels: Sequence[Value], axes: Sequence[Axis], groups: int) -> list[Value]:
    """Emit the correlations of (N, C, x_1, ..) with kernels (O, C / groups, k_1, ..), already flipped, along all axes.

    With one spatial axis a second one of extent 1 is added. With more than two, the windows along the first of them
    are taken apart, their positions joining the batch and their taps the channels, until two are left.
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
    """The padding of conv2d itself that gives the windows of this axis, if one does: zeros, as many on both sides."""
    line = axis.line()
    inside = np.flatnonzero(line >= 0)
    if not inside.size:
        return None
    pad, last = int(inside[0]), int(inside[-1])
    plain = np.array_equal(line[pad : last + 1], np.arange(last + 1 - pad))
    covered = (axis.size - 1) * axis.dilation + 1
    outputs = (axis.extent + 2 * pad - covered) // axis.step + 1
    # What follows the last item read is the image's own continuation, or zeros that the padding holds as well.
    behind = line.size - last - 1
    whole = last + 1 - pad == axis.extent
    return pad if plain and outputs == axis.outputs and (whole or behind == 0) and behind <= pad else None


def _folded(value: Value, axis: Axis) -> Value:
    """Axis 2 of (N, C, x, ..) taken apart: (N * outputs, C * size, ..)."""
    shape = value.shape
    rest = shape[3:]
    starts = np.arange(axis.outputs)[:, None] * axis.step
    indices = axis.line()[starts + np.arange(axis.size)[None, :] * axis.dilation]
    value = value.in_shape((*shape[:3], math.prod(rest)))
    value = gathered_windows(value, 2, indices)
    value = value.transpose((0, 2, 1, 3, 4))
    return value.in_shape((shape[0] * axis.outputs, shape[1] * axis.size, *rest))


def correlated_constants(weights: Array, items: Array, axes: Sequence[Axis], groups: int) -> Array:
    """The same sums for constant ``items`` (N, C or 1, x or 1, ..): extent 1 stands for equal items.

    ``weights`` (O, C / groups, k_1, ..) are as the document has them, not flipped. Extent 1 is kept along axes on
    which the result does not vary.
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
    """(O, C / groups) times (N, C or 1, ..), by groups of channels."""
    if items.shape[1] == 1 and weights.shape[1] * groups > 1:
        held = holding(weights, magnitude(weights) * weights.shape[1])
        sums = held.sum(axis=1).astype(object).reshape(1, -1, *(1,) * (items.ndim - 2))
        return np.asarray(sums * items)
    parts = [
        np.moveaxis(np.tensordot(w.astype(object), x, axes=([1], [1])), 0, 1)
        for w, x in zip(np.split(weights, groups), np.split(items, groups, axis=1), strict=True)
    ]
    return np.concatenate(parts, axis=1)
