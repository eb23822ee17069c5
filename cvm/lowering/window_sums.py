"""Sums over windows of any axes that move by one (box of NNEF 1.0.1 section 4.3.2 as section 4.9.4 uses it)."""

from __future__ import annotations

import math

import numpy as np

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering
from cvm.lowering.form import LinearForm, Term
from cvm.lowering.operands import full_value
from cvm.lowering.windows import Axis, axes_of
from cvm.quantization.rationals import Rationals

__all__ = ["window_total", "window_volume"]


def window_volume(operation: GraphOperation) -> int:
    """The number of items of a window."""
    return math.prod(_size(operation))


def _size(operation: GraphOperation) -> tuple[int, ...]:
    return tuple(int(extent) for extent in operation.attributes["size"])  # type: ignore[union-attr, arg-type]


def window_total(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    """The sum of each window, with automatic padding by real zeros; axis by axis, since windows are products."""
    axes = axes_of(form.shape, _size(operation), (), (), ())
    terms = []
    for term in form.terms:
        if any(axis.size > 1 and term.factor.shape[i] > 1 for i, axis in enumerate(axes)):
            raise lowering.needs_quantization(operation, str(operation.inputs["input"]))
        value = full_value(lowering, operation, term.value, form.shape)
        for i, axis in enumerate(axes):
            if axis.size > 1:
                value = _along(lowering, operation, value, i, axis)
        terms.append(Term(value, term.factor))
    constant = form.constant
    if not constant.is_zero() and any(axis.size > 1 for axis in axes):
        items = constant.broadcast(form.shape).numerators
        for i, axis in enumerate(axes):
            if axis.size > 1:
                items = np.moveaxis(np.tensordot(_band(axis), items, axes=([1], [i])), 0, i)
        constant = Rationals(items, constant.denominator).reduced()
    return LinearForm(form.shape, tuple(terms), constant)


def _band(axis: Axis) -> np.ndarray:
    """The matrix (outputs, extent) with 1 where an item lies in a window."""
    first = np.arange(axis.outputs)[:, None] - axis.before
    at = np.arange(axis.extent)[None, :]
    return ((at >= first) & (at < first + axis.size)).astype(object) * 1


def _along(lowering: Lowering, operation: GraphOperation, value: str, place: int, axis: Axis) -> str:
    """Sums over windows of one axis: a convolution with ones over images of that many rows."""
    shape = lowering.builder.shape(value)
    outer, inner = math.prod(shape[:place]), math.prod(shape[place + 1 :])
    image = lowering.emit(operation, "reshape", value, target_shape=(outer, 1, axis.extent, inner))
    padding = min(axis.before, axis.after)
    more = axis.after - axis.before
    if more:
        zeros = np.zeros((outer, 1, abs(more), inner), dtype=object)
        border = lowering.tensor_constant(operation, zeros, "padding")
        image = lowering.emit(operation, "concatenate", *((image, border) if more > 0 else (border, image)), axis=2)
    ones = lowering.tensor_constant(operation, np.ones((1, 1, axis.size, 1), dtype=object), "ones")
    sums = lowering.emit(
        operation, "conv2d", image, ones, padding=(padding, 0), stride=(1, 1), dilation=(1, 1), groups=1
    )
    return lowering.emit(operation, "reshape", sums, target_shape=shape)
