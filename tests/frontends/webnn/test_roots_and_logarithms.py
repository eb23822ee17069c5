"""Norms, logarithms of sums and resampled integers: every code that of the exact number, by models of their own."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm import webnn
from cvm.frontends.webnn.builder import snake_case
from cvm.quantization import LinearQuantizer
from tests.lowering.test_functions_of_sums import MODELS, by_steps
from tests.selection import examples

SCALES = st.floats(2.0**-5, 1, width=32)
REDUCTIONS = {"reduceL2": "l2_reduce", "reduceLogSum": "log_sum_reduce", "reduceLogSumExp": "log_sum_exp_reduce"}


def result_grid(scale: float, zero: int) -> LinearQuantizer:
    """Codes of int8 less the zero point: ties go to the even multiple of the scale."""
    return LinearQuantizer((Fraction(scale),), (Fraction(0),), -128 - zero, 127 - zero, rounding="half_even")


def found(build: Any, codes: np.ndarray, source: tuple[float, int], result: tuple[float, int]) -> np.ndarray:
    context = webnn.ML().create_context(strict_scale_rank=False, executor="numpy")
    b = webnn.MLGraphBuilder(context)
    zero = b.constant(np.array(source[1], codes.dtype))
    x = b.dequantize_linear(b.input("x", (codes.dtype.name, codes.shape)), b.constant(np.float32(source[0])), zero)
    q = b.quantize_linear(build(b, x), b.constant(np.float32(result[0])), b.constant(np.int8(result[1])))
    return context.compute(b.build({"q": q}), {"x": codes})["q"]


def numbers(window: np.ndarray, source: tuple[float, int]) -> list[Fraction]:
    return [(int(q) - source[1]) * Fraction(source[0]) for q in window.ravel()]


@st.composite
def reductions(draw: st.DrawFn) -> Any:
    op = draw(st.sampled_from(sorted(REDUCTIONS)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    positive = op == "reduceLogSum"
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    codes = random.integers(*((0, 256) if positive else (-128, 128)), shape).astype(np.uint8 if positive else np.int8)
    source = (draw(SCALES), 0 if positive else draw(st.integers(-128, 127)))
    return op, codes, sorted(axes), draw(st.booleans()), source, (draw(SCALES), draw(st.integers(-128, 127)))


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(reductions())
def test_reductions(case: Any) -> None:
    op, codes, axes, keep, source, result = case
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(codes.shape))
    wanted = np.empty(kept, np.int64)
    for at in product(*map(range, kept)):
        window = codes[tuple(slice(None) if axis in axes else i for axis, i in enumerate(at))]
        wanted[at] = by_steps(result_grid(*result), MODELS[REDUCTIONS[op]](numbers(window, source))) + result[1]
    y = found(lambda b, x: getattr(b, snake_case(op))(x, axes=axes, keep_dimensions=keep), codes, source, result)
    np.testing.assert_array_equal(y, wanted if keep else wanted.squeeze(tuple(axes)))


@pytest.mark.parametrize("op", ["reduce_l2", "reduce_log_sum_exp"])
def test_a_reduction_of_no_axes_is_that_of_each_item(op: str) -> None:
    codes = np.arange(-128, 128, dtype=np.int8)
    y = found(lambda b, x: getattr(b, op)(x, axes=[]), codes, (0.5, 3), (0.5, 0))
    values = codes.astype(int) - 3
    np.testing.assert_array_equal(y, np.clip(abs(values) if op == "reduce_l2" else values, -128, 127))


def test_a_sum_that_may_be_negative_has_no_logarithm() -> None:
    with pytest.raises(webnn.NotSupportedError, match=r"reduceLogSum.*at least 0: clamp"):
        found(lambda b, x: b.reduce_log_sum(x), np.zeros(4, np.int8), (0.5, 0), (0.5, 0))
    codes = np.array([-3, 5, 2, -128], np.int8)
    y = found(lambda b, x: b.reduce_log_sum(b.clamp(x, min_value=0)), codes, (1, 0), (0.125, 0))
    assert y.tolist() == 16  # ln 7 = 1.9459


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window_dimensions": [2, 3], "strides": [2, 1], "padding": [1, 0, 0, 1]},
        {"window_dimensions": [3, 2], "strides": [2, 2], "output_shape_rounding": "ceil", "dilations": [1, 2]},
        {"window_dimensions": [2, 2], "strides": [2, 2], "output_sizes": [3, 3]},
    ],
)
def test_norms_of_windows(layout: str, options: dict[str, Any]) -> None:
    shape = {"n": 1, "c": 2, "h": 5, "w": 5}
    codes = np.random.default_rng(2).integers(-128, 128, (1, 2, 5, 5), dtype=np.int8)
    source, result = (0.25, -9), (float(np.float32(0.7)), -100)
    window, strides = options.get("window_dimensions", [5, 5]), options.get("strides", [1, 1])
    gaps, (top, bottom, left, right) = options.get("dilations", [1, 1]), options.get("padding", [0, 0, 0, 0])
    sizes = []
    for i, pads in enumerate((top + bottom, left + right)):
        free = 5 + pads - (window[i] - 1) * gaps[i] - 1
        up = options.get("output_shape_rounding") == "ceil"
        sizes.append((-(-free // strides[i]) if up else free // strides[i]) + 1)
    sizes = options.get("output_sizes", sizes)
    wanted = np.empty((1, 2, *sizes), np.int64)
    for c, r, s in product(range(2), range(sizes[0]), range(sizes[1])):
        rows = [r * strides[0] + i * gaps[0] - top for i in range(window[0])]
        columns = [s * strides[1] + i * gaps[1] - left for i in range(window[1])]
        cells = [codes[0, c, i, j] for i, j in product(rows, columns) if 0 <= i < 5 and 0 <= j < 5]
        side = MODELS["l2_reduce"](numbers(np.array(cells), source))
        wanted[0, c, r, s] = by_steps(result_grid(*result), side) + result[1]
    order = ["nchw".index(letter) for letter in layout]
    laid = np.ascontiguousarray(codes.transpose(order))
    assert laid.shape == tuple(shape[letter] for letter in layout)
    y = found(lambda b, x: b.l2_pool2d(x, layout=layout, **options), laid, source, result)
    np.testing.assert_array_equal(y, wanted.transpose(order))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["int8", "uint8"]), st.tuples(*[st.integers(1, 6)] * 4), st.permutations([0, 1, 2, 3]),
       st.integers(0, 2**32))  # fmt: skip
def test_linear_resampling_of_integers_is_rounded_once_half_to_even(
    data_type: str, sizes: tuple[int, ...], order: list[int], seed: int
) -> None:
    info = np.iinfo(data_type)
    x = np.random.default_rng(seed).integers(info.min, info.max + 1, (2, 3, sizes[0], sizes[1])).astype(data_type)
    y = np.array([Fraction(int(item)) for item in x.ravel()], dtype=object).reshape(x.shape)
    for axis, size in ((2, sizes[2]), (3, sizes[3])):
        extent, parts = y.shape[axis], []
        for o in range(size):
            at = min(max(Fraction((2 * o + 1) * extent, 2 * size) - Fraction(1, 2), Fraction(0)), Fraction(extent - 1))
            low = at.numerator // at.denominator
            high = min(low + 1, extent - 1)
            parts.append(y.take([low], axis) * (1 - at + low) + y.take([high], axis) * (at - low))
        y = np.concatenate(parts, axis)
    wanted = np.array([round(item) for item in y.ravel()], np.int64).reshape(y.shape)
    context = webnn.ML().create_context(executor="numpy")
    b = webnn.MLGraphBuilder(context)
    laid = np.ascontiguousarray(x.transpose(order))
    q = b.resample2d(
        b.input("x", (data_type, laid.shape)), mode="linear", sizes=list(sizes[2:]),
        axes=[order.index(2), order.index(3)],
    )  # fmt: skip
    found = context.compute(b.build({"q": q}), {"x": laid})["q"]
    np.testing.assert_array_equal(found, wanted.transpose(order))
