"""The formulas of sections 4.3 and 4.6 as the document prints them: nested loops over single numbers.

It shares nothing with the product. ``extended`` is the document's input with a tilde.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Index = tuple[int, ...]


def indices(shape: Sequence[int]) -> Iterator[Index]:
    return itertools.product(*map(range, shape))


def _inside(index: int, z: int, border: str) -> int | None:
    """Which item of ``z`` stands at an index of the extended input; None for a zero or nothing."""
    if 0 <= index < z:
        return index
    if border in ("constant", "ignore"):
        return None
    if border == "replicate" or z == 1:
        return 0 if index < 0 else z - 1
    if border == "reflect":
        reflected = -index if index < 0 else z - 1 - (index - z + 1)
    else:
        reflected = -index - 1 if index < 0 else z - 1 - (index - z)
    return _inside(reflected, z, border)


def extended(x: Array, index: Index, border: str) -> float | None:
    """input~[index]; None where border 'ignore' has nothing."""
    positions = [_inside(i, z, border) for i, z in zip(index, x.shape, strict=True)]
    if None in positions:
        return None if border == "ignore" else 0.0
    return float(x[tuple(position for position in positions if position is not None)])


class Window:
    """Down-scaled and up-scaled extents, and the padding p, in one dimension."""

    def __init__(self, f: int, s: int, d: int, padding: tuple[int, int] | None, X: int | None, x: int | None) -> None:
        fd = (f - 1) * d + 1
        self.f, self.s, self.d = f, s, d
        if X is not None and x is None:
            x = math.ceil(X / s) if padding is None else math.floor((padding[0] + X + padding[1] - fd) / s) + 1
        elif X is None and x is not None:
            X = x * s if padding is None else (x - 1) * s + fd - (padding[0] + padding[1])
        assert X is not None
        assert x is not None
        self.X, self.x = X, x
        # Where windows leave gaps the total is negative; conformance cases then begin at the first item.
        self.p = max(0, math.floor(((x - 1) * s + fd - X) / 2)) if padding is None else padding[0]


def windows(
    size: Sequence[int],
    padding: Sequence[tuple[int, int]],
    stride: Sequence[int],
    dilation: Sequence[int],
    X: Sequence[int] | None = None,
    x: Sequence[int] | None = None,
) -> list[Window]:
    return [
        Window(
            f,
            stride[k] if stride else 1,
            dilation[k] if dilation else 1,
            padding[k] if padding else None,
            X[k] if X else None,
            x[k] if x else None,
        )
        for k, f in enumerate(size)
    ]


def _down(ws: Sequence[Window], i: Index, j: Index) -> Index:
    return tuple(i_ * w.s + j_ * w.d - w.p for w, i_, j_ in zip(ws, i, j, strict=True))


def _up(ws: Sequence[Window], i: Index, j: Index) -> Index | None:
    """(i + p - j*d) / s where it is an integer."""
    pairs = [divmod(i_ + w.p - j_ * w.d, w.s) for w, i_, j_ in zip(ws, i, j, strict=True)]
    return None if any(rest for _, rest in pairs) else tuple(quotient for quotient, _ in pairs)


def _groups(groups: int, depthwise: int) -> int:
    return groups if groups else depthwise


def conv(input: Array, filter: Array, border: str, padding: Any, stride: Any, dilation: Any, groups: int) -> Array:
    groups = _groups(groups, input.shape[1])
    ws = windows(filter.shape[2:], padding, stride, dilation, X=input.shape[2:])
    c, per_group = filter.shape[:2]
    output = np.zeros((input.shape[0], c, *(w.x for w in ws)))
    for b, k2, *i in indices(output.shape):
        group = k2 // (c // groups)
        for k1, *j in indices(filter.shape[1:]):
            plane = input[b, group * per_group + k1]
            item = extended(plane, _down(ws, tuple(i), tuple(j)), border)
            output[(b, k2, *i)] += item * filter[(k2, k1, *j)]
    return output


def deconv(
    input: Array,
    filter: Array,
    border: str,
    padding: Any,
    stride: Any,
    dilation: Any,
    output_shape: Sequence[int],
    groups: int,
) -> Array:
    c, per_group = filter.shape[:2]
    groups = _groups(groups, output_shape[1] if output_shape else c)
    ws = windows(filter.shape[2:], padding, stride, dilation, output_shape[2:] or None, input.shape[2:])
    output = np.zeros((input.shape[0], per_group * groups, *(w.X for w in ws)))
    for b, channel, *i in indices(output.shape):
        group, k1 = divmod(channel, per_group)
        for k2 in range(group * (c // groups), (group + 1) * (c // groups)):
            for j in indices(filter.shape[2:]):
                position = _up(ws, tuple(i), j)
                if position is not None:
                    output[(b, channel, *i)] += extended(input[b, k2], position, border) * filter[(k2, k1, *j)]
    return output


def _items(input: Array, ws: Sequence[Window], i: Index, size: Sequence[int], border: str) -> list[float | None]:
    return [extended(input, _down(ws, i, j), border) for j in indices(size)]


def box(
    input: Array, size: Sequence[int], border: str, padding: Any, stride: Any, dilation: Any, normalize: bool
) -> Array:
    ws = windows(size, padding, stride, dilation, X=input.shape)
    output = np.zeros([w.x for w in ws])
    for i in indices(output.shape):
        items = [item for item in _items(input, ws, i, size, border) if item is not None]
        output[i] = sum(items) / (len(items) if normalize else 1)
    return output


def debox(
    input: Array,
    size: Sequence[int],
    border: str,
    padding: Any,
    stride: Any,
    dilation: Any,
    output_shape: Sequence[int],
    normalize: bool,
) -> Array:
    ws = windows(size, padding, stride, dilation, output_shape or None, input.shape)
    output = np.zeros([w.X for w in ws])
    for i in indices(output.shape):
        positions = [position for position in (_up(ws, i, j) for j in indices(size)) if position is not None]
        items = [item for item in (extended(input, position, border) for position in positions) if item is not None]
        divisor = len(items) if border == "ignore" else math.prod(size)
        output[i] = sum(items) / (max(divisor, 1) if normalize else 1)
    return output


def maxima(
    input: Array, size: Sequence[int], border: str, padding: Any, stride: Any, dilation: Any
) -> tuple[Array, Array]:
    """The results of max_pool_with_index."""
    ws = windows(size, padding, stride, dilation, X=input.shape)
    output, index = np.zeros([w.x for w in ws]), np.zeros([w.x for w in ws], np.int64)
    for i in indices(output.shape):
        items = _items(input, ws, i, size, border)
        best = max(item for item in items if item is not None)
        output[i], index[i] = best, items.index(best)
    return output, index


def _offset(index: int, size: Sequence[int]) -> Index:
    return list(indices(size))[index]


def sample(
    input: Array, index: Array, size: Sequence[int], border: str, padding: Any, stride: Any, dilation: Any
) -> Array:
    ws = windows(size, padding, stride, dilation, X=input.shape)
    output = np.zeros(index.shape)
    for i in indices(index.shape):
        output[i] = extended(input, _down(ws, i, _offset(index[i], size)), border)
    return output


def desample(
    input: Array,
    index: Array,
    size: Sequence[int],
    padding: Any,
    stride: Any,
    dilation: Any,
    output_shape: Sequence[int],
) -> Array:
    ws = windows(size, padding, stride, dilation, output_shape or None, input.shape)
    output = np.zeros([w.X for w in ws])
    for i in indices(output.shape):
        for number, j in enumerate(indices(size)):
            position = _up(ws, i, j)
            inside = position is not None and all(0 <= t < w.x for t, w in zip(position, ws, strict=True))
            if inside and index[position] == number:
                output[i] += input[position]
    return output


def multilinear(input: Array, factor: Sequence[int], method: str, border: str) -> Array:
    """All 2^n neighbours of each output item, with the product of their weights."""
    extents = input.shape[2:]
    output = np.zeros((*input.shape[:2], *(x * f for x, f in zip(extents, factor, strict=True))))
    for b, c, *i in indices(output.shape):
        positions = []
        for i_, f, x in zip(i, factor, extents, strict=True):
            if method == "asymmetric":
                positions.append(i_ / f)
            elif method == "symmetric":
                positions.append((i_ - (f - 1) / 2) / f)
            else:
                positions.append(i_ / ((x * f - 1) / (x - 1)) if x > 1 else 0.0)
        output[(b, c, *i)] = _interpolated(input[b, c], positions, border)
    return output


def _interpolated(plane: Array, positions: Sequence[float], border: str) -> float:
    total = 0.0
    for corner in itertools.product((0, 1), repeat=len(positions)):
        weight, index = 1.0, []
        for at, side in zip(positions, corner, strict=True):
            j = math.floor(round(at, 9))
            u = at - j
            weight *= u if side else 1 - u
            index.append(j + side)
        item = extended(plane, tuple(index), border)
        assert item is not None
        total += weight * item
    return total


def roi_resample(input: Array, rois: Array, batch_index: Array, size: Sequence[int], method: str) -> Array:
    output = np.zeros((len(rois), input.shape[1], *size))
    m = len(size)
    for n, c, *i in indices(output.shape):
        positions = []
        for k, (i_, h) in enumerate(zip(i, size, strict=True)):
            start, end = rois[n, k], rois[n, m + k]
            f = h / (end - start)
            if method == "asymmetric":
                inner = i_ / f
            elif method == "symmetric":
                inner = (i_ - (f - 1) / 2) / f
            else:
                g = (h - 1) / (end - start - 1) if h > 1 else 1.0
                inner = i_ / g if g else 0.0
            positions.append(start + inner)
        output[(n, c, *i)] = _interpolated(input[batch_index[n, 0], c], positions, "replicate")
    return output
