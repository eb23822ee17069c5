"""Matrix products, reductions, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import is_float
from cvm.frontends.common.decompositions.sums import (
    MOST_FACTORS,
    columns,
    gemm,
    magnitudes_or_squares,
    product,
    restored,
    rows,
    running_sum,
)
from cvm.frontends.common.shapes import broadcast
from cvm.frontends.onnx.call import Made, OnnxCall, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import result
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__ = ["centred"]


# Products


@rule("MatMul")
def matmul(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """MatMul: the batched matrix product; a vector is a row on the left and a column on the right."""
    first, second = call.operand(0), call.operand(1)
    data_type = call.same_type(first, second)
    name, shape = _product(translation, call, first, translation.name(first), second, translation.name(second))
    return result(translation, name, shape, data_type)


def _product(
    translation: OnnxTranslation, call: OnnxCall, first: Operand, a: str, second: Operand, b: str
) -> tuple[str, Shape]:
    """The product of the tensors ``a`` and ``b``, which have the shapes of the operands; its name and its shape."""
    if not first.rank or not second.rank:
        raise call.invalid("shape", "an operand is a single number; it must have at least one axis")
    left = first.shape if first.rank > 1 else (1, *first.shape)
    right = second.shape if second.rank > 1 else (*second.shape, 1)
    batch = broadcast(left[:-2], right[:-2])
    if left[-1] != right[-2] or batch is None:
        raise call.invalid(
            "shape", f"matrices of the shapes {list(first.shape)} and {list(second.shape)} cannot be multiplied"
        )
    if second.rank == 2 and first.rank > 2:  # one product with all rows, so that a constant keeps its scales per column
        a = translation.reshape(a, (math.prod(left[:-1]), left[-1]))
        shape = (*left[:-1], right[1])
        return translation.reshape(translation.emit("matmul", a, b, transposeA=False, transposeB=False), shape), shape
    rank = len(batch) + 2
    sides = []
    for name, extents in ((a, left), (b, right)):
        whole = (1,) * (rank - len(extents)) + extents
        sides.append(name if translation.shape(name) == whole else translation.reshape(name, whole))
    name = translation.emit("matmul", *sides, transposeA=False, transposeB=False)
    shape = batch + (left[-2:-1] if first.rank > 1 else ()) + (right[-1:] if second.rank > 1 else ())
    return (name if shape == translation.shape(name) else translation.reshape(name, shape)), shape


@rule("Gemm")
def gemm_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Gemm: alpha * A * B + beta * C."""
    a, b, c = call.operand(0), call.operand(1), call.optional(2)
    data_type = call.same_type(a, b, *([] if c is None else [c]))
    transposes = call.flag("transA", False), call.flag("transB", False)
    alpha, beta = (call.number(name, Fraction(1)) for name in ("alpha", "beta"))
    if a.rank != 2 or b.rank != 2:
        raise call.invalid("shape", f"A and B must be matrices, found the shapes {list(a.shape)} and {list(b.shape)}")
    left, right = (
        shape[::-1] if flipped else shape for shape, flipped in zip((a.shape, b.shape), transposes, strict=True)
    )
    if left[1] != right[0]:
        raise call.invalid("shape", f"matrices of the shapes {list(left)} and {list(right)} cannot be multiplied")
    shape = (left[0], right[1])
    names = translation.name(a), translation.name(b)
    _require_whole(call, alpha, data_type)
    if c is not None:
        if broadcast(c.shape, shape) != shape:
            raise call.invalid("shape", f"C of {list(c.shape)} does not broadcast to {list(shape)}")
        _require_whole(call, beta, data_type)
    added = None if c is None else lambda: translation.aligned_operand(c, 2)
    return result(translation, gemm(translation, *names, transposes, alpha, beta, added), shape, data_type)


def _require_whole(call: OnnxCall, factor: Fraction, data_type: str) -> None:
    if not is_float(data_type) and factor.denominator != 1:
        raise call.refuse(f"integers times {float(factor)} are rounded by no rule", "use whole alpha and beta")


@rule("MatMulInteger")
def matmul_integer(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """MatMulInteger: the product of (A - zero point) and (B - zero point), with zero points per
    tensor, row or column.
    """
    sides = []
    for index, axis in ((0, -2), (1, -1)):
        operand, zero = call.operand(index), call.optional(index + 2)
        name = translation.name(operand)
        if zero is not None:
            call.same_type(operand, zero)
            name = centred(translation, call, operand, zero, operand.rank + axis)
        sides.append((operand, name))
    (first, a), (second, b) = sides
    name, shape = _product(translation, call, first, a, second, b)
    return result(translation, name, shape, "int32")


def centred(translation: OnnxTranslation, call: OnnxCall, operand: Operand, zero: Operand, axis: int) -> str:
    """An operand minus its zero point, which is a number, a vector along an axis, or a tensor of the operand's rank."""
    along = list(zero.shape)
    if math.prod(along) == 1:
        along = [1] * operand.rank
    elif zero.rank == 1 and 0 <= axis < operand.rank:
        along = [zero.shape[0] if i == axis else 1 for i in range(operand.rank)]
    if broadcast(along, operand.shape) != operand.shape:
        raise call.invalid(
            "shape", f"a zero point of the shape {list(zero.shape)} does not fit the operand {list(operand.shape)}"
        )
    moved = translation.reshape(translation.name(zero), along)
    return translation.emit("sub", translation.name(operand), moved)


# Reductions


def _axes(call: OnnxCall, source: Operand) -> tuple[int, ...]:
    """The axes of a reduction, from an attribute or an input; all axes by default."""
    given = call.integers("axes")
    if given is None:
        given = call.constant_integers(1, "axes")
    if not given:
        return () if call.flag("noop_with_empty_axes", False) else tuple(range(source.rank))
    call.ignore("noop_with_empty_axes")
    return call.axes(given, source.rank)


def _reduced(translation: OnnxTranslation, call: OnnxCall, op: str, name: str, source: Operand) -> tuple[str, Shape]:
    """Emit one reduction; its name, and its shape with or without the reduced axes as the node asks."""
    axes, keep = _axes(call, source), call.flag("keepdims", True)
    kept = tuple(1 if i in axes else n for i, n in enumerate(source.shape))
    shape = kept if keep else tuple(n for i, n in enumerate(source.shape) if i not in axes)
    if axes:
        name = translation.emit(op, name, axes=axes)
    if shape != kept:
        name = translation.reshape(name, shape)
    return name, shape


@rule("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum")
def reduction(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ReduceSum, ReduceMean, ReduceMax and ReduceMin; sums of integers must be proven to fit."""
    op = {"ReduceMax": "max_reduce", "ReduceMin": "min_reduce", "ReduceMean": "mean_reduce", "ReduceSum": "sum_reduce"}
    source = call.operand()
    name, shape = _reduced(translation, call, op[call.node.op], translation.name(source), source)
    if call.node.op == "ReduceSum":
        return result(translation, name, shape, source.data_type)
    return Made(name, shape, source.data_type)


@rule("ReduceL1", "ReduceSumSquare")
def sums_of(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ReduceL1 and ReduceSumSquare: the sum of magnitudes or of squares."""
    source = call.operand()
    squares = call.node.op == "ReduceSumSquare"
    name = magnitudes_or_squares(translation, translation.name(source), source.data_type, squares)
    name, shape = _reduced(translation, call, "sum_reduce", name, source)
    return result(translation, name, shape, source.data_type)


@rule("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def functions_of_sums(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ReduceL2, ReduceLogSum and ReduceLogSumExp: the root or the logarithm of a sum."""
    op = {"ReduceL2": "l2_reduce", "ReduceLogSum": "log_sum_reduce", "ReduceLogSumExp": "log_sum_exp_reduce"}
    source = call.operand()
    if not _axes(call, source):
        raise call.refuse("it reduces no axis", "use Abs, Log or Identity")
    name, shape = _reduced(translation, call, op[call.node.op], translation.name(source), source)
    return Made(name, shape, source.data_type)


def _require_few_factors(call: OnnxCall, source: Operand, axes: Sequence[int]) -> None:
    count = math.prod(source.shape[axis] for axis in axes)
    if count > MOST_FACTORS:
        raise call.refuse(f"it is a product of {count} factors", f"multiply at most {MOST_FACTORS} at a time")


@rule("ReduceProd")
def reduce_product(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ReduceProd: multiply one factor after another."""
    source = call.operand()
    axes, keep = _axes(call, source), call.flag("keepdims", True)
    if not axes:
        return Made(translation.name(source), source.shape, source.data_type)
    _require_few_factors(call, source, axes)
    shape = tuple(1 if i in axes else n for i, n in enumerate(source.shape) if keep or i not in axes)
    name = product(translation, translation.name(source), axes, shape, source.data_type)
    return Made(name, shape, source.data_type)


@rule("CumProd")
def cumulative_product(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """CumProd: multiply one factor after another, and keep each product."""
    source = call.operand()
    axis = _constant_axis(call, source)
    exclusive, reverse = call.flag("exclusive", False), call.flag("reverse", False)
    _require_few_factors(call, source, (axis,))
    factors = columns(translation, rows(translation, translation.name(source), (axis,)))
    if reverse:
        factors.reverse()
    extents = translation.shape(factors[0])
    one = translation.constant(np.ones(extents, np.int64), extents)
    products = [one] if exclusive else []
    for factor in factors[:-1] if exclusive else factors:
        name = translation.emit("mul", products[-1], factor) if products else factor
        products.append(translation.result(name, source.data_type))
    if reverse:
        products.reverse()
    name = translation.emit("concat", tuple(products), axis=1)
    return Made(restored(translation, name, source.shape, axis), source.shape, source.data_type)


def _constant_axis(call: OnnxCall, source: Operand) -> int:
    given = call.constant_integers(1, "the axis") or ()
    if len(given) != 1:
        raise call.invalid("shape", "the axis must be a single number")
    return call.axis(given[0], source.rank)


@rule("CumSum")
def cumulative_sum(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """CumSum: the product with a triangle of ones."""
    source = call.operand()
    axis = _constant_axis(call, source)
    exclusive, reverse = call.flag("exclusive", False), call.flag("reverse", False)
    name = running_sum(translation, translation.name(source), axis, exclusive, reverse, source.data_type)
    return Made(name, source.shape, source.data_type)


# Normalisation


@rule("Softmax")
def softmax(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Softmax: e^x / sum of e^x along an axis; before version 13, over all axes from ``axis`` on together."""
    source, flat = call.operand(), call.version < 13
    axis = call.integer("axis", 1 if flat else -1)
    axis = source.rank if flat and axis == source.rank else call.axis(axis, source.rank)
    name = translation.name(source)
    if not flat or axis == source.rank - 1:
        return Made(translation.emit("softmax", name, axes=(axis,)), source.shape, source.data_type)
    name = translation.reshape(name, (math.prod(source.shape[:axis]), math.prod(source.shape[axis:])))
    name = translation.reshape(translation.emit("softmax", name, axes=(1,)), source.shape)
    return Made(name, source.shape, source.data_type)
