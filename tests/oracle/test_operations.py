"""Every operation of chapter 4 and of the Khronos dialect, computed by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from . import real
from .harness import fractions, run, value
from .operations import OPERATIONS
from .real import Number
from .tensors import Tensor

HALF = Fraction(1, 2)
ROOT2, ROOT3 = real.power(2, HALF), real.power(3, HALF)
M = [[1, 2], [3, 4]]
W = [[1, 10], [100, 1000]]
ROW = [[[1, 2, 4, 8]]]
IMAGE = [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]

CASES: list[tuple[str, object, object, list[Number | int | float]]] = [
    # 4.2.1, 4.2.4: call, x, w, row-major items of the result
    ("copy(x)", [1.5, -2], 0, [1.5, -2]),
    ("neg(x)", [1.5, -2], 0, [-1.5, 2]),
    ("rcp(x)", [4, -0.5], 0, [0.25, -2]),
    ("exp(x)", [0, 1], 0, [1, real.exp(1)]),
    ("log(x)", [1, 2], 0, [0, real.log(2)]),
    ("sin(x)", [0, 1], 0, [0, real.sin(1)]),
    ("cos(x)", [0, 1], 0, [1, real.cos(1)]),
    ("abs(x)", [1.5, 0, -2], 0, [1.5, 0, 2]),
    ("sign(x)", [1.5, 0, -2], 0, [1, 0, -1]),
    ("floor(x)", [1.5, -1.5, 2], 0, [1, -2, 2]),
    ("ceil(x)", [1.5, -1.5, 2], 0, [2, -1, 2]),
    ("round(x)", [1.5, -1.5, -2.5, 0.49], 0, [2, -1, -2, 0]),
    ("not(x)", [0, 1], 0, [1, 0]),
    ("sqr(x)", [1.5, -2], 0, [2.25, 4]),
    ("sqrt(x)", [6.25, 2, 0], 0, [2.5, ROOT2, 0]),
    ("rsqr(x)", [0.5, -2], 0, [4, 0.25]),
    ("rsqrt(x)", [6.25, 2], 0, [Fraction(2, 5), ROOT2 / 2]),
    ("log2(x)", [8, 0.25, 3], 0, [3, -2, real.log(3) / real.log(2)]),
    # 4.2.2, 4.2.3
    ("add(x, w)", M, [10, 100], [11, 12, 103, 104]),
    ("sub(0.1, x)", [1, 2], 0, [Fraction(-9, 10), Fraction(-19, 10)]),
    ("mul(x, w)", [1, 2], [[0.5, 0.25]], [0.5, 0.25, 1, 0.5]),
    ("div(x, w)", M, [[2, 3]], [0.5, Fraction(2, 3), 1.5, Fraction(4, 3)]),
    ("pow(x, w)", [4, 4, -2, 2, 0], [0.5, -1.5, 3, 0.5, 0], [2, 0.125, -8, ROOT2, 1]),
    ("lt(x, 1.0)", [0, 1, 2], 0, [1, 0, 0]),
    ("gt(x, 1.0)", [0, 1, 2], 0, [0, 0, 1]),
    ("le(x, 1.0)", [0, 1, 2], 0, [1, 1, 0]),
    ("ge(x, 1.0)", [0, 1, 2], 0, [0, 1, 1]),
    ("eq(x, 1.0)", [0, 1, 2], 0, [0, 1, 0]),
    ("ne(x, 1.0)", [0, 1, 2], 0, [1, 0, 1]),
    ("and(x, w)", [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]),
    ("or(x, w)", [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 1]),
    ("select(x, w, -1.0)", [0, 1], [[5, 6], [7, 8]], [-1, -1, 7, 8]),
    ("min(x, w)", [1, 5], [3, 3], [1, 3]),
    ("max(x, w)", [1, 5], [3, 3], [3, 5]),
    ("clamp(x, -1.0, 1.0)", [-3, 0.5, 3], 0, [-1, 0.5, 1]),
    ("clamp(x, 2.0, 1.0)", [-3, 0.5, 3], 0, [2, 2, 2]),
    ("constant(shape = [2, 2], value = [0.1])", 0, 0, [Fraction(1, 10)] * 4),
    ("constant(shape = [2, 2], value = [1.0, 2.0, 3.0, 4.0])", 0, 0, [1, 2, 3, 4]),
    # 4.3.1
    ("conv(x, w, 0.25, padding = [(1, 0)])", ROW, [[[0.5, 1]]], [1.25, 2.75, 5.25, 10.25]),
    ("conv(x, w, border = 'replicate', padding = [(1, 1)])", ROW, [[[1, 10, 100]]], [211, 421, 842, 884]),
    ("conv(x, w, border = 'reflect', padding = [(1, 1)])", ROW, [[[1, 10, 100]]], [212, 421, 842, 484]),
    ("conv(x, w, border = 'reflect-even', padding = [(2, 0)])", ROW, [[[1, 10, 100]]], [112, 211, 421, 842]),
    ("conv(x, w, stride = [2], padding = [(0, 0)])", ROW, [[[1, 10]]], [21, 84]),
    ("conv(x, w, stride = [2])", [[[1, 2, 4]]], [[[1, 10, 100]]], [210, 42]),
    ("conv(x, w, dilation = [2], padding = [(0, 0)])", ROW, [[[1, 10]]], [41, 82]),
    ("conv(x, w, groups = 0)", [[[1, 2], [3, 4]]], [[[10]], [[100]]], [10, 20, 300, 400]),
    ("deconv(x, w, padding = [(0, 0)])", [[[1, 2]]], [[[1, 10, 100]]], [1, 12, 120, 200]),
    ("deconv(x, w, 0.5, padding = [(1, 1)], stride = [2])", [[[1, 2]]], [[[1, 10, 100]]], [10.5, 102.5, 20.5]),
    ("deconv(x, w, stride = [2])", [[[1, 2]]], [[[1, 10]]], [1, 10, 2, 20]),
    ("deconv(x, w, padding = [(0, 0)])", [[[1], [2]]], [[[1], [10]], [[100], [1000]]], [201, 2010]),
    # 4.3.2
    ("box(x, size = [1, 1, 2], padding = [(0, 0), (0, 0), (1, 0)])", ROW, 0, [1, 3, 6, 12]),
    ("box(x, size = [2, 2], padding = [(0, 0), (0, 0)])", M, 0, [10]),
    ("box(x, size = [3], border = 'reflect', normalize = true)", [3, 6, 12], 0, [5, 7, 8]),
    ("box(x, size = [3], border = 'ignore', normalize = true)", [3, 6, 12], 0, [4.5, 7, 9]),
    ("debox(x, size = [2], stride = [2], padding = [(0, 0)])", [1, 2], 0, [1, 1, 2, 2]),
    ("debox(x, size = [3], stride = [2], padding = [(0, 0)])", [1, 2], 0, [1, 1, 3, 2, 2]),
    ("debox(x, size = [2], padding = [(0, 0)], normalize = true)", [1, 2], 0, [0.5, 1.5, 1]),
    # 4.3.3
    (
        "argmax_pool(x, size = [2, 2], stride = [2, 2], padding = [(0, 0), (0, 0)])",
        [[1, 2, 5, 5], [3, 0, 5, 4]],
        0,
        [2, 0],
    ),
    ("argmax_pool(x, size = [2], padding = [(1, 0)])", [-1, 3], 0, [0, 1]),
    ("argmax_pool(x, size = [2], border = 'ignore', padding = [(1, 0)])", [-1, 3], 0, [1, 1]),
    ("sample(x, w, size = [2], stride = [2], padding = [(0, 0)])", [1, 2, 3, 4], [1, 0], [2, 3]),
    ("sample(x, w, size = [3], border = 'replicate', padding = [(1, 1)])", [5, 7], [0, 2], [5, 7]),
    ("desample(x, w, size = [2], stride = [2], padding = [(0, 0)])", [5, 7], [1, 0], [0, 5, 7, 0]),
    ("desample(x, w, size = [2], padding = [(0, 0)])", [5, 7], [1, 0], [0, 12, 0]),
    ("max_pool(x, size = [2], padding = [(1, 0)])", [-3, -6, -1], 0, [0, -3, -1]),
    ("max_pool(x, size = [2], border = 'ignore', padding = [(1, 0)])", [-3, -6, -1], 0, [-3, -3, -1]),
    ("avg_pool(x, size = [3], padding = [(2, 1)], stride = [2])", [3, 6, 27, 9], 0, [1, 12, 12]),
    ("avg_pool(x, size = [3], border = 'ignore', padding = [(2, 1)], stride = [2])", [3, 6, 27, 9], 0, [3, 12, 18]),
    ("rms_pool(x, size = [2], padding = [(0, 0)])", [1, 7, 1, 1, 2], 0, [5, 5, 1, real.power(Fraction(5, 2), HALF)]),
    # 4.3.4
    ("nearest_downsample(x, factor = [2])", ROW, 0, [1, 4]),
    ("area_downsample(x, factor = [2])", ROW, 0, [1.5, 6]),
    ("nearest_upsample(x, factor = [2, 1])", [[[[1, 2]]]], 0, [1, 2, 1, 2]),
    ("multilinear_upsample(x, factor = [2])", [[[0, 4, 8]]], 0, [0, 1, 3, 5, 7, 8]),
    ("multilinear_upsample(x, factor = [2], border = 'constant')", [[[4, 4]]], 0, [3, 4, 4, 3]),
    ("multilinear_upsample(x, factor = [2], method = 'asymmetric')", [[[0, 4]]], 0, [0, 2, 4, 4]),
    ("multilinear_upsample(x, factor = [2], method = 'asymmetric', border = 'constant')", [[[2, 4]]], 0, [2, 3, 4, 2]),
    ("multilinear_upsample(x, factor = [2], method = 'aligned')", [[[0, 3]]], 0, [0, 1, 2, 3]),
    ("multilinear_upsample(x, factor = [3], method = 'aligned')", [[[7]]], 0, [7, 7, 7]),
    ("multilinear_upsample(x, factor = [2], border = 'reflect')", [[[0, 4]]], 0, [1, 1, 3, 3]),
    ("multilinear_upsample(x, factor = [2], border = 'reflect-even')", [[[0, 4]]], 0, [0, 1, 3, 4]),
    (
        "multilinear_upsample(x, factor = [2, 1], method = 'asymmetric')",
        [[[[0, 4], [8, 8]]]],
        0,
        [0, 4, 4, 6, 8, 8, 8, 8],
    ),
    # 4.4
    ("sum_reduce(x, axes = [0])", M, 0, [4, 6]),
    ("sum_reduce(x, axes = [0, 1], normalize = true)", M, 0, [2.5]),
    ("mean_reduce(x, axes = [1])", M, 0, [1.5, 3.5]),
    ("max_reduce(x, axes = [1])", M, 0, [2, 4]),
    ("min_reduce(x, axes = [0])", M, 0, [1, 2]),
    ("argmax_reduce(x, axes = [1])", [[1, 3, 3], [2, 2, 1]], 0, [1, 0]),
    ("argmin_reduce(x, axes = [1])", [[1, 3, 1], [2, 2, 1]], 0, [0, 2]),
    ("argmax_reduce(x, axes = [1, 0])", [[1, 3, 3], [2, 2, 4]], 0, [5]),
    ("any_reduce(x, axes = [1])", [[0, 0], [0, 1]], 0, [0, 1]),
    ("all_reduce(x, axes = [1])", [[1, 1], [0, 1]], 0, [1, 0]),
    # 4.5
    ("reshape(x, shape = [0, 1, -1])", M, 0, [1, 2, 3, 4]),
    ("transpose(x, axes = [1, 0])", M, 0, [1, 3, 2, 4]),
    ("transpose(x, axes = [1, 0])", [[[1, 2], [3, 4]]], 0, [1, 2, 3, 4]),
    ("concat([x, w], axis = 1)", M, W, [1, 2, 1, 10, 3, 4, 100, 1000]),
    ("stack([x, w], axis = 1)", [1, 2], [3, 4], [1, 3, 2, 4]),
    ("slice(x, axes = [1], begin = [1], end = [0])", [[1, 2, 3], [4, 5, 6]], 0, [2, 3, 5, 6]),
    ("slice(x, axes = [0, 1], begin = [-1, 0], end = [2, -1])", [[1, 2, 3], [4, 5, 6]], 0, [4, 5]),
    ("slice(x, axes = [0], begin = [0], end = [0], stride = [2])", [1, 2, 3], 0, [1, 3]),
    ("pad(x, padding = [(1, 2)], value = 0.5)", [1, 2], 0, [0.5, 1, 2, 0.5, 0.5]),
    ("pad(x, padding = [(1, -1)], border = 'reflect')", [1, 2, 3], 0, [2, 1, 2]),
    ("pad(x, padding = [(0, 1), (1, 0)], border = 'replicate')", M, 0, [1, 1, 2, 3, 3, 4, 3, 3, 4]),
    ("tile(x, repeats = [1, 2])", M, 0, [1, 2, 1, 2, 3, 4, 3, 4]),
    ("gather(x, w, axis = 1)", M, [[1, 0], [1, 1]], [2, 1, 2, 2, 4, 3, 4, 4]),
    ("cast<integer>(x)", [1.5, -1.5, 2], 0, [1, -1, 2]),
    ("cast<logical>(x)", [1.5, 0], 0, [1, 0]),
    ("cast<scalar>(x)", [1.5, 0], 0, [1.5, 0]),
    # 4.6, 4.7
    ("matmul(x, w)", M, W, [201, 2010, 403, 4030]),
    ("matmul(x, w, transposeA = true)", M, W, [301, 3010, 402, 4020]),
    ("matmul(x, w, transposeB = true)", M, W, [21, 2100, 43, 4300]),
    ("matmul(x, w, transposeA = true, transposeB = true)", M, W, [31, 3100, 42, 4200]),
    ("matmul(x, w)", [M, [[1, 0], [0, 2]]], [W], [201, 2010, 403, 4030, 1, 10, 200, 2000]),
    ("linear(x, w, 0.5)", M, W, [21.5, 2100.5, 43.5, 4300.5]),
    # 4.9.1
    ("relu(x)", [-1, 0.5], 0, [0, 0.5]),
    ("prelu(x, w)", [-1, 0.5], [0.25, 7], [-0.25, 0.5]),
    ("leaky_relu(x, alpha = 0.1)", [-1, 0.5], 0, [Fraction(-1, 10), 0.5]),
    ("elu(x)", [-1, 0, 2], 0, [real.exp(-1) - 1, 0, 2]),
    ("elu(x, alpha = 0.5)", [-1, 2], 0, [(real.exp(-1) - 1) / 2, 2]),
    ("selu(x, alpha = 2.0, lambda = 3.0)", [-1, 2], 0, [(real.exp(-1) - 1) * 6, 6]),
    ("selu(x)", [2], 0, [Fraction("2.10140204")]),
    ("sigmoid(x)", [0, 1, -1], 0, [0.5, 1 / (real.exp(-1) + 1), 1 / (real.exp(1) + 1)]),
    ("tanh(x)", [0, 1], 0, [0, (real.exp(1) - real.exp(-1)) / (real.exp(1) + real.exp(-1))]),
    ("softplus(x)", [0, 1], 0, [real.log(2), real.log(real.exp(-1) + 1) + 1]),
    ("softmax(x)", [[1, 1], [0, 1]], 0, [0.5, 0.5, 1 / (real.exp(1) + 1), real.exp(1) / (real.exp(1) + 1)]),
    ("gelu(x)", [0, 1], 0, [0, 1 / (real.exp(Fraction("-1.702")) + 1)]),
    ("silu(x)", [0, -1], 0, [0, -1 / (real.exp(1) + 1)]),
    ("softabs(x, epsilon = 0.25)", [0, 1], 0, [0.5, real.power(Fraction(5, 4), HALF)]),
    # 4.9.4
    ("local_response_normalization(x, size = [1], alpha = 2.0)", [2, 0], 0, [Fraction(2, 3), 0]),
    ("local_response_normalization(x, size = [1], beta = 1.0, bias = 4.0)", [2], 0, [0.25]),
    ("local_mean_normalization(x, size = [3])", [3, 6, 9], 0, [0, 0, 4]),
    ("local_variance_normalization(x, size = [1])", [3, -4], 0, [1, -1]),
    ("local_variance_normalization(x, size = [1], bias = 1.0, epsilon = 6.0)", [3, -7], 0, [0.5, Fraction(-7, 8)]),
    ("local_contrast_normalization(x, size = [3], epsilon = 8.0)", [3, 6, 9], 0, [0, 0, 0.5]),
    ("l1_normalization(x, axes = [0])", [1, -3], 0, [0.25, -0.75]),
    ("l1_normalization(x, axes = [0], epsilon = 8.0)", [1, -3], 0, [0.125, -0.375]),
    ("l2_normalization(x, axes = [0])", [3, -4], 0, [Fraction(3, 5), Fraction(-4, 5)]),
    ("l2_normalization(x, axes = [0], bias = 1.0)", [1, 1], 0, [1 / (ROOT2 + 1)] * 2),
    ("batch_normalization(x, 1.0, 4.0, 0.5, 3.0, epsilon = 0.0)", [3], 0, [3.5]),
    ("batch_normalization(x, 0.0, 2.0, 0.0, 1.0, epsilon = 1.0)", [1], 0, [1 / ROOT3]),
    # 4.9.6
    ("add_n([x, w, 1.0])", [1, 2], [3, 4], [5, 7]),
    ("add_n([])", 0, 0, [0]),
]


def as_number(item: Number | float) -> Number:
    return Fraction(item) if isinstance(item, int | float) else item


@pytest.mark.parametrize(("call", "x", "w", "expected"), CASES)
def test_by_hand(call: str, x: object, w: object, expected: list[Number | float]) -> None:
    found = value(call, x, w=w)
    assert isinstance(found, Tensor)
    items = found.numbers().ravel().tolist()
    assert len(items) == len(expected)
    assert all(real.sign(a - as_number(b)) == 0 for a, b in zip(items, expected, strict=True)), items


REFUSED: list[tuple[str, object, object, str]] = [
    ("conv(x, w, groups = 2)", [[[1], [2], [3], [4]]], [[[1], [10]], [[1], [100]], [[1], [1]]], "groups divide"),
    ("conv(x, w, padding = [(0, 0)])", [[[1]]], [[[1, 10]]], "not larger than the padded"),
    ("conv(x, w, border = 'ignore')", ROW, [[[1]]], "border is constant"),
    ("conv(x, w, w)", ROW, [[[1, 2]]], "bias is singular"),
    ("conv(x, w, border = 'reflect', padding = [(4, 0)])", ROW, [[[1]]], "reflection"),
    ("deconv(x, w, stride = [2], output_shape = [1, 1, 5])", [[[1, 2]]], [[[1, 10]]], "output_shape"),
    ("max_pool(x, size = [1], border = 'ignore', padding = [(1, 0)])", [1], 0, "not ignored"),
    ("avg_pool(x, size = [1], border = 'ignore', padding = [(1, 0)])", [1], 0, "not ignored"),
    ("sample(x, w, size = [2], padding = [(0, 0)])", [1, 2, 3], [0, 2], "positions in the window"),
    ("sample(x, w, size = [2], padding = [(0, 0)])", [1, 2, 3], [0], "shape of output"),
    ("nearest_downsample(x, factor = [3])", ROW, 0, "divide"),
    ("sum_reduce(x, axes = [0, 0])", M, 0, "unique"),
    ("reshape(x, shape = [3])", M, 0, "volumes"),
    ("squeeze(x, axes = [0])", M, 0, "singular"),
    ("transpose(x, axes = [0, 0])", M, 0, "permutation"),
    ("slice(x, axes = [0], begin = [1], end = [1])", [1, 2], 0, "greater"),
    ("matmul(x, w)", M, [[1, 2, 3]], "inner extents"),
    ("not(x)", [0.5], 0, "logical"),
    ("rcp(x)", [0], 0, "divisor"),
    ("log(x)", [0], 0, "positive"),
    ("sqrt(x)", [-1], 0, "not negative"),
    ("l2_normalization(x, axes = [0])", [0, 0], 0, "divisor"),
    ("gather(x, w)", [1, 2], [2], "within the extent"),
    ("max_roi_pool(x, w, 0.0, output_size = [1, 1])", IMAGE, [[0, 0, 3, 3]], "shape"),
]


@pytest.mark.parametrize(("call", "x", "w", "sentence"), REFUSED)
def test_invalid_arguments_and_undefined_values_are_refused(call: str, x: object, w: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"not satisfied: .*{sentence}"):
        value(call, x, w=w)


def shape(call: str, x: object) -> tuple[int, ...]:
    return value(call, x).shape


def test_shapes_of_shape_operations() -> None:
    assert shape("reshape(x, shape = [0, 1, -1, 1])", M) == (2, 1, 2, 1)
    assert shape("reshape(x, shape = [6], axis_start = 1, axis_count = 2)", np.ones((2, 2, 3, 4))) == (2, 6, 4)
    assert shape("reshape(x, shape = [0, -1], axis_start = 1)", np.ones((2, 2, 3, 4))) == (2, 2, 12)
    assert shape("unsqueeze(x, axes = [0, 3])", M) == (1, 2, 2, 1)
    assert shape("squeeze(x, axes = [0, 2])", np.ones((1, 2, 1, 3))) == (2, 3)
    assert shape("transpose(x, axes = [2, 0, 1])", np.ones((2, 3, 4, 5))) == (4, 2, 3, 5)
    assert shape("stack([x, x, x], axis = 1)", M) == (2, 3, 2)
    assert shape("gather(x, x, axis = 0)", np.zeros((2, 3))) == (2, 3, 3)
    assert shape("sum_reduce(x, axes = [0, 2])", np.ones((2, 3, 4))) == (1, 3, 1)


def test_operations_with_several_results() -> None:
    x = [[1, 2, 3, 4, 5, 6]]
    split = run("[a, y] = split(x, axis = 1, ratios = [1, 2]);", "", x)
    assert (fractions(split.values["a"]), fractions(split.values["y"])) == ([1, 2], [3, 4, 5, 6])
    unstacked = run("[a, y] = unstack(x, axis = 0);", "", [[1, 2], [3, 4]])
    assert (unstacked.values["a"].shape, fractions(unstacked.values["y"])) == ((2,), [3, 4])
    moments = run("(a, y) = moments(x, axes = [1]);", "", [[1, 3, 8]])
    assert (fractions(moments.values["a"]), fractions(moments.values["y"])) == ([4], [Fraction(26, 3)])
    pooled = run("y, a = max_pool_with_index(x, size = [1, 2], stride = [1, 2], padding = [(0, 0), (0, 0)]);", "", x)
    assert (fractions(pooled.values["y"]), fractions(pooled.values["a"])) == ([2, 4, 6], [1, 1, 1])
    copies = run("[a, b, y] = copy_n(x, times = 3);", "", x)
    assert all(fractions(copies.values[name]) == x[0] for name in "aby")
    with pytest.raises(ValueError, match="does not fit"):
        run("[a, y] = copy_n(x, times = 3);", "", x)


def test_grouped_convolutions() -> None:
    x = [[[1], [2], [3], [4]]]
    pairs = value("conv(x, w, groups = 2)", x, w=[[[1], [10]], [[1], [100]]])
    assert fractions(pairs) == [21, 403]
    spread = value("deconv(x, w, padding = [(0, 0)], groups = 2)", [[[1], [2]]], w=[[[1], [10]], [[100], [1000]]])
    assert fractions(spread) == [1, 10, 200, 2000]
    folded = value("deconv(x, w, padding = [(0, 0)], groups = 0, output_shape = [1, 2, 1])", x, w=[[[1]], [[10]]] * 2)
    assert fractions(folded) == [21, 43]


def test_deconv_with_an_output_shape_has_automatic_padding_for_it() -> None:
    # X = 3, s = 2, f = 2: t = (2 - 1) * 2 + 2 - 3 = 1, p = 0, q = 1: the last item is cropped
    assert fractions(value("deconv(x, w, stride = [2], output_shape = [1, 1, 3])", [[[1, 2]]], w=[[[1, 10]]])) == [
        1,
        10,
        2,
    ]


def test_separable_convolutions_are_their_two_steps() -> None:
    x = [[[1, 2, 3], [10, 20, 30]]]
    call = "separable_conv(x, w, v, 0.5, padding = [(0, 0)])"
    assert fractions(value(call, x, w=[[[1, 1]], [[1, 2]]], v=[[[1], [100]]])) == [5003.5, 8005.5]
    call = "separable_deconv(x, w, v, 0.5, padding = [(0, 0)])"
    assert fractions(value(call, [[[1, 2]]], w=[[[1, 1]], [[1, 2]]], v=[[[1], [100]]])) == (
        [1.5, 3.5, 2.5, 100.5, 400.5, 400.5]
    )


@pytest.mark.parametrize(
    ("call", "roi", "expected"),
    [
        ("max_roi_pool(x, w, v, output_size = [1, 1])", [0, 0, 3, 3], [9]),
        ("avg_roi_pool(x, w, v, output_size = [1, 1])", [0, 0, 3, 3], [5]),
        ("avg_roi_pool(x, w, v, output_size = [2, 2])", [0, 0, 3, 3], [3, 4, 6, 7]),  # cells of 2 at stride 1
        ("max_roi_pool(x, w, v, output_size = [2, 1])", [0.5, 1.49, 3, 3], [6, 9]),  # rounded to 1, 1, 3, 3
        ("max_roi_pool(x, w, v, output_size = [1, 2])", [1, 1, 2, 3], [5, 6]),
        ("roi_resample(x, w, v, output_size = [3, 3])", [0, 0, 3, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("roi_resample(x, w, v, output_size = [1, 1])", [0, 0, 3, 3], [5]),  # (0 + 1/2) * 3 - 1/2 = 1
        ("roi_resample(x, w, v, output_size = [1, 2])", [1, 0.5, 2, 2.5], [4.5, 5.5]),
        ("roi_resample(x, w, v, output_size = [2, 2], method = 'asymmetric')", [0, 0, 3, 3], [1, 2.5, 5.5, 7]),
        ("roi_resample(x, w, v, output_size = [2, 2], method = 'aligned')", [0, 0, 3, 3], [1, 3, 7, 9]),
        ("roi_resample(x, w, v, output_size = [1, 2], method = 'aligned')", [-5, 1, 9, 9], [2, 3]),  # clamped
        ("avg_roi_align(x, w, v, output_size = [1, 1], sampling_rate = [3, 3])", [0, 0, 3, 3], [5]),
        (
            "max_roi_align(x, w, v, output_size = [1, 1], sampling_rate = [2, 2], resize_method = 'aligned')",
            [0, 0, 2, 2],
            [5],
        ),
    ],
)
def test_regions_of_interest(call: str, roi: list[float], expected: list[float]) -> None:
    found = value(call, IMAGE, w=[roi], v=[[0]])
    assert fractions(found) == expected
    batch = np.concatenate([np.zeros((1, 1, 3, 3)), IMAGE])
    both = value(call, batch, w=[roi, roi], v=[[1], [0]])
    assert fractions(both) == [*expected, *[0] * len(expected)]
    assert both.shape == (2, *found.shape[1:])


@pytest.mark.parametrize("roi", [[0, 0, 4, 3], [-1, 0, 3, 3], [1, 1, 1, 2], [2, 0, 1, 3]])
def test_a_pooled_region_that_is_empty_or_leaves_the_map_is_refused(roi: list[float]) -> None:
    with pytest.raises(ValueError, match="lies in the feature map"):
        value("max_roi_pool(x, w, v, output_size = [1, 1])", IMAGE, w=[roi], v=[[0]])


def test_multilinear_upsampling_by_2_is_the_deconvolution_that_the_document_shows() -> None:
    x = [[[3, -1, 7, 2]]]
    for border in ("constant", "replicate", "reflect", "reflect-even"):
        symmetric = value(f"multilinear_upsample(x, factor = [2], border = '{border}')", x)
        filter_ = [[[0.25, 0.75, 0.75, 0.25]]]
        call = f"deconv(x, w, stride = [2], padding = [(1, 1)], border = '{border}', groups = 1)"
        assert fractions(symmetric) == fractions(value(call, x, w=filter_)), border


def test_every_operation_occurs_in_these_tests() -> None:
    texts = " ".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in OPERATIONS if f" {name}(" not in texts and f'"{name}(' not in texts] == []
