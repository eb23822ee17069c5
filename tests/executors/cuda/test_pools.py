"""Maxima of windows: words of four channels give NumPy's tensors, and other descriptions keep the plain form."""

from __future__ import annotations

import random

import numpy as np
import pytest

from cvm.executors.base import returned
from cvm.executors.cuda.emit.pools import emit_words
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.kernels.windows import Pool
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, Program, ProgramBuilder, verify
from tools.cuda_emulator import EmulatedDevice
from tools.feeds import feeds


def pooled(
    shape: tuple[int, int, int, int], lo: int, hi: int, size: tuple[int, int], strides: tuple[int, int],
    padding: tuple[int, int],
) -> Program:  # fmt: skip
    """The maxima of codes that a convolution made, so that their channels lie side by side."""
    builder = ProgramBuilder()
    x = builder.input("x", shape, -128, 127)
    weights = builder.constant(np.random.default_rng(3).integers(-99, 99, (shape[1], shape[1], 1, 1)))
    (sums,) = builder.add("conv2d", [x, weights], {})
    rounded = builder.parameter(np.full((1, 1, 1, 1), 2**30))
    zero, shift = builder.parameter(np.zeros((1, 1, 1, 1), int)), builder.parameter(np.full((1, 1, 1, 1), 38))
    (codes,) = builder.add("requantize", [sums, rounded, zero, shift], {"lo": lo, "hi": hi, "rounding": "half_up"})
    (y,) = builder.add("max_pool2d", [codes], {"pool_size": size, "strides": strides, "padding": padding})
    return builder.build([Output("y", y)])


def fast(program: Program) -> bool:
    """Whether the maxima of a program are computed in words."""
    kernels = plan(verify(program), CUDA, returned(program, frozenset())).functions.values()
    (pool,) = (kernel for kernel in kernels if isinstance(kernel, Pool))
    return emit_words(Module(), "f", pool, (256, 256)) is not None


def require_numpy(program: Program) -> None:
    verified = verify(program)
    executor, numpy = CudaExecutor(verified, device=EmulatedDevice(), apart=True), NumpyExecutor(verified)
    for feed in feeds(program, 2):
        expected, found = numpy.run(feed, {}).values, executor.run(feed, {}).values
        for name, tensor in found.items():
            np.testing.assert_array_equal(tensor, expected[name], strict=True)
    assert executor.refusals == []
    executor.close()


@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (0, 255), (-100, 20)])
@pytest.mark.parametrize(
    ("size", "strides", "padding"),
    [((3, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((3, 2), (1, 3), (2, 1)), ((1, 5), (1, 1), (0, 4))],
)
def test_maxima_of_bytes_in_words_are_numpy_s(
    lo: int, hi: int, size: tuple[int, int], strides: tuple[int, int], padding: tuple[int, int]
) -> None:
    program = pooled((2, 16, 9, 7), lo, hi, size, strides, padding)
    assert fast(program)
    require_numpy(program)


def test_windows_of_any_shape_are_numpy_s() -> None:
    chosen, words = random.Random(5), 0
    for _ in range(12):
        size = chosen.randint(1, 4), chosen.randint(1, 4)
        padding = chosen.randint(0, size[0] - 1), chosen.randint(0, size[1] - 1)
        shape = (chosen.choice([1, 2]), chosen.choice([4, 6, 8, 12]), chosen.randint(4, 9), chosen.randint(4, 9))
        strides = chosen.randint(1, 3), chosen.randint(1, 3)
        program = pooled(shape, *chosen.choice([(-128, 127), (0, 255), (-2000, 2000)]), size, strides, padding)
        words += fast(program)
        require_numpy(program)
    assert 0 < words < 12


def test_large_windows_and_wide_codes_keep_the_plain_form() -> None:
    assert not fast(pooled((1, 8, 9, 9), -128, 127, (6, 6), (1, 1), (0, 0)))
    assert not fast(pooled((1, 8, 9, 9), -2000, 2000, (3, 3), (1, 1), (0, 0)))
    assert not fast(pooled((1, 6, 9, 9), -128, 127, (3, 3), (1, 1), (0, 0)))
