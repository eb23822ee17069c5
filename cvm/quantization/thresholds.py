"""The thresholds of many rows, computed together, and the offsets of a form with the same thresholds.

The rows of a tensor (`cvm.quantization.fixed_point`) are many and similar. Here they are columns of 64-bit integers.
The coefficients of a row may have hundreds of bits; its thresholds T_k = ceil((k * D - R) / P) lie within int32. With

    alpha = floor(2^F * D / P),    beta = floor(-2^F * R / P)

the number 2^F * (k * D - R) / P lies within [k * alpha + beta + min(k, 0), k * alpha + beta + max(k, 0) + 1]. If both
ends have the same ceiling in units of 2^F, it is T_k; otherwise T_k is computed from the coefficients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Staircase", "Steps", "blocks"]

FRACTION = 30
"""F, the number of bits behind the binary point."""
LARGEST = 2**63 - 1
"""The largest magnitude of a 64-bit sum."""
BLOCK = 2**20
"""The number of steps that are held in memory at once."""

Columns = npt.NDArray[np.int64]


class Staircase(Protocol):
    """A row with one accumulator of positive factor: `cvm.quantization.fixed_point.LinearRow`."""

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
    """The steps k of some rows, and the sums T_k at which they are taken, clipped to [lo, hi + 1]. Each array has one
    row per row.
    """

    k: Columns
    at: Columns
    taken: npt.NDArray[np.bool_]
    """The steps taken at hi or before. At T_k they must be taken."""
    awaited: npt.NDArray[np.bool_]
    """The steps taken after lo. Before T_k they must not be taken."""

    def offsets(self, m: Sequence[int], shift: Sequence[int]) -> list[tuple[int | None, int | None]] | None:
        """The least and the greatest exact offset of every row, for its multiplier and shift; None if it has no bound.

        Returns None instead of a list if 64 bits may not hold the sums.
        """
        largest_k, largest_at = (int(np.abs(items).max(initial=0)) + 1 for items in (self.k, self.at))
        if (largest_k << max(shift)) + max(map(abs, m)) * largest_at > LARGEST:
            return None
        rise = self.k << np.array(shift)[:, None]
        slope = np.array(m)[:, None]
        least = np.where(self.taken, rise - slope * self.at, -LARGEST).max(axis=1, initial=-LARGEST)
        greatest = np.where(self.awaited, rise - slope * (self.at - 1), LARGEST).min(axis=1, initial=LARGEST) - 1
        lower, upper = np.any(self.taken, axis=1).tolist(), np.any(self.awaited, axis=1).tolist()
        return [
            (one if some else None, other if any_ else None)
            for one, other, some, any_ in zip(least.tolist(), greatest.tolist(), lower, upper, strict=True)
        ]


def blocks(rows: Sequence[Staircase]) -> Iterator[tuple[Sequence[Staircase], Steps | None]]:
    """The rows in order, some at a time, with their steps, or with None if 64 bits may not hold the sums."""
    ranges = [row.steps() for row in rows]
    start = 0
    while start < len(rows):
        stop, longest = start, 0
        while (stop < len(rows) and max(longest, len(ranges[stop])) * (stop + 1 - start) <= BLOCK) or stop == start:
            longest = max(longest, len(ranges[stop]))
            stop += 1
        yield rows[start:stop], _steps(rows[start:stop], ranges[start:stop], longest)
        start = stop


def _steps(rows: Sequence[Staircase], ranges: Sequence[range], longest: int) -> Steps | None:
    alphas = [(row.denominator << FRACTION) // row.factors[0] for row in rows]
    betas = [(-row.constant << FRACTION) // row.factors[0] for row in rows]
    for steps, alpha, beta in zip(ranges, alphas, betas, strict=True):
        if max(abs(steps.start), abs(steps.stop)) * (alpha + 1) + abs(beta) >= LARGEST:
            return None
    first, count, alpha_, beta_, lo, hi = (
        np.array(column, np.int64)[:, None]
        for column in (
            [steps.start for steps in ranges],
            [len(steps) for steps in ranges],
            alphas,
            betas,
            [row.bounds[0][0] for row in rows],
            [row.bounds[0][1] for row in rows],
        )
    )
    ordinal = np.arange(longest)
    k = first + ordinal
    exists = ordinal < count
    about = k * alpha_ + beta_
    at = -(-(about + np.minimum(k, 0)) >> FRACTION)
    open_ = exists & (at != -(-(about + np.maximum(k, 0) + 1) >> FRACTION))
    for index, column in np.argwhere(open_).tolist():
        row = rows[index]
        exact = -((row.constant - int(k[index, column]) * row.denominator) // row.factors[0])
        at[index, column] = exact
    at = np.clip(at, lo, hi + 1)
    return Steps(np.where(exists, k, 0), np.where(exists, at, 0), exists & (at <= hi), exists & (at > lo))
