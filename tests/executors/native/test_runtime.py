"""How calls are shared: chunks cover all units once, whatever the numbers."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime.calls import CHUNKS, chunks, emit_check, emit_start
from cvm.executors.native.runtime.jit import Loaded, compiled
from tests.executors.native.comparison import MACHINES, NAMES


@given(st.integers(1, 10**6), st.floats(0, 1e12), st.integers(1, 10**6))
def test_chunks_cover_all_units_and_none_is_empty(units: int, cost: float, threads: int) -> None:
    count = chunks(units, cost, threads)
    assert 1 <= count <= min(units, CHUNKS * threads)
    assert count < 2**16  # the bits of a counter below its epoch
    bounds = [units * k // count for k in range(count + 1)]
    assert bounds[0] == 0
    assert bounds[-1] == units
    assert all(a < b for a, b in pairwise(bounds))


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_the_check_of_inputs_finds_every_element_outside(machine: Machine) -> None:
    most = 2**31 - 1
    bounds = [(1, 0, 0), (37, -128, 127), (64, -most, most), (33, -most, -5), (5, 7, most)]
    random = np.random.default_rng(0)
    arrays = [random.integers(lo, hi, n, np.int32, endpoint=True) for n, lo, hi in bounds]
    for array, (_, lo, hi) in zip(arrays, bounds, strict=True):
        array[0], array[-1] = lo, hi
    module = Module()
    emit_check(module, bounds, machine)
    emit_start(module, runs=None)
    loaded = Loaded(compiled(str(module), machine), machine)
    start = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(loaded.address("start"))
    table = np.array([array.ctypes.data for array in arrays])
    job = np.array([0, 0, 0, 0, table.ctypes.data, 0])

    def check() -> int:
        return int(start(job.ctypes.data))

    assert check() == -1
    for number, (array, (size, lo, hi)) in enumerate(zip(arrays, bounds, strict=True)):
        for wrong in {lo - 1, hi + 1, -(2**31), most}:
            if not -(2**31) <= wrong < 2**31 or lo <= wrong <= hi:
                continue
            for index in range(size):
                kept, array[index] = array[index], wrong
                assert check() == number
                array[index] = kept
    assert check() == -1
