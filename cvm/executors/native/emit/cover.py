"""Covers: how a map is divided into register tiles of pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

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


@cache
def cover(down: int, across: int, most: int) -> tuple[Grid, ...]:
    """The cheapest grids found that cover a map with tiles of at most ``most`` pixels."""
    return _cover(0, 0, down, across, most, 2)


def _cover(y: int, x: int, down: int, across: int, most: int, splits: int) -> tuple[Grid, ...]:
    """The cheapest of these candidates: one grid over everything; or a grid of whole tiles, with further grids for the
    pixels to its right and for those below it.
    """
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
