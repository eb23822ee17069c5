"""Exact sums of products of integers by float BLAS, with a proof that no rounding occurs.

NumPy multiplies integer matrices without BLAS, about fifty times slower than float matrices. Float arithmetic is exact
on integers of magnitude at most L = 2^24 (float32) or L = 2^53 (float64). Suppose that

    S = max over rows of sum over k of |w[k]| * max|x[k]| <= L,

where w[k] are the weights if they are constant, and their proven bounds otherwise. Every number that a matrix product
computes - a product, a partial sum over any subset of k in any order, with or without fused multiply-add, on any number
of threads - is then an integer of magnitude at most S. So it is a float, and it is computed without rounding. The
operands may be rounded only where it does not matter: if |w[k]| or max|x[k]| exceeds L, the other one is 0, and 0 times
a rounded number is 0. So the result is the integer result. The proof needs a BLAS that adds products; a scheme that
adds operands first, like Strassen's, is none. A self-test detects a BLAS that computes in less than its type.

If no x[k] is negative, let P be the largest sum of the terms with positive weights, and -N the least sum of the terms
with negative weights. Every partial sum lies between -N and P, and so does every product. So max(P, N) bounds what a
matrix product computes as S does. It is about half of S.

If S > L, the reduction is split into the fewest runs of k that each satisfy the bound, and the sums of the runs are
added as integers. If a single product is too large, the matrix product is computed in int64. Integer sums are computed
in int32 if S < 2^31, otherwise in int64 modulo 2^64. The verifier has proven that the result is an int32, so the result
modulo 2^64 is the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from hashlib import shake_128
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.executors.numpy.step import Array
from cvm.limits import INT32_MAX
from cvm.ops.ranges import Exact, Range, Shape
from cvm.records import dataclass

__all__ = ["EXACT", "Contraction", "choose", "magnitudes"]

Float: TypeAlias = "type[np.float32 | np.float64]"

EXACT: Mapping[Float, int] = MappingProxyType({np.float32: 2**24, np.float64: 2**53})
"""The limit L of each float type. The type holds every integer of magnitude at most L."""

_POWER = {"float32": "2^24", "float64": "2^53"}

_SHORTEST_RUN = 16
"""Measured: float32 in runs shorter than this is not faster than float64 in one run."""
_SMALLEST_RUN = 2**18
"""Measured: a run with fewer multiplications than this takes less time than the further call and addition cost."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """How to sum products over a reduction: the type, the runs of k, and the bound S that proves it exact."""

    dtype: type[np.generic]
    runs: tuple[slice, ...]
    bound: int
    """S of the module's docstring."""
    accumulator: type[np.signedinteger[Any]]
    by_sign: bool = False
    """Whether S is max(P, N)."""

    @property
    def note(self) -> str:
        """The method and its proof, in words."""
        name = np.dtype(self.dtype).name
        bound = f"{'sum |wx| by sign' if self.by_sign else 'sum |w||x|'} <= {self.bound}"
        if len(self.runs) > 1:
            return f"{name} in {len(self.runs)} runs: {bound}, within a run <= {_POWER[name]}"
        return f"{name}: {bound} <= {_POWER[name]}" if name in _POWER else f"{name}: {bound}"

    def split(self, weights: Array) -> list[Array]:
        """Split ``weights`` (.., K) into one array per run, in the type that `contract` takes."""
        return [np.ascontiguousarray(weights[..., run], self.dtype) for run in self.runs]

    def contract(self, products: Iterable[tuple[Array, Array]]) -> Array:
        """The sum of the matrix products of all pairs: of one run in ``dtype``, of several as integers.

        ``products`` has one pair per run, in ``dtype``.
        """
        total: Array | None = None
        for a, b in products:
            part = np.matmul(a, b)
            part = part if len(self.runs) == 1 else self.as_integers(part)
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        return total

    def as_integers(self, sums: Array) -> Array:
        """Sums in the integers that hold them."""
        return sums.astype(self.accumulator, copy=False)


def magnitudes(bounds: Range, shape: Shape) -> npt.NDArray[np.int64]:
    """The largest magnitude of each element of a tensor of the given shape."""
    if isinstance(bounds, Exact):
        largest = bounds.values.astype(np.int64)
        np.abs(largest, out=largest)
    else:
        largest = np.maximum(-bounds.lo, bounds.hi).astype(np.int64)
    return np.broadcast_to(largest, shape)


@dataclass(frozen=True, eq=False, slots=True)
class _Terms:
    """Bounds of the terms of sums, (rows, K): magnitudes of weights, times those of inputs, (K,), if there are any."""

    weights: Array
    inputs: npt.NDArray[np.int64] | None
    kind: npt.DTypeLike
    """Integers that hold all weights, all inputs, and the sums of all terms."""

    @staticmethod
    def of(weights: Array, inputs: npt.NDArray[np.int64] | None) -> _Terms:
        """The terms of these bounds, in 32 bits if that holds them: they take a third of the time of 64."""
        w, x = magnitude(weights), 1 if inputs is None else magnitude(inputs)
        most = max(w, x, w * x * weights.shape[1])
        return _Terms(weights, inputs, np.int32 if most < 2**31 else np.int64 if most < 2**63 else object)

    def signed(self, rows: slice, columns: slice) -> Array:
        """Some of the terms with the signs of the weights, in integers that hold the sums of all."""
        found = self.weights[rows, columns].astype(self.kind)
        return found if self.inputs is None else np.multiply(found, self.inputs[columns].astype(self.kind), out=found)

    def part(self, rows: slice, columns: slice) -> Array:
        """The magnitudes of some of the terms, in integers that hold the sums of all."""
        found = self.signed(rows, columns)
        return np.abs(found, out=found)

    def largest(self) -> int:
        """S of the module's docstring."""
        unit, sums = self._sums(signed=False)
        return unit * max(int(sizes.max()) for sizes, _ in sums)

    def by_sign(self) -> int:
        """max(P, N) of the module's docstring, for inputs that are not negative.

        It is (S + |D|) / 2 for a row, where D is the sum of its terms with their signs.
        """
        unit, sums = self._sums(signed=True)
        return unit * max((int(a) + abs(int(b))) // 2 for pair in sums for a, b in zip(*pair, strict=True))

    def _sums(self, signed: bool) -> tuple[int, Iterator[tuple[Array, Array]]]:
        """A unit, and in it, for some rows at a time, the sums of magnitudes and, if ``signed``, of the terms.

        If all inputs have one bound, that is the unit, and the sums are those of the weights as they are stored, which
        takes a third of the time.
        """
        rows, length = self.weights.shape
        step = max(1, _TERMS // length)
        blocks = (slice(start, start + step) for start in range(0, rows, step))

        def widened(block: slice) -> tuple[Array, Array]:
            terms = self.signed(block, slice(0, length))
            totals = terms.sum(axis=1, dtype=self.kind) if signed else None
            sizes = np.abs(terms, out=terms).sum(axis=1, dtype=self.kind)
            return sizes, sizes if totals is None else totals

        unsigned = _UNSIGNED.get(self.weights.dtype)
        if self.inputs is None or unsigned is None or self.inputs.min() < self.inputs.max():
            return 1, map(widened, blocks)

        def stored(block: slice) -> tuple[Array, Array]:
            weights = self.weights[block]
            sizes = np.abs(weights).view(unsigned).sum(axis=1, dtype=np.int64)
            return sizes, weights.sum(axis=1, dtype=np.int64) if signed else sizes

        return int(self.inputs[0]), map(stored, blocks)


_TERMS = 2**20
"""The number of terms that are computed at a time."""
_UNSIGNED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.int8): np.dtype(np.uint8),
    np.dtype(np.int16): np.dtype(np.uint16),
}
"""The types that hold the magnitudes of narrow integers. NumPy leaves the least one as it is, which they read as its
magnitude.
"""


def choose(
    weights: Array, columns: int, inputs: npt.NDArray[np.int64] | None = None, positive: bool = False
) -> Contraction:
    """The fastest exact method for sums of products. Each row of ``weights`` (rows, K) is a sum.

    Its terms are at most |w[k]|, or |w[k]| * x[k] if ``inputs`` gives x; they are added in Python integers if int64
    could overflow. ``columns`` is the number of elements that every row yields. ``positive`` says that ``weights`` are
    those of the sum with their signs, and that no input is negative.
    """
    rows, length = weights.shape
    every = slice(0, length)
    terms = _Terms.of(weights, inputs)
    bound = terms.largest()
    most = EXACT[np.float32]
    by_sign = positive and bound > most and (less := terms.by_sign()) <= most
    bound = less if by_sign else bound
    accumulator = np.int32 if bound <= INT32_MAX else np.int64
    for dtype, limit in EXACT.items():
        if not _self_test(np.dtype(dtype).name, limit):
            continue
        if bound <= limit:
            return Contraction(dtype, (every,), bound, accumulator, by_sign)
        fewest = -(-bound // limit)
        if dtype is np.float32 and not _pays(fewest, rows, length, columns):
            continue
        runs = _runs(terms, limit)
        if runs is not None and (dtype is np.float64 or _pays(len(runs), rows, length, columns)):
            return Contraction(dtype, runs, bound, accumulator)
    return Contraction(np.int64, (every,), bound, np.int64, by_sign)


def _pays(runs: int, rows: int, length: int, columns: int) -> bool:
    return length >= runs * _SHORTEST_RUN and rows * length * columns >= runs * _SMALLEST_RUN


def _runs(terms: _Terms, limit: int) -> tuple[slice, ...] | None:
    """The fewest runs whose sums do not exceed the limit in any row, or None if a single term exceeds it.

    Repeatedly taking the longest possible run from the left gives the fewest runs.
    """
    rows, length = terms.weights.shape
    step = max(1, _TERMS // rows)
    runs: list[slice] = []
    first = start = 0
    before: Array = np.zeros((rows, 1), np.int64)  # the sums of the present run so far
    while start < length:
        stop = min(start + step, length)
        part = terms.part(slice(0, rows), slice(start, stop))
        sums = before + np.cumsum(part, axis=1, dtype=part.dtype)
        within = int(np.searchsorted(sums.max(axis=0), limit, side="right"))
        if within == stop - start:
            start, before = stop, sums[:, -1:]
            continue
        if start + within == first:
            return None
        runs.append(slice(first, start + within))
        first = start = start + within
        before = np.zeros((rows, 1), np.int64)
    return (*runs, slice(first, length))


def _drawn(rows: int, columns: int, largest: int) -> Array:
    """A matrix of integers from -largest to largest without a pattern. (`numpy.random` takes 10 ms to import.)"""
    seed = f"{rows} {columns} {largest}".encode()
    numbers = np.frombuffer(shake_128(seed).digest(4 * rows * columns), np.uint32).astype(np.int64)
    return (numbers % (2 * largest + 1) - largest).reshape(rows, columns)


@cache
def _self_test(dtype: str, limit: int) -> bool:
    """Whether this machine's BLAS is exact on sums that reach the limit of the type, in several shapes."""
    for rows, length, columns in ((1, 257, 1), (1, 64, 33), (31, 129, 1), (37, 520, 41)):
        largest = math.isqrt(limit // length)
        a, b = _drawn(rows, length, largest), _drawn(length, columns, largest)
        a[0], b[:, 0] = largest, largest
        if not np.array_equal(np.matmul(a.astype(dtype), b.astype(dtype)), np.matmul(a, b)):
            return False
    return True
