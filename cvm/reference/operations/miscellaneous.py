"""Miscellaneous operations: NNEF 1.0.1 section 4.9.6."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.reference.operations.reduction import mean_reduce
from cvm.reference.registry import Array, Integers, aligned, operation

__all__: list[str] = []


@operation("4.9.6")
def copy_n(x: Array, times: int) -> tuple[Array, ...]:
    """The tensor, ``times`` times."""
    return (x,) * times


@operation("4.9.6")
def add_n(x: Sequence[Array]) -> Array:
    """``x[0] + (x[1] + (.. + 0))``; no tensor at all gives 0."""
    total = np.zeros(())
    for tensor in reversed(x):
        left, right = aligned(tensor, total)
        total = left + right
    return total


@operation("4.9.6")
def moments(input: Array, axes: Integers) -> tuple[Array, Array]:
    """The mean along the axes, and the variance: the mean of (x - mean)^2."""
    mean = mean_reduce(input, axes)
    centred = input - mean
    return mean, mean_reduce(centred * centred, axes)
