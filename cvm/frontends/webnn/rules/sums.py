"""Matrix products, reductions and batch normalisation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.sums import (
    MOST_FACTORS,
    gemm,
    log_of_exponentials,
    magnitudes_or_squares,
    normalised,
    product,
    running_sum,
)
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal
from cvm.frontends.webnn.windows import spatial
from cvm.graph import Operand

__all__: list[str] = []

_NORM = (("scale", "scale", 1), ("bias", "offset", 0))
"""The operands of a normalisation, the graph's names for them, and their values where they are missing."""


@rule("matmul")
def matmul(translation: WebnnTranslation, node: WebnnNode) -> str:
    """matmul: the batched matrix product."""
    rank = node.outputs[0].rank
    a, b = (translation.aligned_operand(node.operands[name], rank) for name in "ab")
    return translation.emit("matmul", a, b, transposeA=False, transposeB=False)


@rule("gemm")
def gemm_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """gemm: alpha * A * B + beta * C."""
    attributes, operands = node.attributes, node.operands
    transposes = attributes["a_transpose"], attributes["b_transpose"]
    added = (lambda: translation.aligned_operand(operands["c"], 2)) if "c" in operands else None
    a, b = translation.name(operands["a"]), translation.name(operands["b"])
    return gemm(translation, a, b, transposes, attributes["alpha"], attributes["beta"], added)


@rule("batchNormalization")
def batch_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The operator batchNormalization, with constant parameters along one axis."""
    extents = [n if i == node.attributes["axis"] else 1 for i, n in enumerate(node.outputs[0].shape)]
    defaults = {"mean": 0, "variance": 1, "bias": 0, "scale": 1}
    inputs: dict[str, Operand] = {"input": translation.name(node.operands["input"])}
    for name, default in defaults.items():
        key = {"bias": "offset"}.get(name, name)
        if name in node.operands:
            inputs[key] = translation.reshape(translation.name(node.operands[name]), extents)
        else:
            inputs[key] = translation.constant(np.full(extents, default, np.int64), extents)
    if translation.calibrated and any(operand.values is None for operand in list(node.operands.values())[1:]):
        return normalised(translation, {key: str(name) for key, name in inputs.items()}, node.attributes["epsilon"])
    return translation.emit("batch_normalization", inputs=inputs, epsilon=node.attributes["epsilon"])


@rule("layerNormalization")
def layer_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The operator layerNormalization, over the given axes; scale and bias have these axes in the given order."""
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
        found = translation.name(operand)
        if order != sorted(order):
            found = translation.transposed(found, order)
        inputs[key] = translation.reshape(found, extents)
    return _standardised(translation, node, inputs, tuple(sorted(axes)))


@rule("instanceNormalization")
def instance_normalization(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The operator instanceNormalization, over height and width, for each channel of each image."""
    layout, source = node.attributes["layout"], node.operands["input"]
    inputs: dict[str, Operand] = {"input": translation.name(source)}
    extents = [n if letter == "c" else 1 for letter, n in zip(layout, source.shape, strict=True)]
    for name, key, default in _NORM:
        operand = node.operands.get(name)
        inputs[key] = Fraction(default)
        if operand is not None:
            inputs[key] = translation.reshape(translation.name(operand), extents)
    return _standardised(translation, node, inputs, spatial(layout))


def _standardised(
    translation: WebnnTranslation, node: WebnnNode, inputs: dict[str, Operand], axes: tuple[int, ...]
) -> str:
    epsilon, output = node.attributes["epsilon"], node.outputs[0]
    if epsilon <= 0:
        message = "where all elements are equal, the variance is 0 and the quotient does not exist"
        raise refusal(output, message, "choose an epsilon above 0")
    given = [node.operands[name] for name, _, _ in _NORM if name in node.operands]
    if translation.calibrated and any(operand.values is None for operand in given):
        plain = {"input": inputs["input"]} | {key: Fraction(default) for _, key, default in _NORM}
        name = translation.left_open(translation.emit("layer_normalization", inputs=plain, axes=axes, epsilon=epsilon))
        return translation.emit("add", translation.emit("mul", name, inputs["scale"]), inputs["offset"])
    return translation.emit("layer_normalization", inputs=inputs, axes=axes, epsilon=epsilon)


# Reductions


def _reduced(translation: WebnnTranslation, node: WebnnNode, op: str, name: str) -> str:
    """Emit a reduction. Reduced axes keep an extent of 1 or disappear, as the call says."""
    axes = node.attributes["axes"]
    if not axes:
        return name
    return translation.reshape(translation.emit(op, name, axes=axes), node.outputs[0].shape)


@rule("reduceMax", "reduceMin", "reduceMean", "reduceSum")
def reduction(translation: WebnnTranslation, node: WebnnNode) -> str:
    """reduceMean, reduceSum, reduceMax and reduceMin: exact for real numbers; sums of integers must
    be proven to fit.
    """
    op = {"reduceMax": "max_reduce", "reduceMin": "min_reduce", "reduceMean": "mean_reduce", "reduceSum": "sum_reduce"}
    source = node.operands["input"]
    name = _reduced(translation, node, op[node.op], translation.name(source))
    return name if node.op in ("reduceMax", "reduceMin") else translation.result(name, source.data_type)


@rule("reduceL2", "reduceLogSum", "reduceLogSumExp")
def function_of_sum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """reduceL2, reduceLogSum and reduceLogSumExp: a root or a logarithm of a sum; without axes, of each element."""
    op = {"reduceL2": "l2_reduce", "reduceLogSum": "log_sum_reduce", "reduceLogSumExp": "log_sum_exp_reduce"}[node.op]
    source = node.operands["input"]
    name = translation.name(source)
    if node.attributes["axes"] and translation.calibrated and node.op == "reduceLogSumExp":
        found = log_of_exponentials(translation, name, node.attributes["axes"])
        return translation.reshape(found, node.outputs[0].shape)
    if node.attributes["axes"]:
        return _reduced(translation, node, op, name)
    if node.op == "reduceLogSumExp":
        return name
    return translation.emit({"reduceL2": "abs", "reduceLogSum": "log"}[node.op], name)


@rule("reduceL1", "reduceSumSquare")
def sums_of(translation: WebnnTranslation, node: WebnnNode) -> str:
    """reduceL1 and reduceSumSquare: the sum of magnitudes or of squares."""
    source, squares = node.operands["input"], node.op == "reduceSumSquare"
    name = magnitudes_or_squares(translation, translation.name(source), source.data_type, squares)
    return translation.result(_reduced(translation, node, "sum_reduce", name), source.data_type)


@rule("reduceProduct")
def reduce_product(translation: WebnnTranslation, node: WebnnNode) -> str:
    """reduceProduct: multiply one factor after another."""
    source, output, axes = node.operands["input"], node.outputs[0], node.attributes["axes"]
    if not axes:
        return translation.name(source)
    count = math.prod(source.shape[axis] for axis in axes)
    if count > MOST_FACTORS:
        raise refusal(output, f"it is a product of {count} factors", f"multiply at most {MOST_FACTORS} at a time")
    return product(translation, translation.name(source), axes, output.shape, source.data_type)


@rule("argMax", "argMin")
def position(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The operators argMax and argMin: the first index of the greatest or the least element."""
    op = {"argMax": "argmax_reduce", "argMin": "argmin_reduce"}[node.op]
    found = translation.emit(op, translation.name(node.operands["input"]), axes=(node.attributes["axis"],))
    return translation.reshape(found, node.outputs[0].shape, dtype="integer")


@rule("cumulativeSum")
def cumulative_sum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """cumulativeSum: the product with a triangle of ones."""
    source, (axis, exclusive, reverse) = (
        node.operands["input"],
        (node.attributes[name] for name in ("axis", "exclusive", "reversed")),
    )
    return running_sum(translation, translation.name(source), axis, exclusive, reverse, source.data_type)


@rule("softmax")
def softmax(translation: WebnnTranslation, node: WebnnNode) -> str:
    """softmax: e^x divided by the sum of all e^x along an axis."""
    source = translation.name(node.operands["input"])
    return translation.emit("softmax", source, axes=(node.attributes["axis"],))
