"""Ranges: proven intervals of tensors, per tensor or per channel.

A `Range` bounds every element of an int32 tensor from both sides. Its two arrays have the rank of the tensor and in
each dimension either extent 1 (one bound for the whole dimension) or the full extent; a constant's range is the
constant itself. Bounds are exact integers: int64 arrays, or object arrays of Python integers where int64
could overflow.

Between ops a range is kept per channel at most (`Range.per_channel`), so that proofs stay small and every
implementation of the verifier arrives at the same intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["INT32_MAX", "INT64_MAX", "Range", "Shape", "channel_axis", "precision"]

Shape: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = npt.NDArray[Any]

INT32_MAX = 2**31 - 1
"""Largest magnitude of a tensor element; -2^31 is never legal."""

INT64_MAX = 2**63 - 1


def channel_axis(rank: int) -> int:
    """The axis along which ranges are kept apart: 1, or 0 for a vector."""
    return 1 if rank > 1 else 0


def precision(lo: int, hi: int) -> int:
    """The smallest p with |x| <= 2^(p-1) - 1 for every x in [lo, hi]: precision in the CVM sense, at least 1."""
    return max(abs(lo), abs(hi)).bit_length() + 1


@dataclass(frozen=True, eq=False, slots=True)
class Range:
    """Lower and upper bounds of a tensor; see the module's docstring for their shapes."""

    lo: Bounds
    hi: Bounds

    @staticmethod
    def uniform(rank: int, lo: int, hi: int) -> Range:
        """One interval for a whole tensor of the given rank."""
        dtype = np.int64 if -INT64_MAX <= lo <= hi <= INT64_MAX else object
        shape = (1,) * rank
        return Range(np.full(shape, lo, dtype), np.full(shape, hi, dtype))

    @staticmethod
    def exactly(values: npt.NDArray[Any]) -> Range:
        """The range of a constant: its true values."""
        bounds = values.astype(np.int64)
        return Range(bounds, bounds)

    @property
    def rank(self) -> int:
        """The rank of the tensor."""
        return self.lo.ndim

    def hull(self) -> tuple[int, int]:
        """The interval of the whole tensor."""
        return int(self.lo.min()), int(self.hi.max())

    def magnitude(self) -> int:
        """The largest absolute value that the tensor may hold."""
        lo, hi = self.hull()
        return max(-lo, hi)

    def over(self, axes: Sequence[int]) -> Range:
        """The hull over ``axes``, which keep extent 1."""
        return Range(self.lo.min(axis=tuple(axes), keepdims=True), self.hi.max(axis=tuple(axes), keepdims=True))

    def per_channel(self) -> Range:
        """The hull over all axes but the channel axis."""
        keep = channel_axis(self.rank)
        return self.over([axis for axis in range(self.rank) if axis != keep])

    def contains(self, other: Range) -> bool:
        """Whether every value that ``other`` admits is admitted here."""
        return bool((self.lo <= other.lo).all() and (other.hi <= self.hi).all())

    def monotone(self, function: Callable[[Bounds], Bounds]) -> Range:
        """The range of a non-decreasing function of the elements."""
        return Range(function(self.lo), function(self.hi))

    def union(self, other: Range) -> Range:
        """The hull of both, for a value that is one or the other."""
        return Range(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def __add__(self, other: Range) -> Range:
        return Range(self.lo + other.lo, self.hi + other.hi)

    def __sub__(self, other: Range) -> Range:
        return Range(self.lo - other.hi, self.hi - other.lo)

    def __neg__(self) -> Range:
        return Range(-self.hi, -self.lo)

    def __mul__(self, other: Range) -> Range:
        a, b = widened(self, other)
        products = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        lo, hi = products[0], products[0]
        for product in products[1:]:
            lo, hi = np.minimum(lo, product), np.maximum(hi, product)
        return Range(lo, hi)


def widened(a: Range, b: Range, terms: int = 1) -> tuple[Range, Range]:
    """``a`` and ``b`` with bounds wide enough that a sum of ``terms`` products of theirs cannot overflow."""
    if a.magnitude() * b.magnitude() * terms <= INT64_MAX:
        return a, b
    return Range(a.lo.astype(object), a.hi.astype(object)), Range(b.lo.astype(object), b.hi.astype(object))
