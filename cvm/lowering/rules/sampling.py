"""Index based sampling (NNEF 1.0.1 section 4.3.3).

``sample`` reads the padded input at the position within a window that an index gives: one look-up in the flattened
tensor. ``desample`` is the reverse operation: each position of the up-scaled space examines the windows that contain
it, which is a single one if windows do not overlap, and takes an item if its index gives this position.

An input s*q + b with b != 0 gives two terms: the integers, and b times the number of items (1 or 0 for ``sample``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.lowering.claims import APART, INDICES, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term
from cvm.lowering.forms.gather import gathered
from cvm.lowering.forms.windows import Axis, Indices, axes_of, reverse_axes_of, sizes_of
from cvm.lowering.parts.axis_sums import moved_to_zero, spread, with_common_factor, with_constant_as_value
from cvm.lowering.parts.movement import valued
from cvm.lowering.parts.operands import integer_value
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Array = npt.NDArray[Any]


def _index(lowering: Lowering, taps: int) -> Value:
    """The indices as a value in [0, taps).

    Raises `Unsupported` if they are not integers, or not proven to lie within the window.
    """
    name = str(lowering.operation.inputs["index"])
    form = lowering.linear("index")
    parts = (form.constant, *(term.factor for term in form.terms))
    if any(item.denominator != 1 for part in parts for item in part.fractions()):
        raise lowering.unsupported(f"the indices {name!r} are not all integers")
    value = integer_value(lowering, form, "index")
    lo, hi = value.range.hull()
    if lo < 0 or hi >= taps:
        message = f"the indices {name!r} lie in [{lo}, {hi}], but the window has the positions 0 to {taps - 1}"
        raise lowering.unsupported(message)
    return value


def _input(lowering: Lowering) -> LinearForm:
    operand = lowering.operand("input")
    if isinstance(operand, Known):
        return valued(lowering, operand, "constant")
    return lowering.linear("input")


def _uniform(lowering: Lowering, form: LinearForm, axes: Sequence[Axis]) -> tuple[LinearForm, list[int]]:
    """The input with integers around zero, with one factor and constant along the axes on which windows move; and these
    axes.
    """
    moving = [i for i, axis in enumerate(axes) if not axis.identity]
    form = spread(lowering, form, range(form.rank))
    if lowering.operation.name == "desample" or any((axis.sources() < 0).any() for axis in axes):
        form = moved_to_zero(lowering, form, moving)
    form = spread(lowering, with_constant_as_value(lowering, form, moving), range(form.rank))
    terms = tuple(Term(*with_common_factor(term, moving)) if moving else term for term in form.terms)
    return LinearForm(form.shape, terms, form.constant), moving


def _along(items: Array, axis: int, rank: int) -> Array:
    return items.reshape([-1 if i == axis else 1 for i in range(rank)])


@rule(
    "sample",
    claim=exact("one look-up in the flattened tensor", APART, INDICES),
)
def sample(lowering: Lowering) -> list[Result]:
    """The item of each window at the position that the index gives."""
    form = _input(lowering)
    size = sizes_of(lowering, form.rank)
    axes = axes_of(lowering, form.shape, size)
    form, _ = _uniform(lowering, form, axes)
    index = _index(lowering, math.prod(size))
    position = _positions(lowering, index, axes)
    shape = tuple(axis.outputs for axis in axes)
    terms = [Term(_looked_up(term.value, axes, position), term.factor) for term in form.terms]
    zero = Rationals.scalar(0, form.rank)
    if form.constant.is_zero() or not any((axis.sources() < 0).any() for axis in axes):
        return [LinearForm(shape, tuple(terms), form.constant)]
    ones = lowering.tensor_constant(np.ones(form.shape, dtype=object), "ones")
    terms.append(Term(_looked_up(ones, axes, position), form.constant))
    return [LinearForm(shape, tuple(terms), zero)]


def _looked_up(value: Value, axes: Sequence[Axis], position: Value) -> Value:
    for i, axis in enumerate(axes):
        value = gathered(value, i, axis.line())
    return value.apply("take", position, axis=None)


def _positions(lowering: Lowering, index: Value, axes: Sequence[Axis]) -> Value:
    """The position in the flattened lines that each index gives: the start of its window plus the offset in it."""
    extents = [axis.line().size for axis in axes]
    strides = [math.prod(extents[i + 1 :]) for i in range(len(axes))]
    offsets = np.zeros((1,) * len(axes), dtype=object)
    for i, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        offsets = offsets + _along(np.arange(axis.size).astype(object) * (axis.dilation * stride), i, len(axes))
    position = index
    if offsets.size > 1:
        table = lowering.tensor_constant(offsets.ravel(), "offsets")
        position = lowering.emit("cvm_lut", table, index)
    for i, (axis, stride) in enumerate(zip(axes, strides, strict=True)):
        if axis.outputs > 1:
            starts = _along(np.arange(axis.outputs).astype(object) * (axis.step * stride), i, len(axes))
            start = lowering.tensor_constant(starts, "starts")
            position = position + start
    return position


@rule(
    "desample",
    claim=exact("sums of items times whether their index names the position", APART, INDICES),
)
def desample(lowering: Lowering) -> list[Result]:
    """Every item at the position of the up-scaled space that its index gives. Items at the same position are added."""
    form = _input(lowering)
    size, shape = sizes_of(lowering, form.rank), lowering.output_shape()
    axes = reverse_axes_of(lowering, form.shape, size, shape)
    form, _ = _uniform(lowering, form, axes)
    index = _index(lowering, math.prod(size))
    packed = [_packed(axis) for axis in axes]
    values: list[Value | None] = [None] * len(form.terms)
    count: Value | None = None
    for choice in np.ndindex(*(sources.shape[1] for sources, _ in packed)):
        sources = [item[:, k] for (item, _), k in zip(packed, choice, strict=True)]
        here = _named(lowering, index, size, sources, [t[:, k] for (_, t), k in zip(packed, choice, strict=True)])
        for i, term in enumerate(form.terms):
            item = _spread_out(term.value, sources, 0)
            values[i] = _plus(lowering, values[i], item * here)
        if not form.constant.is_zero():
            count = _plus(lowering, count, here)
    terms = [Term(value, term.factor) for value, term in zip(values, form.terms, strict=True) if value is not None]
    if count is not None:
        terms.append(Term(count, form.constant))
    return [LinearForm(shape, tuple(terms), Rationals.scalar(0, form.rank))]


def _packed(axis: Axis) -> tuple[Indices, Indices]:
    """The items that reach each output, and the taps by which they do: two (outputs, few) arrays; -1 means none."""
    sources = axis.sources()
    most = max(1, int((sources >= 0).sum(axis=1).max(initial=0)))
    order = np.argsort(sources < 0, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(sources, order, axis=1), order


def _spread_out(value: Value, sources: Sequence[Indices], fill: int) -> Value:
    for i, item in enumerate(sources):
        value = gathered(value, i, item, fill)
    return value


def _named(
    lowering: Lowering, index: Value, size: Sequence[int], sources: Sequence[Indices], taps: Sequence[Indices]
) -> Value:
    """1 if the index of the item at ``sources`` gives the tap in ``taps``, by which it reaches the position, else 0."""
    rank = len(size)
    wanted = np.zeros((1,) * rank, dtype=object)
    for i, tap in enumerate(taps):
        wanted = wanted * size[i] + _along(tap.astype(object), i, rank)
    for i in range(rank):  # if all positions along an axis have the same taps, extent 1 is enough
        if (wanted == np.take(wanted, [0], i)).all():
            wanted = np.take(wanted, [0], i)
    found = _spread_out(index, sources, -1)
    tap_constant = lowering.tensor_constant(wanted, "taps")
    difference = found - tap_constant
    apart = abs(difference)
    other = apart.clip(0, 1)
    one = lowering.tensor_constant([1], "one")
    return one - other


def _plus(lowering: Lowering, total: Value | None, part: Value) -> Value:
    return part if total is None else total + part
