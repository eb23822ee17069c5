"""Ranges: proven intervals of tensors, per tensor or per channel.

A `Range` bounds every element of an int32 tensor from both sides. Its two arrays have the rank of the tensor and in
each dimension either extent 1 (one bound for the whole dimension) or the full extent; a constant's range is the
constant itself. Bounds are exact integers: int64 arrays, or object arrays of Python integers where int64
could overflow.

The rules also fix how many bounds a range has, so that every implementation of the verifier finds the same intervals.
Between ops, a range has one bound per channel at most, and one per tensor if there are more than `BOUNDS` channels
(`Range.per_channel`). Within an op, if the result of its rule would have more than `BOUNDS` bounds and more than the
operands have, the operands are first reduced: to one bound per channel, or else to one interval (`affordable`).

The elements of a constant (`Exact`) and stored bounds (`Stored`) stay in the narrow types in which they are stored.
Pointwise ops are proven in blocks (`pointwise`), so that a proof never needs much more memory than its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.limits import INT64_MAX

__all__ = ["BOUNDS", "Bounds", "Exact", "Range", "Shape", "Stored", "affordable", "aligned",
           "blocks", "channel_axis", "contracted", "pointwise", "precision", "products", "widened"]  # fmt: skip

Shape: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = npt.NDArray[Any]


BOUNDS = 2**18
"""The number of bounds that every range rule may make, and the largest number of channels with bounds of their own."""


def channel_axis(rank: int) -> int:
    """The axis whose indices have bounds of their own between ops: 1, or 0 for a vector."""
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
        """The range of a constant: its elements, which are copied if the array can be written to."""
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
        """The same range as a plain `Range`, with bounds in 64 bits or more."""
        return self

    def hull(self) -> tuple[int, int]:
        """The interval of the whole tensor."""
        return int(self.lo.min()), int(self.hi.max())

    def magnitude(self) -> int:
        """The largest absolute value that the tensor may hold."""
        lo, hi = self.hull()
        return max(-lo, hi)

    def over(self, axes: Sequence[int]) -> Range:
        """The hull over ``axes``, which are kept with extent 1."""
        return Range(self.lo.min(axis=tuple(axes), keepdims=True), self.hi.max(axis=tuple(axes), keepdims=True))

    def per_channel(self) -> Range:
        """The hull over all axes but the channel axis."""
        kept = _per_channel(self.shape)
        return self if kept == self.shape else self.over([axis for axis, extent in enumerate(kept) if extent == 1])

    def part(self, block: Sequence[slice]) -> Range:
        """The bounds of a block of the tensor, in 64 bits or more."""
        region = tuple(part if extent > 1 else slice(None) for part, extent in zip(block, self.shape, strict=True))
        return self.moved(lambda bounds: bounds[region]).wide()

    def kept(self) -> Range:
        """The same bounds, which fit 32 bits, in the smallest type that holds them."""
        return Stored(self.lo.astype(np.int32), self.hi.astype(np.int32))

    def contains(self, other: Range) -> bool:
        """Whether this range admits every value that ``other`` admits."""
        return bool((self.lo <= other.lo).all() and (other.hi <= self.hi).all())

    def monotone(self, function: Callable[[Bounds], Bounds]) -> Range:
        """The range of a non-decreasing function of the elements."""
        lo = function(self.lo)
        return Range(lo, lo if self.hi is self.lo else function(self.hi))

    def equals(self, other: Range) -> bool:
        """Whether all bounds are equal."""
        return self.shape == other.shape and bool((self.lo == other.lo).all() and (self.hi == other.hi).all())

    def moved(self, function: Callable[[Bounds], Bounds]) -> Range:
        """The range after ``function`` has moved or dropped elements. It must not change any value."""
        return self.monotone(function)

    def union(self, other: Range) -> Range:
        """The hull of both ranges, for an element that may come from either tensor."""
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
        """The range of the sums over ``axes`` of a tensor of the given shape. These axes are kept with extent 1."""
        over = tuple(axes)
        repeats = math.prod(shape[axis] // self.shape[axis] for axis in over)
        wide = max(1, self.magnitude()) * math.prod(shape[axis] for axis in over) > INT64_MAX
        return self.monotone(lambda bounds: _sum(bounds, over, wide) * repeats)

    def for_terms(self, terms: int) -> Range:
        """The same range in integers wide enough that a sum of ``terms`` bounds cannot overflow."""
        if self.magnitude() * terms <= INT64_MAX:
            return self
        return self.monotone(lambda bounds: bounds.astype(object))


class Stored(Range):
    """A range that stores its bounds in integers of 8 to 64 bits. ``lo`` and ``hi`` are widened at each access."""

    __slots__ = ("largest", "least")
    least: Bounds
    largest: Bounds

    def __init__(self, least: Bounds, largest: Bounds) -> None:
        object.__setattr__(self, "least", least)
        object.__setattr__(self, "largest", largest)

    @property
    def lo(self) -> Bounds:
        """The lower bounds in 64 bits."""
        return self.least.astype(np.int64, copy=False)

    @property
    def hi(self) -> Bounds:
        """The upper bounds in 64 bits."""
        return self.largest.astype(np.int64, copy=False)

    @property
    def shape(self) -> Shape:
        """See `Range.shape`."""
        return self.least.shape

    def wide(self) -> Range:
        """See `Range.wide`."""
        lo = self.lo
        return Range(lo, lo if self.largest is self.least else self.hi)

    def hull(self) -> tuple[int, int]:
        """See `Range.hull`."""
        return int(self.least.min()), int(self.largest.max())

    def over(self, axes: Sequence[int]) -> Range:
        """See `Range.over`."""
        over = tuple(axes)
        return Stored(self.least.min(axis=over, keepdims=True), self.largest.max(axis=over, keepdims=True))

    def monotone(self, function: Callable[[Bounds], Bounds]) -> Range:
        """See `Range.monotone`."""
        return self.wide().monotone(function)

    def moved(self, function: Callable[[Bounds], Bounds]) -> Range:
        """See `Range.moved`."""
        least = function(self.least)
        return Stored(least, least if self.largest is self.least else function(self.largest))

    def total(self, axes: Sequence[int], shape: Shape) -> Range:
        """See `Range.total`."""
        over = tuple(axes)
        if max(1, self.magnitude()) * math.prod(shape[axis] for axis in over) > INT64_MAX:
            return self.wide().total(axes, shape)
        repeats = math.prod(shape[axis] // self.shape[axis] for axis in over)
        return self.moved(lambda bounds: bounds.sum(axis=over, keepdims=True, dtype=np.int64) * repeats)


class Exact(Stored):
    """The range of a constant: its elements in the type in which they are stored."""

    __slots__ = ()

    def __init__(self, values: Bounds) -> None:
        super().__init__(values, values)

    @property
    def values(self) -> Bounds:
        """The elements."""
        return self.least

    def moved(self, function: Callable[[Bounds], Bounds]) -> Range:
        """See `Range.moved`."""
        return Exact(function(self.values))


def _per_channel(shape: Shape) -> Shape:
    """The shape of bounds with one bound per channel, or one per tensor if there are more than `BOUNDS` channels."""
    keep = channel_axis(len(shape))
    return tuple(extent if axis == keep and extent <= BOUNDS else 1 for axis, extent in enumerate(shape))


def _ordered(a: Bounds, b: Bounds) -> tuple[Bounds, Bounds]:
    return np.minimum(a, b), np.maximum(a, b)


BLOCK = 2**18
"""The number of weights that are widened at a time."""

PIECE = 2**15
"""The number of elements of each operand that a pointwise rule computes at a time."""


def products(x: Range, weights: npt.NDArray[Any]) -> Range | None:
    """The range of sum over k of x[r, 0, k] * weights[r, k, t], as (R, 1, T); None if 64 bits could overflow.

    ``x`` is (R, 1, K) and ``weights`` (R, K, T), where R may also be 1. For x in [m - d, m + d], a product lies in
    [m w - d |w|, m w + d |w|], and reaches both ends. The sums of both parts are computed from 2 m and 2 d, which are
    integers, in a type that holds the sum of all magnitudes.
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


def contracted(x: Range, w: Range, terms: int) -> Range:
    """The range of sum over ``terms`` indices k of x[r, 0, k] * w[r, k, t], as (R, 1, T); see `products`.

    In both operands, the extents along r and along k may also be 1.
    """
    if x.shape[2] == w.shape[1] == 1:
        return (x.moved(lambda b: b[:, :, :1]) * w).total((1,), (1, terms, 1))
    step = max(1, BLOCK // (w.shape[2] * max(x.shape[0], w.shape[0])))
    sums = Range.uniform(3, 0, 0)
    for start in range(0, terms, step):
        part = slice(start, min(start + step, terms))
        found = _contracted(x.part((slice(None), slice(None), part)), _terms(w, part), part.stop - start)
        sums = sums.for_terms(2) + found.for_terms(2)
    return sums


def _terms(w: Range, part: slice) -> Range:
    """The terms ``part`` of weights (R, K, T)."""
    return w.moved(lambda bounds: bounds[:, part] if bounds.shape[1] > 1 else bounds)


def _contracted(x: Range, w: Range, terms: int) -> Range:
    """The range that `contracted` describes, for few terms."""
    if isinstance(w, Exact) and w.shape[1] == terms:
        narrow = products(x.moved(lambda b: np.broadcast_to(b, (b.shape[0], 1, terms))), w.values)
        if narrow is not None:
            return narrow
    pairs = x.moved(lambda b: b.transpose(0, 2, 1)) * w
    return pairs.total((1,), (1, terms, 1))


def _sum(bounds: Bounds, axes: tuple[int, ...], wide: bool) -> Bounds:
    """The exact sum over ``axes``. If int64 could overflow, the upper and the lower halves are summed apart."""
    if not wide or bounds.dtype == object:
        return np.asarray(bounds.sum(axis=axes, keepdims=True))
    high = (bounds >> 32).sum(axis=axes, keepdims=True)
    low = (bounds & 0xFFFFFFFF).sum(axis=axes, keepdims=True)
    return np.asarray(high.astype(object) * 2**32 + low)


def widened(a: Range, b: Range) -> tuple[Range, Range]:
    """``a`` and ``b`` with bounds in types so wide that a product of two bounds cannot overflow."""
    if a.magnitude() * b.magnitude() <= INT64_MAX:
        return a, b
    return a.monotone(lambda bounds: bounds.astype(object)), b.monotone(lambda bounds: bounds.astype(object))


def affordable(
    operands: Iterable[Range], size: Callable[[Sequence[Shape]], int], allowed: int | None = None
) -> list[Range]:
    """The operands with as many bounds as a rule may combine: unchanged, or one bound per channel, or their hulls.

    ``size`` gives the number of bounds that the rule would make from bounds of given shapes. ``allowed`` of them may be
    made; by default `BOUNDS`, or as many as the operands have together.
    """
    finest = list(operands)
    if allowed is None:
        allowed = max(BOUNDS, sum(operand.size for operand in finest))
    once: dict[Shape, Shape] = {}
    shapes = [once.setdefault(shape, shape) for shape in (operand.shape for operand in finest)]
    if size(shapes) <= allowed:
        return finest
    if size([_per_channel(shape) for shape in shapes]) <= allowed:
        return [operand.per_channel() for operand in finest]
    return [operand.over(range(operand.rank)) for operand in finest]


def aligned(operands: Sequence[Range], rank: int) -> list[Range]:
    """The operands of a broadcast with leading axes of extent 1 up to ``rank``, reduced by `affordable`."""
    padded = [x if x.rank == rank else x.moved(lambda b: b.reshape((1,) * (rank - b.ndim) + b.shape)) for x in operands]
    return affordable(padded, lambda shapes: math.prod(np.broadcast_shapes(*shapes)))


def blocks(operands: Sequence[Range]) -> Iterator[tuple[tuple[slice, ...], list[Range]]]:
    """Operands of a broadcast, of one rank, in blocks of at most `PIECE` elements: slices and bounds of each block."""
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    left, extents = PIECE, []
    for extent in reversed(shape):
        extents.append(min(extent, left))
        left //= extents[-1]
    ranges = [range(0, n, step) for n, step in zip(shape, reversed(extents), strict=True)]
    for start in product(*ranges):
        block = tuple(slice(k, k + step.step) for k, step in zip(start, ranges, strict=True))
        yield block, [operand.part(block) for operand in operands]


def pointwise(operands: Sequence[Range], rule: Callable[..., Range]) -> Range:
    """The range of a pointwise op whose operands have the same rank.

    If it would have more than `BOUNDS` bounds, it gets one bound per channel.
    """
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    if math.prod(shape) <= PIECE:
        return rule(*(operand.wide() for operand in operands))
    kept = shape if math.prod(shape) <= BOUNDS else _per_channel(shape)
    over = tuple(axis for axis, extent in enumerate(kept) if extent == 1)
    lo, hi = np.full(kept, INT64_MAX), np.full(kept, -INT64_MAX)
    for block, parts in blocks(operands):
        found = rule(*parts)
        region = tuple(part if extent > 1 else slice(None) for part, extent in zip(block, kept, strict=True))
        lo[region] = np.minimum(lo[region], found.lo.min(axis=over, keepdims=True))
        hi[region] = np.maximum(hi[region], found.hi.max(axis=over, keepdims=True))
    return Range(lo, hi)
