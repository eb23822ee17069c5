"""Tensor shape operations (NNEF 1.0.1 section 4.5): data movement, which moves values, factors and constants alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import LinearForm, Term
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Move = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@rule("reshape", "squeeze", "unsqueeze")
def reshape(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The same items in row-major order under another shape."""
    (parameter,) = operation.inputs
    form, shape = lowering.linear(operation, parameter), lowering.output_shape(operation)
    return [_moved(lowering, operation, form, shape, lambda array: array.reshape(shape), "reshape", target_shape=shape)]


@rule("transpose")
def transpose(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """A permutation of the leading axes."""
    form = lowering.linear(operation, "input")
    leading = tuple(int(axis) for axis in operation.attributes["axes"])  # type: ignore[union-attr, arg-type]
    axes = (*leading, *range(len(leading), form.rank))
    shape = lowering.output_shape(operation)
    return [_moved(lowering, operation, form, shape, lambda array: array.transpose(axes), "transpose", axes=axes)]


@rule("concat")
def concat(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Parts side by side: the integers are concatenated, and so are the factors that give them their meaning."""
    parts = operation.inputs["values"]
    if not isinstance(parts, tuple):
        raise lowering.unsupported(operation, "values must be an array of tensors")
    axis = int(operation.attributes["axis"])  # type: ignore[arg-type]
    forms = [_spread(lowering, operation, lowering.linear_of(part, operation, "values")) for part in parts]
    value = lowering.emit(operation, "concatenate", *(form.terms[0].value for form in forms), axis=axis)
    factor = _joined([form.terms[0].factor for form in forms], [form.shape for form in forms], axis)
    constant = _joined([form.constant for form in forms], [form.shape for form in forms], axis)
    return [LinearForm(lowering.output_shape(operation), (Term(value, factor),), constant)]


def _spread(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    """A part of a concatenation, which must be one value of full extent."""
    if len(form.terms) != 1 or lowering.builder.shape(form.terms[0].value) != form.shape:
        raise lowering.unsupported(operation, "every part must carry quantisation")
    return form


def _joined(parts: list[Rationals], shapes: list[tuple[int, ...]], axis: int) -> Rationals:
    """Coefficients of the parts along ``axis``; elsewhere they keep extent 1 where all parts have it."""
    if all(part.uniform for part in parts) and len({part.item() for part in parts}) == 1:
        return parts[0]
    common = math.lcm(*(part.denominator for part in parts))
    extents = [max(part.shape[i] for part in parts) for i in range(len(shapes[0]))]
    arrays = []
    for part, shape in zip(parts, shapes, strict=True):
        extents[axis] = shape[axis]
        arrays.append(np.broadcast_to(part.over(common), extents))
    return Rationals(np.concatenate(arrays, axis=axis), common)


def _moved(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, shape: tuple[int, ...], move: Move, op: str,
    **attributes: Any,
) -> LinearForm:  # fmt: skip
    """The form after a movement of data, which ``op`` does to values and ``move`` to coefficients."""

    def moved(items: Rationals) -> Rationals:
        return Rationals.scalar(items.item(), len(shape)) if items.uniform else items.broadcast(form.shape).moved(move)

    terms = []
    for term in form.terms:
        if lowering.builder.shape(term.value) != form.shape:
            raise lowering.unsupported(operation, "the operand is spread over an axis: give it a quantiser")
        terms.append(Term(lowering.emit(operation, op, term.value, **attributes), moved(term.factor)))
    return LinearForm(shape, tuple(terms), moved(form.constant))
