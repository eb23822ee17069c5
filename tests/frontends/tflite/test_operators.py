"""Every operator against rational arithmetic on the tensors of the file."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import floor, prod
from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from tests.frontends.tflite.exact import compiled, fractions, run, same_codes

X = Tensor((1, 5, 6, 3), "int8", (0.05,), (-3,))
Y = Tensor((1, 5, 6, 3), "int8", (0.07,), (11,))


def q(shape: Any, scale: float = 0.11, zero: int = 4, data_type: str = "int8") -> Tensor:
    return Tensor(shape, data_type, (scale,), (zero,))


def constant(values: Any, data_type: str = "int32", *scales: float, zeros: Any = (), axis: int = 0) -> Tensor:
    array = np.asarray(values)
    return Tensor(array.shape, data_type, scales, zeros, axis, array)


def random(shape: Any, lo: int = -127, hi: int = 127, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(lo, hi + 1, shape)


def clipped(x: Array, lo: int | None, hi: int | None) -> Array:
    x = np.maximum(x, Fraction(lo)) if lo is not None else x
    return np.minimum(x, Fraction(hi)) if hi is not None else x


ACTIVATIONS = [(0, None, None), (1, 0, None), (2, -1, 1), (3, 0, 6)]


# Elements


@pytest.mark.parametrize(
    ("op", "kind", "function"),
    [
        ("ADD", "AddOptions", lambda x, y: x + y),
        ("SUB", "SubOptions", lambda x, y: x - y),
        ("MUL", "MulOptions", lambda x, y: x * y),
    ],
)
@pytest.mark.parametrize(("activation", "lo", "hi"), ACTIVATIONS)
def test_arithmetic(op: str, kind: str, function: Any, activation: int, lo: int | None, hi: int | None) -> None:
    options = {"FusedActivationFunction": activation}
    for other in (Y, q((3,), 0.02, -9), constant(random((1, 1, 6, 3)), "int8", 0.03)):
        same_codes(op, [X, other], q(X.shape), lambda x, y: clipped(function(x, y), lo, hi), kind, options)


@pytest.mark.parametrize(
    ("op", "function"),
    [("MAXIMUM", np.maximum), ("MINIMUM", np.minimum), ("SQUARED_DIFFERENCE", lambda x, y: (x - y) ** 2)],
)
def test_two_operands(op: str, function: Any) -> None:
    same_codes(op, [X, Y], q(X.shape), function)
    same_codes(op, [X, q((1, 1, 1, 1), 0.3)], q(X.shape), function)


def test_a_quotient() -> None:
    divisor = Tensor((2, 3), "uint8", (0.05,), (-1,))  # never 0
    same_codes("DIV", [q((2, 3)), divisor], q((2, 3)), lambda x, y: x / y)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("RELU", lambda x: clipped(x, 0, None)),
        ("RELU6", lambda x: clipped(x, 0, 6)),
        ("RELU_N1_TO_1", lambda x: clipped(x, -1, 1)),
        ("RELU_0_TO_1", lambda x: clipped(x, 0, 1)),
        ("ABS", np.abs),
        ("NEG", np.negative),
        ("SQUARE", lambda x: x * x),
        ("FLOOR", lambda x: fractions(np.vectorize(floor, otypes=[object])(x))),
        ("CEIL", lambda x: fractions(-np.vectorize(floor, otypes=[object])(-x))),
        ("ROUND", lambda x: fractions(np.vectorize(round, otypes=[object])(x))),
        ("HARD_SWISH", lambda x: x * clipped(x + 3, 0, 6) / 6),
        ("QUANTIZE", lambda x: x),
    ],
)
def test_functions(op: str, function: Any) -> None:
    for data_type in ("int8", "uint8", "int16"):
        scale = 0.001 if data_type == "int16" else 0.05
        same_codes(op, [Tensor((2, 9), data_type, (scale,), (3,))], q((2, 9), scale * 1.3, -1, data_type), function)


@pytest.mark.parametrize(
    ("op", "function", "output"),
    [
        ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x)), (1 / 256, -128)),
        ("TANH", np.tanh, (1 / 128, 0)),
        ("EXP", np.exp, (2.5, -128)),
        ("ELU", lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x), (0.05, 0)),
        ("SIN", np.sin, (1 / 128, 0)),
        ("COS", np.cos, (1 / 128, 0)),
    ],
)
def test_functions_of_analysis(op: str, function: Any, output: tuple[float, int]) -> None:
    """Against float64, which decides every code that is not within 1e-9 of a tie."""

    def meaning(x: Array) -> Array:
        values = function(x.astype(np.float64))
        steps = values / np.float32(output[0]).astype(np.float64)
        assert (np.abs(steps - np.floor(steps) - 0.5) > 1e-9).all()
        return fractions(values)

    same_codes(op, [q((3, 40), 0.05, 5)], q((3, 40), *output), meaning)


@pytest.mark.parametrize("alpha", [0.1, 0.25, 1.5])
def test_leaky_relu(alpha: float) -> None:
    slope = Fraction(float(np.float32(alpha)))
    function = lambda x: np.where(x < 0, x * slope, x)  # noqa: E731
    same_codes("LEAKY_RELU", [X], q(X.shape), function, "LeakyReluOptions", {"Alpha": alpha})


def test_prelu() -> None:
    slopes = constant(random((1, 1, 3), -127, 127), "int8", 0.01)
    same_codes("PRELU", [X, slopes], q(X.shape), lambda x, s: np.where(x < 0, x * s, x))


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("EQUAL", np.equal),
        ("NOT_EQUAL", np.not_equal),
        ("LESS", np.less),
        ("LESS_EQUAL", np.less_equal),
        ("GREATER", np.greater),
        ("GREATER_EQUAL", np.greater_equal),
    ],
)
def test_comparisons(op: str, function: Any) -> None:
    same_codes(op, [q((2, 5)), q((2, 5))], Tensor((2, 5), "bool"), function)
    same_codes(op, [q((2, 5), 0.1), q((5,), 0.05, 9)], Tensor((2, 5), "bool"), function)


def test_truth_values() -> None:
    a, b = Tensor((4, 5), "bool"), Tensor((4, 5), "bool")
    same_codes("LOGICAL_AND", [a, b], Tensor((4, 5), "bool"), np.logical_and)
    same_codes("LOGICAL_OR", [a, b], Tensor((4, 5), "bool"), np.logical_or)
    same_codes("LOGICAL_NOT", [a], Tensor((4, 5), "bool"), np.logical_not)
    for op in ("SELECT", "SELECT_V2"):
        same_codes(op, [a, q((4, 5)), q((4, 5), 0.3)], q((4, 5)), lambda c, x, y: np.where(c.astype(bool), x, y))
    rows = Tensor((4,), "bool")
    same_codes(
        "SELECT", [rows, q((4, 5)), q((4, 5), 0.3)], q((4, 5)), lambda c, x, y: np.where(c.astype(bool)[:, None], x, y)
    )


# Windows


def convolved(x: Array, weights: Array, bias: Any, strides: Any, gaps: Any, same: bool, groups: int = 1) -> Array:
    """A convolution by its definition: NHWC, a filter of results, height, width and channels."""
    (n, h, w, c), (o, kh, kw, _) = x.shape, weights.shape
    sizes, before = [], []
    for extent, k, step, gap in zip((h, w), (kh, kw), strides, gaps, strict=True):
        span = (k - 1) * gap + 1
        count = -(-extent // step) if same else (extent - span) // step + 1
        sizes.append(count)
        before.append(max((count - 1) * step + span - extent, 0) // 2 if same else 0)
    out = np.full((n, *sizes, o), Fraction(0), object)
    per = c // groups
    for image, row, column, result in product(range(n), *map(range, sizes), range(o)):
        total = Fraction(0)
        first = result // (o // groups) * per
        for i, j, channel in product(range(kh), range(kw), range(per)):
            y, z = row * strides[0] + i * gaps[0] - before[0], column * strides[1] + j * gaps[1] - before[1]
            if 0 <= y < h and 0 <= z < w:
                total += x[image, y, z, first + channel] * weights[result, i, j, channel]
        out[image, row, column, result] = total + (0 if bias is None else bias[result])
    return out


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("strides", "gaps"), [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 1))])
@pytest.mark.parametrize("data_type", ["int8", "uint8"])
def test_convolutions(padding: int, strides: Any, gaps: Any, data_type: str) -> None:
    source = Tensor((1, 6, 7, 2), data_type, (0.05,), (100 if data_type == "uint8" else -7,))
    scales = (0.02, 0.03, 0.011, 0.007)
    weights = constant(random((4, 3, 2, 2)), "int8", *scales, axis=0)
    if data_type == "uint8":
        weights = constant(random((4, 3, 2, 2), 0, 255), "uint8", 0.02, zeros=(131,))
        scales = (0.02,) * 4
    products = [float(np.float32(0.05) * np.float32(scale)) for scale in scales]
    bias = constant(random((4,), -3000, 3000), "int32", *products, axis=0)
    options = {
        "Padding": padding, "StrideH": strides[0], "StrideW": strides[1], "DilationHFactor": gaps[0],
        "DilationWFactor": gaps[1], "FusedActivationFunction": 1,
    }  # fmt: skip

    def meaning(x: Array, w: Array, b: Array) -> Array:
        return clipped(convolved(x, w, b, strides, gaps, padding == 0), 0, None)

    zeros = np.zeros(source.shape, int), np.zeros(weights.shape, int)
    shape = convolved(*zeros, None, strides, gaps, padding == 0).shape
    same_codes("CONV_2D", [source, weights, bias], q(shape, 0.4, -60), meaning, "Conv2DOptions", options)


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolutions(multiplier: int) -> None:
    channels = 3 * multiplier
    weights = constant(random((1, 3, 3, channels)), "int8", *[0.01 * (i + 1) for i in range(channels)], axis=3)
    options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DepthMultiplier": multiplier}

    def meaning(x: Array, w: Array) -> Array:
        return convolved(x, w.transpose(3, 1, 2, 0), None, (1, 1), (1, 1), True, groups=3)

    kind = "DepthwiseConv2DOptions"
    same_codes("DEPTHWISE_CONV_2D", [X, weights], q((1, 5, 6, channels), 0.3), meaning, kind, options)


def test_a_transposed_convolution() -> None:
    source, weights = q((1, 3, 3, 2), 0.05), constant(random((3, 3, 3, 2)), "int8", 0.02)
    for padding, shape in ((0, (1, 6, 6, 3)), (1, (1, 7, 7, 3))):

        def meaning(s: Array, w: Array, x: Array, shape: Any = shape, padding: int = padding) -> Array:
            before = max((3 - 1) * 2 + 3 - shape[1], 0) // 2 if padding == 0 else 0
            out = np.full(shape, Fraction(0), object)
            for row, column, i, j in product(range(3), range(3), range(3), range(3)):
                y, z = 2 * row + i - before, 2 * column + j - before
                if 0 <= y < shape[1] and 0 <= z < shape[2]:
                    out[0, y, z] += w[:, i, j, :] @ x[0, row, column]
            return out

        options = {"Padding": padding, "StrideH": 2, "StrideW": 2}
        operands = [constant(shape), weights, source]
        same_codes("TRANSPOSE_CONV", operands, q(shape, 0.3), meaning, "TransposeConvOptions", options)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("op", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_pooling(op: str, padding: int) -> None:
    def meaning(x: Array) -> Array:
        _, h, w, c = x.shape
        sizes = [-(-n // 2) if padding == 0 else (n - 3) // 2 + 1 for n in (h, w)]
        before = [max((m - 1) * 2 + 3 - n, 0) // 2 if padding == 0 else 0 for m, n in zip(sizes, (h, w), strict=True)]
        out = np.empty((1, *sizes, c), object)
        for row, column, channel in product(*map(range, sizes), range(c)):
            rows = [2 * row + i - before[0] for i in range(3)]
            columns = [2 * column + j - before[1] for j in range(3)]
            items = [x[0, y, z, channel] for y in rows if 0 <= y < h for z in columns if 0 <= z < w]
            out[0, row, column, channel] = max(items) if op == "MAX_POOL_2D" else sum(items) / len(items)
        return out

    shape = (1, 3, 3, 3) if padding == 0 else (1, 2, 2, 3)
    options = {"Padding": padding, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3}
    same_codes(op, [X], q(shape, 0.06), meaning, "Pool2DOptions", options)


@pytest.mark.parametrize("keep", [False, True])
def test_fully_connected(keep: bool) -> None:
    weights = constant(random((5, 6)), "int8", 0.02)
    bias = constant(random((5,), -900, 900), "int32", float(np.float32(0.05) * np.float32(0.02)))
    shape = (2, 3, 5) if keep else (6, 5)
    options = {"KeepNumDims": keep, "FusedActivationFunction": 3}

    def meaning(x: Array, w: Array, b: Array) -> Array:
        return clipped(x.reshape(-1, 6) @ w.T + b, 0, 6).reshape(shape)

    source = q((2, 3, 6), 0.05)
    same_codes("FULLY_CONNECTED", [source, weights, bias], q(shape, 0.05), meaning, "FullyConnectedOptions", options)


def test_filters_of_four_bits() -> None:
    weights = constant(random((5, 7), -8, 7), "int4", 0.1)
    same_codes("FULLY_CONNECTED", [q((2, 7)), weights], q((2, 5), 0.3), lambda x, w: x @ w.T, "FullyConnectedOptions")


def test_sixteen_bits_by_eight() -> None:
    source = Tensor((1, 4, 4, 2), "int16", (0.0001,), (0,))
    weights = constant(random((3, 2, 2, 2)), "int8", 0.01, 0.02, 0.03)
    bias = constant(
        random((3,), -(10**6), 10**6), "int64", *[float(np.float32(0.0001) * np.float32(s)) for s in (0.01, 0.02, 0.03)]
    )

    def meaning(x: Array, w: Array, b: Array) -> Array:
        return convolved(x, w, b, (1, 1), (1, 1), True)

    options = {"Padding": 0, "StrideH": 1, "StrideW": 1}
    result = Tensor((1, 4, 4, 3), "int16", (0.0005,), (0,))
    same_codes("CONV_2D", [source, weights, bias], result, meaning, "Conv2DOptions", options)


# Sums


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (-1,), (0, 3)])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("MEAN", lambda x, axes: x.sum(axes, keepdims=True) / int(np.prod([x.shape[a] for a in axes]))),
        ("SUM", lambda x, axes: x.sum(axes, keepdims=True)),
        ("REDUCE_MAX", lambda x, axes: x.max(axes, keepdims=True)),
        ("REDUCE_MIN", lambda x, axes: x.min(axes, keepdims=True)),
    ],
)
def test_reductions(op: str, function: Any, axes: tuple[int, ...], keep: bool) -> None:
    shape = np.zeros(X.shape).sum(axes, keepdims=keep).shape
    meaning = lambda x, _: function(x, axes).reshape(shape)  # noqa: E731
    same_codes(op, [X, constant(axes)], q(shape, 0.21), meaning, "ReducerOptions", {"KeepDims": keep})


@pytest.mark.parametrize("axis", [1, -1])
def test_indices_of_extremes(axis: int) -> None:
    shape = tuple(n for i, n in enumerate(X.shape) if i != axis % 4)
    for op, function in (("ARG_MAX", np.argmax), ("ARG_MIN", np.argmin)):
        same_codes(op, [X, constant([axis])], Tensor(shape, "int32"), lambda x, _, f=function: f(x, axis))


def test_products_of_computed_matrices() -> None:
    for adjoint in (False, True):
        other = q((2, 5, 4) if adjoint else (2, 4, 5), 0.03, 6)
        meaning = lambda x, y, a=adjoint: x @ (y.transpose(0, 2, 1) if a else y)  # noqa: E731
        options = {"AdjY": adjoint}
        same_codes("BATCH_MATMUL", [q((2, 3, 4)), other], q((2, 3, 5), 0.4), meaning, "BatchMatMulOptions", options)


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_softmax(beta: float) -> None:
    """Against float64, which decides every code that is not within 1e-9 of a tie."""

    def meaning(x: Array) -> Array:
        powers = np.exp(beta * x.astype(np.float64))
        values = powers / powers.sum(-1, keepdims=True)
        assert (np.abs(values * 256 - np.floor(values * 256) - 0.5) > 1e-9).all()
        return fractions(values)

    result = q((4, 5), 1 / 256, -128)
    same_codes("SOFTMAX", [q((4, 5), 0.05)], result, meaning, "SoftmaxOptions", {"Beta": beta})


# Movement


@pytest.mark.parametrize(
    ("op", "others", "shape", "function", "kind", "options"),
    [
        ("RESHAPE", [[5, -1]], (5, 18), lambda x: x.reshape(5, 18), "", {}),
        ("RESHAPE", [], (2, 45), lambda x: x.reshape(2, 45), "ReshapeOptions", {"NewShape": [2, 45]}),
        ("SQUEEZE", [], (5, 6, 3), lambda x: x[0], "SqueezeOptions", {"SqueezeDims": [0]}),
        ("EXPAND_DIMS", [[-2]], (1, 5, 6, 1, 3), lambda x: x[:, :, :, None], "", {}),
        ("TRANSPOSE", [[3, 0, 2, 1]], (3, 1, 6, 5), lambda x: x.transpose(3, 0, 2, 1), "", {}),
        ("SLICE", [[0, 1, 0, 1], [1, 3, -1, 2]], (1, 3, 6, 2), lambda x: x[:, 1:4, :, 1:], "", {}),
        (
            "STRIDED_SLICE",
            [[0, -1, 1, 0], [1, 0, 6, 2], [1, -2, 2, 1]],
            (1, 2, 3),
            lambda x: x[:, -1:0:-2, 1:6:2, 0],
            "StridedSliceOptions",
            {"BeginMask": 1, "ShrinkAxisMask": 8},
        ),
        ("REVERSE_V2", [[1, 3]], (1, 5, 6, 3), lambda x: x[:, ::-1, :, ::-1], "", {}),
        ("TILE", [[2, 1, 1, 3]], (2, 5, 6, 9), lambda x: np.tile(x, (2, 1, 1, 3)), "", {}),
        ("GATHER", [[2, 0, 2]], (1, 5, 6, 3), lambda x: x[..., [2, 0, 2]], "GatherOptions", {"Axis": 3}),
        ("GATHER_ND", [[[0, 1], [0, 4]]], (2, 6, 3), lambda x: x[[0, 0], [1, 4]], "", {}),
        ("SPACE_TO_BATCH_ND", [[1, 2], [[0, 0], [1, 1]]], (2, 5, 4, 3), None, "", {}),
        ("PAD", [[[0, 0], [1, 2], [0, 3], [0, 0]]], (1, 8, 9, 3), None, "", {}),
        (
            "MIRROR_PAD",
            [[[0, 0], [1, 2], [2, 0], [0, 0]]],
            (1, 8, 8, 3),
            lambda x: np.pad(x, [(0, 0), (1, 2), (2, 0), (0, 0)], "reflect"),
            "MirrorPadOptions",
            {"Mode": 0},
        ),
        (
            "MIRROR_PAD",
            [[[0, 0], [1, 2], [2, 0], [0, 0]]],
            (1, 8, 8, 3),
            lambda x: np.pad(x, [(0, 0), (1, 2), (2, 0), (0, 0)], "symmetric"),
            "MirrorPadOptions",
            {"Mode": 1},
        ),
    ],
)
def test_movement(op: str, others: Any, shape: Any, function: Any, kind: str, options: Any) -> None:
    def meaning(x: Array, *rest: Array) -> Array:
        if function is not None:
            return np.asarray(function(x))
        if op == "PAD":
            return np.pad(x, [(0, 0), (1, 2), (0, 3), (0, 0)], constant_values=Fraction(0))
        padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 0)], constant_values=Fraction(0))
        return padded.reshape(1, 5, 4, 2, 3).transpose(3, 0, 1, 2, 4).reshape(2, 5, 4, 3)

    result = Tensor(shape, "int8", X.scales, X.zeros)
    same_codes(op, [X, *map(constant, others)], result, meaning, kind, options)
    same_codes(op, [X, *map(constant, others)], q(shape, 0.13), meaning, kind, options)


def test_blocks() -> None:
    source = q((1, 4, 6, 8))

    def to_depth(x: Array) -> Array:
        return x.reshape(1, 2, 2, 3, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 3, 32)

    def to_space(x: Array) -> Array:
        return x.reshape(1, 4, 6, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(1, 8, 12, 2)

    options = {"BlockSize": 2}
    same_codes("SPACE_TO_DEPTH", [source], q((1, 2, 3, 32)), to_depth, "SpaceToDepthOptions", options)
    same_codes("DEPTH_TO_SPACE", [source], q((1, 8, 12, 2)), to_space, "DepthToSpaceOptions", options)
    images = q((4, 2, 3, 2))

    def to_images(x: Array, *_: Array) -> Array:
        return x.reshape(2, 2, 1, 2, 3, 2).transpose(2, 3, 0, 4, 1, 5).reshape(1, 4, 6, 2)[:, 1:, :5]

    crops = [constant([2, 2]), constant([[1, 0], [0, 1]])]
    same_codes("BATCH_TO_SPACE_ND", [images, *crops], q((1, 3, 5, 2)), to_images)


def test_parts_and_joints() -> None:
    parts = [q((1, 5, 6, n), 0.05 * (n + 1), n) for n in (1, 2, 3)]
    joined = lambda *x: np.concatenate(x, 3)  # noqa: E731
    same_codes("CONCATENATION", parts, q((1, 5, 6, 6), 0.2), joined, "ConcatenationOptions", {"Axis": 3})
    same = [q((2, 3)), q((2, 3)), q((2, 3))]
    stacked = lambda *x: np.stack(x, 1)  # noqa: E731
    same_codes("PACK", same, q((2, 3, 3)), stacked, "PackOptions", {"Axis": 1, "ValuesCount": 3})
    rows = lambda x: [x[:, i] for i in range(3)]  # noqa: E731
    same_codes("UNPACK", [q((2, 3, 4))], [q((2, 4))] * 3, rows, "UnpackOptions", {"Axis": 1, "Num": 3})
    halves = lambda _, x: [x[:, :2], x[:, 2:]]  # noqa: E731
    same_codes("SPLIT", [constant([1]), q((3, 4))], [q((3, 2))] * 2, halves, "SplitOptions", {"NumSplits": 2})
    uneven = lambda x, *_: [x[:, :1], x[:, 1:]]  # noqa: E731
    operands = [q((3, 4)), constant([1, -1]), constant([1])]
    same_codes("SPLIT_V", operands, [q((3, 1)), q((3, 3))], uneven, "SplitVOptions", {"NumSplits": 2})


@pytest.mark.parametrize(("corners", "centres"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resizing(op: str, corners: bool, centres: bool) -> None:
    def points(extent: int, size: int) -> list[Fraction]:
        scale = Fraction(extent - 1, size - 1) if corners else Fraction(extent, size)
        half = Fraction(1, 2) if centres else 0
        return [(i + half) * scale - (half if op == "RESIZE_BILINEAR" else 0) for i in range(size)]

    def line(x: Array, size: int) -> Array:
        n, found = len(x), []
        for at in points(n, size):
            if op == "RESIZE_NEAREST_NEIGHBOR":
                found.append(x[min(max(floor(at + Fraction(1, 2)) if corners else floor(at), 0), n - 1)])
            else:
                low = floor(at)
                a, b = (min(max(i, 0), n - 1) for i in (low, low + 1))
                found.append(x[a] * (1 - at + low) + x[b] * (at - low))
        return np.array(found)

    def meaning(x: Array, _: Array) -> Array:
        rows = line(x[0], 7)
        return line(rows.transpose(1, 0, 2), 4).transpose(1, 0, 2)[None]

    kind = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    options = {"AlignCorners": corners, "HalfPixelCenters": centres}
    same_codes(op, [X, constant([7, 4])], q((1, 7, 4, 3), 0.06), meaning, kind, options)


def test_floats_at_the_border_are_codes_of_the_quantiser_next_to_them() -> None:
    tensors = [Tensor((1, 4), "float32"), q((1, 4), 0.5), q((1, 4), 0.25), Tensor((1, 4), "float32")]
    operators = [Operator("QUANTIZE", [0], [1]), Operator("RELU", [1], [2]), Operator("DEQUANTIZE", [2], [3])]
    program = compiled(Graph(tensors, operators, [0], [3]))
    (found,) = run(program, [np.array([[-128, 4, 5, 127]])])
    assert found.tolist() == [[4, 4, 6, 127]]
    assert program.inputs[0].quantizer is not None
    assert program.outputs[0].quantizer is not None
    assert program.outputs[0].quantizer.scale == (Fraction(1, 4),)


@pytest.mark.parametrize(
    ("shape", "scales", "words"),
    [
        ((3,), (0.000003,), r"must have the shape \[1, 2\], found the shape \[3\]"),
        ((2, 1), (0.000003,) * 2, ""),
        ((1, 1, 2), (0.000003,), ""),
    ],
)
def test_a_stored_operand_of_another_size_is_refused(
    shape: tuple[int, ...], scales: tuple[float, ...], words: str
) -> None:
    tensors = [
        Tensor((1, 3), "int8", (0.05,), (-3,)),
        Tensor((4, 3), "int8", (0.02,), (0,), values=np.arange(12).reshape(4, 3) - 6),
        Tensor((4, 3), "int16", (0.0003,), (0,), values=np.arange(12).reshape(4, 3)),
        Tensor(shape, "int32", scales, (0,) * len(scales), values=np.arange(prod(shape)).reshape(shape)),
        Tensor((1, 12), "int16", (0.01,), (0,), is_variable=True),
        Tensor((1, 2), "int8", (0.3,), (0,)),
    ]
    file = written(Graph(tensors, [Operator("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", {"Rank": 2})], [0], [5]))
    if not words:
        tflite.loads(file)
        return
    with pytest.raises(Invalid, match=words) as caught:
        tflite.loads(file)
    assert caught.value.code == "tflite.operator.shape"


@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
@pytest.mark.parametrize("size", [[2**31 - 1, 2], [2, 2**17], [60_000, 60_000]])
@pytest.mark.parametrize("compat", ["correct", "tflite-reference"])
def test_planes_that_are_too_large_are_refused_before_they_are_computed(op: str, size: list[int], compat: Any) -> None:
    tensors = [q((1, 2, 2, 3)), constant(np.array(size)), q((1, 4, 4, 3))]
    kind = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    file = written(Graph(tensors, [Operator(op, [0, 1], [2], kind, {})], [0], [2]))
    with pytest.raises(CvmError) as caught:
        tflite.loads(file, compat=compat)
    assert caught.value.code in ("limit.expansion", "limit.elements") or compat != "correct"
    assert op != "RESIZE_BILINEAR" or caught.value.code.startswith("limit.")


@pytest.mark.parametrize(("op", "kind"), [("CUMSUM", "CumsumOptions"), ("EXPAND_DIMS", ""), ("SPLIT", "SplitOptions")])
def test_an_axis_is_one_integer(op: str, kind: str) -> None:
    axis, x = constant(np.array([1, 0])), q((2, 2))
    tensors = [axis, x, q((2, 2))] if op == "SPLIT" else [x, axis, q((2, 2))]
    options = {"NumSplits": 1} if op == "SPLIT" else {}
    file = written(Graph(tensors, [Operator(op, [0, 1], [2], kind, options)], [tensors.index(x)], [2]))
    with pytest.raises(Invalid, match=r"the axis, .* must be one integer, found 2"):
        tflite.loads(file)
