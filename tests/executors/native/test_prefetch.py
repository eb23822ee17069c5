"""Convolutions prefetch the weights of the next block of channels: every line of them, and no other."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import numpy as np
import pytest

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32, Format
from cvm.executors.native.descriptions.sums import Contraction, Output, Pixels
from cvm.executors.native.emit import contraction
from cvm.executors.native.emit.contraction import LINE, emit_contraction, segments
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import WASM
from cvm.executors.native.runtime.jit import compiled, loaded
from cvm.executors.native.runtime.select import available

MACHINE = available()[-1]
MOST = 2**16
LOG = """
@count = internal global i64 0
@list = internal global ptr null
define void @begin(ptr %list) {
  store ptr %list, ptr @list
  store i64 0, ptr @count
  ret void
}
define i64 @end() {
  %count = load i64, ptr @count
  ret i64 %count
}
define void @log(ptr %address) {
  %list = load ptr, ptr @list
  %count = load i64, ptr @count
  %at = getelementptr ptr, ptr %list, i64 %count
  store ptr %address, ptr %at
  %more = add i64 %count, 1
  store i64 %more, ptr @count
  ret void
}
"""


def kernel(rows: int, columns: int, taps: tuple[tuple[int, int], ...], run: int, channels: int) -> Contraction:
    """A convolution of bytes on a map of rows x columns pixels, whose sums are its results."""
    source = Pixels(0, 64 * columns, 64, 1)
    output = Output(INT32, Pixels(0, columns * channels, channels, 1))
    made = Contraction(
        1, rows, columns, channels, 4, taps, run, (0,), Format(8, False, 0), source, output, (), Formula(1, ()), False
    )
    return replace(made, segments=segments(channels, rows * columns, False, MACHINE))


def prefetched(made: Contraction, first: int, end: int) -> tuple[list[int], int]:
    """The addresses that units of a kernel prefetch, less that of the weights; and the bytes of one block's weights."""
    module = Module()
    emit_contraction(module, "test", made, MACHINE)
    text = re.sub(r"call void @llvm\.prefetch\.p0\(ptr (%\w+)[^)]*\)", r"call void @log(ptr \1)", str(module))
    code = loaded(compiled(text + LOG, MACHINE), MACHINE)
    memory = [np.zeros(size, np.uint8) for size in (2**20, 2**20, 2**20, 8 * MOST)]
    source, weights, target, found = (array.ctypes.data for array in memory)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("begin"))(found)
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(code.address("test"))
    run(source, weights, target, first, end)
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("end"))()
    assert count <= MOST
    return (memory[3].view(np.int64)[:count] - weights).tolist(), 4 * made.step_words * made.segments[0].channels


SHAPES = [(1, 49, (), 512), (7, 7, ((3, 448),), 192), (14, 13, ((3, 832), (3, 64)), 64), (1, 600, (), 256)]


@pytest.mark.parametrize(("rows", "columns", "taps", "run"), SHAPES)
def test_the_tiles_of_all_blocks_prefetch_every_line_of_the_blocks_after_them(
    rows: int, columns: int, taps: tuple[tuple[int, int], ...], run: int
) -> None:
    made = kernel(rows, columns, taps, run, 64)
    found, size = prefetched(made, 0, made.units)
    assert made.blocks > 1
    assert {at // LINE for at in found} == set(range(size // LINE, (made.blocks + 1) * size // LINE))


def test_short_weights_and_single_pixels_prefetch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kernel(7, 7, ((3, 448),), 192, 64)
    assert prefetched(made, 0, made.units)[0]
    assert not prefetched(kernel(1, 1, (), 2048, 64), 0, 8)[0]
    monkeypatch.setattr(contraction, "FAR", 2**20)
    assert not prefetched(made, 0, made.units)[0]


def test_webassembly_has_no_prefetches() -> None:
    module = Module(widens=True)
    made = kernel(7, 7, ((3, 448),), 192, 64)
    emit_contraction(module, "test", replace(made, segments=segments(64, 49, False, WASM)), WASM)
    assert "prefetch" not in str(module)
