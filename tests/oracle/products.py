"""Sums of products, the bulk of all work: exact in Python integers, or in int64 where no sum can overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .tensors import Items, exact

_WORTHWHILE = 1 << 12
"""Products of fewer items than this are not worth the inspection."""


def grouped_product(items: npt.NDArray[Any], weights: npt.NDArray[Any], groups: int) -> npt.NDArray[Any]:
    """Per group, the sum over channels: (batch, C, *x) with (c, C / groups) to (batch, c, *x)."""
    _, channels, *rest = items.shape
    if groups == channels and weights.shape[1] == 1:
        repeated = np.repeat(items, weights.shape[0] // groups, axis=1)
        return np.asarray(repeated * weights.reshape(1, -1, *[1] * len(rest)))
    parts = [
        np.moveaxis(np.tensordot(w, x, axes=([1], [1])), 0, 1)
        for w, x in zip(np.split(weights, groups, axis=0), np.split(items, groups, axis=1), strict=True)
    ]
    return np.concatenate(parts, axis=1)


def matrix_product(left: Items, right: Items) -> Items:
    """numpy's matmul of exact items (batches broadcast)."""
    found = narrowed(left, right) if left.ndim == right.ndim == 2 else None
    if found is None:
        return exact(np.matmul(left, right))
    rows, factors, columns, factor = found
    return exact(np.matmul(rows, columns).astype(object) * factors[:, None] * factor)


def narrowed(weights: Items, items: Items) -> tuple[npt.NDArray[np.int64], Items, npt.NDArray[np.int64], int] | None:
    """(w, g, x, h), int64 arrays w and x with weights[k] = w[k] * g[k] and items = x * h, if sums of products fit.

    g and h are greatest common divisors. A sum of products of the items of any w[k] with items of x, each weight used
    at most once, and each of its partial sums in any order is at most sum|w[k]| * max|x| < 2^63 in magnitude.
    """
    if weights.size + items.size < _WORTHWHILE or not all(type(n) is int for a in (weights, items) for n in a.flat):
        return None
    rows = weights.reshape(len(weights), -1)
    divisors = np.array([int(np.gcd.reduce(row)) or 1 for row in rows], dtype=object)
    divisor = int(np.gcd.reduce(items, axis=None)) or 1
    small = rows // divisors[:, None]
    largest = int(np.max(np.abs(items))) // divisor
    if int(np.max(np.sum(np.abs(small), axis=1))) * max(largest, 1) >= 1 << 63:
        return None
    return small.astype(np.int64).reshape(weights.shape), divisors, (items // divisor).astype(np.int64), divisor
