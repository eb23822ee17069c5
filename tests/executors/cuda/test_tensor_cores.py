"""Tensor cores: fragments are the instruction's, and every tiling, shape and format gives NumPy's tensors."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from cvm.executors.base import Capture, returned
from cvm.executors.cuda.emit import depthwise, products, row_products, tensor_cores, windows
from cvm.executors.cuda.emit.fragments import (
    COLUMNS,
    DEPTH,
    LANES,
    MATRIX_ROW,
    MEMBERS,
    ROWS,
    STEPS,
    WORDS,
    a_element,
    a_row,
    b_element,
    c_element,
    column,
    shifted,
    word,
)
from cvm.executors.cuda.emit.registry import kernels_of
from cvm.executors.cuda.emit.staging import Staging
from cvm.executors.cuda.emit.threads import Emitter
from cvm.executors.cuda.emit.tiling import MOST_SHARED, REGISTERS, ROW_BYTES, Tile, Tiling, candidates, tiling
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.launch import CROWD, Launch
from cvm.executors.native.descriptions.matrices import Matrices, RowProducts
from cvm.executors.native.descriptions.sums import Block, Contraction, Depthwise, Segment, WindowSums
from cvm.executors.native.emit.ir import Module, V
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.kernels.registry import plan
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.test_tiles import convolution
from tools.cuda_emulator import EmulatedDevice, KernelDefect
from tools.feeds import feeds

EMITTERS: dict[type, Emitter] = {
    Contraction: tensor_cores.emit_contraction,
    Depthwise: depthwise.emit_depthwise,
    WindowSums: windows.emit_windows,
    Matrices: products.emit_matrices,
    RowProducts: row_products.emit_rows,
}


def require_numpy(program: Program, runs: int = 4) -> set[type]:
    """Compare every tensor with NumPy's. Returns the kinds of kernels that were written in a fast form."""
    verified = verify(program)
    executor, numpy = CudaExecutor(verified, device=EmulatedDevice(), apart=True), NumpyExecutor(verified)
    for number, feed in enumerate(feeds(program, runs)):
        expected = numpy.run(feed, {}, "all").values
        captures: tuple[Capture, ...] = (frozenset(), "all")  # with all captured, every op has a kernel of its own
        for capture in captures:
            for name, tensor in executor.run(feed, {}, capture).values.items():
                what = f"{name}, run {number}, captured: {capture}"
                np.testing.assert_array_equal(tensor, expected[name], err_msg=what, strict=True)
    assert executor.refusals == []
    executor.close()
    return fast(program)


def fast(program: Program) -> set[type]:
    """The kinds of kernels of a program that have a fast form."""
    verified = verify(program)
    kernels = plan(verified, CUDA, returned(program, "all")).functions.values()
    found = set()
    for kernel in kernels:
        emitter = EMITTERS.get(type(kernel))
        if emitter is not None and emitter(Module(), "f", kernel, (16,) * 12) is not None:
            found.add(type(kernel))
    return found


# Fragments ------------------------------------------------------------------------------------------------------------


def test_every_element_of_a_fragment_is_held_once() -> None:
    a = Counter(a_element(lane, register, byte) for lane, register, byte in product(range(LANES), range(4), range(4)))
    b = Counter(b_element(lane, register, byte) for lane, register, byte in product(range(LANES), range(2), range(4)))
    c = Counter(c_element(lane, register) for lane, register in product(range(LANES), range(4)))
    assert a == Counter(product(range(ROWS), range(DEPTH)))
    assert b == Counter(product(range(DEPTH), range(COLUMNS)))
    assert c == Counter(product(range(ROWS), range(COLUMNS)))


def test_both_operands_have_the_same_element_at_each_place_of_the_sums() -> None:
    """Register r of A and register r // 2 of B meet: both are filled with word `word(member, step, r // 2)`."""
    for step, lane, register, byte in product(range(STEPS), range(LANES), range(4), range(4)):
        member, half = lane % MEMBERS, register // 2
        of_a = a_element(lane, register, byte)[1]
        of_b = {b_element(other, half, byte)[0] for other in range(LANES) if other % MEMBERS == member}
        assert of_b == {of_a}
        assert 0 <= word(member, step, half) < WORDS
    words = [word(member, step, half) for member, step, half in product(range(MEMBERS), range(STEPS), range(2))]
    assert sorted(words) == list(range(WORDS))


def test_ldmatrix_gives_each_thread_the_words_of_its_fragment() -> None:
    """Register k of thread l gets word l % 4 of the piece that thread 8 k + l // 4 names (PTX ISA, "ldmatrix")."""
    for step, lane, register, byte in product(range(STEPS), range(LANES), range(4), range(4)):
        row, piece = a_row(8 * register + lane // 4, step)
        held = 4 * piece + lane % 4
        assert row == a_element(lane, register, byte)[0]
        assert held == word(lane % MEMBERS, step, register // 2)


def test_rows_that_are_read_together_lie_in_different_banks() -> None:
    for step, matrix in product(range(STEPS), range(4)):
        rows = [a_row(8 * matrix + lane, step) for lane in range(8)]
        banks = {(ROW_BYTES * row + MATRIX_ROW * shifted(row, piece)) % 128 // MATRIX_ROW for row, piece in rows}
        assert len(banks) == 8
    for row in range(ROWS):
        assert sorted(shifted(row, piece) for piece in range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_a_thread_holds_neighbouring_columns(tiles: int) -> None:
    for lane in range(LANES):
        held = {
            register: [column(c_element(lane, register)[1], tile, tiles) for tile in range(tiles)]
            for register in range(4)
        }
        first = 2 * tiles * (lane % MEMBERS)
        assert [*held[0], *held[1]] == [*held[2], *held[3]] == list(range(first, first + 2 * tiles))


@pytest.mark.parametrize("channels", [8, 16, 32, 64, 96, 128])
def test_four_rows_of_weights_lie_in_different_banks(channels: int) -> None:
    tile = Tile(Segment(0, 1, Block(channels, 1, channels, False), 1), 1, 1, 16, (1, 1, 1))
    quarters = {row * tile.pitch % 128 // 32 for row in range(MEMBERS)}
    assert len(quarters) == MEMBERS
    assert tile.pitch % 16 == 0


# Tilings --------------------------------------------------------------------------------------------------------------


def kernels(program: Program) -> list[Contraction]:
    found = plan(verify(program), CUDA, returned(program, frozenset())).functions.values()
    return [kernel for kernel in found if isinstance(kernel, Contraction)]


LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "first": ((1, 3, 32, 32), (32, 3, 3, 3), {"padding": (1, 1), "stride": (2, 2)}),
    "wide": ((1, 64, 9, 7), (160, 64, 1, 1), {}),
    "ragged": ((1, 24, 6, 7), (72, 24, 3, 3), {"padding": (1, 1)}),
    "deep": ((1, 256, 7, 7), (64, 256, 3, 3), {"padding": (1, 1)}),
    "large": ((1, 32, 20, 20), (256, 32, 1, 1), {}),
    "grouped": ((2, 32, 6, 6), (48, 16, 3, 3), {"padding": (1, 1), "groups": 2}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_tiling_covers_all_pixels_and_channels_within_the_limits(name: str) -> None:
    shape, weights, attributes = LAYERS[name]
    for kernel in kernels(convolution(shape, weights, True, **attributes)):
        chosen = tiling(kernel)
        assert chosen is not None
        assert chosen.shared <= MOST_SHARED
        assert len({tile.pixels for tile in chosen.tiles}) == 1
        assert chosen.blocks[0] * chosen.tiles[0].pixels >= chosen.count
        for tile, segment in zip(chosen.tiles, kernel.segments, strict=True):
            assert tile.count * tile.channels >= segment.count * segment.channels
            assert tile.sums <= REGISTERS
            assert 32 * tile.warps[0] * tile.warps[1] * tile.warps[2] == chosen.threads


def numbered(number: int, kernel: Contraction, samples: int = 1, alignment: int = 16) -> Tiling | None:
    """A tiling by its number, in place of the cheapest one."""
    every = list(candidates(kernel))
    return every[number % len(every)]


PARTS = 24
"""Every so many tilings are tried in the usual run."""


@pytest.mark.parametrize("name", ["wide", "ragged", "deep", "large"])
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, PARTS))])
def test_every_tiling_gives_the_same_tensors(name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, weights, attributes = LAYERS[name]
    program = convolution(shape, weights, name == "wide", **attributes)
    (kernel,) = kernels(program)
    every: list[Tiling] = [one for one in candidates(kernel) if one.shared <= MOST_SHARED]
    ways = {tile.warps[2] for one in every for tile in one.tiles}
    assert name != "deep" or ways == {1, 2, 4, 8}, "several numbers of slices are tried"
    sizes = {(one.tiles[0].pixels, one.tiles[0].together) for one in every}
    assert name != "large" or {(256, 1), (128, 4)} <= sizes, "the largest tiles are tried"
    for number in range(part, len(every), PARTS):
        monkeypatch.setattr(tensor_cores, "tiling", partial(numbered, number))
        require_numpy(program, 3)


# Tensors --------------------------------------------------------------------------------------------------------------


def test_missing_barriers_and_waits_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    program, wait = convolution((1, 64, 8, 8), (64, 64, 1, 1), False), Staging.wait

    def without_barrier(self: Staging, left: int) -> None:
        self.code.call("void", "llvm.nvvm.cp.async.wait.group", V("i32", str(left)))

    monkeypatch.setattr(Staging, "wait", without_barrier)
    with pytest.raises(KernelDefect, match="race"):
        require_numpy(program, 1)
    monkeypatch.setattr(Staging, "wait", lambda self, left: wait(self, left + 1))
    with pytest.raises(KernelDefect, match="pending copy"):
        require_numpy(program, 1)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_a_residual_sum_are_numpy_s(name: str) -> None:
    shape, weights, attributes = LAYERS[name]
    assert Contraction in require_numpy(convolution(shape, weights, True, **attributes), 3)


Maker = Callable[[np.random.Generator, random.Random], Program]
CODES = [(-128, 127), (0, 255), (-5, 250), (0, 15), (-2000, 3000), (-32768, 32767), (0, 65535)]
WEIGHTS = [(-128, 127), (-7, 7), (-255, 255), (0, 255), (-300, 300), (-20000, 20000)]


def requantized(
    builder: ProgramBuilder, rng: np.random.Generator, sums: str, hi: int, rounding: str = "half_up"
) -> str:
    """Codes of -hi - 1 .. hi with parameters for each channel."""
    per = (1, builder.shape(sums)[1], 1, 1)
    m, c = rng.integers(2**29, 2**31 - 1, per), rng.integers(-(2**30), 2**30, per)
    s = np.full(per, max(1, 31 + builder.range(sums).magnitude().bit_length() - 9))
    operands = [sums, *(builder.parameter(array) for array in (m, c, s))]
    (codes,) = builder.add("requantize", operands, {"lo": -hi - 1, "hi": hi, "rounding": rounding})
    return codes


def any_convolution(rng: np.random.Generator, chosen: random.Random) -> Program:
    """A convolution of any shape and format whose sums fit, and what follows it."""
    groups = chosen.choice([1, 1, 1, 2, 4])
    inputs = chosen.choice([1, 3, 4, 8, 12, 16, 24, 32, 40, 64, 96]) if groups == 1 else chosen.choice([3, 8, 16])
    outputs = groups * (chosen.choice([4, 8, 16, 24, 40, 64, 72, 130]) if groups == 1 else chosen.choice([8, 24]))
    KH, KW = chosen.choice([(1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (1, 3), (2, 1)])
    H, W = chosen.randint(2 * KH, 12), chosen.randint(2 * KW, 12)
    (lo, hi), (least, most) = chosen.choice(CODES), chosen.choice(WEIGHTS)
    while max(-lo, hi) * max(-least, most) * inputs * KH * KW >= 2**31 - 2**15:
        least, most = least // 2, max(1, most // 2)
    builder = ProgramBuilder()
    x = builder.input("x", (chosen.choice([1, 1, 2]), inputs * groups, H, W), lo, hi)
    shape = (outputs, inputs, KH, KW)
    ends = chosen.random() < 0.3
    weights = rng.choice(np.array([least, most]), shape) if ends else rng.integers(least, most + 1, shape)
    operands = [x, builder.constant(weights)]
    if chosen.random() < 0.7:
        operands.append(builder.constant(rng.integers(-9999, 9999, (outputs,))))
    dilation = (1, 1) if chosen.random() < 0.7 else (2, 2)
    attributes: dict[str, Any] = {
        "padding": (chosen.randint(0, KH // 2), chosen.randint(0, KW // 2)), "groups": groups, "dilation": dilation,
        "stride": (chosen.randint(1, 2), chosen.randint(1, 2)),
    }  # fmt: skip
    (result,) = builder.add("conv2d", operands, attributes)
    kind = chosen.choice(["codes", "wide", "even", "relu", "sums"])
    if kind == "relu":
        (result,) = builder.add("relu", [result], {})
    elif kind != "sums":
        rounding = "half_even" if kind == "even" else "half_up"
        result = requantized(builder, rng, result, 2**15 - 1 if kind == "wide" else 127, rounding)
    return builder.build([Output("y", result)])


def any_depthwise(rng: np.random.Generator, chosen: random.Random) -> Program:
    """A depthwise convolution of any shape."""
    channels = chosen.choice([2, 3, 4, 8, 12, 16, 24, 32, 48, 100, 144])
    KH, KW = chosen.choice([(3, 3), (3, 3), (5, 5), (1, 3), (7, 7), (9, 9), (2, 2)])
    builder = ProgramBuilder()
    shape = (chosen.choice([1, 2]), channels, chosen.randint(KH, 14), chosen.randint(2 * KW, 2 * KW + 8))
    x = builder.input("x", shape, *chosen.choice(CODES[:3]))
    least, most = chosen.choice([*WEIGHTS[:4], (-256, 200)])
    weights = builder.constant(rng.integers(least, most + 1, (channels, 1, KH, KW)))
    bias = builder.constant(rng.integers(-99, 99, (channels,)))
    attributes: dict[str, Any] = {
        "padding": (KH // 2, KW // 2), "groups": channels, "stride": chosen.choice([(1, 1), (2, 2)]),
        "dilation": (1, chosen.choice([1, 1, 2])),
    }  # fmt: skip
    (result,) = builder.add("conv2d", [x, weights, bias], attributes)
    if chosen.random() < 0.8:
        result = requantized(builder, rng, result, 127)
    return builder.build([Output("y", result)])


def any_product(rng: np.random.Generator, chosen: random.Random) -> Program:
    """A product of two computed tensors."""
    batch, M = chosen.choice([1, 2, 3]), chosen.choice([1, 2, 7, 16, 33, 64])
    K, N = chosen.choice([2, 4, 8, 12, 13, 16, 31, 64, 100]), chosen.choice([4, 8, 13, 16, 32, 40, 64, 100])
    (lo, hi), (least, most) = chosen.choice(CODES[:5]), chosen.choice([(-128, 127), (0, 15), (-500, 500)])
    turned = chosen.random() < 0.3, chosen.random() < 0.5
    builder = ProgramBuilder()
    operands: list[str] = []
    for name, shape, ends in (
        ("a", (batch, K, M) if turned[0] else (batch, M, K), (lo, hi)),
        ("b", (batch, N, K) if turned[1] else (batch, K, N), (least, most)),
    ):
        given = builder.input(name, shape, *ends)
        operands += builder.add("clip", [given], {"a_min": ends[0], "a_max": ends[1] - 1})
    (result,) = builder.add("matmul", operands, {"transpose_a": turned[0], "transpose_b": turned[1]})
    return builder.build([Output("y", result)])


def row_product(turned: bool, depth: int, columns: int, a: tuple[int, int], b: tuple[int, int]) -> Program:
    """The product of one row and a computed matrix, in three batches."""
    builder = ProgramBuilder()
    operands: list[str] = []
    for name, shape, (lo, hi) in (
        ("a", (3, 1, depth), a),
        ("b", (3, columns, depth) if turned else (3, depth, columns), b),
    ):
        given = builder.input(name, shape, lo, hi)
        operands += builder.add("clip", [given], {"a_min": lo, "a_max": hi - 1})
    (result,) = builder.add("matmul", operands, {"transpose_a": False, "transpose_b": turned})
    return builder.build([Output("y", result)])


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("a", "b"), [((-128, 127), (-128, 127)), ((0, 255), (0, 15)), ((-5, 250), (-100, 100)), ((-5, 250), (0, 127))]
)
def test_products_of_one_row_are_numpy_s(turned: bool, a: tuple[int, int], b: tuple[int, int]) -> None:
    assert RowProducts in require_numpy(row_product(turned, 64, 20, a, b), 3)
    require_numpy(row_product(turned, 12, 32, a, b), 3)


def require_batches(program: Program, samples: int) -> None:
    """Compare every sample of a batch with NumPy's."""
    verified = verify(program)
    executor, numpy = CudaExecutor(verified, device=EmulatedDevice()), NumpyExecutor(verified)
    (item,) = program.inputs
    x = np.random.default_rng(1).integers(item.value.lo, item.value.hi + 1, (samples, *item.value.shape), np.int32)
    found = executor.run_batch(samples, {item.value.name: x})
    assert found is not None
    for sample in range(samples):
        (expected,) = numpy.run({item.value.name: x[sample]}, {}).values.values()
        np.testing.assert_array_equal(next(iter(found.values()))[sample], expected)
    executor.close()


def crowded_launch(program: Program) -> tuple[Launch, Launch]:
    """The launch that has another kernel for many samples, and that other one."""
    made = kernels_of(plan(verify(program), CUDA, returned(program, frozenset())))
    (launch,) = [one for one in made.launches if one.crowded is not None]
    assert launch.of(CROWD - 1) is launch
    assert launch.of(CROWD) is launch.crowded
    assert launch.crowded is not None
    return launch, launch.crowded


def test_many_samples_use_larger_tiles() -> None:
    """The kernels for few and for many samples compute the same."""
    program = convolution((1, 64, 20, 20), (256, 64, 3, 3), False, padding=(1, 1))
    few, many = crowded_launch(program)
    assert many.grid[0] * many.grid[1] < few.grid[0] * few.grid[1]
    require_batches(program, CROWD)


def test_many_samples_use_longer_strips_of_a_depthwise_convolution() -> None:
    program = convolution((1, 32, 20, 20), (32, 1, 3, 3), False, padding=(1, 1), groups=32)
    few, many = crowded_launch(program)
    assert many.grid[0] < few.grid[0]
    require_batches(program, CROWD)


MAKERS: dict[str, Maker] = {"convolution": any_convolution, "depthwise": any_depthwise, "product": any_product}
FEW = {"convolution": range(12), "depthwise": range(6), "product": range(8)}


@pytest.mark.parametrize("kind", MAKERS)
def test_some_shapes_and_formats_are_numpy_s(kind: str) -> None:
    found = set()
    for seed in FEW[kind]:
        found |= require_numpy(MAKERS[kind](np.random.default_rng(seed), random.Random(seed)), 3)
    expected = {"convolution": Contraction, "depthwise": Depthwise, "product": Matrices}[kind]
    assert expected in found


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("part", range(8))
def test_shapes_and_formats_are_numpy_s(kind: str, part: int) -> None:
    for seed in range(1000 + 25 * part, 1025 + 25 * part):
        require_numpy(MAKERS[kind](np.random.default_rng(seed), random.Random(seed)))


def test_weights_with_a_zero_point_add_up_windows_by_words() -> None:
    rng = np.random.default_rng(3)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 16, 7, 7), 0, 255)
    weights = builder.constant(rng.integers(-30, 226, (24, 16, 3, 3)))
    (sums,) = builder.add("conv2d", [x, weights], {"padding": (1, 1)})
    program = builder.build([Output("y", requantized(builder, rng, sums, 127))])
    assert {WindowSums, Contraction} <= require_numpy(program)
