"""Normalisation that stays linear (NNEF 1.0.1 section 4.9.4), batch normalisation, and moments (4.9.6).

`cvm.lowering.rules.norms` has the normalisations that divide by a number computed from the data.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cvm.errors import Invalid
from cvm.lowering.claims import APART, NO_RATIO, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, SurdForm, Term
from cvm.lowering.parts.axis_sums import with_common_factor, with_constant_as_value
from cvm.lowering.parts.digits import narrowed, product
from cvm.lowering.parts.operands import around_zero, scaled, sum_of
from cvm.lowering.rules.pooling import window_total, window_volume
from cvm.lowering.rules.reduce import axes_of_reduction, total
from cvm.quantization.rationals import Rationals

__all__ = ["centred"]


@rule(
    "batch_normalization",
    claim=exact(
        "one requantize whose thresholds are decided by integer square roots; without a quantiser of its own, the next "
        "operation's thresholds",
        "mean, variance, offset or scale is computed",
    ),
)
def batch_normalization(lowering: Lowering) -> list[Result]:
    """Offset + scale * (input - mean) / sqrt(variance + epsilon), with constant parameters.

    The root is irrational in general; the quantiser's thresholds are decided by integer square roots.
    """
    form = lowering.linear("input")
    if not form.terms:  # a constant becomes one tensor of integers
        *_, form = lowering.single("input")
    mean, variance, offset, scale = (
        lowering.constant(name).expanded(form.rank) for name in ("mean", "variance", "offset", "scale")
    )
    radicand = variance + Rationals.scalar(lowering.fraction("epsilon"), form.rank)
    if min(radicand.numerators.ravel().tolist()) <= 0:
        raise Invalid("lowering.variance", "variance + epsilon must be positive in every channel", lowering.location)
    terms = tuple(Term(term.value, scale * term.factor) for term in form.terms)
    return [SurdForm(form.shape, terms, scale * (form.constant - mean), offset, radicand)]


@rule("local_mean_normalization", claim=exact("x minus a sum of integers over the volume", NO_RATIO))
def local_mean_normalization(lowering: Lowering) -> list[Result]:
    """``x`` minus the mean of its window. Positions outside of the tensor count as zeros."""
    return [centred(lowering, lowering.linear("input"))]


def centred(lowering: Lowering, form: LinearForm) -> LinearForm:
    """A form minus the mean of its window."""
    volume = Rationals.scalar(Fraction(-1, window_volume(lowering)), form.rank)
    mean = window_total(lowering, form)
    return sum_of(form, scaled(mean, lambda factor: factor * volume))


@rule("moments", claim=exact("sums and sums of products: n * sum x^2 - (sum x)^2 over n^2", APART))
def moments(lowering: Lowering) -> list[Result]:
    """The mean, and the variance (n * sum x^2 - (sum x)^2) / n^2, which is computed from the exact mean.

    Let x = sum_i f_i * X_i + c, where f_i and c are the same for all items of a mean (if c is not, it becomes another
    X_i). The variance is the sum over i and j of f_i * f_j * (n * sum X_i X_j - sum X_i * sum X_j) / n^2, which does
    not contain c.
    """
    form, axes = lowering.linear("input"), axes_of_reduction(lowering)
    count = math.prod(form.shape[axis] for axis in axes)
    mean = total(lowering, form, axes, count)
    form = with_constant_as_value(lowering, form, axes)
    if len(form.terms) == 1 and form.terms[0].factor.uniform and form.constant.uniform:
        form = around_zero(lowering, form)
    variance = LinearForm(mean.shape, (), Rationals.scalar(0, form.rank))

    def summed(value: Value) -> Value:
        return value.sum(axes, keepdims=True) if axes else value

    def add(value: Value, factor: Rationals, weight: Fraction) -> None:
        nonlocal variance
        term = Term(value, factor * Rationals.scalar(weight, form.rank))
        variance = sum_of(variance, LinearForm(mean.shape, (term,), Rationals.scalar(0, form.rank)))

    items = [with_common_factor(term, axes) for term in form.terms]
    digits = narrowed(lowering, LinearForm(form.shape, tuple(Term(*item) for item in items), form.constant), count)
    found = [(term.value.broadcast(form.shape), term.factor) for term in digits.terms]
    sums = [summed(value) for value, _ in found]
    for i, (first, f) in enumerate(found):
        for j, (second, g) in enumerate(found[i:], start=i):
            twice = 1 if i == j else 2
            for value, weight in product(first, second, count):
                add(summed(value), f * g, Fraction(twice * weight, count))
            for value, weight in product(sums[i], sums[j]):
                add(value, f * g, Fraction(-twice * weight, count * count))
    return [mean, variance]
