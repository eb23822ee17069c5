"""Reduce operations: NNEF 1.0.1 section 4.4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvm.reference.registry import Array, Integers, operation

__all__ = ["max_reduce", "mean_reduce", "sum_reduce"]


@operation("4.4")
def sum_reduce(input: Array, axes: Integers, normalize: bool = False) -> Array:
    """The sum along the axes; normalised: divided by the product of their extents."""
    result: Array = (np.mean if normalize else np.sum)(input, axis=tuple(axes), keepdims=True)
    return result


@operation("4.4")
def mean_reduce(input: Array, axes: Integers) -> Array:
    """``sum_reduce(input, axes, normalize = true)``."""
    return sum_reduce(input, axes, normalize=True)


@operation("4.4")
def l2_reduce(input: Array, axes: Integers) -> Array:
    """The root of the sum of squares along the axes."""
    return np.sqrt(sum_reduce(input * input, axes))


@operation("4.4")
def log_sum_reduce(input: Array, axes: Integers) -> Array:
    """The natural logarithm of the sum along the axes."""
    return np.log(sum_reduce(input, axes))


@operation("4.4")
def log_sum_exp_reduce(input: Array, axes: Integers) -> Array:
    """``ln(sum(e^x))`` along the axes."""
    greatest = max_reduce(input, axes)
    return greatest + np.log(sum_reduce(np.exp(input - greatest), axes))


@operation("4.4")
def max_reduce(input: Array, axes: Integers) -> Array:
    """The maximum along the axes."""
    result: Array = np.max(input, axis=tuple(axes), keepdims=True)
    return result


@operation("4.4")
def min_reduce(input: Array, axes: Integers) -> Array:
    """The minimum along the axes."""
    result: Array = np.min(input, axis=tuple(axes), keepdims=True)
    return result


def _position(find: Callable[..., Array], input: Array, axes: Integers) -> Array:
    """The index that ``find`` gives among the elements along the axes, counted in row-major order of these axes."""
    last = [input.ndim - len(axes) + index for index in range(len(axes))]
    moved = np.moveaxis(input, sorted(axes), last)
    kept = moved.shape[: input.ndim - len(axes)]
    return np.expand_dims(find(moved.reshape(*kept, -1), axis=-1), tuple(sorted(axes)))


@operation("4.4")
def argmax_reduce(input: Array, axes: Integers) -> Array:
    """The index of the maximum along the axes; of the first one among equal elements."""
    return _position(np.argmax, input, axes)


@operation("4.4")
def argmin_reduce(input: Array, axes: Integers) -> Array:
    """The index of the minimum along the axes; of the first one among equal elements."""
    return _position(np.argmin, input, axes)
