"""Tables that are permuted in registers: lengths around what a byte numbers, all widths of entries, all indices."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels.registry import plan
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import compare

pytestmark = pytest.mark.usefixtures("ways")

ENDS = ((0, 255), (-128, 127), (-300, 300), (0, 65535), (1 - 2**31, 2**31 - 1))


def looked_up(lengths: tuple[int, ...], columns: int) -> Program:
    random = np.random.default_rng(columns)
    builder = ProgramBuilder()
    x = builder.input("x", (2, columns), -400, 400)
    codes = builder.input("codes", (2, 20), 0, 255)
    weights = builder.constant(random.integers(-128, 128, (columns, 20)))
    numbers = [builder.parameter(np.array([number], np.int64)) for number in (2**20 + 77, 2**27, 31)]
    outputs: list[Output] = []
    for length in lengths:
        for lo, hi in ENDS:
            entries = builder.constant(random.choice([lo, hi, *random.integers(lo, hi, 9)], length))
            (direct,) = builder.add("cvm_lut", [entries, x])
            attributes = {"rounding": "half_up", "lo": 0, "hi": 255}
            (index,) = builder.add("requantize", [*builder.add("dense", [codes, weights]), *numbers], attributes)
            (behind,) = builder.add("take", [entries, index], {"axis": 0})
            outputs += [Output(f"y{len(outputs)}", direct), Output(f"z{len(outputs)}", behind)]
    return builder.build(outputs)


@pytest.mark.parametrize("lengths", [(1, 128, 257), (129, 256, 258)])
@pytest.mark.parametrize("columns", [1, 64, 79])
def test_entries_of_tables(lengths: tuple[int, ...], columns: int) -> None:
    every = np.arange(2 * columns, dtype=np.int32).reshape(2, columns) * 400 // columns - 400
    random = np.random.default_rng(0)
    feeds = [{"x": x, "codes": random.integers(0, 256, (2, 20), np.int32)} for x in (every, -every)]
    compare(looked_up(lengths, columns), feeds)


@pytest.mark.parametrize("most", [200, 2**15 - 1, 2**20])
@pytest.mark.parametrize(("length", "permuted"), [(1, True), (256, True), (257, True), (258, False)])
def test_tables_of_up_to_257_entries_are_permuted(length: int, permuted: bool, most: int) -> None:
    """By instructions that pick among 128 bytes, else by those that pick among 16 if entries have one or two bytes."""
    builder = ProgramBuilder()
    x = builder.input("x", (64,), -9, 300)
    (y,) = builder.add("cvm_lut", [builder.constant(most - np.arange(length)), x])
    verified = verify(builder.build([Output("y", y)]))
    for machine in MACHINES:
        kernels = plan(verified, machine, frozenset({y})).functions.values()
        steps = [step.op for kernel in kernels if isinstance(kernel, Nest) for step in kernel.formula.steps]
        assert ("permute" in steps) == (permuted and machine.permutes)
        assert ("shuffle" in steps) == (permuted and machine.packs and not machine.permutes and most < 2**15)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 33, 100, 144, 240, 255, 256, 257])
@pytest.mark.parametrize("columns", [1, 3, 70])
def test_every_entry_of_short_tables(length: int, columns: int) -> None:
    """Every number of rows of 16 entries that instructions pick from, odd ones included; every index and more."""
    random = np.random.default_rng(length)
    builder, outputs = ProgramBuilder(), []
    rows = -(-300 // columns)
    (x,) = builder.add("clip", [builder.input("x", (rows, columns), -20, 280)], {"a_min": -20, "a_max": 280})
    (byte,) = builder.add("clip", [x], {"a_min": 0, "a_max": 255})
    for lo, hi in ENDS[:4]:
        entries = builder.constant(random.integers(lo, hi, length, np.int64, endpoint=True))
        for index in (x, byte):
            outputs.append(Output(f"y{len(outputs)}", *builder.add("cvm_lut", [entries, index])))
    every = np.resize(np.arange(-20, 281), (rows, columns)).astype(np.int32)
    compare(builder.build(outputs), [{"x": every}, {"x": np.ascontiguousarray(every[::-1, ::-1])}])


def test_rows_of_bytes_are_picked_and_resized() -> None:
    """Rows around the bytes of one and of two vectors, indices outside the row, and parameters per position."""
    random = np.random.default_rng(8)
    builder = ProgramBuilder()
    outputs: list[Output] = []
    for columns, (lo, hi) in ((1, (0, 255)), (63, (-100, 155)), (65, (-128, 127)), (128, (0, 200)), (129, (0, 255))):
        x = builder.input(f"x{columns}", (1, 2, 2, columns), -300, 300)
        (row,) = builder.add("clip", [x], {"a_min": lo, "a_max": hi})
        taken = []
        for _ in range(2):
            indices = builder.constant(random.integers(-3, columns + 3, 83))
            taken += builder.add("take", [row, indices], {"axis": 3})
        m = [builder.parameter(random.integers(-top, top, (1, 1, 2, 83))) for top in (100, 2000, 70_000)]
        given = [*taken, *m, builder.parameter(np.array([11]))]
        outputs += [Output(f"y{columns}", one) for one in builder.add("requantize", given, ATTRIBUTES)]
    compare(builder.build(outputs))


ATTRIBUTES = {"rounding": "half_up", "lo": -128, "hi": 127}


def test_parameters_of_long_rows_are_read_again_for_every_channel() -> None:
    random = np.random.default_rng(9)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 5, 130, 72), 0, 255)
    m = builder.parameter(random.integers(1, 4000, (1, 1, 130, 72)))
    numbers = [builder.parameter(np.array([number])) for number in (-1000, 13)]
    outputs = [Output("y", one) for one in builder.add("requantize", [x, m, *numbers], ATTRIBUTES)]
    program = builder.build(outputs)
    (nest,) = [
        kernel for kernel in plan(verify(program), MACHINES[0], frozenset({"y"})).functions.values()
        if isinstance(kernel, Nest) and len(kernel.formats) > 2
    ]  # fmt: skip
    assert [loop.extent for loop in nest.loops] == [3, 5, 3120]
    assert nest.formats[1].bits == 16
    compare(program)
