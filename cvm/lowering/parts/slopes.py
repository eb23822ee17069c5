"""Exact piecewise linear functions (leaky ReLU, maximum, sign) of sums that have too many values for a table.

A quantiser is monotone. Let f(y) = p * y for y >= 0 and n * y otherwise. Its code is the larger of the codes of p * y
and n * y if n <= p, and the smaller of them if n > p. Without a quantiser, the result is a linear form again
(`cvm.lowering.proofs.pieces`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cvm.errors import Unsupported
from cvm.lowering.context import Coded, Lowering, Result
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, SurdForm, TableForm, Term
from cvm.lowering.parts.operands import codes_of, expanded, linear_operand, scaled, sum_of
from cvm.lowering.proofs.decide import TooWide
from cvm.lowering.proofs.pieces import at_least, positive_part
from cvm.lowering.proofs.table import Operand
from cvm.quantization.rationals import Rationals

__all__ = ["greater", "sign_of", "two_slopes"]


def two_slopes(lowering: Lowering, below: Rationals, refusal: Unsupported) -> Result:
    """Lower x where x >= 0, else below * x, for the operand ``x``. ``below`` is constant and broadcasts to it.

    Raises ``refusal`` if the sum is too wide to compare with zero, and `Unsupported` if there is no linear form.
    """
    shape = lowering.output_shape()
    quantizer = lowering.quantizer()
    operand = expanded(lowering, lowering.operand("x"), shape)
    if quantizer is not None:
        other = _multiple(operand, below)
        if other is not None and not isinstance(operand, Known | TableForm):
            sides = [codes_of(lowering, operand, quantizer, "above"), codes_of(lowering, other, quantizer, "below")]
            return Coded(_chosen(lowering, sides, below), note="the code of one of two slopes", any_rounding=True)
    form = linear_operand(lowering, lowering.linear("x"), shape)
    rest = Rationals.scalar(1, len(shape)) - below
    try:
        with lowering.part("above"):
            above = positive_part(lowering, form)
    except TooWide:
        raise refusal from None
    return sum_of(scaled(form, lambda factor: factor * below), scaled(above, lambda factor: factor * rest))


def _multiple(operand: Operand, by: Rationals) -> LinearForm | SurdForm | None:
    """A linear or surd form, with its pending clamp, times a constant; None for other operands.

    It is also None if there is a clamp and the constant varies, since a form has one clamp for all channels.
    """
    if not isinstance(operand, LinearForm | SurdForm):
        return None
    lower, upper = operand.lower, operand.upper
    if operand.clamped:
        if not by.uniform:
            return None
        ends = [None if bound is None else bound * by.item() for bound in (lower, upper)]
        lower, upper = ends if by.item() >= 0 else ends[::-1]
    terms = tuple(Term(term.value, term.factor * by) for term in operand.terms)
    if isinstance(operand, SurdForm):
        origin, offset = operand.origin * by, operand.offset * by
        return replace(operand, terms=terms, origin=origin, offset=offset, lower=lower, upper=upper)
    return replace(operand, terms=terms, constant=operand.constant * by, lower=lower, upper=upper)


def _chosen(lowering: Lowering, sides: list[Value], below: Rationals) -> Value:
    """Emit the larger of the two codes where the slope ``below`` is at most 1, and the smaller one elsewhere."""
    signs = np.where(below.numerators > below.denominator, -1, 1).astype(np.int64)
    if (signs == 1).all():
        return lowering.emit("broadcast_max", *sides, label="")
    if (signs == -1).all():
        return -lowering.emit("broadcast_max", *(-side for side in sides))
    sign = lowering.tensor_constant(signs, "sign")
    return lowering.emit("broadcast_max", *(side * sign for side in sides)) * sign


def greater(lowering: Lowering, greatest: bool, refusal: Unsupported) -> LinearForm:
    """Lower the maximum of the operands ``x`` and ``y``, or without ``greatest`` the minimum, to a linear form.

    max(x, y) = y + max(x - y, 0). Raises ``refusal`` if the difference is too wide to compare with zero.
    """
    shape = lowering.output_shape()
    x, y = (linear_operand(lowering, lowering.linear(name), shape) for name in ("x", "y"))
    difference = sum_of(x, scaled(y, lambda factor: -factor))
    if not greatest:
        difference = scaled(difference, lambda factor: -factor)
    try:
        with lowering.part("above"):
            above = positive_part(lowering, difference)
    except TooWide:
        raise refusal from None
    return sum_of(y, above if greatest else scaled(above, lambda factor: -factor))


def sign_of(lowering: Lowering, refusal: Unsupported) -> LinearForm:
    """Lower the sign of the operand ``x`` to a form of -1, 0 and 1: [x >= 0] - [-x >= 0].

    Raises ``refusal`` if the sum is too wide to compare with zero.
    """
    shape = lowering.output_shape()
    form = linear_operand(lowering, lowering.linear("x"), shape)
    one, zero = (Rationals.scalar(item, len(shape)) for item in (1, 0))
    try:
        ends = [at_least(lowering, shape, side) for side in (form, scaled(form, lambda factor: -factor))]
    except TooWide:
        raise refusal from None
    return LinearForm(shape, (Term(ends[0], one), Term(ends[1], -one)), zero)
