"""Codes of quotients, decided without division (the ratio of two linear forms).

The code of N / M, M > 0, under a quantiser is the count of steps t with N / M >= T_t, T_t = base + scale * t, that is

    N - base * M - scale * (t * M) >= 0,

a comparison of a linear form in the accumulators of N and M, in t, and in the products of t with the accumulators of M
(`cvm.lowering.decide`). It takes one bit of the code after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from cvm.graph import GraphOperation
from cvm.lowering.context import Coded, Lowering
from cvm.lowering.decide import Summand, TooWide, at_least_zero, count_reached
from cvm.lowering.form import Known, LinearForm, Shape, Term, scale_and_offset
from cvm.lowering.operands import codes_of, is_linear, linear_operand, scaled, sum_of
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals

__all__ = ["at_least", "floor_of_form", "least_value", "quotient_of_forms", "ratio_codes", "summands"]

_HALF = Fraction(1, 2)
_DIGIT = 12


def least_value(lowering: Lowering, form: LinearForm) -> Fraction:
    """A lower bound of a form, from the intervals of its values."""
    least = min(form.constant.fractions())
    for term in form.terms:
        lo, hi = lowering.builder.range(term.value).hull()
        least += min(min(factor * lo, factor * hi) for factor in term.factor.fractions())
    return least


def summands(
    terms: Sequence[Term], constant: Rationals, whole: bool = False
) -> tuple[list[Summand], Rationals, Fraction]:
    """The sum as integers times a unit: the summands, the constant in units, and the unit.

    With ``whole`` the constant is an integer of units too.
    """
    numerators = [item for term in terms for item in term.factor.fractions()]
    if whole or not numerators:
        numerators += constant.fractions()
    denominator = math.lcm(*(item.denominator for item in numerators))
    unit = Fraction(math.gcd(*(int(item * denominator) for item in numerators)) or 1, denominator)
    units = Rationals.scalar(1 / unit, constant.numerators.ndim)
    found = []
    for term in terms:
        factor = term.factor * units
        found.append(Summand(term.value, factor.numerators // factor.denominator))
    return found, constant * units, unit


def at_least(lowering: Lowering, operation: GraphOperation, shape: Shape, form: LinearForm) -> str:
    """The value that is 1 where a form is at least 0, else 0. Raises `TooWide`."""
    found, constant, _ = summands(form.terms, form.constant)
    # floor: the sum of integers and r is at least 0 exactly if that of the integers and floor(r) is.
    return at_least_zero(
        lowering.builder, shape, found, constant.numerators // constant.denominator, f"{operation.outputs[0]}.reached"
    )


def ratio_codes(
    lowering: Lowering, operation: GraphOperation, numerator: LinearForm, denominator: LinearForm,
    quantizer: LinearQuantizer,
) -> str:  # fmt: skip
    """The codes of numerator / denominator, which have one shape and rank; the denominator is positive.

    Raises `Unsupported` (``lowering.unprovable``) where the sums are too wide.
    """
    shape = lowering.output_shape(operation)
    rank = len(shape)
    scale, offset = scale_and_offset(quantizer, rank)
    base = offset + scale * Rationals.scalar(quantizer.lo - _HALF, rank)
    rest = sum_of(numerator, scaled(denominator, lambda factor: -(factor * base)))
    steps = quantizer.hi - quantizer.lo
    parts = _narrow_terms(lowering, operation, denominator.terms, steps)

    def reached(trial: str) -> str:
        products = [
            Term(lowering.emit(operation, "broadcast_mul", trial, term.value), -(term.factor * scale)) for term in parts
        ]
        if not denominator.constant.is_zero():
            products.append(Term(trial, -(denominator.constant * scale)))
        whole = rest
        for product in products:
            whole = sum_of(whole, LinearForm(shape, (product,), Rationals.scalar(0, rank)))
        return at_least(lowering, operation, shape, whole)

    name = f"{operation.outputs[0]}.ratio"
    try:
        found = count_reached(lowering.builder, shape, steps, reached, name, most=steps)
    except TooWide:
        raise lowering.unsupported(operation, "the quotient does not fit 64 bits: quantise its operands") from None
    if quantizer.lo:
        least = lowering.tensor_constant(operation, np.array([quantizer.lo], dtype=object), "lo")
        found = lowering.emit(operation, "broadcast_add", found, least)
    return found


def _narrow_terms(lowering: Lowering, operation: GraphOperation, terms: Sequence[Term], steps: int) -> list[Term]:
    """The terms, with values that are too wide for a product with a step cut into two digits."""
    found = []
    for term in terms:
        if lowering.builder.range(term.value).magnitude() * 2 ** steps.bit_length() <= 2**31 - 1:
            found.append(term)
            continue
        rank = len(lowering.builder.shape(term.value))
        form = LinearForm(lowering.builder.shape(term.value), (Term(term.value, Rationals.scalar(1, rank)),),
                          Rationals.scalar(0, rank))  # fmt: skip
        high = floor_of_form(
            lowering, operation, scaled(form, lambda f: f * Rationals.scalar(Fraction(1, 2**_DIGIT), f.numerators.ndim))
        )
        minus = Term(high, Rationals.scalar(-(2**_DIGIT), rank))
        low = sum_of(form, LinearForm(form.shape, (minus,), Rationals.scalar(0, rank)))
        digits = LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 2**_DIGIT - 1)
        found.append(Term(high, term.factor * Rationals.scalar(2**_DIGIT, term.factor.numerators.ndim)))
        found.append(Term(codes_of(lowering, operation, low, digits, "low"), term.factor))
    return found


def floor_of_form(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> str:
    """The value of the integers below a form: its codes where the code k stands for k + 1/2."""
    integers = LinearQuantizer((Fraction(1),), (_HALF,), -(2**31 - 1), 2**31 - 1)
    return codes_of(lowering, operation, form, integers, "floor")


def quotient_of_forms(lowering: Lowering, operation: GraphOperation) -> Coded | None:
    """X / y for tensors of many values, where y is proven positive and the result has a quantiser."""
    quantizer = lowering.linear_quantizer(operation)
    operands = [lowering.operand(operation, name) for name in ("x", "y")]
    if quantizer is None or not all(isinstance(item, Known) or is_linear(item) for item in operands):
        return None
    shape = lowering.output_shape(operation)
    x, y = (linear_operand(lowering, operation, lowering.linear(operation, name), shape) for name in ("x", "y"))
    if least_value(lowering, y) <= 0:
        return None
    return Coded(ratio_codes(lowering, operation, x, y, quantizer), note="a quotient, bit by bit")
