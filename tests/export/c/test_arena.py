"""What the C of a program does not store, or stores in place of another tensor, and that its results stay the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cvm.cli.inspect import price
from cvm.export.c import exported
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.export.c.test_c import agree
from tools.c_driver import SANITIZED, compilers

pytestmark = pytest.mark.skipif(not compilers(), reason="no C compiler is installed (gcc or clang)")

CONV = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}


def padded(random: Random) -> VerifiedProgram:
    """A convolution of any geometry over a tensor with a constant border, and a chain of ops after it."""
    builder = ProgramBuilder()
    height, width, kernel = random.randint(2, 7), random.randint(2, 7), random.randint(1, 3)
    stride, dilation, groups = (random.randint(1, 2) for _ in range(3))
    channels = 2 * random.randint(1, 2)
    fill = random.choice([-128, 0, 5])
    x = builder.input("x", (1, channels, height, width), -128, 127)
    if random.random() < 0.5:
        (x,) = builder.add("broadcast_sub", [x, builder.constant(np.full((1, 1, 1, 1), fill))])
        fill = 0
    extents = [height, width]
    for axis in random.sample([2, 3, 2], k=3):
        before, after = random.randint(0, 2), random.randint(0, 2)
        shape = [1, channels, *extents]
        parts = []
        for count in (before, after):
            shape[axis] = count
            parts.append([builder.constant(np.full(shape, fill))] if count else [])
        if before + after:
            (x,) = builder.add("concatenate", [*parts[0], x, *parts[1]], {"axis": axis})
            extents[axis - 2] += before + after
    attributes = {
        "padding": (random.randint(0, 1), random.randint(0, 1)), "stride": (stride, stride),
        "dilation": (dilation, dilation), "groups": groups,
    }  # fmt: skip
    numbers = np.random.default_rng(random.randint(0, 10**6))
    weights = numbers.integers(-127, 128, (4, channels // groups, kernel, kernel))
    operands = [x, builder.constant(weights)]
    if random.random() < 0.5:
        operands.append(builder.constant(numbers.integers(-1000, 1000, 4)))
    (y,) = builder.add("conv2d", operands, attributes)
    (y,) = builder.add("relu", [y])
    if random.random() < 0.5:
        (y,) = builder.add("transpose", [y], {"axes": random.sample(range(4), k=4)})
        (y,) = builder.add("negative", [y])
    return verify(builder.build([Output("y", y)]))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_convolutions_over_any_constant_border_agree(tmp_path, seed):
    random = Random(seed)
    for number in range(5):
        verified = padded(random)
        shape = verified.program.inputs[0].value.shape
        feed = {"x": np.random.default_rng(number).integers(-128, 128, shape, dtype=np.int32)}
        agree(verified, [feed], tmp_path / str(number), options=("-O1", *SANITIZED))


@pytest.mark.parametrize("fill", [-128, 0, 127])
def test_a_tensor_with_a_constant_border_is_not_stored(tmp_path, fill):
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2, 8, 8), -128, 127)
    (x,) = builder.add("concatenate", [x, builder.constant(np.full((1, 2, 1, 8), fill))], {"axis": 2})
    (x,) = builder.add("concatenate", [builder.constant(np.full((1, 2, 9, 1), fill)), x], {"axis": 3})
    (y,) = builder.add("conv2d", [x, builder.constant(np.arange(36).reshape(2, 2, 3, 3))], CONV)
    (y,) = builder.add("cvm_right_shift", [y], {"precision": 8, "shift_bit": 9})
    verified = verify(builder.build([Output("y", y)]))
    assert exported(verified).arena_bytes == 2 * 7 * 7 + 2
    feeds = [{"x": np.random.default_rng(0).integers(-128, 128, (1, 2, 8, 8), dtype=np.int32)}]
    agree(verified, feeds, tmp_path, options=("-O1", *SANITIZED))


def test_a_border_of_two_numbers_is_stored():
    builder = ProgramBuilder()
    x = builder.input("x", (1, 1, 8, 8), -128, 127)
    (x,) = builder.add("concatenate", [x, builder.constant(np.arange(8).reshape(1, 1, 1, 8))], {"axis": 2})
    (y,) = builder.add("conv2d", [x, builder.constant(np.ones((1, 1, 3, 3), np.int32))], CONV)
    (y,) = builder.add("cvm_right_shift", [y], {"precision": 8, "shift_bit": 9})
    assert exported(verify(builder.build([Output("y", y)]))).arena_bytes == 72 + 44


def test_a_fold_is_stored_in_the_order_of_the_transpose_that_reads_it(tmp_path):
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 5, 4), -128, 127)
    (y,) = builder.add("conv2d", [x, builder.constant(np.arange(-9, 9).reshape(6, 3, 1, 1))], CONV)
    (y,) = builder.add("cvm_right_shift", [y], {"precision": 8, "shift_bit": 3})
    (y,) = builder.add("transpose", [y], {"axes": (0, 2, 3, 1)})
    verified = verify(builder.build([Output("y", y)]))
    assert exported(verified).arena_bytes == 120
    feeds = [{"x": np.random.default_rng(0).integers(-128, 128, (1, 3, 5, 4), dtype=np.int32)}]
    agree(verified, feeds, tmp_path, options=("-O1", *SANITIZED))


def test_a_residual_sum_takes_the_place_of_its_operand(tmp_path):
    builder = ProgramBuilder()
    given = builder.input("x", (1, 2, 6, 6), -128, 127)
    weights = builder.constant(np.arange(4).reshape(2, 2, 1, 1))
    (y,) = builder.add("conv2d", [given, weights], CONV)
    (y,) = builder.add("cvm_right_shift", [y], {"precision": 8, "shift_bit": 2})
    (z,) = builder.add("max_pool2d", [y], {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)})
    (z,) = builder.add("elemwise_add", [z, y])
    (z,) = builder.add("cvm_right_shift", [z], {"precision": 8, "shift_bit": 1})
    pooled = verify(builder.build([Output("z", z)]))
    assert exported(pooled).arena_bytes == 144  # the pooling reads the neighbours of what would be overwritten
    builder = ProgramBuilder()
    x = builder.input("x", (4, 9), -128, 127)
    table = builder.constant(np.arange(8))
    (one,) = builder.add("cvm_lut", [table, x])
    (most,) = builder.add("max", [one], {"axes": (0,), "keepdims": True})
    (two,) = builder.add("broadcast_sub", [one, most])
    (total,) = builder.add("sum", [two], {"axes": (0,), "keepdims": True})
    (three,) = builder.add("broadcast_add", [two, total])
    verified = verify(builder.build([Output("y", three)]))
    assert exported(verified).arena_bytes == 36 + 12
    feeds = [{"x": np.random.default_rng(0).integers(-128, 128, (4, 9), dtype=np.int32)}]
    agree(verified, feeds, tmp_path / "lut", options=("-O1", *SANITIZED))
    feeds = [{"x": np.random.default_rng(0).integers(-128, 128, (1, 2, 6, 6), dtype=np.int32)}]
    agree(pooled, feeds, tmp_path / "pooled", options=("-O1", *SANITIZED))


def test_a_table_that_is_also_the_index_is_not_overwritten(tmp_path):
    builder = ProgramBuilder()
    x = builder.input("x", (9,), 0, 8)
    (y,) = builder.add("relu", [x])
    (z,) = builder.add("take", [y, y])
    verified = verify(builder.build([Output("z", z)]))
    assert exported(verified).arena_bytes == 9 + 3 + 9 + 3
    agree(verified, [{"x": np.array([8, 7, 1, 0, 2, 3, 5, 4, 6], np.int32)}], tmp_path, options=("-O1", *SANITIZED))


def test_the_costs_of_a_program_state_its_arena():
    verified = padded(Random(1))
    assert price(verified)["c_arena_bytes"] == exported(verified).arena_bytes


def test_a_table_of_one_element_is_taken_everywhere(tmp_path):
    builder = ProgramBuilder()
    x = builder.input("x", (3,), -5, 5)
    table = builder.constant(np.full((1, 1), 7))
    (y,) = builder.add("take", [table, x], {"axis": 0})
    agree(verify(builder.build([Output("y", y)])), [{"x": np.array([-5, 0, 5], np.int32)}], tmp_path)
