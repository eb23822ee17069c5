"""The thresholds of many rows, computed together, and the offsets of a form with the same thresholds.

The rows of a tensor (`cvm.quantization.rows`) are many and similar. Here they are columns of 64-bit integers.
The coefficients of a row may have hundreds of bits; its thresholds T_k = ceil((k * D - R) / P) lie within int32. With

    alpha = floor(2^F * D / P),    beta = floor(-2^F * R / P)

the number 2^F * (k * D - R) / P lies within [k * alpha + beta + min(k, 0), k * alpha + beta + max(k, 0) + 1]. If both
ends have the same ceiling in units of 2^F, it is T_k; otherwise T_k is computed from the coefficients.

A row whose accumulator has fewer values than there are steps, such as an operand of 8 bits in a sum of 16 bits, is
described by its values x instead: code(x) is reached at x, and code(x) + 1 is not. The conditions of all other steps
follow from these. The codes floor((P * x + R) / D) are enclosed in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["Staircase", "Steps", "blocks", "size"]

FRACTION = 30
"""F, the number of bits behind the binary point."""
LARGEST = 2**63 - 1
"""The largest magnitude of a 64-bit sum."""
BLOCK = 2**20
"""The number of steps that are held in memory at once."""

Columns = npt.NDArray[np.int64]


class Staircase(Protocol):
    """A row with one accumulator of positive factor: `cvm.quantization.rows.LinearRow`."""

    @property
    def factors(self) -> tuple[int, ...]:
        """(P,)."""

    @property
    def constant(self) -> int:
        """R."""

    @property
    def denominator(self) -> int:
        """D."""

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """((lo, hi),), the bounds of the accumulator."""

    def steps(self) -> range:
        """The steps that matter."""


@dataclass(frozen=True, eq=False, slots=True)
class Steps:
    """The conditions on the forms of some rows. Each array has one row per row.

    By steps, ``at`` is the sum T_k at which the step k is taken, clipped to [lo, hi + 1], and ``before`` is T_k - 1.
    """

    k: Columns
    at: Columns
    taken: npt.NDArray[np.bool_]
    """The conditions that count among the first ones: at the sum ``at``, the step ``k`` must be taken."""
    next_k: Columns
    before: Columns
    awaited: npt.NDArray[np.bool_]
    """Those that count among the second ones: at the sum ``before``, the step ``next_k`` must not be taken."""

    def offsets(self, m: Sequence[int], shift: Sequence[int]) -> list[tuple[int | None, int | None]] | None:
        """The least and the greatest exact offset of every row, for its multiplier and shift; None if it has no bound.

        Returns None instead of a list if 64 bits may not hold the sums.
        """
        largest_k = max(_magnitude(self.k), _magnitude(self.next_k)) + 1
        largest_at = max(_magnitude(self.at), _magnitude(self.before)) + 1
        if (largest_k << max(shift)) + max(map(abs, m)) * largest_at > LARGEST:
            return None
        by, slope = np.array(shift)[:, None], np.array(m)[:, None]
        least = np.where(self.taken, (self.k << by) - slope * self.at, -LARGEST).max(axis=1, initial=-LARGEST)
        above = (self.next_k << by) - slope * self.before
        greatest = np.where(self.awaited, above, LARGEST).min(axis=1, initial=LARGEST) - 1
        lower, upper = np.any(self.taken, axis=1).tolist(), np.any(self.awaited, axis=1).tolist()
        return [
            (one if some else None, other if any_ else None)
            for one, other, some, any_ in zip(least.tolist(), greatest.tolist(), lower, upper, strict=True)
        ]


def _magnitude(items: Columns) -> int:
    return max(int(items.max(initial=0)), -int(items.min(initial=0)))


def _size(row: Staircase, steps: range) -> tuple[int, bool]:
    """The number of columns that a row takes, and whether they are the values of its accumulator instead of steps."""
    lo, hi = row.bounds[0]
    return min(hi - lo + 1, len(steps)), hi - lo + 1 < len(steps)


def size(row: Staircase) -> int:
    """The number of columns that a row takes."""
    return _size(row, row.steps())[0]


def blocks(rows: Sequence[Staircase]) -> Iterator[tuple[Sequence[Staircase], Steps | None]]:
    """The rows in order, some at a time, with their steps, or with None if 64 bits may not hold the sums."""
    ranges = [row.steps() for row in rows]
    sizes = [_size(row, steps) for row, steps in zip(rows, ranges, strict=True)]
    start = 0
    while start < len(rows):
        stop, longest, few = start, 0, sizes[start][1]
        while stop < len(rows) and sizes[stop][1] == few:
            wide = max(longest, sizes[stop][0])
            if wide * (stop + 1 - start) > BLOCK and stop > start:
                break
            stop, longest = stop + 1, wide
        yield rows[start:stop], (_values if few else _steps)(rows[start:stop], ranges[start:stop], longest)
        start = stop


def _column(items: Sequence[int]) -> Columns:
    return np.array(items, np.int64)[:, None]


def _steps(rows: Sequence[Staircase], ranges: Sequence[range], longest: int) -> Steps | None:
    """The conditions by steps."""
    alphas = [(row.denominator << FRACTION) // row.factors[0] for row in rows]
    betas = [(-row.constant << FRACTION) // row.factors[0] for row in rows]
    for steps, alpha, beta in zip(ranges, alphas, betas, strict=True):
        if max(abs(steps.start), abs(steps.stop)) * (alpha + 1) + abs(beta) >= LARGEST:
            return None
    first, count = _column([steps.start for steps in ranges]), _column([len(steps) for steps in ranges])
    lo, hi = (_column([row.bounds[0][end] for row in rows]) for end in (0, 1))
    ordinal = np.arange(longest)
    k = first + ordinal
    exists = ordinal < count
    about = k * _column(alphas) + _column(betas)
    at = -(-(about + np.minimum(k, 0)) >> FRACTION)
    open_ = exists & (at != -(-(about + np.maximum(k, 0) + 1) >> FRACTION))
    for index, column in np.argwhere(open_).tolist():
        row = rows[index]
        exact = -((row.constant - int(k[index, column]) * row.denominator) // row.factors[0])
        at[index, column] = exact
    at = np.clip(at, lo, hi + 1)
    taken, awaited = exists & (at <= hi), exists & (at > lo)
    k, at = np.where(exists, k, 0), np.where(exists, at, 0)
    return Steps(k, at, taken, k, at - 1, awaited)


def _values(rows: Sequence[Staircase], ranges: Sequence[range], longest: int) -> Steps | None:
    """The conditions by the values of the accumulators."""
    alphas = [(row.factors[0] << FRACTION) // row.denominator for row in rows]
    betas = [(row.constant << FRACTION) // row.denominator for row in rows]
    for row, alpha, beta in zip(rows, alphas, betas, strict=True):
        if (max(map(abs, row.bounds[0])) + 1) * (alpha + 1) + abs(beta) + 1 >= LARGEST:
            return None
    lo, hi = (_column([row.bounds[0][end] for row in rows]) for end in (0, 1))
    first, last = (_column([steps[end] for steps in ranges]) for end in (0, -1))
    x = lo + np.arange(longest)
    exists = x <= hi
    about = x * _column(alphas) + _column(betas)
    code = about + np.minimum(x, 0) >> FRACTION
    open_ = exists & (code != about + np.maximum(x, 0) + 1 >> FRACTION)
    for index, column in np.argwhere(open_).tolist():
        row = rows[index]
        code[index, column] = (row.factors[0] * int(x[index, column]) + row.constant) // row.denominator
    reached, missed = np.minimum(code, last), np.maximum(code + 1, first)
    taken, awaited = exists & (reached >= first), exists & (missed <= last)
    x, reached, missed = np.where(exists, x, 0), np.where(taken, reached, 0), np.where(awaited, missed, 0)
    return Steps(reached, x, taken, missed, x, awaited)
