"""Matrix products, reductions, running sums, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import is_float
from cvm.frontends.onnx.call import Call, Made, Operand, broadcast
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import EVERYTHING, result
from cvm.frontends.onnx.rules.movement import transposed
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__ = ["centred"]

_MOST_FACTORS = 64


# Products


@rule("MatMul")
def matmul(translation: OnnxTranslation, call: Call) -> Made:
    """The product of matrices, in batches; a vector is a row at the left, a column at the right."""
    first, second = call.operand(0), call.operand(1)
    data_type = call.same_type(first, second)
    name, shape = _product(translation, call, first, translation.name(first), second, translation.name(second))
    return result(translation, name, shape, data_type)


def _product(
    translation: OnnxTranslation, call: Call, first: Operand, a: str, second: Operand, b: str
) -> tuple[str, Shape]:
    """The product of the tensors ``a`` and ``b``, which have the shapes of the operands."""
    if not first.rank or not second.rank:
        raise call.invalid("shape", "a number is no matrix")
    left = first.shape if first.rank > 1 else (1, *first.shape)
    right = second.shape if second.rank > 1 else (*second.shape, 1)
    batch = broadcast(left[:-2], right[:-2])
    if left[-1] != right[-2] or batch is None:
        raise call.invalid("shape", f"no product of {list(first.shape)} and {list(second.shape)}")
    if second.rank == 2 and first.rank > 2:  # one product of all rows: a constant keeps its scales per column
        rows = math.prod(left[:-1])
        name = translation.emit("reshape", {"input": a}, (rows, left[-1]))
        inputs = {"A": name, "B": b}
        name = translation.emit("matmul", inputs, (rows, right[1]), transposeA=False, transposeB=False)
        shape = (*left[:-1], right[1])
        return translation.emit("reshape", {"input": name}, shape), shape
    rank = len(batch) + 2
    sides = {}
    for key, name, extents in (("A", a, left), ("B", b, right)):
        whole = (1,) * (rank - len(extents)) + extents
        same = translation.shape(name) == whole
        sides[key] = name if same else translation.emit("reshape", {"input": name}, whole)
    full = (*batch, left[-2], right[-1])
    name = translation.emit("matmul", sides, full, transposeA=False, transposeB=False)
    shape = batch + (left[-2:-1] if first.rank > 1 else ()) + (right[-1:] if second.rank > 1 else ())
    return (name if shape == full else translation.emit("reshape", {"input": name}, shape)), shape


@rule("Gemm")
def gemm(translation: OnnxTranslation, call: Call) -> Made:
    """Alpha * A * B + beta * C."""
    a, b, c = call.operand(0), call.operand(1), call.optional(2)
    data_type = call.same_type(a, b, *([] if c is None else [c]))
    turned = [call.flag(name, False) for name in ("transA", "transB")]
    alpha, beta = (call.number(name, Fraction(1)) for name in ("alpha", "beta"))
    if a.rank != 2 or b.rank != 2:
        raise call.invalid("shape", f"no matrices: {list(a.shape)} and {list(b.shape)}")
    left, right = (shape[::-1] if turn else shape for shape, turn in zip((a.shape, b.shape), turned, strict=True))
    if left[1] != right[0]:
        raise call.invalid("shape", f"no product of {list(left)} and {list(right)}")
    shape = (left[0], right[1])
    inputs = {"A": translation.name(a), "B": translation.name(b)}
    name = translation.emit("matmul", inputs, shape, transposeA=turned[0], transposeB=turned[1])
    name = _scaled(translation, call, name, shape, alpha, data_type)
    if c is not None:
        if broadcast(c.shape, shape) != shape:
            raise call.invalid("shape", f"C of {list(c.shape)} does not broadcast to {list(shape)}")
        added = translation.aligned(c, 2)
        added = _scaled(translation, call, added, translation.shape(added), beta, data_type)
        name = translation.emit("add", {"x": name, "y": added}, shape)
    return result(translation, name, shape, data_type)


def _scaled(translation: OnnxTranslation, call: Call, name: str, shape: Shape, factor: Fraction, data_type: str) -> str:
    if factor == 1:
        return name
    if not is_float(data_type) and factor.denominator != 1:
        raise call.refuse(f"integers times {float(factor)} are rounded by no rule")
    return translation.emit("mul", {"x": name, "y": factor}, shape)


@rule("MatMulInteger")
def matmul_integer(translation: OnnxTranslation, call: Call) -> Made:
    """The product of integers less their zero points, which are one, or one per row of A or column of B."""
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


def centred(translation: OnnxTranslation, call: Call, operand: Operand, zero: Operand, axis: int) -> str:
    """An operand less its zero point, which is a number, a vector along an axis, or of the operand's rank."""
    along = list(zero.shape)
    if math.prod(along) == 1:
        along = [1] * operand.rank
    elif zero.rank == 1 and 0 <= axis < operand.rank:
        along = [zero.shape[0] if i == axis else 1 for i in range(operand.rank)]
    if broadcast(along, operand.shape) != operand.shape:
        raise call.invalid("shape", f"a zero point of {list(zero.shape)} for {list(operand.shape)}")
    moved = translation.emit("reshape", {"input": translation.name(zero)}, along)
    return translation.emit("sub", {"x": translation.name(operand), "y": moved}, operand.shape)


# Reductions


def _axes(call: Call, source: Operand) -> tuple[int, ...]:
    """The axes that are reduced: an attribute or an input; all of them by default."""
    given = call.integers("axes")
    if given is None:
        given = call.constant_integers(1, "axes")
    if not given:
        return () if call.flag("noop_with_empty_axes", False) else tuple(range(source.rank))
    call.ignore("noop_with_empty_axes")
    return call.axes(given, source.rank)


def _reduced(translation: OnnxTranslation, call: Call, op: str, name: str, source: Operand) -> tuple[str, Shape]:
    """One reduction, with the extents that are asked for."""
    axes, keep = _axes(call, source), call.flag("keepdims", True)
    kept = tuple(1 if i in axes else n for i, n in enumerate(source.shape))
    shape = kept if keep else tuple(n for i, n in enumerate(source.shape) if i not in axes)
    if axes:
        name = translation.emit(op, {"input": name}, kept, axes=axes)
    if shape != kept:
        name = translation.emit("reshape", {"input": name}, shape)
    return name, shape


@rule("ReduceMax", "ReduceMin", "ReduceMean", "ReduceSum")
def reduction(translation: OnnxTranslation, call: Call) -> Made:
    """Of real numbers exact; sums of integers must be proven to fit."""
    op = {"ReduceMax": "max_reduce", "ReduceMin": "min_reduce", "ReduceMean": "mean_reduce", "ReduceSum": "sum_reduce"}
    source = call.operand()
    name, shape = _reduced(translation, call, op[call.node.op], translation.name(source), source)
    if call.node.op == "ReduceSum":
        return result(translation, name, shape, source.data_type)
    return Made(name, shape, source.data_type)


@rule("ReduceL1", "ReduceSumSquare")
def sums_of(translation: OnnxTranslation, call: Call) -> Made:
    """The sum of magnitudes or squares."""
    source = call.operand()
    name, shape = translation.name(source), source.shape
    if call.node.op == "ReduceSumSquare":
        name = translation.emit("mul", {"x": name, "y": name}, shape)
    elif source.real:
        name = translation.emit("abs", {"x": name}, shape)
    else:
        negative = translation.emit("neg", {"x": name}, shape)
        name = translation.emit("max", {"x": name, "y": negative}, shape, quantizer=EVERYTHING)
    name, shape = _reduced(translation, call, "sum_reduce", name, source)
    return result(translation, name, shape, source.data_type)


@rule("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def functions_of_sums(translation: OnnxTranslation, call: Call) -> Made:
    """The root of a sum of squares, the logarithm of a sum, or that of a sum of exponentials."""
    op = {"ReduceL2": "l2_reduce", "ReduceLogSum": "log_sum_reduce", "ReduceLogSumExp": "log_sum_exp_reduce"}
    source = call.operand()
    if not _axes(call, source):
        raise call.refuse("it reduces no axis", "use Abs, Log or Identity")
    name, shape = _reduced(translation, call, op[call.node.op], translation.name(source), source)
    return Made(name, shape, source.data_type)


def _rows(translation: OnnxTranslation, call: Call, source: Operand, axes: Sequence[int]) -> tuple[str, int, int]:
    """A tensor with the axes at the end and flattened: its name, its rows and their length."""
    count = math.prod(source.shape[axis] for axis in axes)
    if count > _MOST_FACTORS:
        raise call.refuse(f"a product of {count} factors", f"multiply at most {_MOST_FACTORS} at a time")
    order = (*(axis for axis in range(source.rank) if axis not in axes), *axes)
    name = transposed(translation, translation.name(source), order)
    rows = math.prod(source.shape) // count
    return translation.emit("reshape", {"input": name}, (rows, count)), rows, count


def _columns(translation: OnnxTranslation, name: str, rows: int, count: int) -> list[str]:
    return translation.emit_many("split", {"value": name}, [(rows, 1)] * count, axis=1, ratios=(1,) * count)


@rule("ReduceProd")
def reduce_product(translation: OnnxTranslation, call: Call) -> Made:
    """One factor after the other."""
    source = call.operand()
    axes, keep = _axes(call, source), call.flag("keepdims", True)
    if not axes:
        return Made(translation.name(source), source.shape, source.data_type)
    first, *others = _columns(translation, *_rows(translation, call, source, axes))
    for factor in others:
        first = translation.emit("mul", {"x": first, "y": factor}, translation.shape(first))
    shape = tuple(1 if i in axes else n for i, n in enumerate(source.shape) if keep or i not in axes)
    return result(translation, translation.emit("reshape", {"input": first}, shape), shape, source.data_type)


@rule("CumProd")
def cumulative_product(translation: OnnxTranslation, call: Call) -> Made:
    """One factor after the other, each product kept."""
    source = call.operand()
    axis = _constant_axis(call, source)
    exclusive, reverse = call.flag("exclusive", False), call.flag("reverse", False)
    name, rows, count = _rows(translation, call, source, (axis,))
    factors = _columns(translation, name, rows, count)
    if reverse:
        factors.reverse()
    one = translation.constant(np.ones((rows, 1), np.int64), (rows, 1))
    products = [one] if exclusive else []
    for factor in factors[: count - 1] if exclusive else factors:
        name = translation.emit("mul", {"x": products[-1], "y": factor}, (rows, 1)) if products else factor
        products.append(result(translation, name, (rows, 1), source.data_type).name)
    if reverse:
        products.reverse()
    name = translation.emit("concat", {"values": tuple(products)}, (rows, count), axis=1)
    return Made(_restored(translation, name, source, axis), source.shape, source.data_type)


def _restored(translation: OnnxTranslation, name: str, source: Operand, axis: int) -> str:
    """Rows along an axis back in the shape of the tensor that they were taken from."""
    order = (*(i for i in range(source.rank) if i != axis), axis)
    name = translation.emit("reshape", {"input": name}, tuple(source.shape[i] for i in order))
    return transposed(translation, name, tuple(int(i) for i in np.argsort(order)))


def _constant_axis(call: Call, source: Operand) -> int:
    given = call.constant_integers(1, "the axis") or ()
    if len(given) != 1:
        raise call.invalid("shape", "the axis is no single number")
    return call.axis(given[0], source.rank)


@rule("CumSum")
def cumulative_sum(translation: OnnxTranslation, call: Call) -> Made:
    """The product with a triangle of ones."""
    source = call.operand()
    axis = _constant_axis(call, source)
    exclusive, reverse = call.flag("exclusive", False), call.flag("reverse", False)
    n = source.shape[axis]
    rows = math.prod(source.shape) // n
    order = (*(i for i in range(source.rank) if i != axis), axis)
    name = transposed(translation, translation.name(source), order)
    name = translation.emit("reshape", {"input": name}, (rows, n))
    ones = np.ones((n, n), np.int64)
    triangle = np.tril(ones, -int(exclusive)) if reverse else np.triu(ones, int(exclusive))
    inputs = {"A": name, "B": translation.constant(triangle, (n, n))}
    name = translation.emit("matmul", inputs, (rows, n), transposeA=False, transposeB=False)
    name = _restored(translation, name, source, axis)
    return result(translation, name, source.shape, source.data_type)


# Normalisation


@rule("Softmax")
def softmax(translation: OnnxTranslation, call: Call) -> Made:
    """E^x over the sum of such along an axis."""
    source = call.operand()
    axis = call.axis(call.integer("axis", -1), source.rank)
    name = translation.emit("softmax", {"x": translation.name(source)}, source.shape, axes=(axis,))
    return Made(name, source.shape, source.data_type)
