"""Comparison, logic and selection (NNEF 1.0.1 sections 4.2.1 to 4.2.3): exact requantisations to one bit.

A logical tensor is a linear form with the values 0 and 1.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.lowering.claims import exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term
from cvm.lowering.parts.operands import by_form, codes, codes_of, function, linear_operand, scaled, sum_of
from cvm.lowering.rules.elementwise import sum_of_operands
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import rational

__all__ = ["not_zero", "truth"]

_AT_LEAST_ZERO = LinearQuantizer((Fraction(1),), (Fraction(-1, 2),), 0, 1)
"""Code 1 stands for 1/2 and code 0 for -1/2, so the code of x is 1 if and only if x >= 0."""

_BIT = LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 1)
"""The quantiser of zeros and ones."""

COMPARISONS: dict[str, tuple[bool, bool]] = {
    "ge": (False, False),
    "le": (True, False),
    "lt": (False, True),
    "gt": (True, True),
}
"""Whether the operands are swapped, and whether the result is negated. Every comparison is x >= y, or its negation."""


@rule("ge", "le", "lt", "gt", claim=exact("a comparison of integer sums of any width, column by column"))
def order(lowering: Lowering) -> list[Result]:
    """``x >= y``, ``x <= y``, ``x < y`` or ``x > y``: the difference is compared with zero."""
    exchanged, negated = COMPARISONS[lowering.operation.name]
    value = _at_least(lowering, exchanged)
    return [_truth_form(lowering, value, negated)]


@rule("eq", "ne", claim=exact("two comparisons of integer sums of any width"))
def equality(lowering: Lowering) -> list[Result]:
    """``x = y``, computed as x >= y and x <= y."""
    sides = [_at_least(lowering, exchanged) for exchanged in (False, True)]
    value = lowering.emit("broadcast_mul", *sides)
    return [_truth_form(lowering, value, lowering.operation.name == "ne")]


def _at_least(lowering: Lowering, exchanged: bool) -> Value:
    """The value that is 1 where x - y >= 0 (with ``exchanged``: y - x >= 0), else 0."""

    def difference(lowering: Lowering) -> LinearForm:
        return scaled(sum_of_operands(lowering), lambda factor: -factor if exchanged else factor)

    form = by_form(lowering, difference, lambda x, y: (y - x) if exchanged else (x - y))
    return codes_of(lowering, form, _AT_LEAST_ZERO, "ge")


def _truth_form(lowering: Lowering, value: Value, negated: bool) -> LinearForm:
    """A logical tensor: the numbers 0 and 1, or 1 - value."""
    shape = lowering.output_shape()
    term = Term(value, Rationals.scalar(-1 if negated else 1, len(shape)))
    return LinearForm(shape, (term,), Rationals.scalar(int(negated), len(shape)))


def truth(lowering: Lowering, parameter: str, rank: int) -> Value:
    """A logical operand as a value of zeros and ones, of the given rank."""
    form = lowering.linear(parameter)
    shape = form.shape + (1,) * (rank - form.rank)
    form = linear_operand(lowering, form, shape)
    if len(form.terms) == 1 and form.constant.is_zero() and form.terms[0].factor.fractions() == [1]:
        return form.terms[0].value
    if not form.terms:
        bits = (form.constant.numerators != 0).astype(np.int64)
        return lowering.tensor_constant(bits, parameter)
    return codes_of(lowering, form, _BIT, parameter)


@rule("not", claim=exact("1 - x"))
def not_(lowering: Lowering) -> list[Result]:
    """1 - x."""
    form = lowering.linear("x")
    one = Rationals.scalar(1, form.rank)
    negative = scaled(form, lambda factor: -factor)
    return [replace(negative, constant=negative.constant + one)]


@rule("and", "or", claim=exact("the product, or the greater, of zeros and ones"))
def and_or(lowering: Lowering) -> list[Result]:
    """The product (and), or the larger (or), of zeros and ones."""
    rank = len(lowering.output_shape())
    sides = [truth(lowering, name, rank) for name in ("x", "y")]
    op = "broadcast_mul" if lowering.operation.name == "and" else "broadcast_max"
    return [_truth_form(lowering, lowering.emit(op, *sides), False)]


@rule("select", claim=exact("a choice between codes of the result, or terms times zeros and ones"))
def select(lowering: Lowering) -> list[Result]:
    """true_value where the condition holds, else false_value. Codes are chosen, or terms are multiplied by 0 or 1."""
    shape = lowering.output_shape()
    condition = truth(lowering, "condition", len(shape))
    quantizer = lowering.quantizer()
    if quantizer is not None:
        arms = [codes(lowering, name, quantizer) for name in ("true_value", "false_value")]
        full = [value.broadcast(shape) for value in (condition, *arms)]
        chosen = lowering.emit("where", *full)
        return [Coded(chosen, note="selected codes", any_rounding=True)]
    forms = [lowering.linear(name) for name in ("true_value", "false_value")]
    one = lowering.tensor_constant(np.ones((1,) * len(shape), dtype=object), "one")
    weights = [condition, one - condition]
    result = LinearForm(shape, (), Rationals.scalar(0, len(shape)))
    for weight, form in zip(weights, forms, strict=True):
        arm = linear_operand(lowering, form, shape)
        terms = [Term(weight * term.value, term.factor) for term in arm.terms]
        if not arm.constant.is_zero():
            terms.append(Term(weight, arm.constant))
        for term in terms:
            result = sum_of(result, LinearForm(shape, (term,), Rationals.scalar(0, len(shape))))
    return [result]


def not_zero(lowering: Lowering, parameter: str) -> LinearForm:
    """Whether an operand is not 0, as a logical tensor: the negation of x >= 0 and -x >= 0."""
    operand = lowering.operand(parameter)
    if isinstance(operand, LinearForm) and not operand.clamped:
        forms = [operand, scaled(operand, lambda factor: -factor)]
        sides = [codes_of(lowering, form, _AT_LEAST_ZERO, "ge") for form in forms]
        return _truth_form(lowering, lowering.emit("broadcast_mul", *sides), True)
    if isinstance(operand, Known):
        bits = Rationals((operand.rationals().numerators != 0).astype(object) * 1)
        return LinearForm(operand.shape, (), bits)
    table = function(lowering, [parameter], lambda x: rational(x.sign != 0))
    value = codes_of(lowering, table, _BIT, "true")
    return _truth_form(lowering, value, False)
