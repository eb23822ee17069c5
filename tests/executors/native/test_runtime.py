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
from cvm.executors.native.plan.steps import CHUNKS, KernelCall
from cvm.executors.native.runtime.calls import chunks, emit_check, emit_start, steps
from cvm.executors.native.runtime.jit import Loaded, compiled
from tests.executors.native.comparison import MACHINES, NAMES


@given(st.integers(1, 10**6), st.floats(0, 1e12), st.integers(1, 10**6), st.integers(1, CHUNKS))
def test_chunks_cover_all_units_and_none_is_empty(units: int, cost: float, threads: int, per_thread: int) -> None:
    count = chunks(units, cost, threads, per_thread)
    assert 1 <= count <= min(units, per_thread * threads)
    assert count < 2**16  # the bits of a counter below its epoch
    bounds = [units * k // count for k in range(count + 1)]
    assert bounds[0] == 0
    assert bounds[-1] == units
    assert all(a < b for a, b in pairwise(bounds))


@given(st.integers(1, 10**6), st.floats(0, 1e12), st.integers(2, 100), st.integers(1, CHUNKS))
def test_beyond_one_chunk_for_each_thread_all_threads_get_equally_many(
    units: int, cost: float, threads: int, per_thread: int
) -> None:
    count = chunks(units, cost, threads, per_thread)
    assert count <= threads or count % threads == 0


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0, 10**5), st.integers(1, CHUNKS)), max_size=30), st.integers(2, 9)
)
def test_calls_that_are_not_split_follow_one_another_without_a_barrier(
    made: list[tuple[int, float, int]], threads: int
) -> None:
    plan = [KernelCall(str(number), (), units, "", "", *last) for number, (units, *last) in enumerate(made)]
    found = steps(plan, threads)
    assert [call for step in found for call in step.calls] == plan
    for step in found:
        counts = [chunks(call.units, call.cost, threads, call.per_thread) for call in step.calls]
        assert counts == [step.chunks] * len(step.calls)
        assert step.chunks == 1 or len(step.calls) == 1
    assert all(max(a.chunks, b.chunks) > 1 for a, b in pairwise(found))


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
