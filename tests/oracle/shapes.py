"""Tensor shape operations (4.5), and the Khronos dialect's pad, tile and gather."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from .tensors import Tensor, TensorLike, aligned, aligned_items, exact, require, tensor, unique_axes
from .windows import Axis, Padding, taps


def reshape(input: TensorLike, shape: Sequence[int], axis_start: int = 0, axis_count: int = -1) -> Tensor:
    """Row-major; 0 inherits the extent, one -1 is inferred. The dialect's axis_* reshape some dimensions only."""
    x = tensor(input)
    end = x.rank if axis_count == -1 else axis_start + axis_count
    require(0 <= axis_start <= end <= x.rank, "the reshaped dimensions are dimensions of input")
    inner = x.shape[axis_start:end]
    require(all(extent != 0 or i < len(inner) for i, extent in enumerate(shape)), "an inherited extent exists")
    wanted = [inner[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    require(wanted.count(-1) <= 1 and all(extent >= -1 for extent in wanted), "shape has at most one -1")
    known = prod(extent for extent in wanted if extent != -1)
    require(prod(inner) == known if -1 not in wanted else prod(inner) % known == 0, "the volumes are equal")
    filled = [prod(inner) // known if extent == -1 else extent for extent in wanted]
    return x.map(x.items.reshape([*x.shape[:axis_start], *filled, *x.shape[end:]]))


def squeeze(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """Removes singular dimensions (others are refused)."""
    x = tensor(input)
    along = unique_axes(axes, x.rank)
    require(all(x.shape[axis] == 1 for axis in along), "the removed dimensions are singular")
    return x.map(np.squeeze(x.items, axis=along))


def unsqueeze(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """axes are the inserted dimensions as they appear in the output."""
    x = tensor(input)
    return x.map(np.expand_dims(x.items, unique_axes(axes, x.rank + len(axes))))


def transpose(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """axes permutes the first dimensions; the others stay."""
    x = tensor(input)
    require(sorted(axes) == list(range(len(axes))) and len(axes) <= x.rank, "axes is a permutation of 0..n-1")
    return x.map(np.transpose(x.items, [*axes, *range(len(axes), x.rank)]))


def split(value: TensorLike, axis: int, ratios: Sequence[int]) -> list[Tensor]:
    x = tensor(value)
    unique_axes([axis], x.rank)
    require(all(ratio > 0 for ratio in ratios) and len(ratios) > 0, "items in ratios are positive")
    require(x.shape[axis] % sum(ratios) == 0, "the sum of ratios divides the extent")
    unit = x.shape[axis] // sum(ratios)
    parts = np.split(x.items, np.cumsum([ratio * unit for ratio in ratios])[:-1].tolist(), axis=axis)
    return [x.map(part) for part in parts]


def concat(values: Sequence[TensorLike], axis: int) -> Tensor:
    parts, denominator = aligned([tensor(value) for value in values])
    require(len({part.ndim for part in parts}) == 1 and 0 <= axis < parts[0].ndim, "the ranks of values are equal")
    return Tensor(exact(np.concatenate(parts, axis=axis)), denominator)


def stack(values: Sequence[TensorLike], axis: int) -> Tensor:
    return concat([unsqueeze(value, [axis]) for value in values], axis)


def unstack(value: TensorLike, axis: int) -> list[Tensor]:
    return [squeeze(part, [axis]) for part in split(value, axis, [1] * tensor(value).shape[axis])]


def slice(
    input: TensorLike, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    """Negative begin and end count from the end, an end of 0 is the end. The dialect's stride must be positive."""
    x = tensor(input)
    unique_axes(axes, x.rank)
    items = x.items
    for axis, first, last, step in zip(axes, begin, end, stride or [1] * len(axes), strict=True):
        extent = x.shape[axis]
        require(-extent < first <= extent and -extent < last <= extent, "begin and end are within the extent")
        start, stop = first % extent if first < 0 else first, last if last > 0 else last + extent
        require(start < stop and step > 0, "end is greater than begin")
        items = np.take(items, range(start, stop, step), axis=axis)
    return x.map(items)


def pad(input: TensorLike, padding: Padding, border: str = "constant", value: Fraction | int = 0) -> Tensor:
    """Khronos dialect: the extended input of 4.3, with any constant; negative padding crops."""
    x = tensor(input)
    require(len(padding) == x.rank, "padding has an item per dimension")
    axes = [Axis(1, p, 1, 1, p + extent + q) for extent, (p, q) in zip(x.shape, padding, strict=True)]
    require(all(axis.output > 0 for axis in axes) and border != "ignore", "the padded extents are positive")
    (items, fill), denominator = aligned_items(x, value)
    ((moved, _, inside),) = taps(items, axes, border)
    return Tensor(exact(np.where(inside, moved, fill)), denominator)


def tile(input: TensorLike, repeats: Sequence[int]) -> Tensor:
    """Khronos dialect."""
    x = tensor(input)
    require(len(repeats) == x.rank and all(count > 0 for count in repeats), "repeats has an item per dimension")
    return x.map(np.tile(x.items, repeats))


def gather(input: TensorLike, indices: TensorLike, axis: int = 0) -> Tensor:
    """Khronos dialect: the dimension is replaced by those of indices; negative indices are refused."""
    x, chosen = tensor(input), tensor(indices).integers()
    unique_axes([axis], x.rank)
    require(bool(((chosen >= 0) & (chosen < x.shape[axis])).all()), "indices are within the extent")
    return x.map(np.take(x.items, chosen, axis=axis))
