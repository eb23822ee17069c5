"""Ranges: proven intervals of tensors, per tensor or per channel.

A `Range` bounds every element of an int32 tensor from both sides. Its two arrays have the rank of the tensor and in
each dimension either extent 1 (one bound for the whole dimension) or the full extent; a constant's range is the
constant itself. Bounds are exact integers: int64 arrays, or object arrays of Python integers where int64
could overflow.

Between ops a range is kept per channel at most (`Range.per_channel`), so that proofs stay small and every
implementation of the verifier arrives at the same intervals. Within an op, where combining its operands would take
more than `BOUNDS` bounds and more than the operands have, they are first reduced: per channel, or else to one
interval each (`affordable`).

The range of a constant (`Exact`) keeps the elements as narrow as they are stored; rules that know how use them so, all
others see 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["BOUNDS", "INT32_MAX", "INT64_MAX", "Bounds", "Exact", "Range", "Shape", "affordable", "aligned",
           "channel_axis", "precision", "products", "widened"]  # fmt: skip

Shape: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = npt.NDArray[Any]

INT32_MAX = 2**31 - 1
"""Largest magnitude of a tensor element; -2^31 is never legal."""

INT64_MAX = 2**63 - 1

BOUNDS = 2**18
"""The number of bounds that a range rule may make, however few its operands have."""


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
        """The range of a constant: its true values, which are copied unless nobody can write to the array."""
        narrow = values.dtype.kind == "i" and values.dtype.isnative
        return Exact(values.astype(values.dtype if narrow else np.int64, copy=not narrow or values.flags.writeable))

    @property
    def shape(self) -> Shape:
        """The shape of the bounds."""
        return self.lo.shape

    @property
    def size(self) -> int:
        """The number of bounds on either side."""
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        """The rank of the tensor."""
        return len(self.shape)

    def wide(self) -> Range:
        """The same with its bounds at hand in 64 bits or more."""
        return self

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
        lo = function(self.lo)
        return Range(lo, lo if self.hi is self.lo else function(self.hi))

    def moved(self, function: Callable[[Bounds], Bounds]) -> Range:
        """The range after a rearrangement of the elements."""
        return self.monotone(function)

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
        a, b = (item.wide() for item in widened(self, other))
        lo, hi = _ordered(a.lo * b.lo, a.hi * b.lo)
        if b.lo is not b.hi:
            lo_2, hi_2 = _ordered(a.lo * b.hi, a.hi * b.hi)
            lo, hi = np.minimum(lo, lo_2), np.maximum(hi, hi_2)
        return Range(lo, hi)

    def total(self, axes: Sequence[int], shape: Shape) -> Range:
        """The range of the sum over ``axes`` of a tensor of the given shape; these axes keep extent 1."""
        over = tuple(axes)
        repeats = math.prod(shape[axis] // self.shape[axis] for axis in over)
        wide = max(1, self.magnitude()) * math.prod(shape[axis] for axis in over) > INT64_MAX
        return self.monotone(lambda bounds: _sum(bounds, over, wide) * repeats)

    def for_terms(self, terms: int) -> Range:
        """The same range, with bounds wide enough that a sum of ``terms`` of them cannot overflow."""
        if self.magnitude() * terms <= INT64_MAX:
            return self
        return self.monotone(lambda bounds: bounds.astype(object))


class Exact(Range):
    """The range of a constant: ``values`` in integers of 8 to 64 bits. ``lo`` and ``hi`` are made when asked for."""

    __slots__ = ("values",)
    values: Bounds

    def __init__(self, values: Bounds) -> None:
        object.__setattr__(self, "values", values)

    @property
    def lo(self) -> Bounds:
        """The values in 64 bits."""
        return self.values.astype(np.int64, copy=False)

    @property
    def hi(self) -> Bounds:
        """The values in 64 bits."""
        return self.values.astype(np.int64, copy=False)

    @property
    def shape(self) -> Shape:
        """See `Range.shape`."""
        return self.values.shape

    def wide(self) -> Range:
        """See `Range.wide`."""
        bounds = self.lo
        return Range(bounds, bounds)

    def hull(self) -> tuple[int, int]:
        """See `Range.hull`."""
        return int(self.values.min()), int(self.values.max())

    def over(self, axes: Sequence[int]) -> Range:
        """See `Range.over`."""
        return Range(*(
            end(axis=tuple(axes), keepdims=True).astype(np.int64) for end in (self.values.min, self.values.max)
        ))  # fmt: skip

    def monotone(self, function: Callable[[Bounds], Bounds]) -> Range:
        """See `Range.monotone`."""
        return self.wide().monotone(function)

    def total(self, axes: Sequence[int], shape: Shape) -> Range:
        """See `Range.total`."""
        return self.wide().total(axes, shape)


def _ordered(a: Bounds, b: Bounds) -> tuple[Bounds, Bounds]:
    return np.minimum(a, b), np.maximum(a, b)


BLOCK = 2**18
"""Weights that are widened at a time."""


def products(x: Range, weights: npt.NDArray[Any]) -> Range | None:
    """The range of sum over k of x[r, 0, k] * weights[r, k, t], as (R, 1, T); None where 64 bits could overflow.

    ``x`` is (R, 1, K), ``weights`` (R, K, T), with one row for all or one for each. With x in [m - d, m + d], a product
    lies in [m w - d |w|, m w + d |w|], and reaches both ends. Sums of both parts are formed of 2 m and 2 d, which are
    integers, at a width that holds the sum of all magnitudes.
    """
    most = 2 * x.magnitude() * max(1, -int(weights.min()), int(weights.max())) * weights.shape[1]
    if 2 * most > INT64_MAX:
        return None
    dtype = np.int32 if most < 2**31 else np.int64
    middle, extent = (x.hi + x.lo).astype(dtype), (x.hi - x.lo).astype(dtype)
    rows = max(x.shape[0], weights.shape[0])
    lo = np.empty((rows, 1, weights.shape[2]), np.int64)
    hi = np.empty_like(lo)
    step = max(1, BLOCK // (weights.shape[1] * weights.shape[2]))
    for start in range(0, rows, step):
        part = slice(start, start + step)
        w = (weights[part] if weights.shape[0] > 1 else weights).astype(dtype)
        m, d = (ends[part] if x.shape[0] > 1 else ends for ends in (middle, extent))
        centre = np.matmul(m, w).astype(np.int64)
        reach = np.matmul(d, np.abs(w, out=w)).astype(np.int64)
        lo[part], hi[part] = (centre - reach) >> 1, (centre + reach) >> 1
    return Range(lo, hi)


def _sum(bounds: Bounds, axes: tuple[int, ...], wide: bool) -> Bounds:
    """The exact sum over ``axes``; where int64 could overflow, of both halves apart, which cannot."""
    if not wide or bounds.dtype == object:
        return np.asarray(bounds.sum(axis=axes, keepdims=True))
    high = (bounds >> 32).sum(axis=axes, keepdims=True)
    low = (bounds & 0xFFFFFFFF).sum(axis=axes, keepdims=True)
    return np.asarray(high.astype(object) * 2**32 + low)


def widened(a: Range, b: Range) -> tuple[Range, Range]:
    """``a`` and ``b`` with bounds wide enough that a product of theirs cannot overflow."""
    if a.magnitude() * b.magnitude() <= INT64_MAX:
        return a, b
    return a.monotone(lambda bounds: bounds.astype(object)), b.monotone(lambda bounds: bounds.astype(object))


def affordable(operands: Iterable[Range], size: Callable[[Sequence[Range]], int]) -> list[Range]:
    """The operands at the finest resolution at which a rule may combine them: as they are, per channel, or hulls.

    ``size`` is the number of bounds that the rule would make; allowed are `BOUNDS`, or as many as the operands have.
    """
    finest = list(operands)
    allowed = max(BOUNDS, sum(operand.size for operand in finest))
    if size(finest) <= allowed:
        return finest
    reduced = [operand.per_channel() for operand in finest]
    if size(reduced) <= allowed:
        return reduced
    return [operand.over(range(operand.rank)) for operand in reduced]


def aligned(operands: Sequence[Range], rank: int) -> list[Range]:
    """Operands of a broadcast with ``rank`` dimensions: leading 1s added, at an `affordable` resolution."""
    padded = [
        operand.moved(lambda bounds: bounds.reshape((1,) * (rank - bounds.ndim) + bounds.shape)) for operand in operands
    ]
    return affordable(padded, lambda trial: math.prod(np.broadcast_shapes(*(item.shape for item in trial))))
