"""Grids of tiles: every pixel is covered, within the map, by tiles that fit the registers, also in machine code."""

from __future__ import annotations

import platform
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.emit.contraction import tile_start
from cvm.executors.native.emit.cover import Grid, cover
from cvm.executors.native.emit.ir import Code, Module
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.runtime import jit
from cvm.executors.native.runtime.networks import network_text
from cvm.program import Output, ProgramBuilder, verify


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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="LLVM reads this text on x86-64 processors alone")
@pytest.mark.parametrize("channels", [64, 128, 192])
@pytest.mark.parametrize(
    ("window", "largest", "squares", "instruction"),
    [
        (1, 127, True, "vpmaddwd"), (1, 67, True, "vpmaddubsw"), (3, 127, False, "vpmaddwd"),
        (3, 67, False, "vpmaddubsw"), (3, 67, True, "vpmaddwd"),
    ],
)  # fmt: skip
def test_loops_of_avx2_keep_all_sums_in_registers(
    channels: int, window: int, largest: int, squares: bool, instruction: str
) -> None:
    """The register allocator of LLVM finds room for 12 sums and the operands of a step in 16 registers."""
    random = np.random.default_rng(channels)
    build = ProgramBuilder()
    x = build.input("x", (1, channels, 12, 12), 0, 255)
    weights = build.constant(random.integers(-largest, largest, (128, channels, window, window)))
    attributes = {"padding": [window // 2] * 2, "stride": [1, 1], "dilation": [1, 1], "groups": 1}
    (sums,) = build.add("conv2d", [x, weights], attributes)
    parameters = [build.parameter(np.full((1, 128, 1, 1), number)) for number in (1234567, 0, 31)]
    (y,) = build.add("requantize", [sums, *parameters], {"rounding": "half_up", "lo": 0, "hi": 255})
    verified = verify(build.build([Output("y", y)]))
    machine = next(machine for machine in MACHINES if machine.name == "avx2")
    machine = machine if squares else replace(machine, squares=None)
    made = plan(verified, machine, frozenset({y}))
    text = network_text(made, machine, 1, [(144 * channels, 0, 255)], [(0, len(made.calls))])
    with jit.own_addresses(machine.packs):
        loops = _loops(jit._target(machine).emit_assembly(jit._llvm().parse_assembly(text)))
    products = [loop for loop in loops if sum(instruction in line for line in loop) >= 12]
    assert products
    assert (instruction == "vpmaddubsw") == any("vpmaddubsw" in line for loop in loops for line in loop)
    assert [line for loop in products for line in loop if "ymm" in line and "(%rsp)" in line] == []


def _loops(assembly: str) -> list[list[str]]:
    """The lines of every loop without another jump."""
    found: list[list[str]] = []
    label, lines = "", list[str]()
    for line in assembly.splitlines():
        named = re.match(r"(\.?\w+):", line)
        if named:
            label, lines = named[1], []
        elif re.match(r"\s+j\w+\s", line):
            if line.split()[-1] == label:
                found.append(lines)
            label, lines = "", []
        else:
            lines.append(line)
    return found
