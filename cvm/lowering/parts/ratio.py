"""Codes of quotients, decided without division (the ratio of two linear forms).

The code of N / M, M > 0, under a quantiser is the count of steps t with N / M >= T_t, T_t = base + scale * t, that is

    N - base * M - scale * (t * M) >= 0,

This compares a linear form with zero, whose terms are the accumulators of N and M, t, and the products of t with the
accumulators of M (`cvm.lowering.proofs.decide`). The bits of the count are found one by one, from the highest.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.context import Coded, Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term, scale_and_offset
from cvm.lowering.parts.digits import array_digits, squared, value_digits
from cvm.lowering.parts.operands import codes_of, is_linear, linear_operand, scaled, sum_of
from cvm.lowering.parts.quotient import quotient_by_op
from cvm.lowering.proofs.decide import Summand, TooWide, at_least_zero, count_reached
from cvm.lowering.proofs.pieces import at_least, summands
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.rationals import Rationals
from cvm.quantization.steps import step

__all__ = [
    "bounded_below",
    "floor_of_form",
    "from_least",
    "least_value",
    "quotient_codes",
    "quotient_of_forms",
    "ratio_codes",
    "root_codes",
    "signed",
]

_HALF = Fraction(1, 2)


def least_value(lowering: Lowering, form: LinearForm) -> Fraction:
    """A lower bound of the numbers of a form, from the proven intervals of its values. A clamp is ignored."""
    least = min(form.constant.fractions())
    for term in form.terms:
        lo, hi = term.value.range.hull()
        least += min(min(factor * lo, factor * hi) for factor in term.factor.fractions())
    return least


def ratio_codes(
    lowering: Lowering, numerator: LinearForm, denominator: LinearForm, quantizer: LinearQuantizer
) -> Value:
    """Emit the codes of numerator / denominator, two forms of one rank. The denominator must be positive.

    With op-set 2 this is one op where it takes the forms. Without it, and with the rounding half_even, a step to an odd
    code must be exceeded, because a tie keeps the even code before it.
    Raises `Unsupported` (``lowering.operation``) where the sums do not fit 64 bits.
    """
    found = quotient_by_op(lowering, numerator, denominator, quantizer) if lowering.op_set >= 2 else None
    if found is not None:
        return found
    shape = lowering.output_shape()
    rank = len(shape)
    scale, offset = scale_and_offset(quantizer, rank)
    base = offset + scale * Rationals.scalar(quantizer.lo - _HALF, rank)
    rest = sum_of(numerator, scaled(denominator, lambda factor: -(factor * base)))
    steps = quantizer.hi - quantizer.lo
    parts = [
        Term(value, term.factor * Rationals.scalar(weight, rank))
        for term in denominator.terms
        for value, weight in value_digits(term.value, INT32_MAX >> steps.bit_length())
    ]

    def reached(trial: Value) -> Value:
        products = [Term(trial * term.value, -(term.factor * scale)) for term in parts]
        if not denominator.constant.is_zero():
            products.append(Term(trial, -(denominator.constant * scale)))
        whole = rest
        for product in products:
            whole = sum_of(whole, LinearForm(shape, (product,), Rationals.scalar(0, rank)))
        if quantizer.rounding != "half_even":
            return at_least(lowering, shape, whole)
        found, constant, _ = summands(whole.terms, whole.constant, whole=True)
        parity = np.array([(quantizer.lo + k) % 2 for k in range(2 ** steps.bit_length())], dtype=object)
        odd = lowering.emit("cvm_lut", _table(lowering, parity), trial)
        found = [*found, Summand(odd, -np.ones((1,) * rank, dtype=object))]
        return at_least_zero(lowering, shape, found, constant.numerators // constant.denominator, "ratio")

    try:
        found = count_reached(lowering, shape, steps, reached, "ratio", most=steps)
    except TooWide:
        raise lowering.unsupported("the quotient does not fit 64 bits: quantise its operands") from None
    return from_least(found, quantizer)


def quotient_codes(lowering: Lowering, numerator: LinearForm, denominator: LinearForm, quantizer: Quantizer) -> Value:
    """Emit the codes of numerator / denominator under any quantiser. The denominator must be positive.

    For a linear quantiser, `ratio_codes` does it. The steps of a logarithmic quantiser have rational squares, so
    `root_codes` compares the squares of both forms instead. Raises `Unsupported` as these functions do.
    """
    if isinstance(quantizer, LinearQuantizer):
        return ratio_codes(lowering, numerator, denominator, quantizer)
    squares = signed(lowering, numerator, squared(lowering, numerator, 1))
    return root_codes(lowering, squares, squared(lowering, denominator, 1), quantizer)


def root_codes(lowering: Lowering, numerator: LinearForm, square: LinearForm, quantizer: Quantizer) -> Value:
    """Emit the codes of x / sqrt(square) from numerator = sign(x) * x^2. ``square`` must be positive.

    A step at T is reached if numerator >= sign(T) * T^2 * square. Raises `Unsupported` (``lowering.operation``) if the
    sums do not fit 64 bits.
    """
    shape = lowering.output_shape()
    rank = len(shape)
    steps = [step(quantizer, code) for code in range(quantizer.lo + 1, quantizer.hi + 1)]
    signed_squares = [Fraction(0), *(item.sign * item.square for item in steps)]
    signed_squares += [signed_squares[-1]] * (2 ** len(steps).bit_length() - len(signed_squares))
    unit = Fraction(1, math.lcm(*(item.denominator for item in signed_squares)))
    items = np.array([int(item / unit) for item in signed_squares], dtype=object)
    tables = [(_table(lowering, digit), unit * weight) for digit, weight in array_digits(items, _STEP_DIGIT)]
    strict = np.array([0, *(int(item.strict) for item in steps)] + [0] * (len(items) - len(steps) - 1), dtype=object)
    parts = [
        Term(value, term.factor * Rationals.scalar(weight, rank))
        for term in square.terms
        for value, weight in value_digits(term.value, _SQUARE_DIGIT)
    ]
    if len(tables) * len(parts) > _MOST_PRODUCTS:
        message = f"the root needs {len(tables) * len(parts)} products of digits for each step: use fewer bits"
        raise lowering.unsupported(message)

    def reached(trial: Value) -> Value:
        products: list[Term] = []
        for table, weight in tables:
            digit = lowering.emit("cvm_lut", table, trial)
            scale = Rationals.scalar(-weight, rank)
            products += [Term(digit * t.value, t.factor * scale) for t in parts]
            if not square.constant.is_zero():
                products.append(Term(digit, square.constant * scale))
        whole = sum_of(numerator, LinearForm(shape, tuple(products), Rationals.scalar(0, rank)))
        found, constant, _ = summands(whole.terms, whole.constant, whole=True)
        if strict.any():
            table = _table(lowering, strict)
            one = np.ones((1,) * rank, dtype=object)
            found = [*found, Summand(lowering.emit("cvm_lut", table, trial), -one)]
        rest = constant.numerators // constant.denominator
        return at_least_zero(lowering, shape, found, rest, "root.reached")

    try:
        count = count_reached(lowering, shape, len(steps), reached, "root", most=len(steps))
    except TooWide:
        raise lowering.unsupported("the root does not fit 64 bits: use fewer bits") from None
    return from_least(count, quantizer)


_STEP_DIGIT, _SQUARE_DIGIT = 2**15 - 1, 2**16
_MOST_PRODUCTS = 2**12
"""The most products of a digit of a step and a digit of the square. With more, the ops of a single step would exceed
the limits of a program.
"""


def _table(lowering: Lowering, items: npt.NDArray[Any]) -> Value:
    return lowering.tensor_constant(items, "steps")


def from_least(count: Value, quantizer: Quantizer) -> Value:
    """Emit the codes for a count of steps that were reached: count + lo."""
    lowering = count.emission
    if not quantizer.lo:
        return count
    least = lowering.tensor_constant([quantizer.lo], "lo")
    return count + least


def signed(lowering: Lowering, x: LinearForm, form: LinearForm) -> LinearForm:
    """sign(x) * form as a form, where the sign of 0 is 1. Raises `TooWide` if ``x`` is too wide to compare."""
    rank = x.rank
    positive = at_least(lowering, x.shape, x)
    signs = positive + positive
    one = lowering.tensor_constant(np.ones((1,) * rank, dtype=object), "one")
    signs = signs - one
    result = LinearForm(form.shape, (), Rationals.scalar(0, rank))
    for term in form.terms:
        value = signs * term.value
        result = sum_of(result, LinearForm(form.shape, (Term(value, term.factor),), Rationals.scalar(0, rank)))
    if form.constant.is_zero():
        return result
    return sum_of(result, LinearForm(form.shape, (Term(signs, form.constant),), Rationals.scalar(0, rank)))


def bounded_below(lowering: Lowering, form: LinearForm, bound: Fraction, least: Fraction) -> LinearForm:
    """max(form, bound) as a form: bound + [u >= bound] * (u - bound), where u is the form.

    ``least`` is a lower bound of the form. If it is at least ``bound``, the form itself is returned.
    """
    if least >= bound:
        return form
    rank = form.rank
    above = sum_of(form, LinearForm(form.shape, (), Rationals.scalar(-bound, rank)))
    answer = at_least(lowering, form.shape, above)
    result = LinearForm(form.shape, (Term(answer, above.constant),), Rationals.scalar(bound, rank))
    for term in above.terms:
        product = answer * term.value
        result = sum_of(result, LinearForm(form.shape, (Term(product, term.factor),), Rationals.scalar(0, rank)))
    return result


def floor_of_form(lowering: Lowering, form: LinearForm) -> Value:
    """Emit the floor of a form: its codes under a quantiser of scale 1 and offset 1/2, which round to the nearest."""
    integers = LinearQuantizer((Fraction(1),), (_HALF,), -INT32_MAX, INT32_MAX)
    return codes_of(lowering, form, integers, "floor")


def quotient_of_forms(lowering: Lowering) -> Coded | None:
    """Lower x / y of two linear forms to codes; None if the result has no quantiser, or an operand is no linear form.

    Raises `Unsupported` if y is not proven to differ from zero.
    """
    quantizer = lowering.quantizer()
    operands = [lowering.operand(name) for name in ("x", "y")]
    if quantizer is None or not all(isinstance(item, Known) or is_linear(item) for item in operands):
        return None
    shape = lowering.output_shape()
    x, y = (linear_operand(lowering, lowering.linear(name), shape) for name in ("x", "y"))
    if least_value(lowering, y) <= 0:
        x, y = (scaled(form, lambda factor: -factor) for form in (x, y))
    if least_value(lowering, y) <= 0:
        divisor = lowering.operation.inputs["y"]
        raise lowering.unsupported(f"{divisor!r} is not proven to differ from zero: give it a quantiser")
    return Coded(quotient_codes(lowering, x, y, quantizer), note="a quotient, bit by bit")
