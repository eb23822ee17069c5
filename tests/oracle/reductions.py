"""Reduce operations (4.4), the Khronos dialect's any and all, and moments (4.9.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from .elementwise import neg, not_, sqr, sub
from .tensors import Items, Tensor, TensorLike, exact, tensor, unique_axes


def sum_reduce(input: TensorLike, axes: Sequence[int], normalize: bool = False) -> Tensor:
    x = tensor(input)
    along = unique_axes(axes, x.rank)
    volume = prod(x.shape[axis] for axis in along) if normalize else 1
    return Tensor(exact(np.sum(x.items, axis=along, keepdims=True)), x.denominator * volume)


def mean_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    return sum_reduce(input, axes, normalize=True)


def max_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    x = tensor(input)
    return x.map(np.max(x.items, axis=unique_axes(axes, x.rank), keepdims=True))


def min_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    return neg(max_reduce(neg(input), axes))


def _first(better: Callable[[Any, Any], bool], items: Items) -> int:
    best = 0
    for index, item in enumerate(items):
        if better(item, items[best]):
            best = index
    return best


def argmax_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """The first index of the maximum; over several axes, its row-major index over them in increasing order.

    (The text's sequence of single-axis reductions would take the argmax of indices.)
    """
    x = tensor(input)
    along = sorted(unique_axes(axes, x.rank))
    kept = [axis for axis in range(x.rank) if axis not in along]
    rows = np.transpose(x.items, [*kept, *along]).reshape(*(x.shape[axis] for axis in kept), -1)
    found = np.empty(rows.shape[:-1], dtype=object)
    for index in np.ndindex(found.shape):
        found[index] = _first(lambda item, best: bool(item > best), rows[index])
    return Tensor(exact(found.reshape([1 if axis in along else extent for axis, extent in enumerate(x.shape)])))


def argmin_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    return argmax_reduce(neg(input), axes)


def any_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """Khronos dialect."""
    return max_reduce(not_(not_(input)), axes)


def all_reduce(input: TensorLike, axes: Sequence[int]) -> Tensor:
    """Khronos dialect."""
    return min_reduce(not_(not_(input)), axes)


def moments(input: TensorLike, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """4.9.6: mean and variance along axes."""
    mean = mean_reduce(input, axes)
    return mean, mean_reduce(sqr(sub(input, mean)), axes)
