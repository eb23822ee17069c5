"""Covers: how a map is divided into register tiles of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from cvm.records import dataclass

__all__ = ["Grid", "cover"]

START = 1.5
"""The fixed cost of a tile, counted in pixels: its loops, and the loads of the values that its sums start with."""
LEAST = 2
"""A tile of one pixel takes as long as one of this many, since it waits for its weights and for its own sums."""
WORTH = 0.97
"""Every grid adds code. So several grids are used only if they cost at most this fraction of the best single grid."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal tiles of ``rows`` x ``columns`` pixels that cover ``down`` x ``across`` pixels from (``y``, ``x``) on.

    If an extent is no multiple of that of a tile, the last tiles overlap their neighbours.
    """

    y: int
    x: int
    down: int
    across: int
    rows: int
    columns: int

    @property
    def tiles(self) -> int:
        """The number of tiles."""
        return -(-self.down // self.rows) * -(-self.across // self.columns)

    @property
    def cost(self) -> float:
        """The estimated cost of all tiles, counted in pixels."""
        return self.tiles * (max(self.rows * self.columns, LEAST) + START)

    def moved(self, y: int, x: int) -> Grid:
        """The same tiles, further down and to the right."""
        return replace(self, y=self.y + y, x=self.x + x)


def cover(down: int, across: int, most: int) -> tuple[Grid, ...]:
    """The cheapest grids found that cover a map with tiles of at most ``most`` pixels."""
    return _cover(down, across, most, 2)


@cache
def _cover(down: int, across: int, most: int, splits: int) -> tuple[Grid, ...]:
    """The cheapest of these candidates: one grid over everything; or a grid of whole tiles, with further grids for the
    pixels to its right and for those below it.
    """
    if not down or not across:
        return ()
    best: tuple[Grid, ...] = (min(_single(down, across, most), key=lambda grid: grid.cost),)
    cost = best[0].cost * WORTH
    for rows in range(1, min(most, down) + 1) if splits else ():
        for columns in range(1, min(most // rows, across) + 1):
            tall, wide = down // rows * rows, across // columns * columns
            first = Grid(0, 0, tall, wide, rows, columns)
            right = _cover(tall, across - wide, most, splits - 1)
            below = _cover(down - tall, across, most, splits - 1)
            total = first.cost + sum(grid.cost for grid in (*right, *below))
            if total < cost:
                best = (first, *(grid.moved(0, wide) for grid in right), *(grid.moved(tall, 0) for grid in below))
                cost = total
    return best


def _single(down: int, across: int, most: int) -> Iterator[Grid]:
    for rows in range(1, min(most, down) + 1):
        columns = min(most // rows, across)
        yield Grid(0, 0, down, across, rows, -(-across // -(-across // columns)))
