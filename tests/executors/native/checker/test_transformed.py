"""Convolutions in squares of results: the identity that they rest on, the proof of their plans, and their machine code.

These tests need no processor that computes in squares, but for the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvm.executors.native.checker import unproven
from cvm.executors.native.checker.packed import segments_of, weights_of
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.descriptions.winograd import (
    BITS,
    INPUT,
    OUTPUT,
    SHIFTS,
    SQUARE,
    WEIGHTS,
    Squares,
    Winograd,
    WinogradInput,
)
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.kernels import squares
from cvm.executors.native.kernels.packing import packed_weights
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan import gains
from cvm.executors.native.plan.claims import Prepares
from cvm.executors.native.plan.homes import Buffer
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime import rehearsal
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output as Result
from cvm.program import ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.selection import mostly_long

Array = Any
IN_SQUARES = tuple(machine for machine in MACHINES if machine.squares is not None)
AVX2 = next(machine for machine in IN_SQUARES if machine.name == "avx2")
IN_OTHER_ORDER = replace(AVX2, name="avx2 in the order of LLVM", in_order=None)
gain = gains.gain
LARGEST = (2 ** (BITS - 1) - 1) // 255
"""The largest sum of the positive weights of a channel."""


def both(matrix: tuple[tuple[int, ...], ...], square: list[list[int]]) -> list[list[int]]:
    """A matrix applied to the columns and the rows of a square, in Python's integers."""
    columns = [[sum(m * row[j] for m, row in zip(line, square, strict=True)) for j in range(len(square[0]))]
               for line in matrix]  # fmt: skip
    return [[sum(m * x for m, x in zip(line, row, strict=True)) for line in matrix] for row in columns]


@given(
    st.lists(st.lists(st.integers(0, 255) | st.sampled_from((0, 255)), min_size=6, max_size=6), min_size=6, max_size=6),
    st.lists(
        st.lists(st.integers(-128, 127) | st.sampled_from((-128, 127)), min_size=3, max_size=3), min_size=3, max_size=3
    ),
)
def test_products_at_all_positions_give_nine_times_a_power_of_two_times_each_sum(
    elements: list[list[int]], weights: list[list[int]]
) -> None:
    rows = zip(both(INPUT, elements), both(WEIGHTS, weights), strict=True)
    found = both(OUTPUT, [[a * b for a, b in zip(one, other, strict=True)] for one, other in rows])
    for i in range(SQUARE):
        for j in range(SQUARE):
            total = sum(elements[i + k][j + n] * weights[k][n] for k in range(3) for n in range(3))
            assert found[i][j] == 9 * 2 ** (SHIFTS[i] + SHIFTS[j]) * total


def test_16_bits_hold_the_transformed_elements_and_weights() -> None:
    for matrix, least, most, largest in ((INPUT, 0, 255, 68 * 255), (WEIGHTS, -128, 127, 49 * 128)):
        ends = []
        for one in matrix:
            for other in matrix:
                products = [a * b for a in one for b in other]
                above, below = sum(p for p in products if p > 0), sum(p for p in products if p < 0)
                ends += [abs(above * most + below * least), abs(above * least + below * most)]
        assert max(ends) == largest < 2**15


@given(hnp.arrays(np.int8, st.tuples(st.just(16), st.just(16), st.just(3), st.just(3))))
def test_the_checker_reads_back_the_transformed_weights(weights: Array) -> None:
    (kernel,) = (one for one in planned(convolution((1, 16, 9, 9), 16)).functions.values() if isinstance(one, Winograd))
    packed = packed_weights([squares.transformed(weights)], kernel.products)
    found = weights_of(segments_of(memoryview(packed), kernel.products), kernel.products)
    for channel, element in ((0, 0), (3, 15), (15, 2)):
        expected = both(WEIGHTS, weights[channel, element].astype(int).tolist())
        assert found[channel, :, element].tolist() == [number for row in expected for number in row]


# Plans --------------------------------------------------------------------------------------------------------------


def convolution(
    shape: tuple[int, ...],
    outputs: int,
    padding: tuple[int, int] = (1, 1),
    seed: int = 1,
    hull: tuple[int, int] = (-128, 127),
    codes: bool = False,
    weights: Array | None = None,
) -> VerifiedProgram:
    """A convolution of 3x3 windows: its sums, or their codes added to other codes."""
    random = np.random.default_rng(seed)
    build = ProgramBuilder()
    x = build.input("x", shape, *hull)
    if weights is None:
        weights = random.choice([-128, 127, 0, 1, -77], (outputs, shape[1], 3, 3))
    inputs = [x, build.constant(weights), build.constant(random.integers(-900, 900, outputs))]
    (result,) = build.add("conv2d", inputs, {"padding": padding})
    if codes:
        bounds = {"lo": -128, "hi": 127, "rounding": "half_up"}
        ms = random.integers(2**19, 2**20, (1, outputs, 1, 1))
        numbers = [build.parameter(np.full(1, number)) for number in (12345, 26)]
        (result,) = build.add("requantize", [result, build.parameter(ms), *numbers], bounds)
        rows, columns = shape[2] + 2 * padding[0] - 2, shape[3] + 2 * padding[1] - 2
        other = build.input("other", (shape[0], outputs, rows, columns), -128, 127)
        numbers = [build.parameter(np.full(1, number)) for number in (3, 2, -1, 2)]
        (result,) = build.add("requantize", [result, other, *numbers], bounds)
    return verify(build.build([Result("y", result)]))


@pytest.fixture(autouse=True)
def _in_squares_wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions are faster in other ways, but are enough for tests."""

    def possible(shape: tuple[int, ...], weights: tuple[int, ...], machine: Machine, threads: int) -> gains.Gain | None:
        fits = min(shape[2:]) >= SQUARE and all(n % gains.CHANNELS == 0 for n in weights[:2])
        return (1.0, 1) if fits else None

    monkeypatch.setattr(gains, "gain", possible)


def planned(verified: VerifiedProgram, machine: Machine = AVX2) -> Plan:
    return plan(verified, machine, frozenset(output.value for output in verified.program.outputs))


def kinds(made: Plan) -> set[type]:
    return {type(one) for one in made.functions.values()}


def test_processors_with_fast_products_of_16_bits_compute_in_squares() -> None:
    assert [machine.name for machine in IN_SQUARES] == ["ifma512", "vnni512", "vnni256", "avx2"]


@pytest.mark.parametrize("machine", IN_SQUARES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize(
    ("shape", "outputs", "padding"),
    [
        ((1, 16, 4, 4), 16, (1, 1)), ((3, 32, 9, 6), 48, (1, 1)), ((2, 16, 7, 13), 32, (0, 0)),
        ((1, 48, 8, 11), 16, (0, 2)), ((1, 16, 30, 21), 16, (3, 1)), ((1, 256, 14, 14), 16, (1, 1)),
        ((1, 16, 9, 9), 144, (1, 1)),
    ],
)  # fmt: skip
def test_a_plan_in_squares_is_proven(
    shape: tuple[int, ...], outputs: int, padding: tuple[int, int], codes: bool, machine: Machine
) -> None:
    verified = convolution(shape, outputs, padding, codes=codes)
    made = planned(verified, machine)
    assert kinds(made) >= {Winograd, WinogradInput}
    assert unproven(verified, made, machine) == {}


def test_only_windows_of_3x3_at_every_place_are_computed_in_squares() -> None:
    def has_squares(
        shape: tuple[int, ...], window: tuple[int, int], machine: Machine = AVX2, **attributes: Any
    ) -> bool:
        build = ProgramBuilder()
        x = build.input("x", shape, -128, 127)
        groups = attributes.get("groups", 1)
        weights = build.constant(np.full((16, shape[1] // groups, *window), 127))
        (result,) = build.add("conv2d", [x, weights], attributes)
        return Winograd in kinds(planned(verify(build.build([Result("y", result)])), machine))

    shape = (1, 32, 9, 9)
    assert has_squares(shape, (3, 3))
    assert not has_squares(shape, (3, 3), replace(AVX2, squares=None))
    assert not has_squares(shape, (1, 9))
    assert not has_squares(shape, (3, 3), stride=(1, 2))
    assert not has_squares(shape, (3, 3), dilation=(2, 1))
    assert not has_squares(shape, (3, 3), groups=2)
    assert not has_squares((1, 33, 9, 9), (3, 3))
    assert not has_squares((1, 32, 5, 9), (3, 3))


@given(
    st.sampled_from(IN_SQUARES), st.integers(1, 9), st.integers(4, 99), st.integers(4, 99), st.integers(1, 64),
    st.integers(1, 64), st.integers(2, 99),
)  # fmt: skip
def test_what_gains_for_many_threads_gains_for_one(
    machine: Machine, images: int, rows: int, columns: int, outputs: int, inputs: int, threads: int
) -> None:
    shapes = (images, 16 * outputs, rows, columns), (16 * outputs, 16 * inputs, 3, 3)
    for_many = gain(*shapes, machine, threads)
    for_one = gain(*shapes, machine)
    assert for_many is None or (for_one is not None and for_one[1] == for_many[1])


def test_threads_that_would_read_more_weights_than_they_multiply_compute_directly() -> None:
    """A block of 64 output channels has 1.2 MB of transformed weights, for 16 squares."""
    last, first = ((1, 256, 14, 14), (256, 256, 3, 3)), ((1, 64, 56, 56), (64, 64, 3, 3))
    assert [threads for threads in (1, 2, 4, 8, 16, 64) if gain(*last, IN_SQUARES[0], threads)] == [1, 2]
    assert [threads for threads in (1, 2, 4, 8, 16, 64) if gain(*first, IN_SQUARES[0], threads)] == [1, 2, 4, 8]


def test_the_transformed_weights_of_a_program_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that gain most for their bytes are taken first."""
    each = {"a": (100.0, 10), "b": (300.0, 20), "c": (90.0, 30), "d": (10.0, 4), "e": (1.0, 1)}
    for room, expected in ((0, ""), (4, "d"), (15, "ade"), (24, "bd"), (30, "ab"), (64, "abcd"), (65, "abcde")):
        monkeypatch.setattr(gains, "ROOM", room)
        assert gains.chosen(each) == frozenset(expected)


def weights_of_sum(total: int, other: int) -> Array:
    """Weights (16, 128, 3, 3) whose positive numbers add up to ``total`` in one channel, and negative ones to -total in
    another.
    """
    flat = np.full((16, 128 * 9), other)
    for channel, sign in ((3, 1), (12, -1)):
        count, rest = divmod(total, 127)
        flat[channel] = 0
        flat[channel, :count] = sign * 127
        flat[channel, count] = sign * rest
    return flat.reshape(16, 128, 3, 3)


def test_sums_that_do_not_fit_are_not_computed_in_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = convolution((1, 128, 4, 4), 16, weights=weights_of_sum(LARGEST, 5))
    beyond = convolution((1, 128, 4, 4), 16, weights=weights_of_sum(LARGEST + 1, 5))
    assert Winograd in kinds(planned(fitting))
    assert Winograd not in kinds(planned(beyond))
    monkeypatch.setattr(gains, "fits", lambda weights: True)
    assert unproven(beyond, planned(beyond), AVX2) == {"conv2d": "a sum may not fit"}
    wide = convolution((1, 16, 4, 4), 16, weights=np.full((16, 16, 3, 3), 128))
    monkeypatch.setattr(squares, "transformed", lambda weights: transformed(weights.clip(-128, 127)))
    assert unproven(wide, planned(wide), AVX2) == {"conv2d": "a byte does not hold a weight"}


transformed = squares.transformed
kernels_of = squares._kernels
Kernels = tuple[WinogradInput, Winograd]


def _with(change: Callable[[WinogradInput, Winograd], Kernels]) -> tuple[str, Any]:
    return "_kernels", lambda *arguments: change(*kernels_of(*arguments))


def _first(change: Callable[[WinogradInput], WinogradInput]) -> tuple[str, Any]:
    return _with(lambda first, second: (change(first), second))


def _second(**others: Any) -> tuple[str, Any]:
    return _with(lambda first, second: (first, replace(second, **others)))


def _moved(**others: int) -> tuple[str, Any]:
    return _first(lambda one: replace(one, source=replace(one.source, **others)))


def _other(change: Callable[[Squares], Squares]) -> tuple[str, Any]:
    """Both kernels have other squares."""

    def changed(first: WinogradInput, second: Winograd) -> Kernels:
        one = change(second.squares)
        return replace(first, squares=one), replace(second, squares=one)

    return _with(changed)


def _products(**others: Any) -> tuple[str, Any]:
    return _with(lambda first, second: (first, replace(second, products=replace(second.products, **others))))


def _output(**others: int) -> tuple[str, Any]:
    def changed(products: Contraction) -> Contraction:
        output = products.output
        return replace(products, output=replace(output, pixels=replace(output.pixels, **others)))

    return _with(lambda first, second: (first, replace(second, products=changed(second.products))))


DEFECTS: dict[str, tuple[str, Any]] = {
    "one weight is another one": ("transformed", lambda weights: transformed(weights) + (weights[:, :1, 1, :1] == 127)),
    "the weights are not transposed": ("transformed", lambda weights: transformed(weights.swapaxes(2, 3))),
    "another row": _moved(row=16),
    "another column": _moved(column=32),
    "another image": _moved(image=16),
    "fewer rows": _other(lambda one: replace(one, rows=one.rows - 1)),
    "more columns": _other(lambda one: replace(one, columns=one.columns + 1)),
    "fewer images": _other(lambda one: replace(one, images=1)),
    "other squares": _first(lambda one: replace(one, squares=replace(one.squares, apart=one.squares.apart + 16))),
    "positions overlap": _other(lambda one: replace(one, apart=one.apart - 48)),
    "there is no room": _other(lambda one: replace(one, room=one.room - 6)),
    "there is too much room": _other(lambda one: replace(one, room=one.room + 1, apart=one.apart + 64)),
    "a group ends within a tile": _second(together=7),
    "groups are empty": _second(together=-6),
    "other channels": _products(run=32),
    "another order of positions": _products(taps=((36, 16),)),
    "sums are shifted": _products(shifts=(1,)),
    "weights are bytes": _products(widened=True),
    "results in other rows": _output(row=16),
    "results in other columns": _output(column=8),
    "results in other channels": _output(channel=2),
}


@pytest.mark.parametrize("machine", [AVX2, IN_SQUARES[0]], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_a_plan_in_squares_is_never_proven(
    name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = np.random.default_rng(2).integers(-2, 3, (32, 16, 3, 3))  # so that bytes hold them when transformed, too
    verified = convolution((2, 16, 9, 7), 32, weights=small if name == "weights are bytes" else None)
    part, change = DEFECTS[name]
    monkeypatch.setattr(squares, part, change)
    assert unproven(verified, planned(verified, machine), machine) != {}


def test_transformed_elements_that_another_call_could_change_are_not_proven() -> None:
    verified = convolution((2, 16, 9, 7), 32)
    made = planned(verified)
    (prepared,) = (claim for claim in made.claims if isinstance(claim, Prepares))
    apart = replace(prepared, target=replace(prepared.target, buffer=Buffer("arena", 2**20)))
    for claims, reason in (
        ([claim for claim in made.claims if claim is not prepared], "other elements than transformed ones"),
        ([apart if claim is prepared else claim for claim in made.claims], "other elements than transformed ones"),
    ):
        assert reason in str(unproven(verified, replace(made, claims=tuple(claims)), AVX2))
    number = next(n for n, call in enumerate(made.calls) if call.note.endswith("squares of 6x6 elements"))
    for change, reason in (
        (lambda given: (given[0], (given[1][0], given[1][1] + 2)), "lie elsewhere"),
        (lambda given: ((given[0][0], given[0][1] + 1), given[1]), "hold other elements"),
        (lambda given: (given[1], given[1]), "squares of another tensor"),
    ):
        call = made.calls[number]
        calls = (*made.calls[:number], replace(call, arguments=change(call.arguments)), *made.calls[number + 1 :])
        assert reason in str(unproven(verified, replace(made, calls=calls), AVX2))
    again = (*made.calls, made.calls[number])
    assert "other calls use" in str(unproven(verified, replace(made, calls=again), AVX2))


# Machine code -------------------------------------------------------------------------------------------------------


def feeds(verified: VerifiedProgram, seed: int) -> list[dict[str, Array]]:
    """The least and the greatest numbers, both in turn along each axis, and random ones."""
    values = [source.value for source in verified.program.inputs]
    random = np.random.default_rng(seed)
    made: list[dict[str, Array]] = []
    for axis in (None, 1, 2, 3):
        for lo in (0, 1):
            feed = {}
            for value in values:
                turn = np.full(value.shape, lo) if axis is None else (np.indices(value.shape)[axis] // (lo + 1)) % 2
                feed[value.name] = np.where(turn == 0, value.lo, value.hi).astype(np.int32)
            made.append(feed)
    made += [
        {value.name: random.integers(value.lo, value.hi + 1, value.shape, np.int32) for value in values}
        for _ in range(2)
    ]
    return made


def assert_right(verified: VerifiedProgram, machine: Machine, threads: int, seed: int) -> None:
    native, numpy = NativeExecutor(verified, threads, machine), NumpyExecutor(verified)
    assert any("positions of squares" in line for line in native.explain())
    for feed in feeds(verified, seed):
        found, expected = native.run(feed, {}).values, numpy.run(feed, {}).values
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found[name], tensor)


HERE = frozenset(machine.name for machine in available())
WITH_AVX2 = pytest.mark.skipif("avx2" not in HERE, reason="this processor has no AVX2")
SHAPES = [
    ((1, 16, 4, 4), 16, (1, 1)), ((3, 32, 9, 6), 48, (1, 1)), ((2, 16, 7, 13), 32, (0, 0)),
    ((1, 48, 8, 11), 80, (0, 2)), ((1, 16, 30, 21), 16, (3, 1)), ((1, 80, 14, 14), 16, (1, 1)),
    ((1, 32, 12, 5), 144, (1, 1)),
]  # fmt: skip
EVERY = [
    pytest.param(
        one, id=one.name, marks=pytest.mark.skipif(one.name not in HERE, reason=f"this processor has no {one.name}")
    )
    for one in IN_SQUARES
]


@pytest.mark.sweep
@pytest.mark.parametrize(("shape", "outputs", "padding"), SHAPES)
@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("seed", mostly_long(range(6), [0]))
@pytest.mark.parametrize("machine", [*EVERY, pytest.param(IN_OTHER_ORDER, id=IN_OTHER_ORDER.name, marks=WITH_AVX2)])
def test_machine_code_computes_in_squares(
    machine: Machine,
    seed: int,
    codes: bool,
    shape: tuple[int, ...],
    outputs: int,
    padding: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    hull = ((-128, 127), (0, 255), (-1, 254))[seed % 3]
    assert_right(convolution(shape, outputs, padding, seed, hull, codes), machine, 1 + seed % 2, seed)


@pytest.mark.parametrize("machine", EVERY)
@pytest.mark.parametrize("outputs", [16, 144])
def test_each_part_of_the_kernels_may_run_by_itself(
    outputs: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with many threads. Some parts of the last group of squares are empty if there are several blocks."""
    monkeypatch.setenv("CVM_CACHE", "")
    verified = convolution((1, 16, 56, 54), outputs, codes=True)
    (kernel,) = (one for one in planned(verified, machine).functions.values() if isinstance(one, Winograd))
    tile, blocks, room = kernel.products.segments[0].tile, kernel.products.blocks, kernel.squares.room
    assert kernel.units * tile == room if blocks == 1 else kernel.units * tile >= blocks * (room + 2 * tile)
    monkeypatch.setattr(rehearsal, "_parts", lambda units: ((number, number + 1) for number in range(units)))
    assert_right(verified, machine, 1, 1)


@pytest.mark.parametrize("machine", EVERY)
def test_the_largest_sums_are_exact(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    weights = weights_of_sum(LARGEST, 113)
    weights[0] = np.where(np.arange(128)[:, None, None] % 2, -128, 100)
    assert_right(convolution((1, 128, 9, 6), 16, hull=(0, 255), weights=weights), machine, 1, 1)
