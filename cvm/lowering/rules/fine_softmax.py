"""softmax over many items of many codes, computed from exponentials that are far finer than the codes of the result.

y_i = exp(x_i) / sum_j exp(x_j) over codes x = s * q. Let d_j = max(q) - q_j and E_j = 2^W * exp(-s * d_j) + e_j, where
|e_j| < 1 and the largest E is exactly 2^W. Then the quotient E_i / sum E differs from y_i by at most n / 2^W. W is
chosen such that this is below 2^-60 steps of the result. The quotient is compared exactly with each step, by sums of
digits (`parts.ratio`). If all items are equal, the quotient is exact, so ties are decided rightly. By the theorem of
Lindemann and Weierstrass there are no other ties.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.lowering.claims import WHOLE_TENSOR, bounded
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.parts.digits import array_digits, budget
from cvm.lowering.parts.exponentials import powers_of_e, softmax_by_quotient
from cvm.lowering.parts.ratio import ratio_codes
from cvm.lowering.proofs.table import MOST_ENTRIES
from cvm.quantization.exact import code
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

_FINENESS = 60


@rule(
    "softmax",
    accuracy="fine",
    claim=bounded(
        "a table of the exponential to 60 bits behind a step of the result, sums of its digits, and exact comparisons "
        "with every step",
        "no width is proven to decide all sums of exponentials; the report says how near a number must be to differ",
        WHOLE_TENSOR,
    ),
)
def fine_softmax(lowering: Lowering) -> list[Result]:
    """exp(x) / sum(exp(x)) over ``axes``, rounded half_up or half_even."""
    axes = tuple(int(axis) for axis in lowering.operation.attributes["axes"])  # type: ignore[union-attr, arg-type]
    shape = lowering.output_shape()
    rank, count = len(shape), math.prod(shape[axis] for axis in axes)
    zero = Rationals.scalar(0, rank)
    if count == 1:
        return [LinearForm(shape, (), Rationals.scalar(1, rank))]
    quantizer = lowering.linear_quantizer()
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported("the result needs a quantiser for the whole tensor")
    value, scale, _, _ = lowering.coded("x")
    # Results lie between 0 and 1, so other codes do not occur.
    quantizer = replace(quantizer, lo=code(Fraction(0), quantizer), hi=code(Fraction(1), quantizer))
    width = _FINENESS + math.ceil(count / quantizer.scale[0]).bit_length()
    lo, hi = value.range.hull()
    if hi - lo >= MOST_ENTRIES:
        raise lowering.needs_quantization(str(lowering.operation.inputs["x"]))
    if lowering.op_set >= 2:
        coded = softmax_by_quotient(lowering, value, scale, axes, quantizer, _FINENESS)
        if coded is not None:
            return [coded]
    greatest = value.max(axes, keepdims=True)
    distance = greatest - value
    table = np.array(powers_of_e(scale, width, hi - lo), dtype=object)
    numerator, denominator = [], []
    for digit, weight in array_digits(table, budget(count)):
        powers = lowering.emit("cvm_lut", lowering.tensor_constant(digit, "exp"), distance)
        total = powers.sum(axes, keepdims=True)
        numerator.append(Term(powers, Rationals.scalar(weight, rank)))
        denominator.append(Term(total, Rationals.scalar(weight, rank)))
    powers_of_one, sums = (LinearForm(shape, tuple(terms), zero) for terms in (numerator, denominator))
    found = ratio_codes(lowering, powers_of_one, sums, quantizer)
    steps = Fraction(count, 2**width) / quantizer.scale[0]
    note = f"may differ only within {float(steps):.1e} steps of a rounding threshold"
    return [Coded(found, Fraction(1), note, any_rounding=quantizer.rounding != "toward_zero")]
