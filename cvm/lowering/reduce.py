"""Reductions (NNEF 1.0.1 section 4.4)."""

from __future__ import annotations

import math

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import LinearForm, Term
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("sum_reduce", "mean_reduce")
def sum_reduce(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The sum or the mean over some axes, which keep extent 1."""
    form = lowering.linear(operation, "input")
    axes = _axes(operation)
    count = math.prod(form.shape[axis] for axis in axes)
    mean = operation.name == "mean_reduce" or bool(operation.attributes.get("normalize", False))
    divisor = Rationals.scalar(count if mean else 1, form.rank)
    terms = []
    for term in form.terms:
        if lowering.builder.shape(term.value) != form.shape or any(term.factor.shape[axis] > 1 for axis in axes):
            raise lowering.needs_quantization(operation, str(operation.inputs["input"]))
        value = term.value
        if axes:
            value = lowering.emit(operation, "sum", value, axes=axes, keepdims=True, exclude=False)
        terms.append(Term(value, term.factor / divisor))
    whole = form.constant.broadcast(
        [form.shape[axis] if axis in axes else extent for axis, extent in enumerate(form.constant.shape)]
    )
    constant = whole.moved(lambda array: array.sum(axis=axes, keepdims=True)) / divisor
    return [LinearForm(lowering.output_shape(operation), tuple(terms), constant)]


@rule("max_reduce")
def max_reduce(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The greatest item over some axes: found among the integers, since a positive factor is monotone."""
    value, factor, constant, form = lowering.coded(operation, "input")
    axes = _axes(operation)
    if axes:
        value = lowering.emit(operation, "max", value, axes=axes, keepdims=True, exclude=False)
    term = Term(value, Rationals.scalar(factor, form.rank))
    return [LinearForm(lowering.output_shape(operation), (term,), Rationals.scalar(constant, form.rank))]


def _axes(operation: GraphOperation) -> tuple[int, ...]:
    return tuple(int(axis) for axis in operation.attributes["axes"])  # type: ignore[union-attr, arg-type]
