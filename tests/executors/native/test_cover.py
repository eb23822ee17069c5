"""Grids of tiles: every pixel is covered, within the map, by tiles that fit the registers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.emit.contraction import tile_start
from cvm.executors.native.emit.cover import Grid, cover
from cvm.executors.native.emit.ir import Code, Module


def tiles(grid: Grid) -> list[list[tuple[int, int]]]:
    """The pixels of every tile of a grid, where the kernel puts them."""
    code = Code(Module(), "unused", [])
    found = []
    for row in range(-(-grid.down // grid.rows)):
        for column in range(-(-grid.across // grid.columns)):
            y = tile_start(code, row, grid.rows, grid.down)
            x = tile_start(code, column, grid.columns, grid.across)
            assert isinstance(y, int)
            assert isinstance(x, int)
            found.append(
                [(grid.y + y + r, grid.x + x + c) for r in range(grid.rows) for c in range(grid.columns)],
            )
    return found


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 14))
def test_every_pixel_is_covered(down: int, across: int, most: int) -> None:
    grids = cover(down, across, most)
    every = [tile for grid in grids for tile in tiles(grid)]
    assert {pixel for tile in every for pixel in tile} == {(y, x) for y in range(down) for x in range(across)}
    assert all(len(tile) <= most for tile in every)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 14))
def test_grids_of_a_map_do_not_meet(down: int, across: int, most: int) -> None:
    """Tiles overlap within a grid alone, where a tile that is computed twice gives the same twice."""
    areas = [
        {(grid.y + y, grid.x + x) for y in range(grid.down) for x in range(grid.across)}
        for grid in cover(down, across, most)
    ]
    assert sum(map(len, areas)) == len(set().union(*areas)) == down * across


def test_small_maps_leave_little_over() -> None:
    """Without overlap: 7 x 7 in tiles of 6 are 49 pixels, not the 56 of two overlapping tiles in a row."""
    for side in (7, 14, 28):
        assert sum(len(tile) for grid in cover(side, side, 6) for tile in tiles(grid)) == side * side
