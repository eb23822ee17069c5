"""Operands of elementwise operations: bringing them to one rank, sums, scaling, codes, and functions of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from cvm.errors import Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.context import Lowering, Result
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Form, Known, LinearForm, Shape, TableForm, Term
from cvm.lowering.proofs.fixed_point import requantize
from cvm.lowering.proofs.table import Operand, folded, tabulate
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.exact import quantize_rationals, round_fraction
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real

__all__ = [
    "around_zero",
    "by_form",
    "codes",
    "codes_of",
    "expanded",
    "function",
    "integer_value",
    "integers",
    "is_linear",
    "linear_operand",
    "scaled",
    "sum_of",
    "table_or",
]


def expanded(lowering: Lowering, operand: Operand, shape: Shape) -> Operand:
    """The operand with trailing axes of extent 1, up to the rank of ``shape``, the shape of the result."""
    if isinstance(operand, LinearForm):
        return linear_operand(lowering, operand, shape)
    tail = (1,) * (len(shape) - len(operand.shape))
    if not tail:
        return operand

    if isinstance(operand, Known):
        return Known(
            operand.codes.reshape(operand.shape + tail),
            operand.scale.with_trailing_axes(len(tail)),
            operand.offset.with_trailing_axes(len(tail)),
        )

    def extended(value: Value) -> Value:
        target = (*value.shape, *tail)
        return value.reshape(target)

    if isinstance(operand, TableForm):
        return TableForm(operand.shape + tail, extended(operand.value), operand.numbers)
    return operand.moved(extended, lambda items: items.with_trailing_axes(len(tail)), operand.shape + tail)


def linear_operand(lowering: Lowering, form: LinearForm, shape: Shape) -> LinearForm:
    """The same as `expanded` for a linear form, whose shape becomes the shape of the result."""
    tail = (1,) * (len(shape) - form.rank)
    if not tail:
        return replace(form, shape=shape)

    terms = []
    for term in form.terms:
        target = (*term.value.shape, *tail)
        value = term.value.reshape(target)
        terms.append(Term(value, term.factor.with_trailing_axes(len(tail))))
    return replace(form, shape=shape, terms=tuple(terms), constant=form.constant.with_trailing_axes(len(tail)))


def sum_of(first: LinearForm, second: LinearForm) -> LinearForm:
    """The sum of two forms of one shape without pending clamps. Terms in the same value are added up."""
    terms = {term.value: term.factor for term in first.terms}
    for term in second.terms:
        terms[term.value] = terms[term.value] + term.factor if term.value in terms else term.factor
    merged = tuple(Term(value, factor) for value, factor in terms.items())
    return LinearForm(first.shape, merged, first.constant + second.constant)


def scaled(form: LinearForm, scale: Callable[[Rationals], Rationals]) -> LinearForm:
    """The form with ``scale`` applied to every factor and to the constant."""
    terms = tuple(Term(term.value, scale(term.factor)) for term in form.terms)
    return replace(form, terms=terms, constant=scale(form.constant))


def function(lowering: Lowering, parameters: list[str], real: Callable[..., Real]) -> Form | Known:
    """Lower the function ``real`` of the operands called ``parameters``, element by element, by a table.

    If all operands are constant, the result is constant. Raises `Unsupported` as `tabulate` and `folded` do.
    """
    shape = lowering.output_shape()
    operands = [expanded(lowering, lowering.operand(name), shape) for name in parameters]
    known = [operand for operand in operands if isinstance(operand, Known)]
    if len(known) == len(operands):
        return folded(lowering, known, real, shape, lowering.quantizer())
    return tabulate(lowering, operands, real, shape)


def table_or(
    lowering: Lowering, parameters: list[str], real: Callable[..., Real], otherwise: Callable[[Unsupported], Result]
) -> Result:
    """Lower as `function` does, but return ``otherwise(refusal)`` if the operands have too many codes."""
    try:
        return function(lowering, parameters, real)
    except Unsupported as refusal:
        if refusal.code != "lowering.unquantized":
            raise
        return otherwise(refusal)


def by_form(
    lowering: Lowering,
    linear: Callable[[Lowering], LinearForm | None],
    real: Callable[[Real, Real], Real],
) -> Form | Known:
    """Lower an operation on ``x`` and ``y`` by ``linear`` if both are linear forms or constants, else by a table.

    If operands have too many codes for a table, ``linear`` is tried nevertheless. ``linear`` returns None if it does
    not apply. Raises `Unsupported` as `function` does.
    """
    operands = [lowering.operand(name) for name in ("x", "y")]
    if all(isinstance(operand, Known) or is_linear(operand) for operand in operands):
        form = linear(lowering)
        if form is not None:
            return form
    try:
        return function(lowering, ["x", "y"], real)
    except Unsupported as error:
        if error.code != "lowering.unquantized":
            raise
        # There are too many combinations for a table, but the numbers of an operand's table may be multiples of a unit.
        form = linear(lowering)
        if form is None:
            raise
        return form


def is_linear(operand: Operand) -> bool:
    """Whether an operand is a linear form without a pending clamp."""
    return isinstance(operand, LinearForm) and not operand.clamped


def codes(lowering: Lowering, parameter: str, quantizer: Quantizer) -> Value:
    """Emit the codes of an operand under ``quantizer``, with the rank of the result."""
    shape = lowering.output_shape()
    operand = expanded(lowering, lowering.operand(parameter), shape)
    if isinstance(operand, Known):
        numbers = operand.rationals()
        if quantizer.axis is not None:  # equal numbers have different codes in different channels
            numbers = numbers.broadcast(shape)
        codes = quantize_rationals(numbers, quantizer)
        return lowering.tensor_constant(codes, parameter)
    return codes_of(lowering, operand, quantizer, parameter)


def codes_of(lowering: Lowering, form: Form | Known, quantizer: Quantizer, what: str) -> Value:
    """Emit the codes of a computed form under ``quantizer``, as a part ``what`` of the tensor that is being lowered."""
    assert not isinstance(form, Known)
    with lowering.part(what):
        return requantize(lowering, form, quantizer)


def integers(lowering: Lowering, parameter: str) -> Value:
    """Emit the integers of an operand whose numbers are integers, such as indices or logical values."""
    return integer_value(lowering, lowering.linear(parameter), parameter)


def integer_value(lowering: Lowering, form: LinearForm, what: str) -> Value:
    """Emit the integers that a form stands for, in its full shape. Its numbers must be integers of 32 bits."""
    if not form.terms:
        values = form.constant.broadcast(form.shape)
        return lowering.tensor_constant(values.numerators // values.denominator, what)
    (term, *more) = form.terms
    if not more and form.constant.is_zero() and term.factor.uniform and term.factor.item() == 1:
        return term.value.broadcast(form.shape)
    everything = LinearQuantizer((Fraction(1),), (Fraction(0),), -INT32_MAX, INT32_MAX)
    return codes_of(lowering, form, everything, what)


def around_zero(lowering: Lowering, form: LinearForm) -> LinearForm:
    """An equal form of one term whose value is shifted such that the real number 0 is near the integer 0.

    Factor and constant are the same for the whole tensor. The shift is limited if the code of zero lies far outside of
    the codes that occur; the constant of the result contains the exact rest.
    """
    (term,) = form.terms
    scale, constant = term.factor.item(), form.constant.item()
    zero = round_fraction(-constant / scale, "half_up") if scale else 0
    lo, hi = term.value.range.hull()
    zero = min(max(zero, 2 * lo - hi), 2 * hi - lo)  # limit the shift if zero lies far outside of the codes
    if zero == 0 or abs(zero) > 2**30:
        return form
    shift = lowering.tensor_constant([zero], "zero")
    value = term.value - shift
    rest = Rationals.scalar(constant + scale * zero, form.rank)
    return LinearForm(form.shape, (Term(value, term.factor),), rest)
