"""Covers: how the pixels of a map are shared out to register tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

__all__ = ["Grid", "cover"]

START = 1.5
"""The cost of a tile beside its pixels, counted in pixels: its loops, and the loads that its sums begin with."""
LEAST = 2
"""A tile of one pixel takes as long as a tile of two, since it waits for its weights and for its own sums."""
WORTH = 0.97
"""Every grid has code of its own. So several grids are taken only if together they cost at most this part of the cost
of one.
"""


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal tiles of ``rows`` x ``columns`` pixels over the ``down`` x ``across`` pixels from (``y``, ``x``) on.

    Where these are no multiple of a tile, the last tiles overlap their neighbours.
    """

    y: int
    x: int
    down: int
    across: int
    rows: int
    columns: int

    @property
    def cost(self) -> float:
        """The cost of all tiles, counted in pixels."""
        tiles = -(-self.down // self.rows) * -(-self.across // self.columns)
        return tiles * (max(self.rows * self.columns, LEAST) + START)


@cache
def cover(down: int, across: int, most: int) -> tuple[Grid, ...]:
    """Grids of tiles of at most so many pixels that cover a map, the cheapest found."""
    return _cover(0, 0, down, across, most, 2)


def _cover(y: int, x: int, down: int, across: int, most: int, splits: int) -> tuple[Grid, ...]:
    """The candidates: one grid; or a grid of whole tiles, one for the pixels to its right, and one for those below."""
    if not down or not across:
        return ()
    best: tuple[Grid, ...] = (min(_single(y, x, down, across, most), key=lambda grid: grid.cost),)
    cost = best[0].cost * WORTH
    for rows in range(1, min(most, down) + 1) if splits else ():
        for columns in range(1, min(most // rows, across) + 1):
            tall, wide = down // rows * rows, across // columns * columns
            right = _cover(y, x + wide, tall, across - wide, most, splits - 1)
            below = _cover(y + tall, x, down - tall, across, most, splits - 1)
            found = (Grid(y, x, tall, wide, rows, columns), *right, *below)
            total = sum(grid.cost for grid in found)
            if total < cost:
                best, cost = found, total
    return best


def _single(y: int, x: int, down: int, across: int, most: int) -> Iterator[Grid]:
    for rows in range(1, min(most, down) + 1):
        columns = min(most // rows, across)
        yield Grid(y, x, down, across, rows, -(-across // -(-across // columns)))
