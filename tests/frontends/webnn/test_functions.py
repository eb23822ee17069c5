"""Functions of one number between dequantizeLinear and quantizeLinear: all codes equal, by interval arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm import webnn
from cvm.frontends.webnn.builder import snake_case
from tests.frontends.webnn import model

SCALES = st.floats(2.0**-9, 0.25, width=32)
POSITIVE = ("log", "reciprocal", "sqrt")


def exact(values: Any) -> np.ndarray:
    items = np.asarray(values)
    return np.array([Fraction(item.item()) for item in items.ravel()], dtype=object).reshape(items.shape)


def applied(op: str, codes: np.ndarray, grid: tuple[Any, Any], result: tuple[Any, Any, str], **options: Any) -> Any:
    """The operator on codes of a grid, quantised to another; scale and zero point may be arrays."""
    context = webnn.ML().create_context(strict_scale_rank=False, executor="numpy")
    b = webnn.MLGraphBuilder(context)
    span = (int(codes.min()), int(codes.max()))
    x = b.input("x", (codes.dtype.name, codes.shape), value_range=span)
    scale, zero = np.asarray(grid[0], np.float32), np.asarray(grid[1], codes.dtype)
    real = b.dequantize_linear(x, b.constant(scale), b.constant(zero))
    y = getattr(b, snake_case(op))(real, **options)
    q = b.quantize_linear(y, b.constant(np.float32(result[0])), b.constant(np.array(result[1], result[2])))
    return context.compute(b.build({"q": q}), {"x": codes})["q"]


GRIDS = st.tuples(
    st.sampled_from(sorted(model.FUNCTIONS)), SCALES, st.integers(-128, 127), SCALES, st.integers(0, 255),
    st.sampled_from(["int8", "uint8"]), st.integers(0, 4),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(GRIDS)
def test_every_code_of_any_function(case: tuple[str, float, int, float, int, str, int]) -> None:
    check_every_code(*case)


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(GRIDS)
def test_every_code_of_any_function_on_many_grids(case: tuple[str, float, int, float, int, str, int]) -> None:
    check_every_code(*case)


def check_every_code(
    op: str, scale: float, zero: int, step: float, result_zero: int, data_type: str, offset: int
) -> None:
    codes = np.arange(-128 + offset, 128, 5).astype(np.int8)
    if op in POSITIVE:
        zero = min(zero, 120)
        codes = codes[codes > zero]
    result_zero -= 128 if data_type == "int8" else 0
    numbers = (exact(codes) - zero) * Fraction(scale)
    expected = model.codes(model.FUNCTIONS[op], numbers, step, result_zero, data_type)
    found = applied(op, codes, (scale, zero), (step, result_zero, data_type))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("most", [16, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("op", sorted(model.FUNCTIONS))
@pytest.mark.parametrize("zero", [0, 1])
def test_exact_values_and_ties(op: str, zero: int, most: int) -> None:
    """Steps of 2 and of 1/2: cos 0 = 1, sigmoid 0 = 1/2, sqrt 9 = 3, 1/2, .. lie half-way between two codes."""
    codes = np.arange(1 if op in POSITIVE else -9, most, dtype=np.int8)
    for step in (2.0, 1.0, 0.5, 0.25):
        numbers = exact(codes)
        expected = model.codes(model.FUNCTIONS[op], numbers, step, zero, "int8")
        np.testing.assert_array_equal(applied(op, codes, (1, 0), (step, zero, "int8")), expected)


def test_a_table_per_channel() -> None:
    codes = np.arange(-128, 128, dtype=np.int8).reshape(2, 128)
    scale, zero = np.array([[0.03125], [0.011]], np.float32), np.array([[-5], [100]], np.int8)
    for op in ("gelu", "erf", "tanh"):
        numbers = (exact(codes) - zero.astype(int)) * exact(scale)
        expected = model.codes(model.FUNCTIONS[op], numbers, 0.02, 3, "int8")
        np.testing.assert_array_equal(applied(op, codes, (scale, zero), (0.02, 3, "int8")), expected)


@pytest.mark.parametrize(("op", "codes"), [("log", [-1, 3]), ("sqrt", [-1, 3]), ("reciprocal", [0, 3])])
def test_a_number_without_a_value_is_refused(op: str, codes: list[int]) -> None:
    with pytest.raises(webnn.NotSupportedError, match=rf"{op}.*at the codes"):
        applied(op, np.array(codes, np.int8), (0.5, 0), (0.1, 0, "int8"))


def test_the_logarithm_of_zero_is_below_every_code() -> None:
    assert applied("log", np.array([0, 1], np.uint8), (1, 0), (0.5, 7, "uint8")).tolist() == [0, 7]
