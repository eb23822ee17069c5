"""Simpler elements for an array: towards zero, and fewer different ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from cvm.reduction.network import Array, weight

__all__ = ["simpler"]

_SINGLE = 64
"""Arrays of up to so many elements are changed element by element."""


def simpler(array: Array) -> Iterator[Array]:
    """Arrays of the same shape and type that are simpler, the simplest first."""
    mine = weight(array)
    for other in _candidates(array):
        if weight(other) < mine:
            yield other


def _candidates(array: Array) -> Iterator[Array]:
    if array.dtype.kind not in "iuf" or not array.size:
        return
    flat = array.reshape(-1)
    for value in dict.fromkeys((0, 1, flat[0].item(), flat.min().item(), flat.max().item())):
        yield np.full_like(array, value)
    size = array.size // 2
    while size >= max(1, array.size // 16):
        for first in range(0, array.size, size):
            yield _with(array, slice(first, first + size), 0)
        size //= 2
    if array.size <= _SINGLE:
        for place in range(array.size):
            for value in _simpler_numbers(flat[place]):
                yield _with(array, slice(place, place + 1), value)


def _with(array: Array, where: slice, value: float) -> Array:
    changed = array.copy()
    changed.reshape(-1)[where] = value
    return changed


def _simpler_numbers(number: np.generic) -> Iterator[float]:
    x = number.item()
    if not isinstance(x, (int, float)) or not np.isfinite(x) or x == 0:
        return
    sign = 1 if x > 0 else -1
    if isinstance(x, int):
        power = 2 ** (abs(x).bit_length() - 1) * sign
        wanted = dict.fromkeys((0, 1, power, 2 * power, sign * (abs(x) // 2)))
        limits: Any = np.iinfo(number.dtype)
        yield from (value for value in wanted if limits.min <= value <= limits.max)
    else:
        power = math.ldexp(sign, math.frexp(x)[1] - 1)
        yield from dict.fromkeys((0.0, 1.0, power, float(f"{x:.1g}"), float(f"{x:.3g}")))
