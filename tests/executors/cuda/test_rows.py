"""Rows that a team of threads computes, of every length around those of teams, give NumPy's tensors."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.cuda.emit.registry import kernels_of
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.kernels.registry import plan
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.executors.cuda.test_kernels import require_numpy
from tools.cuda_emulator import EmulatedDevice

LENGTHS = (64, 65, 127, 128, 300, 1024, 1029)
ROWS = (1, 3, 9)


def normalized(rows: int, length: int, most: int, statistic: str, moved: bool) -> VerifiedProgram:
    builder = ProgramBuilder()
    shape, axes = ((length, rows), (0,)) if moved else ((rows, length), (1,))
    x = builder.input("x", shape, -most, most)

    def parameter(*numbers: int) -> str:
        values = np.resize(np.array(numbers, np.int64), length)
        return builder.parameter(values[:, None] if moved else values)

    one = builder.parameter(np.array([1], np.int64))
    inputs = [x, parameter(3 * 2**20, -(2**21)), parameter(2**24, -1, 0), parameter(2**16, 12345), one, one]
    attributes = {"axes": axes, "statistic": statistic, "shift": 0, "rounding": "half_even", "lo": -128, "hi": 127}
    return verify(builder.build([Output("y", builder.add("normalize", inputs, attributes)[0])]))


def reduced(op: str, rows: int, length: int, lo: int, hi: int, moved: bool) -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (length, rows) if moved else (rows, length), lo, hi)
    if hi < 2**15:  # stored in few bits
        (x,) = builder.add("broadcast_add", [x, builder.constant(np.zeros((1, 1), np.int64))])
    attributes = {"axes": (0 if moved else 1,), "keepdims": False, "exclude": False}
    return verify(builder.build([Output("y", builder.add(op, [x], attributes)[0])]))


def teams(verified: VerifiedProgram) -> int:
    """How many kernels of a program have threads that wait for each other."""
    made = plan(verified, CUDA, frozenset(output.value for output in verified.program.outputs))
    return kernels_of(made).ir.count("_shared = ")


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("statistic", ["variance", "mean_square", "square_sum"])
def test_normalized_rows_agree(statistic: str, length: int) -> None:
    rows = ROWS[length % 3]
    for most, moved in ((127, False), (30_000, True)):
        verified = normalized(rows, length, most, statistic, moved)
        assert teams(verified) == 1
        require_numpy(verified, EmulatedDevice(), 4)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("op", ["sum", "max"])
def test_reductions_agree(op: str, length: int) -> None:
    rows = ROWS[length % 3]
    for lo, hi, moved in ((-128, 127, True), (-(2**20), 2**20, False), (-300, -200, False)):
        verified = reduced(op, rows, length, lo, hi, moved)
        assert teams(verified) == 1
        require_numpy(verified, EmulatedDevice(), 4)


def test_short_rows_have_a_thread_each() -> None:
    assert teams(reduced("sum", 3, 63, -9, 9, False)) == 0
    assert teams(normalized(3, 63, 127, "variance", False)) == 0
