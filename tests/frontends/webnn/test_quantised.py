"""Quantised graphs are the exact real-number graph rounded half to even once at every quantizeLinear.

The expectation is computed with fractions, by definitions that share nothing with the lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from cvm import webnn

Array = np.ndarray
RANDOM = np.random.default_rng(11)


def exact(values: Any) -> Array:
    """An object array of the fractions that floats or integers are."""
    items = np.asarray(values)
    return np.array([Fraction(item.item()) for item in items.ravel()], dtype=object).reshape(items.shape)


def rounded(numbers: Array, scale: float, zero: int, data_type: str) -> Array:
    info = np.iinfo(data_type)
    codes = [
        min(max(round(n / Fraction(float(np.float32(scale)))) + zero, info.min), info.max) for n in numbers.ravel()
    ]
    return np.array(codes, np.int64).reshape(numbers.shape).astype(data_type)


class Sandwich:
    """Operands x0, x1, .. of int8 through dequantizeLinear, an operator, and quantizeLinear."""

    def __init__(self, scale: float = 0.05, zero: int = -7, data_type: str = "int8") -> None:
        self.scale, self.zero, self.data_type = scale, zero, data_type

    def check(
        self,
        build: Callable[..., webnn.MLOperand],
        reference: Callable[..., Array],
        *shapes: tuple[int, ...],
        executors: str = "numpy formal",
        constants: int = 0,
        grids: Any = None,
    ) -> webnn.MLGraph:
        grids = grids or [(0.03125, 3), (0.011, -20), (0.75, 0)]
        codes = [RANDOM.integers(-128, 128, shape, dtype=np.int8) for shape in shapes]
        reals = [(exact(c) - z) * Fraction(float(np.float32(s))) for c, (s, z) in zip(codes, grids, strict=False)]
        expected = rounded(np.asarray(reference(*reals), dtype=object), self.scale, self.zero, self.data_type)
        for executor in executors.split():
            context = webnn.ML().create_context(executor=executor, strict_scale_rank=False)
            builder = webnn.MLGraphBuilder(context)
            operands, feeds = [], {}
            for i, (array, (scale, zero)) in enumerate(zip(codes, grids, strict=False)):
                if i >= len(codes) - constants:
                    operand = builder.constant(array)
                else:
                    operand, feeds[f"x{i}"] = builder.input(f"x{i}", ("int8", array.shape)), array
                operands.append(
                    builder.dequantize_linear(
                        operand, builder.constant(np.float32(scale)), builder.constant(np.int8(zero))
                    )
                )
            result = build(builder, *operands)
            zero_point = builder.constant(np.array(self.zero, self.data_type))
            q = builder.quantize_linear(result, builder.constant(np.float32(self.scale)), zero_point)
            graph = builder.build({"q": q})
            np.testing.assert_array_equal(context.compute(graph, feeds)["q"], expected)
        return graph


def correlated(x: Array, w: Array, padding: Any, strides: Any, dilations: Any, groups: int) -> Array:
    """A convolution of (N, C, H, W) with (O, C / groups, KH, KW), by its definition."""
    top, bottom, left, right = padding
    n, _, h, width = x.shape
    o, inner, kh, kw = w.shape
    rows = (h + top + bottom - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    columns = (width + left + right - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    y = np.full((n, o, rows, columns), Fraction(0), dtype=object)
    for b, k, r, s in product(range(n), range(o), range(rows), range(columns)):
        total = Fraction(0)
        for i, p, q in product(range(inner), range(kh), range(kw)):
            row = r * strides[0] + p * dilations[0] - top
            column = s * strides[1] + q * dilations[1] - left
            if 0 <= row < h and 0 <= column < width:
                total += x[b, k // (o // groups) * inner + i, row, column] * w[k, i, p, q]
        y[b, k, r, s] = total
    return y


def laid_out(array: Array, layout: str, wish: str) -> Array:
    return array.transpose([layout.index(letter) for letter in wish])


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("order", ["oihw", "hwio", "ohwi", "ihwo"])
def test_convolutions_in_every_layout(layout: str, order: str) -> None:
    extents = {"n": 1, "c": 4, "h": 5, "w": 4, "o": 6, "i": 2}
    image = tuple(extents[letter] for letter in layout)
    kernel = tuple({**extents, "h": 3, "w": 2}[letter] for letter in order)
    options = {"padding": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "groups": 2}

    def reference(x: Array, w: Array, b: Array) -> Array:
        y = correlated(laid_out(x, layout, "nchw"), laid_out(w, order, "oihw"), *options.values())
        return laid_out(y + b.reshape(1, 6, 1, 1), "nchw", layout)

    def build(g: webnn.MLGraphBuilder, x: Any, w: Any, b: Any) -> webnn.MLOperand:
        return g.conv2d(x, w, bias=b, input_layout=layout, filter_layout=order, **options)

    Sandwich(0.4, 12).check(build, reference, image, kernel, (6,), constants=2, executors="numpy")


@pytest.mark.parametrize("order", ["iohw", "hwoi", "ohwi"])
def test_transposed_convolutions(order: str) -> None:
    kernel = tuple({"i": 4, "o": 3, "h": 3, "w": 2}[letter] for letter in order)

    def reference(x: Array, w: Array) -> Array:
        w = laid_out(w, order, "iohw")
        y = np.full((1, 6, 12, 12), Fraction(0), dtype=object)
        for i, o, r, c, p, q in product(range(4), range(3), range(3), range(4), range(3), range(2)):
            y[0, i // 2 * 3 + o, 2 * r + 2 * p, 3 * c + q] += x[0, i, r, c] * w[i, o, p, q]
        return y[:, :, 1 : 1 + 8, : 3 * 3 + 2 + 1]

    def build(g: webnn.MLGraphBuilder, x: Any, w: Any) -> webnn.MLOperand:
        options = {"padding": [1, 1, 0, 0], "strides": [2, 3], "dilations": [2, 1], "output_padding": [1, 1]}
        return g.conv_transpose2d(x, w, filter_layout=order, groups=2, **options)

    Sandwich(0.2, 1).check(build, reference, (1, 4, 3, 4), kernel, constants=1, executors="numpy")


def averaged(x: Array) -> Array:
    y = np.full((1, 2, 3, 3), Fraction(0), dtype=object)
    for r, c in product(range(3), range(3)):
        window = x[:, :, max(2 * r - 1, 0) : 2 * r + 2, max(2 * c - 1, 0) : 2 * c + 2]
        y[:, :, r, c] = window.sum((2, 3)) / window[0, 0].size
    return y


def bilinear(x: Array) -> Array:
    for axis, size in ((2, 7), (3, 3)):
        extent, parts = x.shape[axis], []
        for o in range(size):
            at = min(max(Fraction(2 * o + 1, 2) * extent / size - Fraction(1, 2), Fraction(0)), Fraction(extent - 1))
            low, high = at.numerator // at.denominator, -(-at.numerator // at.denominator)
            parts.append(x.take([low], axis) * (1 - at + low) + x.take([high], axis) * (at - low))
        x = np.concatenate(parts, axis)
    return x


def clamped(x: Array, lo: Any, hi: Any) -> Array:
    return np.minimum(np.maximum(x, lo), hi)


CASES: dict[str, tuple[Any, Any, list[tuple[int, ...]]]] = {
    "add": (lambda g, x, y: g.add(x, y), lambda x, y: x + y, [(2, 3, 4), (3, 1)]),
    "sub": (lambda g, x, y: g.sub(x, y), lambda x, y: x - y, [(4,), (3, 4)]),
    "mul": (lambda g, x, y: g.mul(x, y), lambda x, y: x * y, [(5, 4), (5, 1)]),
    "max": (lambda g, x, y: g.max(x, y), np.maximum, [(5, 4), (4,)]),
    "min": (lambda g, x, y: g.min(x, y), np.minimum, [(5, 4), (4,)]),
    "relu": (lambda g, x: g.relu(x), lambda x: np.maximum(x, 0), [(20,)]),
    "abs": (lambda g, x: g.abs(x), np.abs, [(20,)]),
    "neg": (lambda g, x: g.neg(x), np.negative, [(20,)]),
    "clamp": (lambda g, x: g.clamp(x, min_value=-0.25, max_value=1.5),
              lambda x: clamped(x, Fraction(-1, 4), Fraction(3, 2)), [(50,)]),
    "linear": (lambda g, x: g.linear(x, alpha=0.5, beta=-0.125), lambda x: x / 2 - Fraction(1, 8), [(50,)]),
    "hardSigmoid": (lambda g, x: g.hard_sigmoid(x, alpha=0.25, beta=0.5),
                    lambda x: clamped(x / 4 + Fraction(1, 2), Fraction(0), Fraction(1)), [(50,)]),
    "hardSwish": (lambda g, x: g.hard_swish(x), lambda x: x * clamped(x + 3, Fraction(0), Fraction(6)) / 6, [(50,)]),
    "softsign": (lambda g, x: g.softsign(x), lambda x: x / (1 + np.abs(x)), [(50,)]),
    "leakyRelu": (lambda g, x: g.leaky_relu(x, alpha=0.125), lambda x: np.where(x < 0, x / 8, x), [(50,)]),
    "prelu": (lambda g, x, y: g.prelu(x, y), lambda x, y: np.where(x < 0, x * y, x), [(6, 4), (4,)]),
    "matmul": (lambda g, x, y: g.matmul(x, y), lambda x, y: x @ y, [(2, 1, 3, 4), (3, 4, 2)]),
    "gemm": (
        lambda g, x, y, c: g.gemm(x, y, c=c, alpha=0.5, beta=3, a_transpose=True, b_transpose=True),
        lambda x, y, c: x.T @ y.T / 2 + 3 * c, [(4, 3), (5, 4), (5,)],
    ),
    "averagePool2d": (
        lambda g, x: g.average_pool2d(x, window_dimensions=[3, 3], padding=[1, 1, 1, 1], strides=[2, 2]),
        averaged, [(1, 2, 6, 5)],
    ),
    "reduceMean": (lambda g, x: g.reduce_mean(x, axes=[0, 2]), lambda x: x.sum((0, 2)) / 12, [(3, 2, 4)]),
    "reduceSum": (lambda g, x: g.reduce_sum(x), lambda x: x.sum(), [(3, 4)]),
    "reduceL1": (lambda g, x: g.reduce_l1(x, axes=[1]), lambda x: np.abs(x).sum(1), [(3, 4)]),
    "reduceSumSquare": (lambda g, x: g.reduce_sum_square(x, axes=[1]), lambda x: (x * x).sum(1), [(3, 4)]),
    "resample2d": (lambda g, x: g.resample2d(x, mode="linear", sizes=[7, 3]), bilinear, [(1, 1, 4, 5)]),
    "transposed and cut": (
        lambda g, x: g.slice(g.transpose(g.relu(x)), [1, 0], [2, 3]), lambda x: np.maximum(x.T[1:3], 0), [(3, 4)],
    ),
    "padded": (lambda g, x: g.pad(x, [1, 0], [0, 2], value=0.7),
               lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=Fraction(float(np.float32(0.7)))), [(3, 4)]),
    "concat of two grids": (lambda g, x, y: g.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1),
                            [(3, 2), (3, 1)]),
    "where": (
        lambda g, x, y: g.where(g.greater(x, y), x, y), np.maximum, [(5, 4), (5, 4)],
    ),
    "expand": (lambda g, x: g.expand(x, [3, 4]), lambda x: np.broadcast_to(x, (3, 4)), [(4,)]),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("scale_and_zero", [(0.0625, 0), (0.05, 13)])
@pytest.mark.parametrize("name", CASES)
def test_operators_between_dequantize_and_quantize(name: str, scale_and_zero: tuple[float, int]) -> None:
    build, reference, shapes = CASES[name]
    # The formal executor reads tables of two operands slowly.
    executors = "numpy" if name in ("prelu", "softsign", "hardSwish") else "numpy formal"
    Sandwich(*scale_and_zero).check(build, reference, *shapes, executors=executors)


@pytest.mark.parametrize("zero", [0, 1, -128, 127])
@pytest.mark.parametrize("data_type", ["int8", "uint8", "int32"])
def test_every_tie_goes_to_the_even_multiple_of_the_scale(zero: int, data_type: str) -> None:
    zero = zero if data_type != "uint8" else abs(zero)
    Sandwich(0.5, zero, data_type).check(lambda g, x: g.relu(x), lambda x: np.maximum(x, 0), (256,), grids=[(0.25, 0)])


def test_round_even_rounds_also_where_a_quantize_linear_reads_it() -> None:
    whole = np.vectorize(round, otypes=[object])
    Sandwich(0.25, 0).check(lambda g, x: g.round_even(x), whole, (256,), grids=[(0.125, 0)])


def test_scales_per_axis_and_per_block_with_zero_points_of_both_parities() -> None:
    x = RANDOM.integers(-128, 128, (4, 6), dtype=np.int8)
    scale = np.array([[0.5, 0.25, 0.375], [1.5, 0.125, 3]], np.float32)
    zero = np.array([[1, -2, 0], [7, 8, -128]], np.int8)
    wide_scale, wide_zero = (items.repeat(2, 0).repeat(2, 1) for items in (scale, zero))
    reals = (exact(x) - wide_zero.astype(int)) * exact(wide_scale) / 4
    expected = [
        min(max(round(r / Fraction(s.item())) + int(z), -128), 127)
        for r, s, z in zip(reals.ravel(), wide_scale[::-1].ravel(), wide_zero[::-1].ravel(), strict=True)
    ]
    for executor in ("numpy", "formal"):
        context = webnn.ML().create_context(executor=executor)
        b = webnn.MLGraphBuilder(context)
        real = b.dequantize_linear(b.input("x", ("int8", x.shape)), b.constant(scale), b.constant(zero))
        scaled = b.linear(real, alpha=0.25)
        q = b.quantize_linear(scaled, b.constant(scale[::-1].copy()), b.constant(zero[::-1].copy()))
        found = context.compute(b.build({"q": q}), {"x": x})["q"]
        assert found.ravel().tolist() == expected


def test_a_filter_with_a_scale_per_channel() -> None:
    x, w = (
        RANDOM.integers(0, 256, (1, 3, 5, 5), dtype=np.uint8),
        RANDOM.integers(-128, 128, (4, 3, 3, 3), dtype=np.int8),
    )
    scales = np.array([0.01, 0.02, 0.5, 0.003], np.float32).reshape(4, 1, 1, 1)
    y = correlated((exact(x) - 128) * Fraction(1, 64), exact(w) * exact(scales), (1, 1, 1, 1), (1, 1), (1, 1), 1)
    context = webnn.ML().create_context(strict_scale_rank=False)
    b = webnn.MLGraphBuilder(context)
    real = b.dequantize_linear(
        b.input("x", ("uint8", x.shape)), b.constant(np.float32(1 / 64)), b.constant(np.uint8(128))
    )
    weights = b.dequantize_linear(b.constant(w), b.constant(scales))
    q = b.quantize_linear(
        b.conv2d(real, weights, padding=[1] * 4), b.constant(np.float32(0.7)), b.constant(np.uint8(100))
    )
    graph = b.build({"q": q})
    np.testing.assert_array_equal(context.compute(graph, {"x": x})["q"], rounded(y, 0.7, 100, "uint8"))
    assert "conv2d" in graph.explain()


def test_batch_normalization_decides_its_roots_exactly() -> None:
    parameters = [np.array(items, np.float32) for items in ([0.5, -1], [2, 0.25], [1.5, -0.75], [0.1, 3])]
    mean, variance, scale, bias = (exact(items).reshape(1, 2, 1) for items in parameters)
    epsilon = Fraction(1e-5)
    codes = np.arange(-128, 128, dtype=np.int8).reshape(1, 2, 128)
    reals = exact(codes) * Fraction(1, 16)
    step = Fraction(float(np.float32(0.05)))

    def code(r: Fraction, m: Fraction, v: Fraction, s: Fraction, o: Fraction) -> int:
        """The k with k - 1/2 <= (o + s * (r - m) / sqrt(v + e)) / step < k + 1/2, by squaring."""
        top = s * (r - m)

        def at_least(bound: Fraction) -> bool:
            rest = bound * step - o  # top / sqrt(v + e) >= rest
            if (top >= 0) != (rest >= 0):
                return top >= 0
            larger = top * top >= rest * rest * (v + epsilon)
            return larger if top >= 0 else top * top <= rest * rest * (v + epsilon)

        return next((k for k in range(127, -128, -1) if at_least(k - Fraction(1, 2))), -128)

    spread = np.broadcast_arrays(reals, mean, variance, scale, bias)
    expected = [code(*items) for items in zip(*(item.ravel() for item in spread), strict=True)]
    context = webnn.ML().create_context(strict_scale_rank=False)
    b = webnn.MLGraphBuilder(context)
    x = b.dequantize_linear(b.input("x", ("int8", codes.shape)), b.constant(np.float32(1 / 16)))
    m, v, s, o = map(b.constant, parameters)
    y = b.batch_normalization(x, m, v, scale=s, bias=o)
    graph = b.build({"q": b.quantize_linear(y, b.constant(np.float32(0.05)))})
    assert context.compute(graph, {"x": codes})["q"].ravel().tolist() == expected


# Boundaries


def test_float_inputs_and_outputs_are_rounded_on_the_host() -> None:
    context = webnn.ML().create_context(strict_scale_rank=False)
    b = webnn.MLGraphBuilder(context)
    scale, zero = b.constant(np.float32(0.1)), b.constant(np.int8(3))
    q = b.quantize_linear(b.input("x", ("float32", [5])), scale, zero)
    y = b.transpose(b.reshape(b.dequantize_linear(q, scale, zero), [5, 1]))
    graph = b.build({"y": y, "q": q})
    x = np.array([0.05, 0.15000001, -100, 1e30, 12.34], np.float32)
    found = context.compute(graph, {"x": x})
    expected = rounded(exact(x), 0.1, 3, "int8")
    np.testing.assert_array_equal(found["q"], expected)
    reals = [np.float32(float((int(c) - 3) * Fraction(float(np.float32(0.1))))) for c in expected]
    assert found["y"].dtype == np.float32
    assert found["y"].tolist() == [[float(item) for item in reals]]
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not a real number"):
            context.compute(graph, {"x": np.full(5, wrong, np.float32)})


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda b, x, d: {"y": b.relu(x, label="act")}, ("'x'", "relu reads it", "quantizeLinear")),
        (lambda b, x, d: {"y": b.relu(d, label="act")}, ("[act]", "'act_1'", "the output 'y'", "quantizeLinear")),
        (lambda b, x, d: {"y": b.is_nan(d, label="bad")}, ("[bad]", "isNaN", "does not run")),
        (lambda b, x, d: {"y": b.cast(d, "int8", label="cut")}, ("[cut]", "quantizeLinear")),
    ],
)
def test_a_float_that_would_stay_is_refused_with_operand_and_label(build: Any, parts: tuple[str, ...]) -> None:
    b = webnn.MLGraphBuilder(webnn.ML().create_context(strict_scale_rank=False))
    d = b.dequantize_linear(b.input("q", ("int8", [4])), b.constant(np.float32(0.5)))
    with pytest.raises(webnn.NotSupportedError) as caught:
        b.build(build(b, b.input("x", ("float32", [4])), d))
    for part in parts:
        assert part in str(caught.value)


def test_scales_that_are_computed_are_refused() -> None:
    b = webnn.MLGraphBuilder(webnn.ML().create_context())
    d = b.dequantize_linear(b.input("q", ("int8", [4])), b.input("s", ("float32", [1])), label="dq")
    with pytest.raises(webnn.NotSupportedError, match=r"\[dq\].*scale 's' must be a constant"):
        b.build({"y": b.quantize_linear(d, b.constant(np.array([0.5], np.float32)))})


def test_quantising_to_32_bits_must_not_reach_the_end_that_the_machine_has_not() -> None:
    def graph(scale: float) -> webnn.MLGraph:
        b = webnn.MLGraphBuilder(webnn.ML().create_context(strict_scale_rank=False))
        d = b.dequantize_linear(b.input("q", ("int8", [4])), b.constant(np.float32(1)))
        return b.build({"y": b.quantize_linear(d, b.constant(np.float32(scale)), b.constant(np.int32(0)))})

    assert graph(0.001).program.nodes
    with pytest.raises(webnn.NotSupportedError, match="saturate"):
        graph(1e-9)
