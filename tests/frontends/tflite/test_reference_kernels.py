"""``--compat tflite-reference`` against integer models of the reference kernels, and against their results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.cli import main
from cvm.errors import CvmError, Unsupported
from cvm.frontends import tflite
from cvm.frontends.tflite.compat.fixed_point import Multiplier, exp_on_negative_values, high_multiply, rounding_shift
from cvm.frontends.tflite.writing import Array, Graph, Operator, Tensor, written
from tests.frontends.tflite import reference_model as model
from tests.frontends.tflite.agreement import agree, constant, elements, q, random

REAL = Path(__file__).resolve().parents[4] / "shared" / "models" / "real"
F32 = np.float32


# The arithmetic itself


def test_the_integer_functions_are_those_of_the_definition() -> None:
    ends = [0, 1, 2, 3, 2**14, 2**15, 2**30 - 1, 2**30, 2**30 + 1, 2**31 - 1]
    numbers = [*ends, *(-end for end in ends), -(2**31), *random(60, -(2**31), 2**31 - 1).tolist()]
    for a, b in itertools.product(numbers, numbers):
        assert high_multiply(a, b) == model.doubling_high(a, b)
    for x, exponent in itertools.product(numbers, range(32)):
        assert rounding_shift(x, exponent) == model.divide_by_power(x, exponent)
    for x in [*range(-3000, 1), *random(3000, -(2**31), 0).tolist()]:
        assert exp_on_negative_values(x, 5) == model.exp_on_negative(x)


@pytest.mark.parametrize(
    "real", [1.0, 0.5, 0.25, 1e-12, 3.7, 0.9999999999999999, 1 - 2**-33, 2.0**-31, 2.0**-32, 0.0007, 1 / 3]
)
def test_multipliers_are_those_of_the_definition(real: float) -> None:
    from fractions import Fraction

    found = Multiplier.of(Fraction(real))
    assert (found.integer, found.shift) == model.quantize_multiplier(real)
    for x in [*range(-70, 71), *random(200, -(2**27), 2**27).tolist()]:
        assert found.times(x) == model.multiply(x, found.integer, found.shift)


# Sums of products


def convolved(x: Array, weights: Array, bias: Array, zero: int, depthwise: bool) -> Array:
    """Valid windows of stride 1 over (1, h, w, c), as integers."""
    kernel = weights.shape[1:3]
    h, w = x.shape[1] - kernel[0] + 1, x.shape[2] - kernel[1] + 1
    steps = x.astype(np.int64) - zero
    rows = []
    for i, j in itertools.product(range(h), range(w)):
        window = steps[0, i : i + kernel[0], j : j + kernel[1]]
        if depthwise:
            times = weights.shape[3] // x.shape[3]
            rows.append((np.repeat(window, times, 2) * weights[0]).sum((0, 1)) + bias)
        else:
            rows.append((window[None] * weights).sum((1, 2, 3)) + bias)
    return np.array(rows).reshape(h, w, -1)


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("kind", [0, 1, 3])
@pytest.mark.parametrize("out", [0.11, 0.004, 60.0])
def test_convolutions_per_channel(depthwise: bool, kind: int, out: float) -> None:
    scales = [0.011, 0.5, 0.0003, 0.07]
    weights = random((1, 2, 3, 4) if depthwise else (4, 2, 3, 2), -127, 127)
    bias = random((4,), -3000, 3000, 1)
    axis = 3 if depthwise else 0
    tensors = [
        q((1, 6, 7, 2), 0.05, -3), constant(weights, "int8", *scales, axis=axis),
        constant(bias, "int32", *(0.05 * scale for scale in scales)),
    ]  # fmt: skip
    lo, hi = model.activation(kind, out, 4, -128, 127)
    factors = [model.quantize_multiplier(float(F32(0.05)) * float(F32(scale)) / float(F32(out))) for scale in scales]

    def kernel(x: Array, *_: Array) -> Array:
        total = convolved(x, weights, bias, -3, depthwise)
        channels = [elements(lambda t, f=f: model.multiply(t, *f) + 4, total[..., c]) for c, f in enumerate(factors)]
        return np.clip(np.stack(channels, -1), lo, hi)

    op, kind_ = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
    options = {"Padding": 1, "StrideW": 1, "StrideH": 1, "FusedActivationFunction": kind}
    if depthwise:
        options["DepthMultiplier"] = 2
    agree(op, tensors, q((1, 5, 5, 4), out), kernel, kind_, options)


@pytest.mark.parametrize("out", [0.001, 0.02, 3.0])
def test_a_convolution_of_16_bits_has_a_multiplier_of_15_bits(out: float) -> None:
    scales = [0.011, 0.5, 0.0003, 0.07]
    weights, bias = random((4, 2, 3, 2), -127, 127), random((4,), -(2**20), 2**20, 1)
    tensors = [
        q((1, 4, 5, 2), 0.0007, 0, "int16"), constant(weights, "int8", *scales),
        constant(bias, "int64", *(0.0007 * scale for scale in scales)),
    ]  # fmt: skip

    def multiply(x: int, scale: float) -> int:
        real = float(F32(0.0007)) * float(F32(scale)) / float(F32(out))
        multiplier, shift = model.quantize_multiplier(real)
        reduced = (multiplier + 2**15) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
        return (x * reduced + (1 << (14 - shift))) >> (15 - shift)

    def kernel(x: Array, *_: Array) -> Array:
        total = convolved(x, weights, bias, 0, False)
        channels = [elements(lambda t, s=s: multiply(t, s), total[..., c]) for c, s in enumerate(scales)]
        return np.clip(np.stack(channels, -1), -32768, 32767)

    options = {"Padding": 1, "StrideW": 1, "StrideH": 1}
    agree("CONV_2D", tensors, q((1, 3, 3, 4), out, 0, "int16"), kernel, "Conv2DOptions", options)


def test_a_convolution_of_uint8_has_one_multiplier_and_a_zero_point_of_weights() -> None:
    weights, bias = random((3, 2, 2, 2), 0, 255), random((3,), -900, 900)
    tensors = [
        q((1, 5, 5, 2), 0.05, 119, "uint8"), constant(weights, "uint8", 0.013, zeros=[121]),
        constant(bias, "int32", 0.05 * 0.013),
    ]  # fmt: skip
    factor = model.quantize_multiplier(float(F32(0.05) * F32(0.013)) / float(F32(0.2)))

    def kernel(x: Array, *_: Array) -> Array:
        total = convolved(x, weights - 121, bias, 119, False)
        return np.clip(elements(lambda t: model.multiply(t, *factor) + 100, total), 0, 255)

    options = {"Padding": 1, "StrideW": 1, "StrideH": 1}
    agree("CONV_2D", tensors, q((1, 4, 4, 3), 0.2, 100, "uint8"), kernel, "Conv2DOptions", options)


@pytest.mark.parametrize("scale", [0.02, 2.0**-6, 0.9])
def test_fully_connected_with_ties(scale: float) -> None:
    # Scales that are powers of two give ties of both roundings, of both signs.
    weights = np.eye(6, dtype=np.int64) * np.array([1, -1, 2, -2, 3, -3])
    tensors = [q((11, 6), 2.0**-4, 0), constant(weights, "int8", 2.0**-5), constant(np.zeros(6, int), "int32", 2.0**-9)]
    factor = model.quantize_multiplier(float(F32(2.0**-4) * F32(2.0**-5)) / float(F32(scale)))

    def kernel(x: Array, *_: Array) -> Array:
        return np.clip(elements(lambda t: model.multiply(t, *factor) - 7, x @ weights.T), -128, 127)

    codes = [np.arange(-33, 33).reshape(11, 6), tensors[1].values, tensors[2].values]
    agree("FULLY_CONNECTED", tensors, q((11, 6), scale, -7), kernel, "FullyConnectedOptions", {}, codes)  # type: ignore[arg-type]


# Elements


@pytest.mark.parametrize("op", ["ADD", "SUB"])
@pytest.mark.parametrize("scales", [(0.05, 0.07, 0.11), (0.5, 0.0625, 0.25), (0.02, 0.02, 0.9), (1.0, 1.0, 0.004)])
@pytest.mark.parametrize("data_type", ["int8", "uint8"])
def test_sums(op: str, scales: tuple[float, float, float], data_type: str) -> None:
    lo, hi = (-128, 127) if data_type == "int8" else (0, 255)
    zeros = (-3, 11, 4) if data_type == "int8" else (120, 140, 99)
    first, second, out = (float(F32(scale)) for scale in scales)
    twice = 2 * max(first, second)
    factors = [model.quantize_multiplier(scale / twice) for scale in (first, second)]
    last = model.quantize_multiplier(twice / (2**20 * out))

    def kernel(x: int, y: int) -> int:
        a, b = (
            model.multiply((v - z) << 20, *f) for v, z, f in zip((x, y), zeros[:2], factors, strict=True)
        )  # fmt: skip
        total = a + b if op == "ADD" else a - b
        return model.clamp(model.multiply(total, *last) + zeros[2], lo, hi)

    sides = [q((16, 16), scale, zero, data_type) for scale, zero in zip(scales[:2], zeros[:2], strict=True)]
    result = q((16, 16), scales[2], zeros[2], data_type)
    agree(op, sides, result, lambda x, y: elements(kernel, x, y), f"{op.title()}Options")
    fixed = constant(random((1, 16), lo, hi), data_type, scales[1], zeros=[zeros[1]])
    agree(op, [sides[0], fixed], result, lambda x, y: elements(kernel, x, y), f"{op.title()}Options")


@pytest.mark.parametrize("scales", [(0.05, 0.07, 0.11), (0.5, 0.25, 0.5), (0.5, 0.5, 0.01)])
@pytest.mark.parametrize("kind", [0, 1, 3])
def test_products(scales: tuple[float, float, float], kind: int) -> None:
    factor = model.quantize_multiplier(float(F32(scales[0]) * F32(scales[1]) / F32(scales[2])))
    lo, hi = model.activation(kind, scales[2], 4, -128, 127)

    def kernel(x: int, y: int) -> int:
        return model.clamp(model.multiply((x + 3) * (y - 11), *factor) + 4, lo, hi)

    sides = [q((16, 16), scales[0], -3), q((16, 16), scales[1], 11)]
    options = {"FusedActivationFunction": kind}
    agree("MUL", sides, q((16, 16), scales[2]), lambda x, y: elements(kernel, x, y), "MulOptions", options)


EVERY = np.arange(-128, 128).reshape(16, 16)


@pytest.mark.parametrize("scales", [(0.05, 0.11), (0.5, 0.125), (0.25, 0.5), (0.25, 1.0), (0.03, 0.03)])
def test_requantisation_of_every_code(scales: tuple[float, float]) -> None:
    factor = model.quantize_multiplier(float(F32(scales[0])) / float(F32(scales[1])))
    for data_type, zero, lo, hi in (("int8", 5, -128, 127), ("uint8", 133, 0, 255)):

        def kernel(x: int, zero: int = zero, lo: int = lo, hi: int = hi) -> int:
            return model.clamp(model.multiply(x + 3, *factor) + zero, lo, hi)

        result = q((16, 16), scales[1], zero, data_type)
        agree("QUANTIZE", [q((16, 16), scales[0], -3)], result, lambda x, k=kernel: elements(k, x), codes=[EVERY])


@pytest.mark.parametrize("scales", [(0.05, 0.06), (0.1, 0.04), (0.02, 0.02), (0.5, 0.4)])
def test_hard_swish_of_every_code(scales: tuple[float, float]) -> None:
    def kernel(x: Array) -> Array:
        return elements(lambda code: model.hard_swish(code, scales, (-3, 4)), x)

    agree("HARD_SWISH", [q((16, 16), scales[0], -3)], q((16, 16), scales[1]), kernel, codes=[EVERY])


@pytest.mark.parametrize("op", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [0.05, 0.011, 0.7])
def test_functions_of_floats_of_every_code(op: str, scale: float) -> None:
    out, zero = (1 / 256, -128) if op == "LOGISTIC" else (1 / 128, 0)

    def kernel(x: Array) -> Array:
        number = (x + 3).astype(F32) * F32(scale)
        with np.errstate(over="ignore"):
            value = F32(1) / (F32(1) + np.exp(-number)) if op == "LOGISTIC" else np.tanh(number)
        codes = [model.rounded(float(item * (F32(1) / F32(out)))) + zero for item in value.ravel()]
        return np.clip(codes, -128, 127)

    agree(op, [q((16, 16), scale, -3)], q((16, 16), out, zero), kernel, codes=[EVERY])


@pytest.mark.parametrize(("op", "lo", "hi"), [("RELU", 0, None), ("RELU6", 0, 6), ("RELU_N1_TO_1", -1, 1)])
def test_clipped_functions_of_every_code(op: str, lo: int, hi: int | None) -> None:
    factor = model.quantize_multiplier(float(F32(0.05) / F32(0.04)))
    ends = [127 if end is None else 4 + model.rounded(float(F32(end) / F32(0.04))) for end in (lo, hi)]

    def kernel(x: int) -> int:
        return model.clamp(model.multiply(x + 3, *factor) + 4, max(ends[0], -128), min(ends[1], 127))

    agree(op, [q((16, 16), 0.05, -3)], q((16, 16), 0.04), lambda x: elements(kernel, x), codes=[EVERY])


def test_leaky_relu_of_every_code() -> None:
    f = [float(F32(0.05) / F32(0.04)), float(F32(0.05) * F32(0.3) / F32(0.04))]
    positive, negative = (model.quantize_multiplier(item) for item in f)

    def kernel(x: int) -> int:
        return model.clamp(model.multiply(x + 3, *(positive if x >= -3 else negative)) + 4, -128, 127)

    tensors, options = [q((16, 16), 0.05, -3)], {"Alpha": 0.3}
    agree("LEAKY_RELU", tensors, q((16, 16), 0.04), lambda x: elements(kernel, x), "LeakyReluOptions", options, [EVERY])


# Windows and reductions


@pytest.mark.parametrize("size", [(2, 2), (3, 2), (3, 3), (4, 4)])
def test_averages_with_ties_and_padding(size: tuple[int, int]) -> None:
    def kernel(x: Array) -> list[int]:
        found = []
        for i, j in itertools.product(range(6), range(5)):
            top, left = i - (size[0] - 1) // 2, j - (size[1] - 1) // 2
            window = x[0, max(top, 0) : top + size[0], max(left, 0) : left + size[1], 0]
            found.append(model.average(window.ravel().tolist()))
        return found

    options = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FilterWidth": size[1], "FilterHeight": size[0]}
    codes = [random((1, 6, 5, 1), -3, 2)]
    agree("AVERAGE_POOL_2D", [q((1, 6, 5, 1))], q((1, 6, 5, 1)), kernel, "Pool2DOptions", options, codes)
    agree("AVERAGE_POOL_2D", [q((1, 6, 5, 1))], q((1, 6, 5, 1)), kernel, "Pool2DOptions", options)


@pytest.mark.parametrize("scales", [(0.05, 0.05), (0.05, 0.02), (0.5, 0.125)])
def test_means(scales: tuple[float, float]) -> None:
    multiplier, shift = model.quantize_multiplier(float(F32(scales[0])) / float(F32(scales[1])))
    count = 7 * 6
    bits = min(5, 31 + shift)
    factor = (multiplier << bits) // count, shift - bits

    def kernel(x: Array, _: Array) -> Array:
        return elements(lambda t: model.clamp(model.multiply(t, *factor) + 4, -128, 127), (x + 3).sum((1, 2)))

    tensors = [q((1, 7, 6, 9), scales[0], -3), constant(np.array([1, 2], np.int32), "int32")]
    agree("MEAN", tensors, q((1, 9), scales[1]), kernel, "ReducerOptions")


@pytest.mark.sweep
@pytest.mark.parametrize("items", [1, 2, 5, 40, 300])
@pytest.mark.parametrize(("scale", "beta"), [(0.1, 1.0), (0.004, 1.0), (0.9, 0.5), (20.0, 1.0)])
def test_softmax(items: int, scale: float, beta: float) -> None:
    def kernel(x: Array) -> list[list[int]]:
        return [model.softmax(row, scale, beta, -128, 127) for row in x.tolist()]

    tensors, result = [q((4, items), scale, 9)], q((4, items), 1 / 256, -128)
    agree("SOFTMAX", tensors, result, kernel, "SoftmaxOptions", {"Beta": beta})
    agree("SOFTMAX", tensors, result, kernel, "SoftmaxOptions", {"Beta": beta}, [np.full((4, items), 7)])


# Networks, and what is refused


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["hello_world", "micro_speech", "person_detect", "mobilenet_v2"])
def test_networks_give_the_codes_of_the_reference_kernels(name: str) -> None:
    folder = REAL / name
    if not (folder / "original.tflite").is_file():
        pytest.skip(f"../shared/models/real/{name}/original.tflite is not there")
    expected = np.load(folder / "expected.npz")
    program = cvm.compile(folder / "original.tflite", compat="tflite-reference")
    assert program.provenance.source == "tflite-reference"
    (item,) = program.inputs
    for executor in ("native", "numpy"):
        session = cvm.Session(program, executor=executor)
        count = len(expected["input"]) if executor == "native" else 1
        for codes, wanted in list(zip(expected["input"], expected["tflite_reference"], strict=True))[:count]:
            found = session.run({item.value.name: codes.reshape(item.value.shape).astype(np.int32)}, codes=True)
            np.testing.assert_array_equal(found[program.outputs[0].name].ravel(), wanted.ravel())


def refused(op: str, tensors: Sequence[Tensor], result: Tensor) -> str:
    operator = Operator(op, list(range(len(tensors))), [len(tensors)])
    data = written(Graph([*tensors, result], [operator], list(range(len(tensors))), [len(tensors)]))
    with pytest.raises(Unsupported) as caught:
        tflite.loads(data, compat="tflite-reference")
    return str(caught.value)


def test_operators_without_a_kernel_are_refused_by_name() -> None:
    assert "operator 0, EXP: it is not computed as tflite-reference does" in refused("EXP", [q((4,))], q((4,)))


def test_moves_between_grids_are_refused() -> None:
    assert "have different scales" in refused("CONCATENATION", [q((4,)), q((4,), 0.2)], q((8,)))


def test_wide_codes_of_operators_of_8_bits_are_refused() -> None:
    wide = Tensor((4,), "int16", (0.1,), (0,))
    assert "the reference kernel is computed for int8 and uint8" in refused("HARD_SWISH", [wide], wide)


def test_the_option_is_for_tflite(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(CvmError, match="compat tflite-reference is for a model of TFLite"):
        cvm.compile(tmp_path / "model.onnx", compat="tflite-reference")


def test_the_command_line_has_the_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    operator = Operator("QUANTIZE", [0], [1])
    file, program = tmp_path / "model.tflite", tmp_path / "model.cvm"
    file.write_bytes(written(Graph([replace(q((4,)), name="x"), q((4,), 0.2)], [operator], [0], [1])))
    assert main(["compile", str(file), "--compat", "tflite-reference", "-o", str(program)]) == 0
    assert cvm.load(program).provenance.source == "tflite-reference"
    assert main(["compile", str(tmp_path), "--compat", "tflite-reference"]) == 2
    assert "--compat tflite-reference is for a model of TFLite" in capfd.readouterr().err
