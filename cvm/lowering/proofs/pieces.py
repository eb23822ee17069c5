"""Exact piecewise linear functions of sums, without a table: each bend of the function becomes one comparison.

A comparison (`cvm.lowering.proofs.decide`) decides whether a sum y of integers with rational coefficients is at least
0. Its result B is 0 or 1. So max(y, 0) = B * y is again a sum, whose terms are the products of B and the terms of y:

    clamp(y, l, u) = l + max(y - l, 0) - max(y - u, 0)
    where(y >= 0, p * y, n * y) = n * y + (p - n) * max(y, 0)

If there is one term, and the bend lies at one of its integers, a maximum or minimum of this term is emitted instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import LinearForm, Shape, Term
from cvm.lowering.proofs.decide import Summand, at_least_zero
from cvm.quantization.rationals import Rationals

__all__ = ["at_least", "clamped", "positive_part", "summands"]


def summands(
    terms: Sequence[Term], constant: Rationals, whole: bool = False
) -> tuple[list[Summand], Rationals, Fraction]:
    """Write a sum as integers times a unit. Returns the summands, the constant in units, and the unit.

    With ``whole``, the unit is chosen such that the constant is an integer number of units too.
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


def at_least(lowering: Emission, shape: Shape, form: LinearForm) -> Value:
    """Emit a value of ``shape`` that is 1 where a form is at least 0, else 0. A clamp is ignored. Raises `TooWide`."""
    found, constant, _ = summands(form.terms, form.constant)
    # For an integer n, n + r >= 0 if and only if n + floor(r) >= 0.
    return at_least_zero(lowering, shape, found, constant.numerators // constant.denominator, "reached")


def clamped(lowering: Emission, form: LinearForm) -> LinearForm:
    """Emit the pending clamp, and return an equal form without a clamp. Raises `TooWide`."""
    lower, upper = form.lower, form.upper
    result = replace(form, lower=None, upper=None)
    if lower is not None:
        result = _moved(positive_part(lowering, _moved(result, -lower)), lower)
    if upper is not None:
        result = _moved(_negated(positive_part(lowering, _moved(_negated(result), upper))), upper)
    return result


def positive_part(lowering: Emission, form: LinearForm) -> LinearForm:
    """max(form, 0) of a form without a pending clamp, as a form. Raises `TooWide`."""
    clipped = _clipped(lowering, form)
    if clipped is not None:
        return clipped
    positive = at_least(lowering, form.shape, form)
    terms = [Term(positive * term.value, term.factor) for term in form.terms]
    if not form.constant.is_zero():
        terms.append(Term(positive, form.constant))
    return LinearForm(form.shape, tuple(terms), Rationals.scalar(0, form.rank))


def _clipped(lowering: Emission, form: LinearForm) -> LinearForm | None:
    """max(factor * X + constant, 0) if t = -constant / factor is an integer: X is replaced by max(X, t).

    For a negative factor it is replaced by min(X, t). Returns None if the form is not of that kind.
    """
    if len(form.terms) != 1:
        return None
    (term,) = form.terms
    factors = term.factor.fractions()
    if min(factors) < 0 < max(factors) or not all(factors):
        return None
    bend = -form.constant / term.factor
    whole = bend.reduced()
    lo, hi = term.value.range.hull()
    bends = whole.fractions()
    if any(item.denominator != 1 for item in bends) or not lo <= min(bends) <= max(bends) <= hi:
        return None
    at = lowering.tensor_constant((whole.numerators // whole.denominator).astype(np.int64), "bend")
    if factors[0] > 0:
        value: Value = lowering.emit("broadcast_max", term.value, at)
    else:
        value = -lowering.emit("broadcast_max", -term.value, -at)
    return LinearForm(form.shape, (Term(value, term.factor),), form.constant)


def _moved(form: LinearForm, by: Fraction) -> LinearForm:
    return replace(form, constant=form.constant + Rationals.scalar(by, form.rank))


def _negated(form: LinearForm) -> LinearForm:
    terms = tuple(Term(term.value, -term.factor) for term in form.terms)
    return replace(form, terms=terms, constant=-form.constant)
