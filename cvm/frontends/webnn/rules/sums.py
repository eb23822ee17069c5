"""Matrix products, reductions and batch normalisation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.webnn.operand import MLOperand, WebnnNode, is_float
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal, unit
from cvm.frontends.webnn.windows import spatial
from cvm.graph import Operand
from cvm.limits import INT32_MAX

__all__: list[str] = []

_MOST_FACTORS = 64
_EVERYTHING = unit(-INT32_MAX, INT32_MAX)
_NORM = (("scale", "scale", 1), ("bias", "offset", 0))
"""Operands of a normalisation, what the graph calls them, and what stands in their place."""


@rule("matmul")
def matmul(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The product of matrices, in batches."""
    rank = node.outputs[0].rank
    inputs = {"A": translation.aligned(node.operands["a"], rank), "B": translation.aligned(node.operands["b"], rank)}
    return translation.emit("matmul", inputs, node.outputs[0].shape, transposeA=False, transposeB=False)


@rule("gemm")
def gemm(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Alpha * A * B + beta * C."""
    attributes, shape = node.attributes, node.outputs[0].shape
    inputs = {"A": translation.name(node.operands["a"]), "B": translation.name(node.operands["b"])}
    name = translation.emit(
        "matmul", inputs, shape, transposeA=attributes["a_transpose"], transposeB=attributes["b_transpose"]
    )
    if attributes["alpha"] != 1:
        name = translation.emit("mul", {"x": name, "y": attributes["alpha"]}, shape)
    if "c" not in node.operands:
        return name
    c = node.operands["c"]
    added = translation.aligned(c, 2)
    if attributes["beta"] != 1:
        extents = (1,) * (2 - c.rank) + c.shape
        added = translation.emit("mul", {"x": added, "y": attributes["beta"]}, extents)
    return translation.emit("add", {"x": name, "y": added}, shape)


@rule("batchNormalization")
def batch_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Constant parameters along one axis."""
    rank, axis = node.outputs[0].rank, node.attributes["axis"]
    extents = [1] * rank
    extents[axis] = node.outputs[0].shape[axis]
    defaults = {"mean": 0, "variance": 1, "bias": 0, "scale": 1}
    inputs = {"input": translation.name(node.operands["input"])}
    for name, default in defaults.items():
        key = {"bias": "offset"}.get(name, name)
        if name in node.operands:
            inputs[key] = translation.emit("reshape", {"input": translation.name(node.operands[name])}, extents)
        else:
            inputs[key] = translation.constant(np.full(extents, default, np.int64), extents)
    epsilon = node.attributes["epsilon"]
    return translation.emit("batch_normalization", inputs, node.outputs[0].shape, epsilon=epsilon)


@rule("layerNormalization")
def layer_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Over the given axes; scale and bias have these axes in the order in which they are given."""
    axes = node.attributes["axes"]
    source = node.operands["input"]
    order = sorted(range(len(axes)), key=lambda i: axes[i])
    inputs: dict[str, Operand] = {"input": translation.name(source)}
    extents = [n if axis in axes else 1 for axis, n in enumerate(source.shape)]
    for name, key, default in _NORM:
        operand = node.operands.get(name)
        if operand is None:
            inputs[key] = Fraction(default)
            continue
        found, shape = translation.name(operand), [operand.shape[i] for i in order]
        if order != sorted(order):
            found = translation.emit("transpose", {"input": found}, shape, axes=tuple(order))
        inputs[key] = translation.emit("reshape", {"input": found}, extents)
    return _standardised(translation, node, inputs, tuple(sorted(axes)))


@rule("instanceNormalization")
def instance_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Over height and width, of every channel of every image."""
    layout, source = node.attributes["layout"], node.operands["input"]
    inputs: dict[str, Operand] = {"input": translation.name(source)}
    extents = [n if letter == "c" else 1 for letter, n in zip(layout, source.shape, strict=True)]
    for name, key, default in _NORM:
        operand = node.operands.get(name)
        inputs[key] = Fraction(default)
        if operand is not None:
            inputs[key] = translation.emit("reshape", {"input": translation.name(operand)}, extents)
    return _standardised(translation, node, inputs, spatial(layout))


def _standardised(
    translation: WebnnTranslation, node: WebnnNode, inputs: dict[str, Operand], axes: tuple[int, ...]
) -> str:
    epsilon, output = node.attributes["epsilon"], node.outputs[0]
    if epsilon <= 0:
        message = "items that are all alike would be divided by zero"
        raise refusal(output, message, "choose an epsilon above 0")
    return translation.emit("layer_normalization", inputs, output.shape, axes=axes, epsilon=epsilon)


# Reductions


def _reduced(translation: WebnnTranslation, node: WebnnNode, op: str, name: str, source: MLOperand) -> str:
    """One reduction, with the extents that are asked for."""
    axes = node.attributes["axes"]
    if not axes:
        return name
    kept = [1 if i in axes else n for i, n in enumerate(source.shape)]
    found = translation.emit(op, {"input": name}, kept, axes=axes)
    return translation.emit("reshape", {"input": found}, node.outputs[0].shape)


@rule("reduceMax", "reduceMin", "reduceMean", "reduceSum")
def reduction(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Of real numbers exact; sums of integers must be proven to fit."""
    op = {"reduceMax": "max_reduce", "reduceMin": "min_reduce", "reduceMean": "mean_reduce", "reduceSum": "sum_reduce"}
    source = node.operands["input"]
    name = _reduced(translation, node, op[node.op], translation.name(source), source)
    exact = is_float(source.data_type) or node.op in ("reduceMax", "reduceMin")
    return name if exact else translation.integers(name, node)


@rule("reduceL2", "reduceLogSum", "reduceLogSumExp")
def function_of_sum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A root or a logarithm; of no axes that of every item."""
    op = {"reduceL2": "l2_reduce", "reduceLogSum": "log_sum_reduce", "reduceLogSumExp": "log_sum_exp_reduce"}[node.op]
    source = node.operands["input"]
    name = translation.name(source)
    if node.attributes["axes"]:
        return _reduced(translation, node, op, name, source)
    if node.op == "reduceLogSumExp":
        return name
    return translation.emit({"reduceL2": "abs", "reduceLogSum": "log"}[node.op], {"x": name}, source.shape)


@rule("reduceL1", "reduceSumSquare")
def sums_of(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The sum of magnitudes or squares."""
    source = node.operands["input"]
    name, shape = translation.name(source), source.shape
    if node.op == "reduceSumSquare":
        name = translation.emit("mul", {"x": name, "y": name}, shape)
    elif is_float(source.data_type):
        name = translation.emit("abs", {"x": name}, shape)
    else:
        negative = translation.emit("neg", {"x": name}, shape)
        name = translation.emit("max", {"x": name, "y": negative}, shape, quantizer=_EVERYTHING)
    found = _reduced(translation, node, "sum_reduce", name, source)
    return found if is_float(source.data_type) else translation.integers(found, node)


@rule("reduceProduct")
def reduce_product(translation: WebnnTranslation, node: WebnnNode) -> str:
    """One factor after the other."""
    source, output, axes = node.operands["input"], node.outputs[0], node.attributes["axes"]
    if not axes:
        return translation.name(source)
    rest = [axis for axis in range(source.rank) if axis not in axes]
    count = math.prod(source.shape[axis] for axis in axes)
    if count > _MOST_FACTORS:
        raise refusal(output, f"a product of {count} factors", f"multiply at most {_MOST_FACTORS} at a time")
    order = (*rest, *axes)
    name = translation.emit(
        "transpose", {"input": translation.name(source)}, [source.shape[axis] for axis in order], axes=order
    )
    left = math.prod(source.shape[axis] for axis in rest)
    name = translation.emit("reshape", {"input": name}, (left, count))
    factors = translation.emit_many("split", {"value": name}, [(left, 1)] * count, axis=1, ratios=(1,) * count)
    found = factors[0]
    for factor in factors[1:]:
        found = translation.emit("mul", {"x": found, "y": factor}, (left, 1))
    found = translation.emit("reshape", {"input": found}, output.shape)
    return found if is_float(source.data_type) else translation.integers(found, node)


@rule("argMax", "argMin")
def position(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The first index of the greatest or the least."""
    source, axis = node.operands["input"], node.attributes["axis"]
    kept = [1 if i == axis else n for i, n in enumerate(source.shape)]
    op = {"argMax": "argmax_reduce", "argMin": "argmin_reduce"}[node.op]
    found = translation.emit(op, {"input": translation.name(source)}, kept, axes=(axis,), dtype="integer")
    return translation.emit("reshape", {"input": found}, node.outputs[0].shape, dtype="integer")


@rule("cumulativeSum")
def cumulative_sum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The product with a triangle of ones."""
    source, axis = node.operands["input"], node.attributes["axis"]
    n, rank = source.shape[axis], source.rank
    order = (*(i for i in range(rank) if i != axis), axis)
    shape = [source.shape[i] for i in order]
    rows = math.prod(shape[:-1])
    name = translation.emit("transpose", {"input": translation.name(source)}, shape, axes=order)
    name = translation.emit("reshape", {"input": name}, (rows, n))
    offset = int(node.attributes["exclusive"])
    ones = np.ones((n, n), np.int64)
    triangle = np.tril(ones, -offset) if node.attributes["reversed"] else np.triu(ones, offset)
    inputs = {"A": name, "B": translation.constant(triangle, (n, n))}
    name = translation.emit("matmul", inputs, (rows, n), transposeA=False, transposeB=False)
    name = translation.emit("reshape", {"input": name}, shape)
    back = tuple(int(i) for i in np.argsort(order))
    name = translation.emit("transpose", {"input": name}, source.shape, axes=back)
    return name if is_float(source.data_type) else translation.integers(name, node)


@rule("softmax")
def softmax(translation: WebnnTranslation, node: WebnnNode) -> str:
    """E^x over the sum of such."""
    source = translation.name(node.operands["input"])
    return translation.emit("softmax", {"x": source}, node.outputs[0].shape, axes=(node.attributes["axis"],))
