"""Element-wise operations (NNEF 1.0.1 section 4.2) and relu (section 4.9.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from cvm.graph import GraphOperation
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.form import LinearForm, Term
from cvm.quantization.rationals import Rationals

__all__ = ["expanded", "sum_of"]


@rule("copy")
def copy(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The same real numbers; a quantiser of the result applies anew."""
    return [lowering.linear(operation, "x")]


@rule("neg")
def neg(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """-x."""
    return [_scaled(lowering.linear(operation, "x"), lambda factor: -factor)]


@rule("add")
def add(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X + y, broadcast from the first dimension on."""
    return [_added(lowering, operation, lowering.linear(operation, "x"), lowering.linear(operation, "y"))]


@rule("sub")
def sub(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X - y, broadcast from the first dimension on."""
    minuend, subtrahend = lowering.linear(operation, "x"), lowering.linear(operation, "y")
    return [_added(lowering, operation, minuend, _scaled(subtrahend, lambda factor: -factor))]


@rule("mul", "div")
def mul_or_div(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X * y or x / y where one factor, or the divisor, is constant: a scaling."""
    x, y = lowering.linear(operation, "x"), lowering.linear(operation, "y")
    if y.terms and not x.terms and operation.name == "mul":
        x, y = y, x
    if y.terms:
        raise lowering.unsupported(operation, "one operand must be constant (for div: the divisor)")
    if operation.name == "div" and not y.constant.numerators.all():
        raise lowering.unsupported(operation, "the divisor holds a zero")
    shape = lowering.output_shape(operation)
    x, y = expanded(lowering, operation, x, shape), expanded(lowering, operation, y, shape)
    scale = y.constant if operation.name == "mul" else Rationals.scalar(1, len(shape)) / y.constant
    return [_scaled(x, lambda factor: factor * scale)]


@rule("relu")
def relu(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """max(x, 0): a clamp, which the quantiser of the result takes in."""
    return [lowering.linear(operation, "x").at_least(Fraction(0))]


def expanded(lowering: Lowering, operation: GraphOperation, form: LinearForm, shape: tuple[int, ...]) -> LinearForm:
    """The form as an operand of a result of ``shape``: trailing dimensions of extent 1 are added, values stay small."""
    rank = len(shape)
    if form.rank == rank:
        return replace(form, shape=shape)
    tail = (1,) * (rank - form.rank)

    def widen(items: Rationals) -> Rationals:
        return items.moved(lambda array: array.reshape(array.shape + tail))

    terms = []
    for term in form.terms:
        target = (*lowering.builder.shape(term.value), *tail)
        value = lowering.emit(operation, "reshape", term.value, target_shape=target)
        terms.append(Term(value, widen(term.factor)))
    return replace(form, shape=shape, terms=tuple(terms), constant=widen(form.constant))


def sum_of(first: LinearForm, second: LinearForm) -> LinearForm:
    """The sum of two forms of one shape; terms in one value become one."""
    terms = {term.value: term.factor for term in first.terms}
    for term in second.terms:
        terms[term.value] = terms[term.value] + term.factor if term.value in terms else term.factor
    merged = tuple(Term(value, factor) for value, factor in terms.items())
    return LinearForm(first.shape, merged, first.constant + second.constant)


def _added(lowering: Lowering, operation: GraphOperation, x: LinearForm, y: LinearForm) -> LinearForm:
    shape = lowering.output_shape(operation)
    return sum_of(expanded(lowering, operation, x, shape), expanded(lowering, operation, y, shape))


def _scaled(form: LinearForm, scale: Callable[[Rationals], Rationals]) -> LinearForm:
    terms = tuple(Term(term.value, scale(term.factor)) for term in form.terms)
    return replace(form, terms=terms, constant=scale(form.constant))
