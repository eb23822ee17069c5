"""An evaluator of quantised ONNX models in exact arithmetic, written from ONNX's text: what programs must give.

A real tensor is an array of Python integers over one denominator. Roots and exponentials are taken to 60 digits, which
decides every rounding that is not within 1e-50 of a tie; sums and products are exact, ties included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

PRECISION = 10**60


class Real:
    """Integers over a denominator."""

    def __init__(self, items: Any, denominator: int = 1) -> None:
        self.items = np.asarray(items, dtype=object)
        self.denominator = denominator

    @staticmethod
    def of(values: Any) -> Real:
        """Floats or rationals as they are."""
        array = np.asarray(values)
        numbers = [Fraction(x) for x in array.ravel().tolist()]
        denominator = math.lcm(*(x.denominator for x in numbers)) if numbers else 1
        items = np.empty(len(numbers), dtype=object)
        items[:] = [x.numerator * (denominator // x.denominator) for x in numbers]
        return Real(items.reshape(array.shape), denominator)

    def moved(self, function: Callable[[Any], Any]) -> Real:
        return Real(function(self.items), self.denominator)

    def __add__(self, other: Real) -> Real:
        whole = math.lcm(self.denominator, other.denominator)
        parts = [x.items * (whole // x.denominator) for x in (self, other)]
        return Real(parts[0] + parts[1], whole)

    def __mul__(self, other: Real) -> Real:
        return Real(self.items * other.items, self.denominator * other.denominator)

    def fractions(self) -> list[Fraction]:
        return [Fraction(int(x), self.denominator) for x in self.items.ravel()]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def along(values: Any, rank: int, axis: int) -> Any:
    values = np.asarray(values)
    if values.ndim != 1 or values.size == 1:
        return values.reshape(()) if values.size == 1 else values
    shape = [1] * rank
    shape[axis] = values.size
    return values.reshape(shape)


def dequantised(codes: Any, scale: Any, zero: Any, axis: int) -> Real:
    codes = np.asarray(codes)
    whole = Real.of(along(scale, codes.ndim, axis))
    centred = codes.astype(object) - along(zero, codes.ndim, axis).astype(object)
    return Real(centred) * whole


def quantised(x: Real, scale: Any, zero: Any) -> Any:
    zero = np.asarray(zero)
    step, info = Fraction(np.asarray(scale).item()), np.iinfo(zero.dtype)
    top, bottom = step.denominator, x.denominator * step.numerator
    flat = []
    for item in x.items.ravel():
        whole, rest = divmod(2 * int(item) * top + bottom, 2 * bottom)  # floor(x + 1/2)
        if rest == 0 and whole % 2:
            whole -= 1  # a tie goes to the even one
        flat.append(min(max(whole + zero.item(), info.min), info.max))
    return np.array(flat, zero.dtype).reshape(x.items.shape)


def windows(items: Any, kernel: list[int], attributes: Mapping[str, Any], fill: Any) -> Any:
    """(N, C, Ho, Wo, kh, kw) of a padded plane."""
    top, left, bottom, right = attributes.get("pads", [0, 0, 0, 0])
    steps, gaps = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    n, c, height, width = items.shape  # np.pad would put NumPy's integers beside Python's, which overflow
    padded = np.full((n, c, top + height + bottom, left + width + right), fill, dtype=object)
    padded[:, :, top : top + height, left : left + width] = items
    spans = [(size - 1) * gap + 1 for size, gap in zip(kernel, gaps, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(2, 3))
    return view[:, :, :: steps[0], :: steps[1], :: gaps[0], :: gaps[1]]


def convolution(x: Real, w: Real, bias: Real | None, attributes: Mapping[str, Any]) -> Real:
    groups = attributes.get("group", 1)
    view = windows(x.items, list(w.items.shape[2:]), attributes, 0)
    parts = []
    for g, weights in enumerate(np.split(w.items, groups)):
        channels = view[:, g * weights.shape[1] : (g + 1) * weights.shape[1]]
        rows = channels.transpose(0, 2, 3, 1, 4, 5).reshape(*view.shape[:1], *view.shape[2:4], -1)
        parts.append(np.dot(rows, weights.reshape(weights.shape[0], -1).T).transpose(0, 3, 1, 2))
    total = Real(np.concatenate(parts, axis=1), x.denominator * w.denominator)
    return total if bias is None else total + bias.moved(lambda a: a.reshape(1, -1, 1, 1))


def batch_norm(x: Real, parameters: list[Real], epsilon: float) -> Real:
    scale, offset, mean, variance = (p.moved(lambda a: a.reshape(1, -1, 1, 1)) for p in parameters)
    roots = []
    for number in variance.fractions():
        inside = number + Fraction(epsilon)
        roots.append(Fraction(PRECISION * PRECISION, math.isqrt(int(inside * PRECISION * PRECISION * PRECISION**2))))
    inverse = Real.of(np.array(roots, dtype=object).reshape(variance.items.shape))
    return (x + mean.moved(lambda a: -a)) * scale * inverse + offset


def softmax(x: Real, axis: int) -> Real:
    with localcontext() as context:
        context.prec = 70
        powers = [(Decimal(f.numerator) / Decimal(f.denominator)).exp() for f in x.fractions()]
    array = np.array([Fraction(p) for p in powers], dtype=object).reshape(x.items.shape)
    shares = array / array.sum(axis=axis, keepdims=True)
    return Real(np.vectorize(lambda f: round(f * PRECISION), otypes=[object])(shares), PRECISION)


class Evaluator:
    """One model; `run` gives all tensors for one input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        tensors: dict[str, Any] = dict(self.constants)
        for name, values in feeds.items():
            tensors[name] = Real.of(values) if np.asarray(values).dtype.kind == "f" else np.asarray(values)
        for node in self.model.graph.node:
            inputs = [tensors[name] if name else None for name in node.input]
            tensors[node.output[0]] = self.node(node, inputs, attributes_of(node))
        return tensors

    def node(self, node: onnx.NodeProto, x: list[Any], attributes: dict[str, Any]) -> Any:
        op = node.op_type
        if op == "DequantizeLinear":
            return dequantised(x[0], x[1], x[2], attributes.get("axis", 1))
        if op == "QuantizeLinear":
            return quantised(real(x[0]), x[1], x[2])
        if op.startswith("QLinear") or op == "QGemm":
            return self.qlinear(node, x, attributes)
        if op in ("Shape", "Gather", "Unsqueeze", "Concat"):
            return integers(op, x, attributes)
        if op in ("Reshape", "Flatten", "Transpose", "Identity", "MaxPool", "Relu") and not isinstance(x[0], Real):
            return np.asarray(moved(op, Real(x[0]), x, attributes).items, dtype=x[0].dtype)
        return of_reals(op, real(x[0]), x, attributes)

    def qlinear(self, node: onnx.NodeProto, x: list[Any], attributes: dict[str, Any]) -> Any:
        op = node.op_type
        if op == "QLinearConv":
            first, second = dequantised(x[0], x[1], x[2], 1), dequantised(x[3], x[4], x[5], 0)
            bias = None if len(x) < 9 else Real(x[8].astype(object)) * Real.of(x[1]) * Real.of(np.atleast_1d(x[4]))
            return quantised(convolution(first, second, bias, attributes), x[6], x[7])
        if op == "QGemm":
            columns = 0 if attributes.get("transB", 0) else 1
            first, second = dequantised(x[0], x[1], x[2], 1), dequantised(x[3], x[4], x[5], columns)
            bias = Real(x[6].astype(object)) * Real.of(x[1]) * Real.of(np.atleast_1d(x[4]))
            return quantised(of_reals("Gemm", first, [None, second, bias], attributes), x[7], x[8])
        if op in ("QLinearMatMul", "QLinearAdd", "QLinearMul"):
            first, second = dequantised(x[0], x[1], x[2], 1), dequantised(x[3], x[4], x[5], x[3].ndim - 1)
            return quantised(of_reals(op[7:], first, [None, second], {}), x[6], x[7])
        attributes.pop("opset", None)
        return quantised(of_reals(op[7:], dequantised(x[0], x[1], x[2], 1), [], attributes), x[3], x[4])


def real(x: Any) -> Real:
    return x if isinstance(x, Real) else Real.of(x)


def integers(op: str, x: list[Any], attributes: dict[str, Any]) -> Any:
    if op == "Shape":
        shape = x[0].items.shape if isinstance(x[0], Real) else x[0].shape
        return np.array(shape, np.int64)
    if op == "Gather":
        return np.take(x[0], x[1], attributes.get("axis", 0))
    if op == "Unsqueeze":
        return np.expand_dims(x[0], tuple(x[1].tolist()))
    return np.concatenate(x, attributes["axis"])


def moved(op: str, first: Real, x: list[Any], attributes: dict[str, Any]) -> Real:
    items = first.items
    if op == "Reshape":
        shape = [items.shape[i] if n == 0 else n for i, n in enumerate(x[1].tolist())]
        return first.moved(lambda a: a.reshape(shape))
    if op == "Flatten":
        return first.moved(lambda a: a.reshape(a.shape[0], -1))
    if op == "Transpose":
        return first.moved(lambda a: a.transpose(attributes["perm"]))
    if op == "MaxPool":
        view = windows(items, attributes["kernel_shape"], attributes, min(items.ravel()))
        return Real(view.max(axis=(4, 5)), first.denominator)
    if op == "Relu":
        return Real(np.maximum(items, 0), first.denominator)
    assert op == "Identity"
    return first


def of_reals(op: str, first: Real, x: list[Any], attributes: dict[str, Any]) -> Real:
    if op == "Conv":
        return convolution(first, real(x[1]), real(x[2]) if len(x) > 2 else None, attributes)
    if op == "BatchNormalization":
        return batch_norm(first, [real(part) for part in x[1:]], attributes.get("epsilon", np.float32(1e-5).item()))
    if op == "Softmax":
        return softmax(first, attributes.get("axis", -1))
    if op == "Add":
        return first + real(x[1])
    if op == "Mul":
        return first * real(x[1])
    if op == "GlobalAveragePool":
        count = first.items.shape[2] * first.items.shape[3]
        return Real(first.items.sum(axis=(2, 3), keepdims=True), first.denominator * count)
    if op in ("MatMul", "Gemm"):
        second = real(x[1])
        right = second.items.T if attributes.get("transB", 0) else second.items
        product = Real(np.matmul(first.items, right), first.denominator * second.denominator)
        return product + real(x[2]) if op == "Gemm" else product
    return moved(op, first, x, attributes)
