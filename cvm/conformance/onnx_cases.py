"""The cases of ONNX: QDQ models and operators on codes, of ONNX and of com.microsoft."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cvm.conformance.cases import RANGES, Case, Layer, Sums, Tensor, codes, ends, sums, unary
from cvm.conformance.onnx_files import integer_model, qdq_model, qoperator_model

__all__ = ["onnx_cases"]

Attributes = Mapping[str, Any]
_BASE = "scales that are not powers of two"
_TYPES = (
    ("int8", "int8", False),
    ("int8", "int8", True),
    ("uint8", "uint8", False),
    ("uint8", "int8", True),
    ("int16", "int8", True),
)
"""Data types of the data operand and of the weights, and whether weights have a scale for each channel."""


def onnx_cases() -> Iterator[Case]:
    """All cases of ONNX, operator by operator."""
    for layer, types, attributes, numbers in _layers():
        model, inputs = qdq_model(layer)
        yield Case(layer.op, "QDQ", types, attributes, numbers, "onnx", model, inputs, layer)
    for layer, bias, types, attributes, numbers in _qoperators():
        model, inputs = qoperator_model(layer, bias)
        yield Case(layer.op, "QOperator", types, attributes, numbers, "onnx", model, inputs, layer)
    for layer, types, attributes, numbers in _integers():
        model, inputs = integer_model(layer)
        yield Case(layer.op, "integers", types, attributes, numbers, "onnx", model, inputs, layer)


Described = tuple[Layer, str, str, str]


def _layers() -> Iterator[Described]:
    for op in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
        for data, weight, channels in _TYPES:
            yield from _sums(op, data, weight, channels)
    yield from _binaries()
    yield from _unaries()
    yield from _windows()
    yield from _resamplings()


# Sums of products

_CONVOLUTIONS: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Attributes]] = (
    ("padding", (1, 3, 7, 6), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ("strides, padding on one side", (1, 3, 7, 6), (4, 3, 3, 2), {"strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ("dilations", (1, 3, 9, 8), (4, 3, 3, 3), {"dilations": [2, 2], "pads": [2, 0, 2, 0]}),
    ("depthwise", (1, 4, 7, 6), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ("two groups", (1, 4, 6, 5), (6, 2, 3, 3), {"group": 2}),
    ("one channel, 1 x 1", (1, 1, 9, 9), (1, 1, 1, 1), {}),
    ("windows mostly in the padding", (1, 2, 2, 2), (3, 2, 5, 5), {"pads": [4, 4, 4, 4]}),
)
_TRANSPOSED: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Attributes]] = (
    ("strides", (1, 3, 5, 4), (3, 4, 3, 3), {"strides": [2, 2]}),
    ("padding", (1, 3, 5, 4), (3, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ("two groups", (1, 4, 4, 4), (4, 3, 2, 2), {"strides": [2, 2], "group": 2}),
)
_PRODUCTS: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Attributes]] = (("", (9, 40), (40, 6), {}),)
_GEMMS: Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Attributes]] = (
    ("bias", (9, 40), (40, 6), {}),
    ("transposed weights, bias", (9, 40), (6, 40), {"transB": 1}),
)


def _forms(op: str) -> Sequence[tuple[str, tuple[int, ...], tuple[int, ...], Attributes]]:
    return {"Conv": _CONVOLUTIONS, "ConvTranspose": _TRANSPOSED, "MatMul": _PRODUCTS, "Gemm": _GEMMS}[op]


def _depth(op: str, weights: tuple[int, ...], attributes: Attributes) -> int:
    """How many products an element of the result sums."""
    if op == "Conv":
        return int(np.prod(weights[1:]))
    if op == "ConvTranspose":
        return int(np.prod(weights)) // weights[1] // 2 // int(attributes.get("group", 1))
    return weights[1] if attributes.get("transB") else weights[0]


def _sums(op: str, data: str, weight: str, channels: bool) -> Iterator[Described]:
    """The layers of one operator of sums for one choice of data types."""
    types = f"{data} x {weight}{', per channel' if channels else ''}"
    full = data == "int8"
    for form, (attributes, shape, weights, options) in enumerate(_forms(op)):
        depth = _depth(op, weights, options)
        for numbers in sums(depth, data, data, weight, all_numbers=full and form == 0):
            layer = _sum_layer(op, (data, weight, channels), numbers, shape, weights, options)
            yield layer, types, attributes, numbers.numbers
    if op != "ConvTranspose" and not (data == "int16" and weight == "int8"):
        shape, weights, options = ((1, 160, 4, 4), (3, 160, 3, 3), {}) if op == "Conv" else ((5, 3000), (3000, 4), {})
        depth = _depth(op, weights, options)
        wide = Sums("wide sums", (0.0173, 0.0041), 0.0173 * 0.0041 * depth * 70, (0, 0), wide=True)
        yield _sum_layer(op, (data, weight, channels), wide, shape, weights, options), types, "", wide.numbers


def _sum_layer(
    op: str,
    kinds: tuple[str, str, bool],
    numbers: Sums,
    shape: tuple[int, ...],
    weights: tuple[int, ...],
    options: Attributes,
) -> Layer:
    data, weight, channels = kinds
    seed = f"{op} {kinds} {shape} {weights}"
    axis = 0 if op == "Conv" or options.get("transB") else 1
    results = weights[axis] * (options.get("group", 1) if op == "ConvTranspose" else 1)
    spread = not channels or (op == "ConvTranspose" and "group" in options)
    scale = _float(numbers.scales[1])
    each = (1.0, 0.5, 0.25) if numbers.numbers == "ties" else (1.0, 0.71, 0.43, 0.87)
    scales = (scale,) if spread else tuple(_float(scale * each[n % len(each)]) for n in range(weights[axis]))
    zero = 0 if weight == "int8" else 128
    low = 1 if weight == "int8" and numbers.few is None else 0  # -128 is no weight of symmetric tools
    drawn = ends(seed, weights, weight) if numbers.wide else codes(seed, weights, weight)
    if numbers.few is not None:
        drawn = codes(seed, weights, "int8", numbers.few) + zero
    drawn = np.maximum(drawn, RANGES[weight][0] + low)
    values = ends("x" + seed, shape, data) if numbers.wide else codes("x" + seed, shape, data)
    operands = [
        Tensor(values, data, (_float(numbers.scales[0]),), numbers.zeros[0], stored=False),
        Tensor(drawn, weight, scales, zero, axis),
    ]
    x = np.float32(numbers.scales[0])
    if op != "MatMul":
        units = tuple(float(x * np.float32(item)) for item in scales)
        if all(units):
            reach = max(1, int(np.abs(numbers.scale / units[0]) * 20)) if np.isfinite(units[0]) else 1
            bias = np.random.default_rng(results).integers(-reach, reach + 1, results)
            operands.append(Tensor(bias.clip(-(2**29), 2**29), "int32", units if len(units) == results else units[:1]))
    return Layer(op, tuple(operands), data, _float(numbers.scale), numbers.zeros[1], options)


def _float(number: float) -> float:
    return float(np.float32(number))


# Element by element


def _binaries() -> Iterator[Described]:
    for data in ("int8", "uint8", "int16"):
        for op in ("Add", "Sub", "Mul", "Div"):
            for numbers, scales, scale, zeros in _pairs(op, data):
                yield _binary_layer(op, data, scales, scale, zeros), data, "", numbers
        for op in ("Max", "Min"):
            yield _binary_layer(op, data, (0.0473, 0.0311), 0.0517, (3, 7, 5)), data, "", _BASE


def _pairs(op: str, data: str) -> Iterator[tuple[str, tuple[float, float], float, tuple[int, int, int]]]:
    """Hard numbers of operators on two tensors: a word, scales of the operands, of the result, and zero points."""
    lo, hi = RANGES[data]
    middle = (lo + hi + 1) // 2
    if op in ("Add", "Sub"):
        for numbers, x, y, zero, result in unary(data, data):
            yield (
                numbers,
                (x, x if numbers == "ties" else x * 0.8),
                y * 1.3 if "tie" not in numbers else y,
                (
                    zero,
                    middle - 9,
                    result,
                ),
            )
        yield "scales far apart", (0.05, 0.05 / 900), 0.05, (middle, middle, middle)
        return
    width = (hi - lo) / 255
    unit = 0.0473 / width
    scale = unit * unit * (hi - lo) / 3 if op == "Mul" else 0.031 / width
    yield _BASE, (unit, unit * 0.9), scale, (middle + 3, middle - 9, middle - 5)
    if op == "Mul":
        yield "ties", (0.5, 0.25), 2.0 ** np.floor(np.log2((hi - lo) / 4)) / 8, (middle, middle, middle)
        yield "near ties", (0.1, 0.3), 0.03 * 2.0 ** np.floor(np.log2((hi - lo) / 4)), (middle, middle, middle)
        yield "tiny scales", (1.3e-15, 1.7e-16), 2.21e-31 * (hi - lo) / 4, (middle + 3, middle, middle)
        yield "saturation", (unit, unit), scale / 50, (middle, middle, middle)
        yield "zero points at the lower ends", (unit, unit), scale * 3, (lo, lo, lo)


def _binary_layer(op: str, data: str, scales: Sequence[float], scale: float, zeros: Sequence[int]) -> Layer:
    """All pairs of codes of 8 bits; of 16 bits, 128 x 128 of them. A divisor is stored, since it must not be zero."""
    lo, hi = RANGES[data]
    every = np.arange(lo, hi + 1) if hi - lo < 256 else np.unique(codes(op + data, (128,), data))
    first, second = every.reshape(-1, 1), every.reshape(1, -1)
    if op == "Div":
        second = second[second != zeros[1]].reshape(1, -1)
    operands = tuple(
        Tensor(array, data, (_float(item),), zero, stored=op == "Div" and array is second)
        for array, item, zero in zip((first, second), scales, zeros, strict=False)
    )
    return Layer(op, operands, data, _float(scale), zeros[2])


_FUNCTIONS: Mapping[str, tuple[Attributes, float, float]] = {
    "Relu": ({}, 1, 1),
    "LeakyRelu": ({"alpha": 0.1}, 1, 1),
    "HardSwish": ({}, 1, 1),
    "Gelu": ({}, 1, 1),
    "Sigmoid": ({}, 1, 0.08),
    "Tanh": ({}, 1, 0.16),
    "Exp": ({}, 0.5, 1.5),
    "Identity": ({}, 1, 1),
}
"""Functions of one number: attributes, and factors for the scales of operand and result."""

_LINES = ("Relu", "LeakyRelu", "Identity")
"""Functions of pieces of lines, which exist for all scales and need no table of 65,536 results."""


def _unaries() -> Iterator[Described]:
    for op, (attributes, wide, high) in _FUNCTIONS.items():
        for data in ("int8", "uint8", "int16") if op in _LINES else ("int8", "uint8"):
            for numbers, x, y, zero, result in unary(data, data):
                if ("tiny" in numbers or "huge" in numbers) and op not in _LINES:
                    continue
                yield _unary_layer(op, data, x * wide, y * high, zero, result, attributes), data, "", numbers


def _unary_layer(op: str, data: str, x: float, y: float, zero: int, result: int, attributes: Attributes) -> Layer:
    operand = Tensor(_every(data), data, (_float(x),), zero, stored=False)
    return Layer(op, (operand,), data, _float(y), result, attributes)


def _every(data: str) -> Any:
    """All codes of 8 bits, or 512 of 16 bits, as four channels of an image."""
    lo, hi = RANGES[data]
    if hi - lo < 256:
        return np.arange(lo, hi + 1).reshape(1, 4, 8, 8)
    return codes(data, (1, 4, 16, 8), data)


# Windows, means and softmax

_WINDOWS: Sequence[tuple[str, str, Attributes, float]] = (
    ("AveragePool", "2 x 2", {"kernel_shape": [2, 2], "strides": [2, 2]}, 0.5),
    ("AveragePool", "3 x 3, padding", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 0.4),
    (
        "AveragePool",
        "3 x 3, padding counts",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        0.4,
    ),
    ("AveragePool", "ceil_mode", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, 0.4),
    ("MaxPool", "3 x 3, padding", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 1),
    ("GlobalAveragePool", "", {}, 0.3),
    ("ReduceMean", "over the image", {}, 0.3),
    ("Softmax", "over channels", {"axis": 1}, 1 / 12),
    ("LayerNormalization", "", {"axis": -1}, 0.4),
)


def _windows() -> Iterator[Described]:
    for op, attributes, options, height in _WINDOWS:
        for data in ("int8", "uint8", "int16") if op.endswith("Pool") or op == "ReduceMean" else ("int8", "uint8"):
            for numbers, x, y, zero, result in unary(data, data):
                if op in ("Softmax", "LayerNormalization") and ("tiny" in numbers or "huge" in numbers):
                    continue
                scale = y if "tie" in numbers and op in ("MaxPool", "AveragePool") else y * height
                lo, hi = RANGES[data]
                operands = [Tensor(codes(op, (1, 4, 7, 6), data), data, (_float(x),), zero, stored=False)]
                if op == "ReduceMean":
                    operands.append(Tensor(np.array([2, 3]), "int64"))
                if op == "LayerNormalization":
                    gain = codes(op, (6,), "int8")
                    operands.append(Tensor(gain, "int8", (_float(0.011),)))
                    scale, result = 0.02 * 255 / (hi - lo), (lo + hi + 1) // 2
                yield Layer(op, tuple(operands), data, _float(scale), result, options), data, attributes, numbers


_RESIZES: Sequence[tuple[str, Attributes]] = (
    ("linear, half_pixel, by 2", {"mode": "linear"}),
    ("linear, align_corners, by 2", {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("linear, asymmetric, by 2", {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}),
    ("nearest, by 2", {"mode": "nearest"}),
)


def _resamplings() -> Iterator[Described]:
    for data in ("int8", "uint8"):
        for attributes, options in _RESIZES:
            for numbers, x, y, zero, result in list(unary(data, data))[:3]:
                operands = (
                    Tensor(codes("resize", (1, 2, 5, 4), data), data, (_float(x),), zero, stored=False),
                    Tensor(np.zeros(0), "float32"),
                    Tensor(np.array([1, 1, 2, 2]), "float32"),
                )
                yield Layer("Resize", operands, data, _float(y), result, options), data, attributes, numbers
        for numbers, x, y, zero, result in unary(data, data):
            parts = tuple(
                Tensor(codes(f"part {n}", (1, 2, 5, 4), data), data, (_float(x * factor),), zero, stored=False)
                for n, factor in enumerate((1, 0.5))
            )
            yield Layer("Concat", parts, data, _float(y), result, {"axis": 1}), data, "other scales", numbers


# Operators on codes


def _qoperators() -> Iterator[tuple[Layer, Tensor | None, str, str, str]]:
    for op, plain in (("QLinearConv", "Conv"), ("QLinearMatMul", "MatMul"), ("com.microsoft.QGemm", "Gemm")):
        for data, weight, channels in _TYPES[:-1]:
            if plain == "MatMul" and channels and data == "uint8":
                continue
            for layer, types, attributes, numbers in _sums(plain, data, weight, channels):
                operands, bias = layer.inputs[:2], layer.inputs[2] if len(layer.inputs) > 2 else None
                yield replace(layer, op=op, inputs=operands), bias, types, attributes, numbers
    for layer, types, attributes, numbers in (*_binaries(), *_unaries(), *_windows(), *_resamplings()):
        on_codes = _ON_CODES.get(layer.op)
        if on_codes is None or types == "int16":
            continue
        options = dict(layer.attributes)
        operands = layer.inputs
        if layer.op == "Softmax":
            options["opset"] = 13
        if layer.op == "GlobalAveragePool":
            options["channels_last"] = 0
        if layer.op == "ReduceMean":
            operands, options = operands[:1], {"axes": [2, 3]}
        yield replace(layer, op=on_codes, attributes=options, inputs=operands), None, types, attributes, numbers


_ON_CODES = {
    plain: f"com.microsoft.QLinear{plain}"
    for plain in (
        "Add", "Mul", "AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax", "Concat", "ReduceMean",
    )
}  # fmt: skip
"""Operators on codes for operators on floats."""


def _integers() -> Iterator[Described]:
    for op, plain in (("ConvInteger", "Conv"), ("MatMulInteger", "MatMul")):
        for data, weight in (("uint8", "uint8"), ("uint8", "int8")):
            for layer, _, attributes, numbers in _sums(plain, data, weight, False):
                if numbers not in (_BASE, "wide sums"):
                    continue
                x, weights = layer.inputs[:2]
                # Steps of a power of two, so that float32 holds every sum that is quantised.
                unit = 2.0 ** np.ceil(np.log2(layer.scale / (x.scales[0] * weights.scales[0])))
                made = replace(layer, op=op, inputs=(x, weights), scale=float(unit))
                yield made, f"{data} x {weight}", attributes, numbers
