"""Element-wise operations and activations: sections 4.2, 4.9.1 and 4.9.5."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.graphs import apply, one, reals

SIGMOID_2 = 1 / (1 + math.exp(-2))


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("copy", [-1, 2], [-1, 2]),
        ("neg", [-1, 2], [1, -2]),
        ("rcp", [-4, 0.5], [-0.25, 2]),
        ("exp", [0, 1], [1, math.e]),
        ("log", [1, math.e], [0, 1]),
        ("abs", [-3, 0, 3], [3, 0, 3]),
        ("sign", [-3, 0, 3], [-1, 0, 1]),
        ("floor", [-1.5, 1.5, 2], [-2, 1, 2]),
        ("ceil", [-1.5, 1.5, 2], [-1, 2, 2]),
        ("round", [-2.5, -1.5, -0.5, 0.5, 1.5, 2.4], [-2, -1, 0, 1, 2, 2]),
        ("sqr", [-3, 0.5], [9, 0.25]),
        ("sqrt", [9, 0.25], [3, 0.5]),
        ("rsqr", [-2, 0.5], [0.25, 4]),
        ("rsqrt", [4, 0.25], [0.5, 2]),
        ("log2", [8, 0.25], [3, -2]),
        ("sigmoid", [0, 2, -2, -1000], [0.5, SIGMOID_2, 1 - SIGMOID_2, 0]),
        ("relu", [-3, 0, 3], [0, 0, 3]),
        ("elu", [-1, 0, 3], [math.exp(-1) - 1, 0, 3]),
        ("tanh", [0, 1, 1000], [0, (math.e - 1 / math.e) / (math.e + 1 / math.e), 1]),
        ("softplus", [0, 1, 1000, -1000], [math.log(2), math.log(math.e + 1), 1000, 0]),
    ],
)
def test_unary_operations_by_hand(name: str, x: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(one(name, x=reals(*x)), expected, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", [5, 8, -3]),
        ("sub", [-1, 0, 1]),
        ("mul", [6, 16, 2]),
        ("div", [2 / 3, 1, 0.5]),
        ("pow", [8, 256, 1]),
        ("min", [2, 4, -2]),
        ("max", [3, 4, -1]),
        ("lt", [True, False, False]),
        ("gt", [False, False, True]),
        ("le", [True, True, False]),
        ("ge", [False, True, True]),
        ("eq", [False, True, False]),
        ("ne", [True, False, True]),
    ],
)
def test_binary_operations_by_hand(name: str, expected: list[Any]) -> None:
    found = one(name, x=reals(2, 4, -1), y=reals(3, 4, -2))
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert found.dtype == (np.bool_ if isinstance(expected[0], bool) else np.float64)


def test_logical_operations() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert one("and", x=x, y=y).tolist() == [True, False, False, False]
    assert one("or", x=x, y=y).tolist() == [True, True, True, False]
    assert one("not", x=x).tolist() == [False, False, True, True]


def test_broadcasting_is_aligned_at_dimension_0() -> None:
    x = reals([1, 2, 3], [4, 5, 6])
    assert one("add", x=x, y=reals(10, 20)).tolist() == [[11, 12, 13], [24, 25, 26]]
    assert one("sub", x=reals(10, 20), y=x).tolist() == [[9, 8, 7], [16, 15, 14]]
    assert one("mul", x=x, y=2.0).tolist() == [[2, 4, 6], [8, 10, 12]]
    assert one("div", x=1.0, y=reals(2, 4)).tolist() == [0.5, 0.25]


def test_select_broadcasts_all_three() -> None:
    condition = np.array([[True], [False]])
    found = one("select", condition=condition, true_value=reals([1, 2]), false_value=-1.0)
    assert found.tolist() == [[1, 2], [-1, -1]]
    kept = one("select", condition=condition, true_value=np.array([[3]]), false_value=np.array([[4]]))
    assert kept.tolist() == [[3], [4]]
    assert kept.dtype == np.int64


def test_clamp_is_max_of_min() -> None:
    assert one("clamp", x=reals(-2, 0, 2), a=-1.0, b=1.0).tolist() == [-1, 0, 1]
    assert one("clamp", x=reals(-2, 0, 2), a=5.0, b=1.0).tolist() == [5, 5, 5]  # a above b: max(min(x, b), a)


def test_parametric_activations() -> None:
    assert one("leaky_relu", x=reals(-2, 3), alpha=0.5).tolist() == [-1, 3]
    x = reals([-2, 3], [-4, 5])[None]
    assert one("prelu", x=x, alpha=reals([0.5, 0.25])).tolist() == [[[-1, 3], [-1, 5]]]


def test_softmax_over_several_axes_sums_to_one() -> None:
    x = reals([[1, 2], [3, 4]], [[1000, 0], [0, 0]])
    e = [math.exp(item) for item in (1, 2, 3, 4)]
    found = one("softmax", x=x, axes=[1, 2])
    np.testing.assert_allclose(found[0].ravel(), [item / sum(e) for item in e], rtol=1e-14)
    assert found[1].tolist() == [[1, 0], [0, 0]]
    np.testing.assert_allclose(one("softmax", x=x).sum(axis=1), np.ones((2, 2)), rtol=1e-14)


@given(st.floats(-(2.0**51), 2.0**51))
def test_round_is_floor_of_x_plus_a_half_exactly(x: float) -> None:
    assert one("round", x=reals(x)).tolist() == [math.floor(Fraction(x) + Fraction(1, 2))]


@pytest.mark.parametrize("x", [0.49999999999999994, -0.49999999999999994, 2.0**52 + 1, 0.5, -0.5])
def test_round_where_floats_would_round_the_sum(x: float) -> None:
    assert one("round", x=reals(x)).tolist() == [math.floor(Fraction(x) + Fraction(1, 2))]


def test_linear_quantize_by_hand() -> None:
    # 3 steps of 0.5 from -0.5 to 1; ties go up.
    found = one("linear_quantize", x=reals(-9, -0.26, -0.25, 0.2, 0.25, 0.8, 9), min=-0.5, max=1.0, bits=2)
    assert found.tolist() == [-0.5, -0.5, 0, 0, 0.5, 1, 1]


def test_linear_quantize_takes_a_range_per_channel() -> None:
    x = reals([1, 3], [1, 3])[None]
    found = one("linear_quantize", x=x, min=0.0, max=reals([2, 4]), bits=1)
    assert found.tolist() == [[[2, 2], [0, 4]]]  # a half of the range goes up, 3/4 of it too, 1/4 goes down


def test_linear_quantize_of_an_empty_range_is_its_minimum() -> None:
    assert one("linear_quantize", x=reals(-1, 0, 5), min=0.0, max=reals(0, 0, 0), bits=8).tolist() == [0, 0, 0]


def test_logarithmic_quantize_by_hand() -> None:
    # max = 6: m = 3; bits = 2: r = 3, so exponents 0 to 3.
    x = reals(-100, -8, -1.5, -0.1, 0, 0.1, 1.4, 1.5, 2.9, 100)
    found = one("logarithmic_quantize", x=x, max=6.0, bits=2)
    assert found.tolist() == [-8, -8, -2, -1, 0, 1, 1, 2, 4, 8]


def test_logarithmic_quantize_of_nothing_but_zeros_is_zero() -> None:
    assert one("logarithmic_quantize", x=reals(0, 0), max=reals(0, 0), bits=4).tolist() == [0, 0]


def test_operations_of_the_dialect() -> None:
    x = reals(-1, 0, 2)
    s = 1 / (1 + np.exp(-x))
    np.testing.assert_allclose(apply("silu", x=x), x * s)
    np.testing.assert_allclose(apply("gelu", x=x), x / (1 + np.exp(-1.702 * x)))
    np.testing.assert_allclose(apply("selu", x=x)[0], 1.05070102 * 1.67326319 * (math.exp(-1) - 1))
    np.testing.assert_allclose(apply("selu", x=x, alpha=2.0, **{"lambda": 3.0})[[0, 2]], [6 * math.expm1(-1), 6])
    np.testing.assert_allclose(apply("elu", x=x, alpha=2.0), [2 * math.expm1(-1), 0, 2])
    np.testing.assert_allclose(apply("softabs", x=x, epsilon=0.25), np.sqrt(x * x + 0.25))
    np.testing.assert_allclose(apply("sin", x=x) ** 2 + apply("cos", x=x) ** 2, 1)
    np.testing.assert_allclose(apply("atanh", x=apply("tanh", x=x)), x)
    assert apply("pad", input=x, padding=[(1, 2)], value=7.0).tolist() == [7, -1, 0, 2, 7, 7]
    assert apply("pad", input=x, padding=[(1, 2)], border="reflect").tolist() == [0, -1, 0, 2, 0, -1]
    assert apply("tile", input=x, repeats=(2,)).tolist() == [-1, 0, 2, -1, 0, 2]
    assert apply("gather", input=x, indices=np.array([[2, 0]]), axis=0).tolist() == [[2, -1]]
    assert apply("slice", input=x, axes=(0,), begin=(0,), end=(0,), stride=(2,)).tolist() == [-1, 2]


def test_quantisers_of_the_dialect() -> None:
    def values(name: str, **arguments: Any) -> list[float]:
        return list(apply(name, **arguments))

    x = reals(-9, -0.26, 0.2, 0.25, 9)
    signed = {"signed": True, "symmetric": False}
    zero_point = {"zero_point": np.array(-1), "scale": reals(0.5)[0], "bits": 2, **signed}
    assert values("zero_point_linear_quantize", x=x, **zero_point) == [-0.5, -0.5, 0, 0.5, 1]
    limits = {"min": reals(-0.5)[0], "max": reals(1)[0], "bits": 2}
    assert values("min_max_linear_quantize", x=x, **limits, **signed) == [-0.5, -0.5, 0, 0.5, 1]
    assert values("min_max_linear_quantize", x=x, **limits, signed=True, symmetric=True) == [-0.5, -0.5, 0.25, 0.25, 1]
