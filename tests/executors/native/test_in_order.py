"""Tiles that take the pixels of rows in their order, where registers hold the distances between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cvm.executors.native.emit.contraction import TileEmitter
from cvm.executors.native.runtime import rehearsal
from cvm.program import verify
from tests.executors.native.comparison import MACHINES, compare
from tests.executors.native.test_tiles import convolution

SPARE = [replace(machine, squares=None) for machine in MACHINES if machine.spare]
needs_registers = pytest.mark.skipif(not SPARE, reason="no machine here has registers to spare")

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "a square map": ((1, 40, 7, 7), (64, 40, 3, 3), {"padding": (1, 1)}),
    "a stride": ((1, 33, 13, 13), (48, 33, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
    "short rows": ((1, 32, 5, 6), (32, 32, 3, 3), {"padding": (1, 1)}),
    "long rows": ((1, 16, 11, 11), (80, 16, 3, 3), {"padding": (1, 1)}),
    "many rows": ((1, 20, 23, 9), (16, 20, 1, 3), {"padding": (0, 1)}),
    "images": ((3, 32, 7, 7), (64, 32, 3, 3), {"padding": (1, 1)}),
    "many weights": ((1, 128, 7, 7), (128, 128, 3, 3), {"padding": (1, 1)}),
    "part of a block of channels": ((1, 24, 7, 9), (27, 24, 3, 3), {"padding": (1, 1)}),
}


@needs_registers
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_in_order_are_those_of_numpy(case: str, residual: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On several threads, and with each unit computed by itself, in reverse order."""
    written: list[int] = []
    original = TileEmitter.in_order

    def in_order(self: TileEmitter, *arguments: Any) -> None:
        written.append(self.segment.tile)
        original(self, *arguments)

    monkeypatch.setattr(TileEmitter, "in_order", in_order)
    monkeypatch.setattr(rehearsal, "_parts", lambda units: ((n, n + 1) for n in reversed(range(units))))
    monkeypatch.setenv("CVM_CACHE", "")
    shape, kernel, attributes = CASES[case]
    program = convolution(shape, kernel, residual, 67, **attributes)  # for lists of steps, tiles of four pixels
    compare(verify(program), machines=SPARE, threads=(1, 2, 3), captures=[frozenset()])
    assert written, "the map was covered by grids"


def test_a_row_has_enough_pixels_for_tiles_without_rest() -> None:
    """With (most - 1) (most - 2) pixels or more, tiles of ``most`` pixels and of one less leave no rest."""
    for most in range(2, 12):
        for pixels in range((most - 1) * (most - 2), 500):
            count = -(-pixels // most)
            full = pixels - count * (most - 1)
            assert 0 <= full <= count
            assert full * most + (count - full) * (most - 1) == pixels
