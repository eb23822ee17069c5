"""Arrays of exact integers at compile time, and their balanced digits.

An array is int64 if all results computed from it fit in int64; otherwise it holds Python integers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.bounds import bits_of, magnitude, require_fits

__all__ = ["Integers", "aligned", "balanced", "bits", "digits", "narrowed", "roomy", "trailing_zeros"]

Integers: TypeAlias = npt.NDArray[Any]

_ROOM = 60
"""Numbers of at most this many bits stay in int64, which leaves room for sums of a few of them."""


def bits(items: Integers) -> int:
    """The number of bits of the largest magnitude; 0 if all elements are 0."""
    return max(abs(int(items.min())), abs(int(items.max()))).bit_length()


def roomy(items: Integers, needed: int = 0) -> Integers:
    """The same integers in a type wide enough for sums with other integers of ``needed`` bits."""
    wide = max(bits(items), needed) > _ROOM
    return items.astype(object if wide else np.int64)


def aligned(items: Integers, rank: int) -> Integers:
    """The same integers with leading axes of extent 1, up to ``rank``."""
    return items.reshape((1,) * (rank - items.ndim) + items.shape)


def narrowed(items: Integers) -> Integers:
    """The same integers with extent 1 along every axis on which they do not vary."""
    for axis in range(items.ndim):
        first = items.take([0], axis)
        if items.shape[axis] > 1 and bool((items == first).all()):
            items = first
    return items


def balanced(items: Integers, base: int) -> Integers:
    """The lowest digit in [-2^(base-1), 2^(base-1) - 1] of every integer."""
    half = 1 << (base - 1)
    require_fits(magnitude(items) + half, bits_of(items), "a number and half of its base")
    return np.asarray(((items + half) & (2 * half - 1)) - half)


def digits(items: Integers, base: int, top: int) -> list[Integers]:
    """Digits d with sum of d[i] * 2^(base * i) = ``items``.

    All digits but the last are balanced; the last one has a magnitude of at most 2^top.
    """
    found = []
    while max(abs(int(items.min())), abs(int(items.max()))) > 1 << top:
        found.append(balanced(items, base))
        items = (items - found[-1]) >> base
    return [*found, items]


def trailing_zeros(items: Integers) -> int:
    """The largest g such that 2^g divides every element; 128 if all elements are 0."""
    every = int(np.bitwise_or.reduce(items.ravel()))
    return (every & -every).bit_length() - 1 if every else 128
