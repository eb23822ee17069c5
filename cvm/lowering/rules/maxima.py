"""Maxima of windows and their positions (NNEF 1.0.1 sections 4.3.3 and 4.9.3).

A maximum is found among integers in the order of the real numbers, along one axis after the other. A constant border
adds zeros; an ignored border adds nothing. Positions are found in the same way: along the last axis first, then along
each axis before it among the maxima found so far. So the first of equal maxima in row-major order is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.lowering.claims import NOTHING_INSIDE, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Form, Known, LinearForm, Term
from cvm.lowering.forms.gather import around, gathered, gathered_windows
from cvm.lowering.forms.windows import Axis, Indices, axes_of, sizes_of
from cvm.lowering.parts.correlation import own_padding
from cvm.lowering.parts.movement import valued
from cvm.lowering.parts.operands import codes_of
from cvm.lowering.parts.ordering import by_ranks, in_order
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.exact import code
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Array = npt.NDArray[Any]


@rule(
    "max_pool",
    claim=exact("the greatest of integers in the order of the reals, of codes, or of ranks", NOTHING_INSIDE),
)
def max_pool(lowering: Lowering) -> list[Result]:
    """The greatest item of each window."""
    operand, axes = _pooled(lowering)
    return [_maximum(lowering, operand, axes)]


@rule("argmax_pool", claim=exact("the first greatest by comparison tap by tap", NOTHING_INSIDE))
def argmax_pool(lowering: Lowering) -> list[Result]:
    """The row-major position within its window of the first greatest item."""
    operand, axes = _pooled(lowering)
    return [_position(lowering, operand, axes)]


@rule("max_pool_with_index", claim=exact("as max_pool and argmax_pool", NOTHING_INSIDE))
def max_pool_with_index(lowering: Lowering) -> list[Result]:
    """The greatest item of each window, and its position."""
    operand, axes = _pooled(lowering)
    maximum = _maximum(lowering, operand, axes)
    if not _read(lowering, lowering.operation.outputs[1]):
        nothing = LinearForm(lowering.output_shape(1), (), Rationals.scalar(0, len(axes)))
        return [maximum, nothing]
    return [maximum, _position(lowering, operand, axes)]


def _read(lowering: Lowering, name: str) -> bool:
    """Whether an operation reads a tensor, or the tensor is an output of the graph."""
    graph = lowering.graph
    return name in graph.outputs or any(
        name in (operand if isinstance(operand, tuple) else (operand,))
        for operation in graph.operations
        for operand in operation.inputs.values()
    )


def _pooled(lowering: Lowering) -> tuple[Form, tuple[Axis, ...]]:
    found = lowering.operand("input")
    operand = valued(lowering, found, "constant") if isinstance(found, Known) else found
    axes = axes_of(lowering, operand.shape, sizes_of(lowering, len(operand.shape)))
    if any(axis.border == "ignore" and not axis.inside().any(axis=1).all() for axis in axes):
        raise lowering.unsupported("a window lies in the ignored border altogether: it has no maximum")
    return operand, axes


# Maxima


def _maximum(lowering: Lowering, operand: Form, axes: Sequence[Axis]) -> Result:
    """The maxima, found among the integers of a linear form, else among codes of the result, whose quantiser is
    monotone, else among ranks.
    """
    moving = [i for i, axis in enumerate(axes) if not axis.identity]
    shape = tuple(axis.outputs for axis in axes)
    held = all(axis.inside().any(axis=1).all() for axis in axes)
    linear = in_order(lowering, operand, moving, _zeros(axes), held)
    if linear is not None and linear.decoded is not None:
        return linear.decoded(_greatest(lowering, linear.value, axes, linear.zero), shape)
    quantizer = lowering.quantizer()
    if quantizer is not None and quantizer.axis not in moving:
        codes = codes_of(lowering, operand, quantizer, "codes")
        found = _greatest(lowering, codes, axes, _codes_of_zero(quantizer, len(axes)))
        return Coded(found, note="maximum of codes", any_rounding=True)
    ranks = by_ranks(lowering, operand)
    if ranks is None or ranks.decoded is None:
        raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
    return ranks.decoded(_greatest(lowering, ranks.value, axes, ranks.zero), shape)


def _zeros(axes: Sequence[Axis]) -> bool:
    """Whether a window reads zeros of a constant border."""
    return axes[0].border == "constant" and any((axis.sources() < 0).any() for axis in axes)


def _codes_of_zero(quantizer: Quantizer, rank: int) -> Array:
    along, channels = [1] * rank, 1
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis is not None:
        along[quantizer.axis] = channels = len(quantizer.scale)
    codes = [code(Fraction(0), quantizer, i) for i in range(channels)]
    return np.array(codes, dtype=object).reshape(along)


def _greatest(lowering: Lowering, value: Value, axes: Sequence[Axis], zero: Array) -> Value:
    """The greatest integer of each window. Items of a constant border are ``zero``."""
    least = value.range.hull()[0]
    held = all(axis.inside().any(axis=1).all() for axis in axes)
    # The least integer never exceeds an item, and every window has at least one item in this case.
    ignored = axes[0].border == "ignore" or (held and bool((zero <= least).all()))
    fill: int | Array = least if ignored else zero
    plane = len(axes) == 4 and axes[0].identity and axes[1].identity and all(axis.dilation == 1 for axis in axes[2:])
    if plane and any(axis.size > 1 for axis in axes[2:]):
        padding = []
        for i, axis in enumerate(axes[2:], start=2):
            pad = own_padding(axis) if ignored or (axis.line() >= 0).all() else None
            if pad is None or pad >= axis.size:
                value, pad = gathered(value, i, axis.line(), fill), 0
            padding.append(pad)
        sizes, strides = tuple(axis.size for axis in axes[2:]), tuple(axis.stride for axis in axes[2:])
        return value.apply("max_pool2d", pool_size=sizes, padding=tuple(padding), strides=strides, ceil_mode=False)
    for i, axis in enumerate(axes):
        if not axis.identity:
            value = _greatest_along(value, i, axis.sources(), fill)
    return value


def _greatest_along(value: Value, axis: int, sources: Indices, fill: int | Array) -> Value:
    if sources.shape[1] == 1:
        return gathered(value, axis, sources[:, 0], fill)
    shape = value.shape
    target = (*shape[:axis], len(sources), *shape[axis + 1 :])
    dimension = axis
    if len(shape) == 8:  # an intermediate of rank 9 is not possible
        if (sources < 0).any():
            value = gathered(value, axis, np.append(np.arange(shape[axis]), -1), fill)
            sources = np.where(sources < 0, shape[axis], sources)
        value = value.reshape(around(value.shape, axis))
        dimension = 1
    windows = gathered_windows(value, dimension, sources, fill)
    found = windows.max((dimension + 1,))
    if found.shape != target:
        found = found.reshape(target)
    return found


# Positions


def _position(lowering: Lowering, operand: Form, axes: Sequence[Axis]) -> Result:
    moving = [i for i, axis in enumerate(axes) if not axis.identity]
    clamped = isinstance(operand, LinearForm) and operand.clamped
    order = None if clamped else in_order(lowering, operand, moving, _zeros(axes))
    order = order or by_ranks(lowering, operand)
    if order is None:
        raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
    # An item of an ignored border is less than any other.
    ignored = axes[0].border == "ignore"
    fill = order.value.range.hull()[0] - 1 if ignored else order.zero
    value, index = order.value, None
    for i, axis in enumerate(axes):
        value = gathered(value, i, axis.line(), fill)
    weight = 1
    for i, axis in reversed(list(enumerate(axes))):
        value, index = _winners(lowering, value, index, i, axis, weight)
        weight *= axis.size
    rank, shape = len(axes), tuple(axis.outputs for axis in axes)
    terms = () if index is None else (Term(index, Rationals.scalar(1, rank)),)
    return LinearForm(shape, terms, Rationals.scalar(0, rank))


def _winners(
    lowering: Lowering, value: Value, index: Value | None, dimension: int, axis: Axis, weight: int
) -> tuple[Value, Value | None]:
    """The greatest of the taps along one axis of the line, and its position ``index`` + weight * tap, where None means
    index 0.
    """
    starts = np.arange(axis.outputs) * axis.step
    best = gathered(value, dimension, starts)
    found = None if index is None else gathered(index, dimension, starts)
    for tap in range(1, axis.size):
        indices = starts + tap * axis.dilation
        here = gathered(value, dimension, indices)
        greater = here.greater(best)
        best = best.maximum(here)
        step = lowering.tensor_constant([tap * weight], "tap")
        if index is None:  # a later tap has a greater position
            position = greater * step
            found = position if found is None else found.maximum(position)
        else:
            assert found is not None
            position = gathered(index, dimension, indices)
            position = position + step
            found = lowering.emit("where", greater, position, found)
    return best, found
