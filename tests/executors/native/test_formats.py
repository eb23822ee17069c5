"""Formats hold every value of their interval, and nothing else is needed to get it back."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32, INT64, Format
from cvm.executors.native.descriptions.loops import Loop, Nest
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.nest import emit_nest
from cvm.executors.native.runtime.jit import Loaded, compiled
from tests.executors.native.comparison import MACHINES, NAMES
from tests.selection import examples

LEAST, MOST = -(2**31) + 1, 2**31 - 1
EDGES = sorted({sign * 2**k + d for k in (0, 7, 8, 15, 16, 30) for sign in (-1, 1) for d in (-1, 0, 1)} | {LEAST, MOST})
BOUNDS = st.sampled_from(EDGES) | st.integers(LEAST, MOST) | st.integers(-300, 300)
INTERVALS = st.tuples(BOUNDS, BOUNDS).map(lambda pair: (min(pair), max(pair)))


@given(INTERVALS, st.data())
@settings(max_examples=examples(300))
def test_stored_values_are_the_values_and_zero_is_one_of_them(interval: tuple[int, int], data: st.DataObject) -> None:
    lo, hi = interval
    format_ = Format.of(lo, hi)
    inside = [lo, hi, 0, *data.draw(st.lists(st.integers(lo, hi), max_size=5))]
    stored = format_.stored(np.array(inside, np.int64))
    assert stored.dtype == format_.dtype
    assert stored.dtype.itemsize == format_.bytes
    assert (stored.astype(np.int64) - format_.bias).tolist() == inside


@given(INTERVALS)
@settings(max_examples=examples(300))
def test_the_format_is_the_narrowest(interval: tuple[int, int]) -> None:
    lo, hi = min(interval[0], 0), max(interval[1], 0)
    bits = Format.of(*interval).bits
    if hi - lo < 2**8:
        assert bits == 8
    elif (lo >= -(2**15) and hi < 2**15) or (lo == 0 and hi < 2**16):
        assert bits == 16
    else:
        assert bits == 32


@given(INTERVALS)
def test_the_order_of_stored_integers_is_that_of_the_values(interval: tuple[int, int]) -> None:
    stored = Format.of(*interval).stored(np.unique(np.array([*interval, 0])))
    assert (np.sort(stored) == stored).all()


KINDS = (Format(8, False), Format(8, False, 128), Format(8, False, 200), Format(16), Format(16, False), INT32)


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_code_stores_and_loads_every_value(machine: Machine) -> None:
    count = 256 + 31  # whole vectors and every rest
    module, cases = Module(), []
    for index, format_ in enumerate(KINDS):
        for way, formats in (("to", (INT32, format_)), ("from", (format_, INT32))):
            nest = Nest((Loop(count, (1, 1)),), formats, Formula(1))
            emit_nest(module, f"{way}_{index}", nest, machine.width)
    loaded = Loaded(compiled(str(module), machine), machine)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    for index, format_ in enumerate(KINDS):
        least, most = np.iinfo(format_.dtype).min - format_.bias, np.iinfo(format_.dtype).max - format_.bias
        values = np.linspace(least, most, count).astype(np.int64).clip(LEAST, MOST).astype(np.int32)
        stored, back = np.zeros(count, format_.dtype), np.zeros(count, np.int32)
        kind(loaded.address(f"to_{index}"))(values.ctypes.data, stored.ctypes.data, 0, 1)
        kind(loaded.address(f"from_{index}"))(stored.ctypes.data, back.ctypes.data, 0, 1)
        np.testing.assert_array_equal(stored, format_.stored(values))
        np.testing.assert_array_equal(back, values)
        cases.append(format_)
    assert len(cases) == len(KINDS)


def test_parameters_of_64_bits_are_stored_as_they_are() -> None:
    values = np.array([2**62 - 1, -(2**62) + 1, 0])
    assert INT64.stored(values).tolist() == values.tolist()
