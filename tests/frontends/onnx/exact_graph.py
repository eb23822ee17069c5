"""An evaluator of quantised graphs of transformers in exact arithmetic, written from the formulas of `docs/graph.md`.

A tensor is an array of rationals. Roots and exponentials are taken to 60 digits, which decides every rounding that is
not within 1e-50 of a tie; all else is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph
from cvm.quantization import LinearQuantizer
from tests.frontends.onnx.exact_family import FUNCTIONS

DIGITS = 60


def rationals(values: Any) -> Any:
    array = np.asarray(values)
    found = np.empty(array.size, dtype=object)
    found[:] = [Fraction(item) for item in array.ravel().tolist()]
    return found.reshape(array.shape)


def each(function: Callable[[Fraction], Fraction], x: Any) -> Any:
    known = {item: function(item) for item in set(x.ravel().tolist())}
    return np.array([*(known[item] for item in x.ravel().tolist()), None], dtype=object)[:-1].reshape(x.shape)


def decimal(function: Callable[[Decimal], Decimal]) -> Callable[[Fraction], Fraction]:
    """A function of decimals for rationals, to `DIGITS` digits."""

    def found(item: Fraction) -> Fraction:
        with localcontext() as context:
            context.prec = 80
            value: Decimal = function(Decimal(item.numerator) / Decimal(item.denominator))
            return Fraction(round(value.scaleb(DIGITS)), 10**DIGITS)

    return found


def root(item: Fraction) -> Fraction:
    return Fraction(math.isqrt(item.numerator * 10 ** (4 * DIGITS) // item.denominator), 10 ** (2 * DIGITS))


def normalised(x: Any, scale: Any, offset: Any, axes: tuple[int, ...], epsilon: Fraction, centred: bool) -> Any:
    count = math.prod(x.shape[axis] for axis in axes)
    if centred:
        x = x - x.sum(axis=axes, keepdims=True) / count
    square = (x * x).sum(axis=axes, keepdims=True) / count + epsilon
    return offset + scale * (x / each(root, square))


def softmax(x: Any, axes: tuple[int, ...], seen: Any = None) -> Any:
    powers = each(decimal(lambda item: item.exp()), x - x.max(axis=axes, keepdims=True))
    if seen is not None:
        some = (seen != 0).any(axis=axes, keepdims=True)
        powers = powers * rationals(np.broadcast_to((seen != 0) | ~some, x.shape))
    return powers / powers.sum(axis=axes, keepdims=True)


def convolution(x: Any, w: Any, bias: Any, attributes: Mapping[str, Any]) -> Any:
    """Of one or two axes, of one group, with zeros beyond the border."""
    pads, steps = attributes["padding"], attributes["stride"] or (1,) * (x.ndim - 2)
    padded = np.full([*x.shape[:2], *(n + sum(pad) for n, pad in zip(x.shape[2:], pads, strict=True))], Fraction(0))
    padded[(slice(None), slice(None), *(slice(p, p + n) for (p, _), n in zip(pads, x.shape[2:], strict=True)))] = x
    axes = tuple(range(2, x.ndim))
    view = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=axes)
    view = view[(slice(None), slice(None), *(slice(None, None, step) for step in steps))]
    rows = np.moveaxis(view, 1, x.ndim - 1).reshape(*view.shape[:1], *view.shape[2 : x.ndim], -1)
    found = np.moveaxis(np.dot(rows, w.reshape(w.shape[0], -1).T), -1, 1)
    return found + bias.reshape(1, -1, *(1 for _ in axes))


def aligned(operands: list[Any]) -> list[Any]:
    """Operands of a graph meet at their first axes."""
    rank = max(item.ndim for item in operands)
    return [item.reshape(item.shape + (1,) * (rank - item.ndim)) for item in operands]


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "neg": lambda x: -x, "lt": lambda x, y: rationals(x < y), "gt": lambda x, y: rationals(x > y),
    "ne": lambda x, y: rationals(x != y), "and": lambda x, y: x * y, "copy": lambda x: x,
    "clamp": lambda x, a, b: np.maximum(np.minimum(x, b), a),
    "sigmoid": lambda x: each(decimal(FUNCTIONS["Sigmoid"]), x), "tanh": lambda x: each(decimal(FUNCTIONS["Tanh"]), x),
    "erf": lambda x: each(decimal(FUNCTIONS["Erf"]), x),
}  # fmt: skip


class GraphEvaluator:
    """One graph; `run` gives the numbers of all tensors, those with a quantiser rounded."""

    def __init__(self, graph: QuantizedGraph) -> None:
        self.graph = graph

    def run(self, codes: Mapping[str, Any]) -> dict[str, Any]:
        tensors: dict[str, Any] = {}
        for name, tensor in self.graph.tensors.items():
            if tensor.kind == "external":
                tensors[name] = numbers(np.reshape(codes[name], tensor.shape), tensor.quantizer)
            elif tensor.data is not None:
                stored = np.reshape(tensor.data.values, tensor.shape)
                exact = rationals(stored) if tensor.data.quantizer is None else numbers(stored, tensor.data.quantizer)
                tensors[name] = self.rounded(exact, tensor)
        for operation in self.graph.operations:
            inputs = {key: self.read(operand, tensors) for key, operand in operation.inputs.items()}
            name = operation.outputs[0]
            tensors[name] = self.rounded(
                made(operation, inputs, self.graph.tensors[name].shape), self.graph.tensors[name]
            )
        return tensors

    def read(self, operand: Any, tensors: Mapping[str, Any]) -> Any:
        if isinstance(operand, tuple):
            return [self.read(item, tensors) for item in operand]
        return tensors[operand] if isinstance(operand, str) else np.array([Fraction(operand)], dtype=object)

    def rounded(self, x: Any, tensor: GraphTensor) -> Any:
        quantizer = tensor.quantizer
        if quantizer is None or tensor.kind == "external":
            return x
        assert isinstance(quantizer, LinearQuantizer)
        return numbers(coded(x, quantizer), quantizer)


def _parameters(shape: tuple[int, ...], quantizer: LinearQuantizer) -> tuple[Any, Any]:
    along = [-1 if axis == quantizer.axis else 1 for axis in range(len(shape))]
    scale, offset = (rationals(np.array(item, dtype=object)) for item in (quantizer.scale, quantizer.offset))
    return (scale, offset) if quantizer.axis is None else (scale.reshape(along), offset.reshape(along))


def numbers(codes: Any, quantizer: Any) -> Any:
    assert isinstance(quantizer, LinearQuantizer)
    scale, offset = _parameters(codes.shape, quantizer)
    return offset + rationals(codes) * scale


def coded(x: Any, quantizer: LinearQuantizer) -> Any:
    scale, offset = _parameters(x.shape, quantizer)

    def code(item: Fraction) -> Fraction:
        whole = math.floor(item + Fraction(1, 2))
        tie = item + Fraction(1, 2) == whole
        return Fraction(whole - (tie and whole % 2 and quantizer.rounding == "half_even"))

    return np.clip(each(code, (x - offset) / scale), quantizer.lo, quantizer.hi)


def made(operation: GraphOperation, inputs: Mapping[str, Any], shape: tuple[int, ...]) -> Any:
    name = operation.name
    attributes: dict[str, Any] = dict(operation.attributes)
    if name in ELEMENTWISE:
        return ELEMENTWISE[name](*aligned(list(inputs.values())))
    if name == "reshape":
        return inputs["input"].reshape(shape)
    if name == "transpose":
        return inputs["input"].transpose(attributes["axes"])
    if name == "concat":
        return np.concatenate(inputs["values"], attributes["axis"])
    if name == "tile":
        return np.tile(inputs["input"], attributes["repeats"])
    if name == "gather":
        indices = inputs["indices"].astype(np.int64)
        return np.take(inputs["input"], indices, attributes["axis"]).reshape(shape)
    if name == "matmul":
        return np.matmul(*(
            np.swapaxes(inputs[side], -1, -2) if attributes[f"transpose{side}"] else inputs[side] for side in "AB"
        ))  # fmt: skip
    if name == "conv":
        return convolution(inputs["input"], inputs["filter"], inputs["bias"], attributes)
    if name in ("layer_normalization", "rms_normalization"):
        x, scale, offset = aligned([inputs["input"], inputs["scale"], inputs["offset"]])
        return normalised(x, scale, offset, attributes["axes"], attributes["epsilon"], name.startswith("layer"))
    assert name in ("softmax", "masked_softmax"), name
    parts = aligned(list(inputs.values()))
    return softmax(parts[0], attributes["axes"], *parts[1:])
