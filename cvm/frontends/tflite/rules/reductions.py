"""Reductions, matrix products, softmax, normalisation, and indices of extremes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from cvm.frontends.common.decompositions.sums import running_sum
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []

_REDUCTIONS = {"MEAN": "mean_reduce", "SUM": "sum_reduce", "REDUCE_MAX": "max_reduce", "REDUCE_MIN": "min_reduce"}
_L2_EPSILON = Fraction(1, 10**12)


@rule(*_REDUCTIONS)
def reduce_(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The mean, the sum, the maximum or the minimum over axes."""
    source, op = call.operand(), call.operator.op
    axes = call.axes(call.integers(1, "the axes"), source.rank)
    if not source.real and op == "MEAN":
        raise call.refuse("a mean of integers rounds", "quantise its input")
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(source.shape))
    planar = translation.is_planar(source)
    name = translation.planar(source) if planar else translation.name(source)
    if axes:
        moved = tuple(_planar_axis(axis, source.rank) if planar else axis for axis in axes)
        name = translation.emit(_REDUCTIONS[op], name, axes=tuple(sorted(moved)))
        if not source.real:
            name = translation.result(name, source.data_type)
    if planar:
        name = translation.transposed(name, (0, *range(2, source.rank), 1))
    if not call.flag("KeepDims"):
        name = translation.reshape(name, [extent for axis, extent in enumerate(kept) if axis not in axes])
    return Made(name)


def _planar_axis(axis: int, rank: int) -> int:
    """The index of an axis after the channels have moved from the last axis to axis 1."""
    return 0 if axis == 0 else 1 if axis == rank - 1 else axis + 1


@rule("REDUCE_ANY", "REDUCE_ALL")
def any_or_all(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Whether any, or every, truth value along axes is true."""
    source = call.operand()
    axes = call.axes(call.integers(1, "the axes"), source.rank)
    op = "any_reduce" if call.operator.op == "REDUCE_ANY" else "all_reduce"
    name = translation.emit(op, translation.name(source), axes=axes)
    if not call.flag("KeepDims"):
        shape = [extent for axis, extent in enumerate(source.shape) if axis not in axes]
        name = translation.reshape(name, shape, dtype="logical")
    return Made(name)


@rule("ARG_MAX", "ARG_MIN")
def index_of_extreme(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The first index of the greatest or the least element along an axis."""
    source = call.operand()
    axes = call.integers(1, "the axis")
    if len(axes) != 1:
        raise call.invalid("axis", f"there must be one axis, found {list(axes)}")
    axis = call.axis(axes[0], source.rank)
    op = "argmax_reduce" if call.operator.op == "ARG_MAX" else "argmin_reduce"
    name = translation.emit(op, translation.name(source), axes=(axis,), dtype="integer")
    shape = [extent for i, extent in enumerate(source.shape) if i != axis]
    return Made(translation.reshape(name, shape, dtype="integer"))


@rule("BATCH_MATMUL")
def batch_matmul(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A matrix product for each index of the leading axes; either operand may be transposed."""
    x, y = call.operand(0), call.operand(1)
    name = product_of_matrices(translation, call, [translation.name(x), translation.name(y)])
    return Made(name if x.real else translation.result(name, call.result.data_type))


def product_of_matrices(translation: TfliteTranslation, call: TfliteCall, names: Sequence[str]) -> str:
    """The matrix product of two tensors, each transposed where the operator says so."""
    ranks = [call.operand(i).rank for i in range(2)]
    if min(ranks) < 2:
        shapes = " and ".join(str(list(call.operand(i).shape)) for i in range(2))
        raise call.invalid("shape", f"both sides must be matrices, found {shapes}")
    sides = [translation.aligned(name, max(ranks)) for name in names]
    return translation.emit("matmul", *sides, transposeA=call.flag("AdjX"), transposeB=call.flag("AdjY"))


@rule("SOFTMAX")
def softmax(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """e^(beta x) divided by the sum of all e^(beta x) along the last axis."""
    source, beta = call.operand(), call.number("Beta", 1.0)
    name = translation.name(source)
    if beta != 1:
        name = translation.emit("mul", name, beta)
    return Made(translation.emit("softmax", name, axes=(max(source.rank, 1) - 1,)))


@rule("LOG_SOFTMAX")
def log_softmax(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X minus the logarithm of the sum of e^x along the last axis."""
    source = call.operand()
    name = translation.name(source)
    total = translation.emit("log_sum_exp_reduce", name, axes=(max(source.rank, 1) - 1,))
    return Made(translation.emit("sub", name, total))


@rule("L2_NORMALIZATION")
def l2_normalization(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X / sqrt(max(sum of x^2, 10^-12)) along the last axis."""
    source = call.operand()
    name = translation.name(source)
    axis = max(source.rank, 1) - 1
    squares = translation.emit("sum_reduce", translation.emit("mul", name, name), axes=(axis,))
    norm = translation.emit("sqrt", translation.emit("max", squares, _L2_EPSILON))
    return Made(translation.activated(call, translation.emit("div", name, norm)))


@rule("CUMSUM")
def cumsum(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The sum of all elements up to each index along an axis."""
    source = call.operand()
    value = call.integer_operand(1, "the axis")
    axis = call.axis(value, source.rank)
    data_type = "float32" if source.real else source.data_type
    name = running_sum(
        translation, translation.name(source), axis, call.flag("Exclusive"), call.flag("Reverse"), data_type
    )
    return Made(name)
