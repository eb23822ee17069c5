"""Kernels in narrow lanes, copies by blocks, picked and repeated elements, reductions: all formats, awkward extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cvm.executors.native.checker import unproven
from cvm.executors.native.descriptions.loops import Nest
from cvm.executors.native.emit.narrow import lane_bits
from cvm.executors.native.emit.transposition import Blocks
from cvm.executors.native.kernels import formulas
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.steps import Plan
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES, compare
from tests.selection import mostly_long

pytestmark = pytest.mark.usefixtures("ways")

SPANS = ((-128, 127), (0, 255), (-90, 165), (-32768, 32767), (0, 65535), (-(2**17), 2**17))
Applied = list[tuple[str, list[str], dict[str, Any]]]


class Stored(ProgramBuilder):
    """A builder whose tensors lie in the formats of their intervals, and not in the caller's arrays."""

    def stored(self, shape: tuple[int, ...], span: tuple[int, int]) -> str:
        """A copy of a new input."""
        number = len(self._inputs)
        given = self.input(f"x{number}", shape, *span)
        return self.add("clip", [given], {"a_min": span[0], "a_max": span[1]})[0]

    def results(self, applied: Applied) -> Program:
        """The program that returns the result of every use of an op."""
        made = [self.add(op, inputs, attributes)[0] for op, inputs, attributes in applied]
        return self.build([Output(f"y{number}", name) for number, name in enumerate(made)])


def planned(program: Program) -> Plan:
    verified = verify(program)
    return plan(verified, MACHINES[0], frozenset(output.value for output in program.outputs))


def nests(program: Program) -> list[Nest]:
    return [kernel for kernel in planned(program).functions.values() if isinstance(kernel, Nest)]


def elementwise(x: str, y: str) -> Applied:
    return [
        ("abs", [x], {}), ("negative", [x], {}), ("relu", [x], {}), ("cvm_precision", [x], {}),
        ("clip", [x], {"a_min": -7, "a_max": 300}), ("clip", [x], {"a_min": 5, "a_max": 6}),
        ("cvm_clip", [x], {"precision": 5}), ("cvm_right_shift", [x], {"precision": 8, "shift_bit": 1}),
        ("cvm_right_shift", [x], {"precision": 8, "shift_bit": 32}),
        ("cvm_left_shift", [x], {"precision": 16, "shift_bit": 3}),
        ("cvm_left_shift", [x], {"precision": 31, "shift_bit": 32}),
        ("broadcast_max", [x, y], {}), ("broadcast_greater", [x, y], {}), ("broadcast_add", [x, y], {}),
        ("broadcast_sub", [x, y], {}), ("broadcast_sub", [y, x], {}), ("where", [y, x, x], {}),
        ("broadcast_div", [x, y], {}),
    ]  # fmt: skip


@pytest.mark.parametrize("span", mostly_long(SPANS, [(-90, 165), (-32768, 32767)]))
@pytest.mark.parametrize("other", mostly_long([(-128, 127), (0, 65535)], [(-128, 127)]))
def test_elementwise_ops_on_every_number_of_a_format(span: tuple[int, int], other: tuple[int, int]) -> None:
    """All bytes, or numbers at the ends and all over wider intervals; the other operand likewise, in another order."""
    build, count = Stored(), 517
    x, y = build.stored((count,), span), build.stored((count,), other)
    random = np.random.default_rng(count)
    ends = [np.rint(np.linspace(*one, count)).astype(np.int32) for one in (span, other)]
    feeds = [{"x0": ends[0], "x1": random.permutation(ends[1])} for _ in range(3)]
    compare(build.results(elementwise(x, y)), feeds)


@pytest.mark.parametrize("bits", [24, 25])
def test_quotients_of_numbers_next_to_multiples(bits: int) -> None:
    """Quotients that lie as near below and above an integer as operands of so many bits allow, and division by 0.

    Float32 divides numbers of up to 24 bits; the checker does not accept it for others.
    """
    most, random = 2**bits - 1, np.random.default_rng(bits)
    build = ProgramBuilder()
    x, y = build.input("x", (1200,), -most, most), build.input("y", (1200,), -most, most)
    (quotient,) = build.add("broadcast_div", [x, y])
    verified = verify(build.build([Output("quotient", quotient)]))
    y_ = np.concatenate([random.integers(0, 2 ** random.integers(1, bits, 1000)), np.full(200, most)])
    x_ = y_ * (most // np.maximum(y_, 1)) + np.resize([-1, 0, 1], 1200)
    signs = np.resize([1, -1, -1], 1200), np.resize([1, 1, -1, -1], 1200)
    x_, y_ = (one.clip(-most, most) * sign for one, sign in zip((x_, y_), signs, strict=True))
    compare(verified, [{"x": x_.astype(np.int32), "y": y_.astype(np.int32)}])
    for machine in MACHINES:
        made = plan(verified, machine, frozenset({quotient}))
        nests = {name: kernel for name, kernel in made.functions.items() if isinstance(kernel, Nest)}
        steps = [step for kernel in nests.values() for step in kernel.formula.steps if step.op == "div"]
        assert [step.static for step in steps] == [(24,) if bits == 24 else ()]


def test_float32_quotients_of_wider_operands_are_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    build = ProgramBuilder()
    x = build.input("x", (12,), -(2**24), 2**24)
    (quotient,) = build.add("broadcast_div", [x, build.input("y", (12,), -9, 9)])
    verified = verify(build.build([Output("quotient", quotient)]))
    wanted = frozenset({quotient})
    assert unproven(verified, plan(verified, MACHINES[0], wanted), MACHINES[0]) == {}
    single = lambda builder, node: builder.step("div", builder.operands(node), (24,))  # noqa: E731
    monkeypatch.setitem(formulas.BUILDERS, "broadcast_div", single)
    found = unproven(verified, plan(verified, MACHINES[0], wanted), MACHINES[0])
    assert "an operand has more bits than float32" in found[quotient]


def test_lanes_are_as_narrow_as_the_operands_allow() -> None:
    """Sums may wrap in lanes; what is compared may not."""
    build = Stored()
    byte, word = build.stored((200,), (-128, 127)), build.stored((200,), (-32768, 32767))
    applied: Applied = [
        ("abs", [byte], {}), ("negative", [byte], {}), ("clip", [word], {"a_min": -9, "a_max": 9}),
        ("broadcast_add", [byte, byte], {}), ("broadcast_mul", [byte, byte], {}), ("broadcast_add", [word, word], {}),
    ]  # fmt: skip
    program = build.results(applied)
    made = planned(program)
    found = {}
    for call in made.calls:
        kernel = made.functions[call.function]
        if isinstance(kernel, Nest) and kernel.formula.steps:
            found[call.what] = lane_bits(kernel)
    names = [output.value for output in program.outputs]
    assert [found[name] for name in names] == [8, 8, 16, 16, 16, None]


@pytest.mark.parametrize("span", mostly_long(SPANS, [(-128, 127), (0, 65535)]))
@pytest.mark.parametrize("shape", mostly_long([(16, 16), (67, 35), (3, 40, 23), (129, 17)], [(67, 35), (3, 40, 23)]))
def test_transposes_of_every_format(span: tuple[int, int], shape: tuple[int, ...]) -> None:
    build = Stored()
    axes = (1, 0) if len(shape) == 2 else (0, 2, 1)
    (turned,) = build.add("transpose", [build.stored(shape, span)], {"axes": axes})
    turned_shape = build.shape(turned)
    zeros = build.constant(np.zeros((1, *turned_shape[1:]), np.int32))
    y = build.stored(turned_shape, span)
    program = build.results([("concatenate", [turned, zeros], {"axis": 0}), ("broadcast_max", [turned, y], {})])
    assert any(Blocks.of(nest) for nest in nests(program))
    compare(program)


@pytest.mark.parametrize("span", mostly_long(SPANS, [(-128, 127), (0, 65535)]))
def test_elements_that_are_picked_or_repeated(span: tuple[int, int]) -> None:
    build = Stored()
    x = build.stored((5, 147), span)
    zeros = build.constant(np.zeros((1, 147), np.int32))
    applied: Applied = []
    for step in (2, 3, 4, 5, -1, -2):
        begin, end = ((0, 0), (5, 147)) if step > 0 else ((0, 146), (5, -148))
        (part,) = build.add("slice", [x], {"begin": begin, "end": end, "strides": (1, step)})
        (beside,) = build.add("slice", [zeros], {"begin": (0, 0), "end": (1, build.shape(part)[1])})
        applied.append(("concatenate", [part, beside], {"axis": 0}))
    for copies in (2, 3, 4, 5):
        (whole,) = build.add("repeat", [x], {"axis": 1, "repeats": copies})
        applied.append(
            ("concatenate", [whole, *build.add("repeat", [zeros], {"axis": 1, "repeats": copies})], {"axis": 0})
        )
    rows = build.input("rows", (9,), -3, 8)
    applied += [("take", [x, rows], {"axis": 0}), ("take", [x, rows], {"axis": 1})]
    compare(build.results(applied))


@pytest.mark.parametrize("span", mostly_long(SPANS, [(-90, 165), (0, 65535)]))
@pytest.mark.parametrize("columns", mostly_long([1, 3, 4, 15, 16, 63, 65, 100, 127, 128, 300], [16, 127]))
def test_reductions_of_every_format(span: tuple[int, int], columns: int) -> None:
    build = Stored()
    x, cube = build.stored((35, columns), span), build.stored((2, 19, columns), span)
    applied: Applied = [
        (op, [value], {"axes": axes}) for op in ("sum", "max") for value, axes in
        ((x, (0,)), (x, (1,)), (x, ()), (cube, (1,)), (cube, (0, 2)), (cube, (1, 2)), (cube, (0, 1)))
    ]  # fmt: skip
    program = build.results(applied)
    inputs = [item.value for item in program.inputs]
    random = np.random.default_rng(columns)
    feeds = [{value.name: np.full(value.shape, end, np.int32) for value in inputs} for end in span]
    feeds.append({value.name: random.integers(*span, value.shape, np.int32, endpoint=True) for value in inputs})
    compare(program, feeds)


def test_rows_of_many_bytes_are_added_up_in_16_bits_without_overflow() -> None:
    build = Stored()
    x = build.stored((1000, 70), (0, 255))
    compare(build.results([("sum", [x], {"axes": (0,)})]), [{"x0": np.full((1000, 70), 255, np.int32)}])


@pytest.mark.parametrize("span", mostly_long([(-128, 127), (-32768, 32767)], [(-128, 127)]))
def test_normalize_of_columns_reads_rows(span: tuple[int, int]) -> None:
    build = Stored()
    x = build.stored((3, 40, 33), span)
    parameters = [build.parameter(np.array([value], np.int64)) for value in (2**20, 3, 2**10, 1, 5)]
    applied: Applied = []
    for axes in ((1,), (0, 1), (2,)):
        attributes = {"axes": axes, "statistic": "variance", "rounding": "half_up", "lo": -128, "hi": 127}
        applied.append(("normalize", [x, *parameters], attributes))
    compare(build.results(applied))


@pytest.mark.parametrize("shape", mostly_long([(1, 5, 7, 7), (2, 6, 12, 12)], [(1, 5, 7, 7)]))
def test_contractions_are_split_into_blocks_and_parts(shape: tuple[int, ...]) -> None:
    """Every unit alone computes its part: 40 threads get one or two units each."""
    build = ProgramBuilder()
    x = build.input("x", shape, -128, 127)
    random = np.random.default_rng(1)
    outputs: list[Output] = []
    for channels in (5, 150):
        weights = build.constant(random.integers(-128, 128, (channels, shape[1], 3, 3)))
        attributes = {"padding": (1, 1), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
        outputs.append(Output(f"y{channels}", *build.add("conv2d", [x, weights], attributes)))
    rows = build.input("rows", (70, 30), -128, 127)
    weights = build.constant(random.integers(-128, 128, (90, 30)))
    outputs.append(Output("product", *build.add("dense", [rows, weights])))
    compare(build.build(outputs), threads=(1, 2, 40))
