"""The cases of TFLite: codes of 8 bits, of 16 bits with 8-bit weights, and weights of 4 bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cvm.conformance.cases import RANGES, Case, Layer, Sums, Tensor, codes, ends, sums, unary
from cvm.conformance.tflite_files import tflite_model

__all__ = ["tflite_cases"]

Attributes = Mapping[str, Any]
Described = tuple[Layer, str, str, str, str]
"""A layer, the class of its options, and the words for its types, attributes and numbers."""
_BASE = "scales that are not powers of two"
_SAME, _VALID = 0, 1
_RELU, _RELU6 = 1, 3
_TYPES = (("int8", "int8", True), ("int8", "int8", False), ("uint8", "uint8", False), ("int16", "int8", True))


def tflite_cases() -> Iterator[Case]:
    """All cases of TFLite, operator by operator."""
    for layers in (_all_sums, _binaries, _unaries, _windows, _others):
        for layer, kind, types, attributes, numbers in layers():
            model, inputs = tflite_model(layer, kind)
            yield Case(layer.op, "TFLite", types, attributes, numbers, "tflite", model, inputs, layer)


# Sums of products


def _stride(down: int, right: int, padding: int = _VALID, **more: Any) -> dict[str, Any]:
    return {"Padding": padding, "StrideH": down, "StrideW": right, **more}


_Form = tuple[str, tuple[int, ...], tuple[int, ...], Attributes, tuple[int, ...]]
_FORMS: Mapping[str, tuple[str, Sequence[_Form]]] = {
    "CONV_2D": (
        "Conv2DOptions",
        (
            ("padding SAME", (1, 7, 6, 3), (4, 3, 3, 3), _stride(1, 1, _SAME), (1, 7, 6, 4)),
            ("strides, padding SAME", (1, 7, 6, 3), (4, 3, 2, 3), _stride(2, 3, _SAME), (1, 4, 2, 4)),
            (
                "dilations",
                (1, 9, 8, 3),
                (4, 3, 3, 3),
                _stride(1, 1, DilationHFactor=2, DilationWFactor=2),
                (1, 5, 4, 4),
            ),
            ("one channel, 1 x 1", (1, 9, 9, 1), (1, 1, 1, 1), _stride(1, 1), (1, 9, 9, 1)),
            ("windows mostly in the padding", (1, 2, 2, 2), (3, 5, 5, 2), _stride(1, 1, _SAME), (1, 2, 2, 3)),
            (
                "RELU6",
                (1, 7, 6, 3),
                (4, 3, 3, 3),
                _stride(1, 1, FusedActivationFunction=_RELU6),
                (1, 5, 4, 4),
            ),
        ),
    ),
    "DEPTHWISE_CONV_2D": (
        "DepthwiseConv2DOptions",
        (
            ("padding SAME", (1, 7, 6, 4), (1, 3, 3, 4), _stride(1, 1, _SAME, DepthMultiplier=1), (1, 7, 6, 4)),
            ("two results per channel", (1, 7, 6, 2), (1, 3, 3, 4), _stride(2, 2, DepthMultiplier=2), (1, 3, 2, 4)),
        ),
    ),
    "TRANSPOSE_CONV": (
        "TransposeConvOptions",
        (
            ("strides", (1, 5, 4, 3), (4, 3, 3, 3), _stride(2, 2), (1, 11, 9, 4)),
            ("strides, padding SAME", (1, 5, 4, 3), (4, 3, 3, 3), _stride(2, 2, _SAME), (1, 10, 8, 4)),
        ),
    ),
    "FULLY_CONNECTED": (
        "FullyConnectedOptions",
        (
            ("", (9, 40), (6, 40), {}, (9, 6)),
            ("RELU", (9, 40), (6, 40), {"FusedActivationFunction": _RELU}, (9, 6)),
        ),
    ),
}


def _all_sums() -> Iterator[Described]:
    for op, (kind, forms) in _FORMS.items():
        for data, weight, channels in _TYPES:
            types = f"{data} x {weight}{', per channel' if channels else ''}"
            yield from _sums(op, kind, forms, (data, weight, channels), types)
        if op in ("CONV_2D", "FULLY_CONNECTED"):
            yield from _sums(op, kind, forms[:1], ("int8", "int4", True), "int8 x int4, per channel")
    for data in ("int8", "int16"):
        for numbers in sums(20, data, data, data, all_numbers=data == "int8"):
            operands = tuple(
                Tensor(
                    codes(f"{side} {data}", shape, data, numbers.few if side else None),
                    data,
                    (_float(numbers.scales[side]),),
                    0 if side or data == "int16" else numbers.zeros[0],
                    stored=False,
                )
                for side, shape in enumerate(((2, 7, 20), (2, 20, 5)))
            )
            zero = 0 if data == "int16" else numbers.zeros[1]
            layer = Layer("BATCH_MATMUL", operands, data, _float(numbers.scale), zero, {}, (2, 7, 5))
            yield layer, "BatchMatMulOptions", data, "", numbers.numbers


def _sums(op: str, kind: str, forms: Sequence[_Form], kinds: tuple[str, str, bool], types: str) -> Iterator[Described]:
    full = kinds[:2] == ("int8", "int8") and kinds[2] != (op == "FULLY_CONNECTED")
    for number, form in enumerate(forms):
        attributes, _, weights, _, _ = form
        depth = int(np.prod(weights[1:])) // (weights[3] if op == "DEPTHWISE_CONV_2D" else 1)
        for numbers in sums(depth, kinds[0], kinds[0], kinds[1], all_numbers=full and number == 0):
            yield _sum_layer(op, kinds, numbers, form), kind, types, attributes, numbers.numbers
    if op in ("CONV_2D", "FULLY_CONNECTED") and kinds[0] != "int16":
        convolution: _Form = ("", (1, 4, 4, 160), (3, 3, 3, 160), _stride(1, 1), (1, 2, 2, 3))
        product: _Form = ("", (5, 3000), (4, 3000), {}, (5, 4))
        form = convolution if op == "CONV_2D" else product
        depth = int(np.prod(form[2][1:]))
        reach = (RANGES[kinds[1]][1] - RANGES[kinds[1]][0]) * 0.28
        lo, hi = RANGES[kinds[0]]
        middle = (lo + hi + 1) // 2
        wide = Sums("wide sums", (0.0173, 0.0041), 0.0173 * 0.0041 * depth * reach, (middle, middle), wide=True)
        yield _sum_layer(op, kinds, wide, form), kind, types, "", wide.numbers


def _sum_layer(op: str, kinds: tuple[str, str, bool], numbers: Sums, form: _Form) -> Layer:
    data, weight, channels = kinds
    _, shape, weights, options, result = form
    seed = f"{op} {kinds} {form[0]}"
    axis = 3 if op == "DEPTHWISE_CONV_2D" else 0
    count, scale = weights[axis], _float(numbers.scales[1])
    each = (1.0, 0.5, 0.25) if numbers.numbers == "ties" else (1.0, 0.71, 0.43, 0.87)
    scales = tuple(_float(scale * each[n % len(each)]) for n in range(count)) if channels else (scale,)
    zero = 128 if weight == "uint8" else 0
    if numbers.few is not None:
        drawn = codes(seed, weights, "int8", numbers.few) + zero
    else:
        drawn = ends(seed, weights, weight) if numbers.wide else codes(seed, weights, weight)
    drawn = np.maximum(drawn, RANGES[weight][0] + 1)  # the specification of TFLite leaves out the lowest code
    values = ends("x" + seed, shape, data) if numbers.wide else codes("x" + seed, shape, data)
    point, centre = (0, 0) if data == "int16" else numbers.zeros
    x = Tensor(values, data, (_float(numbers.scales[0]),), point, stored=False)
    filters = Tensor(drawn, weight, scales, zero, axis)
    inputs: tuple[Tensor, ...] = (x, filters)
    units = tuple(float(np.float32(numbers.scales[0]) * np.float32(item)) for item in scales)
    if op == "TRANSPOSE_CONV":
        inputs = (Tensor(np.array(result), "int32"), filters, x)
    elif all(units):
        reach = max(1, int(numbers.scale / units[0] * 20))
        bias = np.random.default_rng(count).integers(-reach, reach + 1, count).clip(-(2**29), 2**29)
        inputs = (x, filters, Tensor(bias, "int64" if data == "int16" else "int32", units))
    return Layer(op, inputs, data, _float(numbers.scale), centre, options, result)


def _float(number: float) -> float:
    return float(np.float32(number))


# Element by element


def _binaries() -> Iterator[Described]:
    for data in ("int8", "uint8", "int16"):
        lo, hi = RANGES[data]
        for op, kind in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
            for numbers, x, y, zero, result in unary(data, data):
                if op == "MUL" and ("tiny" in numbers or "huge" in numbers):
                    continue
                zeros = (0, 0, 0) if data == "int16" else (zero, (lo + hi + 1) // 2 - 9, result)
                second = x if numbers == "ties" else x * 0.8
                scale = y if "tie" in numbers else y * 1.3
                if op == "MUL":
                    second, scale = 1 / 64, y * (hi - lo) / 255 * (1 if "tie" in numbers else 1.3)
                operands = _pair(op + data, data, (x, second), zeros)
                layer = Layer(op, operands, data, _float(scale), zeros[2], {}, operands[0].values.shape)
                yield layer, kind, data, "", numbers
        zeros = (0, 0, 0) if data == "int16" else ((lo + hi + 1) // 2,) * 3
        operands = _pair("apart" + data, data, (0.05, 0.05 / 900), zeros)
        shape = operands[0].values.shape
        yield Layer("ADD", operands, data, 0.05, zeros[2], {}, shape), "AddOptions", data, "", "scales far apart"
        short = Tensor(codes("short", (1, 1, 1, 8), data), data, (_float(0.031),), zeros[1], stored=False)
        wide = Tensor(codes("wide", (1, 8, 8, 8), data), data, (_float(0.047),), zeros[0], stored=False)
        layer = Layer("ADD", (wide, short), data, _float(0.053), zeros[2], {}, (1, 8, 8, 8))
        yield layer, "AddOptions", data, "broadcast", _BASE
        layer = replace(layer, attributes={"FusedActivationFunction": _RELU6})
        yield layer, "AddOptions", data, "broadcast, RELU6", _BASE


def _pair(seed: str, data: str, scales: tuple[float, float], zeros: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Pairs of codes: all of 8 bits on 64 x 64 of them."""
    first, second = (
        Tensor(codes(f"{side} {seed}", (1, 16, 16, 16), data), data, (_float(scale),), zero, stored=False)
        for side, (scale, zero) in enumerate(zip(scales, zeros, strict=False))
    )
    return first, second


_FUNCTIONS: Mapping[str, tuple[str, Attributes, float, tuple[float, int] | None]] = {
    "RELU": ("", {}, 1, None),
    "RELU6": ("", {}, 1, None),
    "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.1}, 1, None),
    "HARD_SWISH": ("HardSwishOptions", {}, 1, None),
    "ELU": ("", {}, 1, None),
    "GELU": ("GeluOptions", {}, 1, None),
    "LOGISTIC": ("", {}, 1, (1 / 256, -128)),
    "TANH": ("", {}, 1, (1 / 128, 0)),
    "EXP": ("ExpOptions", {}, 1.4, None),
    "QUANTIZE": ("QuantizeOptions", {}, 1, None),
}
"""Functions of one number: options, a factor of the result's scale, and the quantiser that TFLite prescribes."""

_LINES = ("RELU", "LEAKY_RELU", "QUANTIZE")
"""Functions of pieces of lines, which exist for all scales and need no table of 65,536 results."""


def _unaries() -> Iterator[Described]:
    for op, (kind, options, height, fixed) in _FUNCTIONS.items():
        for data in ("int8", "uint8", "int16") if op in _LINES else ("int8", "uint8"):
            lo, hi = RANGES[data]
            for numbers, x, y, zero, result in unary(data, data):
                if ("tiny" in numbers or "huge" in numbers) and op not in _LINES:
                    continue
                if data == "int16":
                    zero, result = 0, 0
                scale = y * height
                if fixed is not None:
                    scale, result = fixed[0], fixed[1] + (128 if data == "uint8" else 0)
                values = np.arange(lo, hi + 1).reshape(1, 8, 8, 4) if hi - lo < 256 else codes(op, (1, 8, 16, 4), data)
                operand = Tensor(values, data, (_float(x),), zero, stored=False)
                layer = Layer(op, (operand,), data, _float(scale), result, options, values.shape)
                yield layer, kind, data, "", numbers


# Windows, means, softmax, and what moves elements

_POOLS: Sequence[tuple[str, str, Attributes, tuple[int, ...]]] = (
    ("AVERAGE_POOL_2D", "2 x 2", _stride(2, 2, FilterHeight=2, FilterWidth=2), (1, 3, 3, 4)),
    ("AVERAGE_POOL_2D", "3 x 3, padding SAME", _stride(1, 1, _SAME, FilterHeight=3, FilterWidth=3), (1, 7, 6, 4)),
    ("MAX_POOL_2D", "3 x 3, padding SAME", _stride(1, 1, _SAME, FilterHeight=3, FilterWidth=3), (1, 7, 6, 4)),
)


def _windows() -> Iterator[Described]:
    for data in ("int8", "uint8", "int16"):
        lo, hi = RANGES[data]
        middle = (lo + hi + 1) // 2
        for op, attributes, options, shape in _POOLS:
            for zero in {middle, lo, hi} if data != "int16" else {0}:
                operand = Tensor(codes(op, (1, 7, 6, 4), data), data, (_float(0.047),), zero, stored=False)
                numbers = f"zero point {zero}"
                yield (
                    Layer(op, (operand,), data, operand.scales[0], zero, options, shape),
                    "Pool2DOptions",
                    data,
                    (attributes),
                    numbers,
                )
        for op, factor in (("MEAN", 0.3), ("SUM", 8.0)):
            for numbers, x, y, zero, result in unary(data, data):
                points = (0, 0) if data == "int16" else (zero, result)
                operand = Tensor(codes(op, (1, 7, 6, 4), data), data, (_float(x),), points[0], stored=False)
                axes = Tensor(np.array([1, 2]), "int32")
                layer = Layer(op, (operand, axes), data, _float(y * factor), points[1], {}, (1, 4))
                yield layer, "ReducerOptions", data, "over the image", numbers
        for step in (0.011, 0.0473, 0.21, 1.7) if data != "int16" else ():
            x = _float(step * 255 / (hi - lo))
            operand = Tensor(
                codes("softmax", (9, 10), data), data, (x,), 0 if data == "int16" else middle, stored=False
            )
            scale, zero = (1 / 32768, 0) if data == "int16" else (1 / 256, lo)
            layer = Layer("SOFTMAX", (operand,), data, scale, zero, {"Beta": 1.0}, (9, 10))
            yield layer, "SoftmaxOptions", data, "", f"input scale {x:.3g}"


def _others() -> Iterator[Described]:
    for data in ("int8", "uint8"):
        lo = RANGES[data][0]
        for attributes, options, shape in (
            ("half_pixel_centers", {"HalfPixelCenters": True}, (1, 10, 8, 2)),
            ("align_corners", {"AlignCorners": True}, (1, 10, 8, 2)),
            ("to 7 x 9", {}, (1, 7, 9, 2)),
        ):
            operand = Tensor(codes("resize", (1, 5, 4, 2), data), data, (_float(0.047),), lo + 100, stored=False)
            size = Tensor(np.array(shape[1:3]), "int32")
            layer = Layer("RESIZE_BILINEAR", (operand, size), data, operand.scales[0], lo + 100, options, shape)
            yield layer, "ResizeBilinearOptions", data, attributes, _BASE
            layer = replace(layer, op="RESIZE_NEAREST_NEIGHBOR")
            yield layer, "ResizeNearestNeighborOptions", data, attributes, _BASE
        for numbers, x, y, zero, result in unary(data, data):
            parts = tuple(
                Tensor(codes(f"part {n}", (1, 5, 4, 2), data), data, (_float(x * part),), zero, stored=False)
                for n, part in enumerate((1, 0.5))
            )
            if data == "uint8":  # int8 must have the scale of the result
                layer = Layer("CONCATENATION", parts, data, _float(y), result, {"Axis": 3}, (1, 5, 4, 4))
                yield layer, "ConcatenationOptions", data, "other scales", numbers
        operand = Tensor(codes("prelu", (1, 8, 8, 4), data), data, (_float(0.047),), lo + 120, stored=False)
        slope = Tensor(codes("slope", (1, 1, 4), data), data, (_float(0.0031),), lo + 128)
        layer = Layer("PRELU", (operand, slope), data, _float(0.051), lo + 130, {}, (1, 8, 8, 4))
        yield layer, "", data, "", _BASE
