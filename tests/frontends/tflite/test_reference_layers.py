"""``--compat tflite-reference``: layers with memory, windows, products and 16 bits, against models of the kernels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from cvm.errors import Unsupported
from cvm.frontends import tflite
from cvm.frontends.tflite.compat.functions_16 import logistic_codes, tanh_codes
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from tests.frontends.tflite import reference_model as model
from tests.frontends.tflite.agreement import agree, agree_over_runs, constant, elements, q, random

F32 = np.float32


def product_scale(*scales: float) -> float:
    """A product of floats of 32 bits, as a float of 32 bits."""
    found = F32(scales[0])
    for scale in scales[1:]:
        found = F32(found * F32(scale))
    return float(found)


def test_weights_of_reals_are_refused_even_if_they_state_a_scale() -> None:
    reals = constant(np.zeros((4, 1, 1, 3), np.float32), "float32", 0.5)
    operator = Operator("CONV_2D", [0, 1], [2], "Conv2DOptions", {"StrideH": 1, "StrideW": 1})
    graph = Graph([q((1, 2, 2, 3)), reals, q((1, 2, 2, 4))], [operator], [0], [2])
    with pytest.raises(Unsupported, match="must be constant codes"):
        tflite.loads(written(graph), compat="tflite-reference")


# Elements


@pytest.mark.parametrize("scales", [(0.05, 0.02, 0.11), (0.5, 0.25, 0.5), (0.5, 0.125, 0.0625)])
@pytest.mark.parametrize("data_type", ["int8", "uint8"])
def test_prelu_has_two_multipliers(scales: tuple[float, float, float], data_type: str) -> None:
    zeros, (lo, hi) = ((-3, 5, 4), (-128, 127)) if data_type == "int8" else ((120, 131, 99), (0, 255))
    first = model.quantize_multiplier(float(F32(scales[0]) / F32(scales[2])))
    second = model.quantize_multiplier(float(F32(product_scale(*scales[:2])) / F32(scales[2])))

    def kernel(x: int, slope: int) -> int:
        x, slope = x - zeros[0], slope - zeros[1]
        found = model.multiply(x, *first) if x >= 0 else model.multiply(x * slope, *second)
        return model.clamp(found + zeros[2], lo, hi)

    slopes = random((1, 1, 16), lo, hi)
    tensors = [
        q((1, 4, 8, 16), scales[0], zeros[0], data_type), constant(slopes, data_type, scales[1], zeros=[zeros[1]]),
    ]  # fmt: skip
    agree("PRELU", tensors, q((1, 4, 8, 16), scales[2], zeros[2], data_type), lambda x, a: elements(kernel, x, a))


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("scales", [(0.0005, 0.0007, 0.0011), (0.25, 0.0625, 0.3)])
def test_sums_of_16_bits(op: str, scales: tuple[float, float, float]) -> None:
    first, second, out = (float(F32(scale)) for scale in scales)
    twice = 2 * max(first, second)
    factors = [model.quantize_multiplier(scale / twice) for scale in (first, second)]
    last = model.quantize_multiplier(twice / (2**15 * out))

    def kernel(x: int, y: int) -> int:
        a, b = (model.multiply(v << 15, *factor) for v, factor in zip((x, y), factors, strict=True))
        return model.clamp(model.multiply(a + b if op == "ADD" else a - b, *last), -32768, 32767)

    sides = [q((16, 16), scale, 0, "int16") for scale in scales[:2]]
    options = {"PotScaleInt16": False}
    agree(op, sides, q((16, 16), out, 0, "int16"), lambda x, y: elements(kernel, x, y), f"{op.title()}Options", options)
    # Scales that are not powers of two are computed in the same way whatever the option is.
    if scales[0] == 0.25:
        agree(op, sides, q((16, 16), out, 0, "int16"), lambda x, y: elements(kernel, x, y), f"{op.title()}Options")


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize(("first", "second"), [(-11, -14), (-13, -11), (-11, -11)])
@pytest.mark.parametrize("kind", [0, 1])
def test_sums_of_powers_of_two_are_shifted(op: str, first: int, second: int, kind: int) -> None:
    lo, hi = (0, 32767) if kind else (-32768, 32767)

    def kernel(x: int, y: int) -> int:
        a, b = model.divide_by_power(x, -11 - first), model.divide_by_power(y, -11 - second)
        return model.clamp(a + b if op == "ADD" else a - b, lo, hi)

    sides = [q((16, 16), 2.0**exponent, 0, "int16") for exponent in (first, second)]
    options = {"FusedActivationFunction": kind}
    result = q((16, 16), 2.0**-11, 0, "int16")
    agree(op, sides, result, lambda x, y: elements(kernel, x, y), f"{op.title()}Options", options)


def test_sums_that_the_kernels_refuse_are_refused() -> None:
    def refused(*scales: float, extents: tuple[int, int] = (4, 4)) -> str:
        tensors = [q((extent,), scale, 0, "int16") for extent, scale in zip((*extents, 4), scales, strict=True)]
        operator = Operator("ADD", [0, 1], [2], "AddOptions", {})
        with pytest.raises(Unsupported) as caught:
            tflite.loads(written(Graph(tensors, [operator], [0, 1], [2])), compat="tflite-reference")
        return str(caught.value)

    assert "does not take its shapes or its scales" in refused(0.25, 0.25, 0.5)
    assert "does not take its shapes or its scales" in refused(0.5, 1.0, 0.5)
    assert "does not take its shapes or its scales" in refused(0.5, 0.25, 0.5, extents=(4, 1))
    assert "nearly a power of two" in refused(0.50001, 0.25, 0.5)
    assert "nearly a power of two" in refused(0.4999, 0.25, 0.5)


def test_products_of_16_bits() -> None:
    scales = (0.0005, 0.0007, 0.0003)
    factor = model.quantize_multiplier(float(F32(scales[0]) * F32(scales[1]) / F32(scales[2])))

    def kernel(x: int, y: int) -> int:
        return model.clamp(model.multiply(x * y, *factor), -32768, 32767)

    sides = [q((16, 16), scale, 0, "int16") for scale in scales[:2]]
    agree("MUL", sides, q((16, 16), scales[2], 0, "int16"), lambda x, y: elements(kernel, x, y), "MulOptions")


# Sums of products


@pytest.mark.parametrize("out", [0.001, 0.02, 3.0])
def test_fully_connected_of_16_bits_has_a_multiplier_of_15_bits(out: float) -> None:
    weights, bias = random((5, 8), -127, 127), random((5,), -(2**20), 2**20, 1)
    tensors = [
        q((4, 8), 0.0007, 0, "int16"), constant(weights, "int8", 0.011),
        constant(bias, "int64", float(F32(0.0007) * F32(0.011))),
    ]  # fmt: skip
    multiplier, shift = model.quantize_multiplier(float(F32(0.0007) * F32(0.011)) / float(F32(out)))
    reduced = (multiplier + 2**15) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF

    def kernel(x: Array, *_: Array) -> Array:
        total = x.astype(np.int64) @ weights.T + bias
        return elements(
            lambda t: model.clamp((t * reduced + (1 << (14 - shift))) >> (15 - shift), -32768, 32767), total
        )

    agree("FULLY_CONNECTED", tensors, q((4, 5), out, 0, "int16"), kernel, "FullyConnectedOptions")


@pytest.mark.parametrize("adjoint", [(False, False), (True, False), (False, True)])
def test_products_of_matrices(adjoint: tuple[bool, bool]) -> None:
    scales = (0.05, 0.03, 0.2)
    factor = model.quantize_multiplier(product_scale(*scales[:2]) / float(F32(scales[2])))

    def kernel(x: Array, y: Array) -> Array:
        a, b = x.astype(np.int64) + 3, y.astype(np.int64) - 11
        a, b = a.swapaxes(-1, -2) if adjoint[0] else a, b.swapaxes(-1, -2) if adjoint[1] else b
        return elements(lambda t: model.clamp(model.multiply(t, *factor) + 4, -128, 127), a @ b)

    shapes = [(2, 5, 3) if adjoint[0] else (2, 3, 5), (2, 4, 5) if adjoint[1] else (2, 5, 4)]
    tensors = [q(shapes[0], scales[0], -3), q(shapes[1], scales[1], 11)]
    options = {"AdjX": adjoint[0], "AdjY": adjoint[1]}
    agree("BATCH_MATMUL", tensors, q((2, 3, 4), scales[2]), kernel, "BatchMatMulOptions", options)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_transposed_convolutions(padding: int, stride: int) -> None:
    scales, (h, w), kernel_ = [0.011, 0.5, 0.0003], (4, 5), (3, 2)
    weights, bias = random((3, *kernel_, 2), -127, 127), random((3,), -3000, 3000, 1)
    size = [
        extent * stride if padding == 0 else (extent - 1) * stride + window
        for extent, window in zip((h, w), kernel_, strict=True)
    ]
    before = [
        max((extent - 1) * stride + window - target, 0) // 2
        for extent, window, target in zip((h, w), kernel_, size, strict=True)
    ]
    factors = [model.quantize_multiplier(float(F32(0.05)) * float(F32(scale)) / float(F32(0.11))) for scale in scales]

    def kernel(_: Array, __: Array, x: Array, *___: Array) -> Array:
        total = np.zeros((*size, 3), np.int64) + bias
        for i, j in itertools.product(range(h), range(w)):
            for a, b in itertools.product(range(kernel_[0]), range(kernel_[1])):
                y, z = i * stride + a - before[0], j * stride + b - before[1]
                if 0 <= y < size[0] and 0 <= z < size[1]:
                    total[y, z] += (weights[:, a, b] * (x[0, i, j].astype(np.int64) + 3)).sum(-1)
        channels = [elements(lambda t, f=f: model.multiply(t, *f) + 4, total[..., c]) for c, f in enumerate(factors)]
        return np.clip(np.stack(channels, -1), -128, 127)

    tensors = [
        constant([1, *size, 3], "int32"), constant(weights, "int8", *scales), q((1, h, w, 2), 0.05, -3),
        constant(bias, "int32", *(0.05 * scale for scale in scales)),
    ]  # fmt: skip
    options = {"Padding": padding, "StrideW": stride, "StrideH": stride}
    agree("TRANSPOSE_CONV", tensors, q((1, *size, 3)), kernel, "TransposeConvOptions", options)


@pytest.mark.sweep
@pytest.mark.parametrize("size", [(8, 6), (5, 7), (3, 2), (2, 1)])
@pytest.mark.parametrize("option", ["", "AlignCorners", "HalfPixelCenters"])
@pytest.mark.parametrize("data_type", ["int8", "int16"])
def test_bilinear_sizes(size: tuple[int, int], option: str, data_type: str) -> None:
    shape = (4, 3)

    def points(extent: int, target: int) -> list[tuple[int, int, int]]:
        scale = (1024 * extent + target // 2) // target
        if option == "AlignCorners" and target > 1:
            scale = (1024 * (extent - 1) + (target - 1) // 2) // (target - 1)
        found = []
        for i in range(target):
            at = i * scale + (scale // 2 - 512 if option == "HalfPixelCenters" else 0)
            low, high = max(model.truncated(at, 1024), 0), min(model.truncated(at + 1023, 1024), extent - 1)
            found.append((low, high, at - 1024 * low))
        return found

    def kernel(x: Array, _: Array) -> Array:
        result = np.empty((*size, 2), np.int64)
        for (i, (y0, y1, v)), (j, (x0, x1, u)) in itertools.product(
            enumerate(points(shape[0], size[0])), enumerate(points(shape[1], size[1]))
        ):
            for c in range(2):
                total = int(x[0, y0, x0, c]) * (1024 - v) * (1024 - u) + int(x[0, y1, x0, c]) * v * (1024 - u)
                total += int(x[0, y0, x1, c]) * (1024 - v) * u + int(x[0, y1, x1, c]) * v * u
                result[i, j, c] = model.truncated(total + (2**19 if total > 0 else -(2**19)), 2**20)
        return result

    zero = 4 if data_type == "int8" else 0
    tensors = [q((1, *shape, 2), 0.11, zero, data_type), constant(list(size), "int32")]
    options = {option: True} if option else {}
    agree("RESIZE_BILINEAR", tensors, q((1, *size, 2), 0.11, zero, data_type), kernel, "ResizeBilinearOptions", options)


# Layers with memory


@pytest.mark.parametrize("bits", range(7))
def test_functions_of_16_bits_are_those_of_the_definition(bits: int) -> None:
    logistic, tanh = logistic_codes(bits), tanh_codes(min(bits, 6))
    for code in [-(2**15), *range(-(2**15), 2**15, 37), *range(-40, 41), 2**15 - 1]:
        assert logistic[code + 2**15] == model.logistic_16(code, bits)
        assert tanh[code + 2**15] == model.tanh_16(code, min(bits, 6))


@pytest.mark.parametrize("rank", [1, 2])
def test_svdf_rounds_its_state_to_16_bits(rank: int) -> None:
    batch, depth, filters, memory = 2, 6, 4, 5
    features, times = random((filters, depth), -127, 127), random((filters, memory), -32767, 32767, 1)
    bias = random((filters // rank,), -9000, 9000, 2)
    given, kept, out, weight, time = 0.05, 0.01, 0.3, 0.02, 0.0003
    first = model.quantize_multiplier(float(F32(product_scale(given, weight)) / F32(kept)))
    second = model.quantize_multiplier(float(F32(product_scale(kept, time)) / F32(out)))
    state = np.zeros((batch, filters, memory), np.int64)

    def kernel(x: Array) -> Array:
        newest = elements(
            lambda t: model.saturated_16(model.multiply(t, *first)), (x.astype(np.int64) + 3) @ features.T
        )
        state[:] = np.concatenate([state[..., 1:], newest[..., None]], -1)
        total = (state * times).sum(-1).reshape(batch, filters // rank, rank).sum(-1) + bias
        return elements(lambda t: model.clamp(model.multiply(t, *second) + 4, -128, 127), total)

    tensors = [
        q((batch, depth), given, -3), constant(features, "int8", weight), constant(times, "int16", time),
        constant(bias, "int32", product_scale(kept, time)),
        Tensor((batch, filters * memory), "int16", (kept,), (0,), is_variable=True), q((batch, filters // rank), out),
    ]  # fmt: skip
    operator = Operator("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", {"Rank": rank})
    runs = [random((batch, depth), -128, 127, seed) for seed in range(8)]
    agree_over_runs(Graph(tensors, [operator], [0], [5]), kernel, runs)


def lstm_graph(weights: list[Array], biases: list[Array], coupled: bool, clip: float, **changes: Any) -> Graph:
    """An LSTM of two units and three features over two steps, with the intermediates of its integer kernel."""
    numbers = {"given": 0.05, "weight": 0.02, "again": 0.01, "state": 1 / 128, "cell": 2.0**-11, **changes}
    tensors = [Tensor((1, 2, 3), "int8", (numbers["given"],), (3,))]
    scales = [numbers["weight"]] * 4 + [numbers["again"]] * 4
    tensors += [
        Tensor(items.shape, "int8", (scale,), (0,), values=items) for items, scale in zip(weights, scales, strict=True)
    ]
    scale = product_scale(numbers["given"], numbers["weight"])
    tensors += [Tensor(items.shape, "int32", (scale,), (0,), values=items) for items in biases]
    tensors.append(Tensor((1, 2), "int8", (numbers["state"],), (-4,), is_variable=True))
    tensors.append(Tensor((1, 2), "int16", (numbers["cell"],), (0,), is_variable=True))
    tensors.append(Tensor((1, 2, 2), "int8", (numbers["state"],), (-4,)))
    tensors += [Tensor((), "int16", (2.0**-12,), (0,)) for _ in range(4)]
    tensors.append(Tensor((), "int8", (numbers.get("hidden", numbers["state"]),), (-4,)))
    inputs = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    if coupled:
        inputs[1] = inputs[5] = inputs[12] = -1
    options = {"FusedActivationFunction": 4, "CellClip": clip, "TimeMajor": False}
    kind = "UnidirectionalSequenceLSTMOptions"
    operator = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [15], kind, options, intermediates=[16, 17, 18, 19, 20])
    return Graph(tensors, [operator], [0], [15])


@pytest.mark.sweep
@pytest.mark.parametrize(("coupled", "clip"), [(False, 10.0), (False, 0.0), (True, 2.5)])
def test_lstm_computes_as_its_integer_kernel(coupled: bool, clip: float) -> None:
    weights = [random((2, depth), -127, 127, i) for i, depth in enumerate((3, 3, 3, 3, 2, 2, 2, 2))]
    biases = [random((2,), -900, 900, 20 + i) for i in range(4)]
    fresh = model.quantize_multiplier(float(F32(product_scale(0.02, 0.05)) * F32(2**12)))
    again = model.quantize_multiplier(float(F32(product_scale(0.01, 1 / 128)) * F32(2**12)))
    last = model.quantize_multiplier(float(F32(2.0**-15) / F32(1 / 128) * F32(2.0**-15)))
    most = int(clip / 2.0**-11) if clip else 2**15 - 1
    least = -most if clip else -(2**15)
    state: dict[str, list[int]] = {"hidden": [-4, -4], "cell": [0, 0]}

    def gate(number: int, unit: int, x: list[int], hidden: list[int]) -> int:
        total = sum(int(w) * (c - 3) for w, c in zip(weights[number][unit], x, strict=True)) + int(biases[number][unit])
        found = model.saturated_16(model.multiply(total, *fresh))
        total = sum(int(w) * (c + 4) for w, c in zip(weights[4 + number][unit], hidden, strict=True))
        found = model.saturated_16(model.multiply(total, *again) + found)
        return model.tanh_16(found) if number == 2 else model.logistic_16(found)

    def kernel(codes: Array) -> Array:
        results = []
        for x in codes[0].tolist():
            gates = [[gate(number, unit, x, state["hidden"]) for number in range(4)] for unit in range(2)]
            hidden = []
            for unit, (enter, forget, candidate, exit_) in enumerate(gates):
                enter = 2**15 - 1 - forget if coupled else enter
                kept = model.divide_by_power(forget * state["cell"][unit], 15)
                added = model.divide_by_power(enter * candidate, 30 - 11)
                cell = model.clamp(model.saturated_16(kept + added), least, most)
                state["cell"][unit] = cell
                product = exit_ * model.tanh_16(cell, 15 - 11)
                hidden.append(model.clamp(model.multiply(product, *last) - 4, -128, 127))
            state["hidden"] = hidden
            results.append(hidden)
        return np.array(results)

    runs = [random((1, 2, 3), -128, 127, seed) for seed in range(12)]
    agree_over_runs(lstm_graph(weights, biases, coupled, clip), kernel, runs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": 0.0007}, "no power of two from 2\\^-15 to 2\\^-9"),
        ({"cell": 2.0**-3}, "no power of two from 2\\^-15 to 2\\^-9"),
        ({"hidden": 0.5}, "its hidden state and its output have different scales"),
    ],
)
def test_an_lstm_of_another_kernel_is_refused(changes: dict[str, float], message: str) -> None:
    weights = [random((2, depth), -127, 127, i) for i, depth in enumerate((3, 3, 3, 3, 2, 2, 2, 2))]
    graph = lstm_graph(weights, [np.zeros(2, np.int64)] * 4, False, 0.0, **changes)
    with pytest.raises(Unsupported, match=message):
        tflite.loads(written(graph), compat="tflite-reference")
