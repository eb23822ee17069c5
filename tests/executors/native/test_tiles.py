"""Tiles of pixels cover every map, and convolutions on them are the NumPy executor's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.descriptions.sums import Pixels
from cvm.executors.native.emit.tiles import ROWS, Walk, way
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.select import permitted
from cvm.program import Output, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES as HERE
from tests.executors.native.comparison import compare

TILED = [machine for machine in HERE if machine.tiles]
needs_tiles = pytest.mark.skipif(not TILED, reason="this processor has no tile registers, or may not use them")


def starts(count: int, size: int, extent: int) -> list[int]:
    """Where the kernel begins its blocks: the last one where it still fits."""
    return [min(index * size, extent - size) for index in range(count)]


def covered(way: Walk, rows: int, columns: int) -> set[tuple[int, int]]:
    """The pixels of a map that the tiles of a walk compute."""
    found = set()
    extent = (rows - 1) * way.pitch + columns
    for y in [0] if way.pitch else starts(way.lines, way.tall, rows):
        for x in starts(way.spans, way.long, extent):
            for row, pixel in way.starts:
                for k in range(way.pixels):
                    column = x + pixel + k
                    assert 0 <= column < extent, "a tile reads outside the map"
                    found.add(divmod(column, way.pitch) if way.pitch else (y + row, column))
    return {(y, x) for y, x in found if x < columns}


@given(
    rows=st.integers(1, 70), columns=st.integers(1, 70), between=st.integers(0, 5), step=st.sampled_from((1, 2, 3)),
    even=st.booleans(), weights=st.sampled_from((1_000, 1_000_000)),
)  # fmt: skip
def test_every_pixel_is_computed_and_nothing_outside_is_read(
    rows: int, columns: int, between: int, step: int, even: bool, weights: int
) -> None:
    column = 8 * step
    source = Pixels(0, column * (columns + between) + (0 if even else 1), column, 1)
    found = way(rows, columns, source, weights)
    assert 1 <= found.pixels <= ROWS
    assert len(found.starts) == found.tiles in (1, 2, 4)
    assert covered(found, rows, columns) == {(y, x) for y in range(rows) for x in range(columns)}


def convolution(
    shape: tuple[int, ...], kernel: tuple[int, ...], residual: bool, largest: int = 127, **attributes: Any
) -> Any:
    """Codes of a convolution, with a residual sum behind them or without. ``largest`` is the largest weight."""
    random = np.random.default_rng(sum(shape) + sum(kernel))
    builder = ProgramBuilder()
    x = builder.input("x", shape, -128, 127)
    weights = builder.constant(random.integers(-largest - 1, largest + 1, kernel))
    bias = builder.constant(random.integers(-9999, 9999, kernel[:1]))
    (sums,) = builder.add("conv2d", [x, weights, bias], attributes)
    per = (1, kernel[0], 1, 1)
    m, c = random.integers(2**29, 2**31 - 1, per), random.integers(-(2**30), 2**30, per)
    s = np.full(per, 31 + builder.range(sums).magnitude().bit_length() - 9)
    operands = [sums, *(builder.parameter(array) for array in (m, c, s))]
    (codes,) = builder.add("requantize", operands, {"lo": -128, "hi": 127, "rounding": "half_up"})
    if residual:
        y = builder.input("y", builder.shape(codes), -128, 127)
        pool = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)}
        (other,) = builder.add("max_pool2d", [y], pool)  # in bytes, as the codes of networks are
        numbers = [builder.parameter(np.array([n])) for n in (1_234_567_891, 987_654_321, 2**30, 31)]
        (codes,) = builder.add("requantize", [codes, other, *numbers], {"lo": -128, "hi": 127, "rounding": "half_up"})
    return builder.build([Output("codes", codes)])


CASES = {
    "one row": ((1, 64, 1, 50), (64, 64, 1, 1), {}),
    "a row at a time": ((1, 32, 5, 56), (64, 32, 3, 3), {"padding": (1, 1)}),
    "the whole map": ((1, 64, 7, 7), (128, 64, 3, 3), {"padding": (1, 1)}),
    "blocks that begin on the border": (
        (1, 20, 9, 12),
        (13, 20, 1, 3),
        {"padding": (2, 1), "stride": (1, 2), "dilation": (1, 2)},
    ),
    "two rows": ((1, 64, 14, 14), (64, 64, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
    "the first layer": ((1, 3, 31, 33), (32, 3, 7, 7), {"padding": (3, 3), "stride": (2, 2)}),
    "a short run": ((1, 24, 9, 30), (40, 24, 1, 1), {}),
    "a run of two chunks": ((1, 100, 6, 20), (70, 100, 1, 1), {}),
    "groups": ((1, 96, 12, 12), (64, 48, 3, 3), {"padding": (1, 1), "groups": 2}),
    "dilation": ((1, 48, 12, 20), (48, 48, 3, 3), {"padding": (2, 2), "dilation": (2, 2)}),
    "images": ((3, 48, 9, 9), (100, 48, 3, 3), {"padding": (1, 1)}),
    "weights from afar": ((1, 256, 8, 8), (64, 256, 3, 3), {"padding": (1, 1)}),
    "every remainder": ((1, 64, 6, 11), (64 + 32 + 16 + 3, 64, 1, 1), {}),
    "late epilogues": ((1, 64, 6, 56), (64, 64, 3, 3), {"padding": (1, 1)}),
}


@needs_tiles
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_on_tiles(case: str, residual: bool) -> None:
    shape, kernel, attributes = CASES[case]
    program = convolution(shape, kernel, residual, **attributes)
    (machine,) = TILED
    assert "8-bit tiles" in " ".join(NativeExecutor(verify(program), 1, machine).explain())
    compare(program, machines=HERE if residual else TILED, threads=(1, 2, 3), captures=[frozenset()])


@needs_tiles
def test_a_product_of_few_rows_is_left_to_vectors() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 512), 0, 255)
    weights = builder.constant(np.random.default_rng(0).integers(-128, 128, (64, 512)))
    program = builder.build([Output("y", builder.add("dense", [x, weights])[0])])
    (machine,) = TILED
    assert "8-bit dot products" in " ".join(NativeExecutor(verify(program), 1, machine).explain())
    compare(program, machines=TILED, threads=(1, 2), captures=[frozenset()])


def test_other_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert permitted.__wrapped__() is False
