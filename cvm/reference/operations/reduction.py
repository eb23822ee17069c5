"""Reduce operations: NNEF 1.0.1 section 4.4."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cvm.reference.registry import Array, Integers, operation

__all__ = ["mean_reduce", "reduced", "sum_reduce"]


def reduced(function: Callable[..., Any], input: Array, axes: Integers) -> Array:
    """A reduction of NumPy along the axes, which keep extent 1."""
    return np.asarray(function(input, axis=tuple(axes), keepdims=True))


@operation("4.4")
def sum_reduce(input: Array, axes: Integers, normalize: bool = False) -> Array:
    """The sum along the axes; normalised: divided by the product of their extents."""
    return reduced(np.mean if normalize else np.sum, input, axes)


@operation("4.4")
def mean_reduce(input: Array, axes: Integers) -> Array:
    """``sum_reduce(input, axes, normalize = true)``."""
    return sum_reduce(input, axes, normalize=True)


def _log_sum_exp(input: Array, axes: Integers) -> Array:
    """``ln(sum(e^x))`` along the axes, in which no power exceeds 1."""
    greatest = reduced(np.max, input, axes)
    return greatest + np.log(sum_reduce(np.exp(input - greatest), axes))


def _position(find: Callable[..., Array], input: Array, axes: Integers) -> Array:
    """The index that ``find`` gives among the elements along the axes, counted in row-major order of these axes."""
    last = [input.ndim - len(axes) + index for index in range(len(axes))]
    moved = np.moveaxis(input, sorted(axes), last)
    kept = moved.shape[: input.ndim - len(axes)]
    return np.expand_dims(find(moved.reshape(*kept, -1), axis=-1), tuple(sorted(axes)))


def _register(function: Callable[[Array, Integers], Array], name: str) -> None:
    operation("4.4", name)(lambda input, axes: function(input, axes))


_FUNCTIONS: dict[str, Callable[[Array, Integers], Array]] = {
    "max_reduce": partial(reduced, np.max),
    "min_reduce": partial(reduced, np.min),
    "any_reduce": partial(reduced, np.any),
    "all_reduce": partial(reduced, np.all),
    "l2_reduce": lambda input, axes: np.sqrt(sum_reduce(input * input, axes)),
    "log_sum_reduce": lambda input, axes: np.log(sum_reduce(input, axes)),
    "log_sum_exp_reduce": _log_sum_exp,
    # the index of the first of the greatest or least elements
    "argmax_reduce": partial(_position, np.argmax),
    "argmin_reduce": partial(_position, np.argmin),
}
for _name, _function in _FUNCTIONS.items():
    _register(_function, _name)
