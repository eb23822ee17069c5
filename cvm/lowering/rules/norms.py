"""Normalisation that divides (NNEF 1.0.1 section 4.9.4): by a sum of magnitudes, or by a power of a sum of squares.

l1 normalisation is a quotient of linear forms. Let the divisor be d(sigma), where sigma is a sum of squares, and d
grows with sigma. Then x / d(sigma) >= T means d(sigma) <= x / T for x >= 0 < T, and d(sigma) >= x / T for x, T < 0. If
x has few codes, each of them and each step T of the result give one threshold for sigma, which is exact: it contains
squares of rationals, or roots of integers. Otherwise, for d = sqrt(sigma), both sides are squared:
sign(x) * x^2 >= sign(T) * T^2 * sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.claims import (
    WHOLE_TENSOR,
    ZERO_BY_ZERO,
    exact,
)
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.parts.digits import squared
from cvm.lowering.parts.operands import around_zero, integer_value, scaled, sum_of
from cvm.lowering.parts.ratio import bounded_below, least_value, quotient_codes, root_codes, signed
from cvm.lowering.proofs.decide import Summand, TooWide, at_least_zero, count_reached, table_digits
from cvm.lowering.proofs.pieces import summands
from cvm.lowering.proofs.table import MOST_ENTRIES
from cvm.lowering.rules.normalization import centred
from cvm.lowering.rules.pooling import window_total, window_volume
from cvm.lowering.rules.reduce import axes_of_reduction, total
from cvm.quantization import Quantizer
from cvm.quantization.rationals import Rationals
from cvm.quantization.roots import floor_root
from cvm.quantization.steps import step
from cvm.quantization.surds import least_integer
from cvm.records import dataclass

__all__ = ["single_integer"]

Array = npt.NDArray[Any]

_MOST_ROOT = 16

_OF_ALL = (WHOLE_TENSOR, ZERO_BY_ZERO)
_ROOT = (
    "for few codes, per code of x and step of the result one threshold for the sum of squares; for more, the squares "
    "are compared bit by bit"
)
_BIASED = "it has a bias, and the values of the input times the codes of the result are more than 2^18"


def _operand(lowering: Lowering) -> tuple[LinearForm, Quantizer]:
    """The operand, with integers around zero if it has one term, and the quantiser of the result."""
    quantizer = lowering.quantizer()
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported("the result needs a quantiser for the whole tensor")
    form = lowering.linear("input")
    if not form.terms:  # a constant becomes one tensor of integers
        *_, form = lowering.single("input")
    return around_zero(lowering, form) if _single(form) else form, quantizer


def _single(form: LinearForm) -> bool:
    return len(form.terms) == 1 and form.terms[0].factor.uniform and form.constant.uniform


def _least_magnitude(lowering: Lowering, form: LinearForm) -> Fraction:
    """A lower bound of |x|; for a form of one term, the least |x|."""
    if not _single(form):
        negative = scaled(form, lambda factor: -factor)
        return max(least_value(lowering, form), least_value(lowering, negative), Fraction(0))
    (term,) = form.terms
    lo, hi = term.value.range.hull()
    factor, constant = term.factor.item(), form.constant.item()
    nearest = min(max(round(-constant / factor), lo), hi) if factor else lo
    return min(abs(factor * q + constant) for q in (nearest - 1, nearest, nearest + 1) if lo <= q <= hi)


def _division_by_zero(lowering: Lowering) -> Exception:
    return lowering.unsupported(
        "items that are all zero would be divided by zero: give it a bias or an epsilon above 0"
    )


# Division by a sum


@rule("l1_normalization", claim=exact("a quotient of sums, decided bit by bit", *_OF_ALL))
def l1_normalization(lowering: Lowering) -> list[Result]:
    """``x / max(sum |x| + bias, epsilon)``: a quotient of linear forms."""
    form, quantizer = _operand(lowering)
    axes, bias, epsilon = axes_of_reduction(lowering), lowering.fraction("bias"), lowering.fraction("epsilon")
    magnitude = signed(lowering, form, form)
    sigma = total(lowering, magnitude, axes, 1)
    sigma = sum_of(sigma, LinearForm(sigma.shape, (), Rationals.scalar(bias, form.rank)))
    least = _least_magnitude(lowering, form) * math.prod(form.shape[axis] for axis in axes) + bias
    if max(least, epsilon) <= 0:
        raise _division_by_zero(lowering)
    divisor = bounded_below(lowering, sigma, epsilon, least)
    return [Coded(quotient_codes(lowering, form, divisor, quantizer), note="a quotient, bit by bit")]


# Division by a power of a sum of squares


@dataclass(frozen=True, slots=True)
class _Divisor:
    """A growing function d(sigma). d <= r means sigma <= s, and d >= r means sigma >= s, for some s that depends on r.

    ``limit`` maps r^2 and a unit to the greatest integer that is at most s / unit, and the least one that is at least s
    / unit; None if d exceeds r for every sigma.
    """

    limit: Callable[[Fraction, Fraction], tuple[int, int] | None]
    least: Fraction
    """A lower bound of d for all sigma. For a smaller r, d <= r never holds."""


def _root_divisor(lowering: Emission) -> _Divisor:
    """max(sqrt(sigma) + bias, epsilon)."""
    bias, epsilon = lowering.fraction("bias"), lowering.fraction("epsilon")

    def limit(square: Fraction, unit: Fraction) -> tuple[int, int] | None:
        if bias > 0 and square < bias * bias:
            return None
        # (r - bias)^2 = r^2 + bias^2 - 2 * bias * r
        rational = (square + bias * bias) / unit
        cross = ((bias < 0) - (bias > 0), 4 * bias * bias * square / unit**2)
        return least_integer(rational, [cross], strict=True) - 1, least_integer(rational, [cross])

    return _Divisor(limit, max(epsilon, Fraction(0)))


def _power_divisor(lowering: Lowering) -> _Divisor:
    """(bias + alpha * sigma)^beta for beta = a/b. d <= r means (bias + alpha * sigma)^(2 a) <= (r^2)^b."""
    alpha, beta, bias = (lowering.fraction(name) for name in ("alpha", "beta", "bias"))
    if alpha <= 0 or beta <= 0 or max(beta.numerator, beta.denominator) > _MOST_ROOT:
        raise lowering.unsupported(f"alpha and beta must be positive, beta a fraction of integers up to {_MOST_ROOT}")
    a, b = 2 * beta.numerator, beta.denominator

    @cache
    def coefficients(unit: Fraction) -> tuple[int, int, int, int]:
        # sigma / unit <= E * w - F where w is the a-th root of r^b: F's two parts, (its denominator * E)^a
        e, f = 1 / (alpha * unit), bias / (alpha * unit)
        power = (f.denominator * e) ** a
        return f.denominator, f.numerator, power.numerator, power.denominator

    def limit(square: Fraction, unit: Fraction) -> tuple[int, int] | None:
        denominator, numerator, above, below = coefficients(unit)
        top, bottom = above * square.numerator**b, below * square.denominator**b
        root = floor_root(top // bottom, a)
        least = (root - numerator) // denominator
        # (least + F) * denominator is an integer; it is the root of the power itself, or there is none.
        whole = least * denominator + numerator
        exact = whole >= 0 and whole**a * bottom == top
        return least, least if exact else least + 1

    return _Divisor(limit, Fraction(0))


@rule("l2_normalization", claim=exact(_ROOT, *_OF_ALL, _BIASED))
def l2_normalization(lowering: Lowering) -> list[Result]:
    """``x / max(sqrt(sum x^2) + bias, epsilon)``."""
    form, quantizer = _operand(lowering)
    axes = axes_of_reduction(lowering)
    count = math.prod(form.shape[axis] for axis in axes)
    sigma = total(lowering, squared(lowering, form, count), axes, 1)
    least = _least_magnitude(lowering, form) ** 2 * count
    return [_over_root(lowering, form, sigma, least, quantizer)]


@rule("local_variance_normalization", claim=exact(_ROOT, *_OF_ALL, _BIASED))
@rule(
    "local_contrast_normalization",
    claim=exact("as local_variance_normalization, of exact differences from the local mean", *_OF_ALL, _BIASED),
)
def local_variance_normalization(lowering: Lowering) -> list[Result]:
    """``x / max(sqrt(mean x^2 of the window) + bias, epsilon)``; for local contrast, of x minus its local mean."""
    form, quantizer = _operand(lowering)
    if lowering.operation.name == "local_contrast_normalization":
        form = single_integer(lowering, centred(lowering, form))
    sigma = _mean_of_squares(lowering, form)
    least = _least_magnitude(lowering, form) ** 2 / window_volume(lowering)
    return [_over_root(lowering, form, sigma, least, quantizer)]


@rule(
    "local_response_normalization",
    claim=exact(
        "the same thresholds for few codes; a quotient or a root, decided bit by bit, for more",
        *_OF_ALL,
        f"alpha or beta is not positive, or beta has a numerator or denominator above {_MOST_ROOT}",
        "beta is neither 1/2 nor 1, and the values of the input times the codes of the result are more than 2^18",
    ),
)
def local_response_normalization(lowering: Lowering) -> list[Result]:
    """``x / (bias + alpha * mean x^2 of the window)^beta``."""
    form, quantizer = _operand(lowering)
    sigma = _mean_of_squares(lowering, form)
    least = _least_magnitude(lowering, form) ** 2 / window_volume(lowering)
    divisor = _power_divisor(lowering)
    alpha, beta, bias = (lowering.fraction(name) for name in ("alpha", "beta", "bias"))
    if bias + alpha * least <= 0:
        raise _division_by_zero(lowering)
    if _fits_table(lowering, form, quantizer):
        return [_divided(lowering, form, sigma, divisor, quantizer)]
    if beta not in (Fraction(1, 2), 1):
        raise _too_many(lowering, "beta is neither 1/2 nor 1")
    base = scaled(sigma, lambda factor: factor * Rationals.scalar(alpha, form.rank))
    base = sum_of(base, LinearForm(base.shape, (), Rationals.scalar(bias, form.rank)))
    if beta == 1:
        return [Coded(quotient_codes(lowering, form, base, quantizer), note="a quotient, bit by bit")]
    return [_by_squares(lowering, form, base, quantizer)]


def _mean_of_squares(lowering: Lowering, form: LinearForm) -> LinearForm:
    count = window_volume(lowering)
    sums = window_total(lowering, squared(lowering, form, count))
    return scaled(sums, lambda factor: factor * Rationals.scalar(Fraction(1, count), form.rank))


def single_integer(lowering: Lowering, form: LinearForm) -> LinearForm:
    """A form without a constant as one integer value times a unit, if the integers fit; else the form itself."""
    found, _, unit = summands(form.terms, form.constant)
    if not form.constant.is_zero() or any(item.coefficients.size > 1 for item in found):
        return form
    widths = [int(abs(item.coefficients).max()) * item.value.range.magnitude() for item in found]
    if sum(widths) > INT32_MAX:
        return form
    value: Value | None = None
    for item in found:
        weight = lowering.tensor_constant(item.coefficients, "weight")
        part = item.value * weight
        value = part if value is None else value + part
    assert value is not None
    return LinearForm(form.shape, (Term(value, Rationals.scalar(unit, form.rank)),), Rationals.scalar(0, form.rank))


def _over_root(lowering: Lowering, form: LinearForm, sigma: LinearForm, least: Fraction, quantizer: Quantizer) -> Coded:
    """The codes of x / max(sqrt(sigma) + bias, epsilon), where ``least`` is a lower bound of sigma."""
    bias, epsilon = lowering.fraction("bias"), lowering.fraction("epsilon")
    if epsilon <= 0 and bias <= 0 and (bias < 0 or least <= 0):
        raise _division_by_zero(lowering)
    if _fits_table(lowering, form, quantizer):
        return _divided(lowering, form, sigma, _root_divisor(lowering), quantizer)
    if bias:
        raise _too_many(lowering, "it has a bias")
    square = bounded_below(lowering, sigma, epsilon * epsilon if epsilon > 0 else Fraction(0), least)
    return _by_squares(lowering, form, square, quantizer)


def _by_squares(lowering: Lowering, form: LinearForm, square: LinearForm, quantizer: Quantizer) -> Coded:
    """The codes of x / sqrt(square)."""
    numerator = signed(lowering, form, squared(lowering, form, 1))
    return Coded(root_codes(lowering, numerator, square, quantizer), note="a root, bit by bit")


# Few codes: thresholds by table


def _fits_table(lowering: Lowering, form: LinearForm, quantizer: Quantizer) -> bool:
    if not _single(form) or form.terms[0].factor.item() == 0:
        return False
    lo, hi = form.terms[0].value.range.hull()
    return bool((hi - lo + 1) * 2 ** (quantizer.hi - quantizer.lo).bit_length() <= MOST_ENTRIES)


def _too_many(lowering: Lowering, reason: str) -> Unsupported:
    return lowering.unsupported(
        f"{reason}, which needs a table of the input's values and the result's codes, of at most {MOST_ENTRIES} "
        "entries: give them quantisers of fewer bits"
    )


def _divided(lowering: Lowering, form: LinearForm, sigma: LinearForm, divisor: _Divisor, quantizer: Quantizer) -> Coded:
    """The codes of x / d(sigma)."""
    (term,) = form.terms
    codes = term.value.range.hull()
    steps = quantizer.hi - quantizer.lo
    run = 2 ** steps.bit_length()
    found, constant, unit = summands(sigma.terms, sigma.constant, whole=True)
    rest = constant.numerators // constant.denominator
    bound = int(abs(rest).max()) + sum(
        int(abs(item.coefficients).max()) * item.value.range.magnitude() for item in found
    )
    thresholds = _thresholds(form, codes, quantizer, divisor, unit, bound, run)
    return Coded(
        _selected(lowering, form, codes, found, rest, thresholds, (steps, run), quantizer.lo),
        note=f"{len(thresholds)} thresholds",
    )


def _thresholds(
    form: LinearForm,
    codes: tuple[int, int],
    quantizer: Quantizer,
    divisor: _Divisor,
    unit: Fraction,
    bound: int,
    run: int,
) -> list[int]:
    """For each integer of x and each step, the least signed sum that reaches the step. The signed sum is the negated
    sum of squares where x >= 0.
    """
    (term,) = form.terms
    always, never = -bound, bound + 1
    least = divisor.least**2
    steps = [step(quantizer, code) for code in range(quantizer.lo + 1, quantizer.hi + 1)]
    found = []
    for q in range(codes[0], codes[1] + 1):
        x = term.factor.item() * q + form.constant.item()
        found.append(always)
        for at in steps:
            if x >= 0:
                if at.sign < 0 or (at.sign == 0 and (x > 0 or not at.strict)):
                    found.append(always)
                    continue
                r = x * x / at.square if at.sign else Fraction(0)
                limit = divisor.limit(r, unit) if r >= least and r > 0 else None
                found.append(never if limit is None else min(max(-limit[0], always), never))
            elif at.sign >= 0:
                found.append(never)
            else:
                r = x * x / at.square
                limit = divisor.limit(r, unit) if r > least or (at.strict and r == least) else None
                from_above = None if limit is None else limit[0] + 1 if at.strict else limit[1]
                found.append(always if from_above is None else min(max(from_above, always), never))
        found += [never] * (run - 1 - len(steps))
    return found


def _selected(
    lowering: Lowering,
    form: LinearForm,
    codes: tuple[int, int],
    sigma: list[Summand],
    rest: Array,
    thresholds: list[int],
    size: tuple[int, int],
    least: int,
) -> Value:
    """The number of steps that the signed sum reaches, found with tables of the digits of the thresholds."""
    shape, rank = form.shape, form.rank
    (term,) = form.terms
    value = term.value.broadcast(shape)
    zero, start, (steps, run) = Rationals.scalar(0, rank), codes[0], size
    x = (term.factor.item() * q + form.constant.item() for q in range(start, codes[1] + 1))
    signs = lowering.tensor_constant([-1 if item >= 0 else 1 for item in x], "signs")
    row = LinearForm(shape, (Term(value, Rationals.scalar(1, rank)),), Rationals.scalar(-start, rank))
    sign = lowering.emit("cvm_lut", signs, integer_value(lowering, row, "row"))
    signed = [Summand(sign * item.value, item.coefficients) for item in sigma]
    if rest.any():
        signed.append(Summand(sign, rest))
    starts = scaled(row, lambda factor: factor * Rationals.scalar(run, rank))

    def reached(trial: Value) -> Value:
        at = sum_of(starts, LinearForm(shape, (Term(trial, Rationals.scalar(1, rank)),), zero))
        index = integer_value(lowering, at, "index")
        digits = table_digits(lowering, thresholds, index, rank)
        nothing = np.zeros((1,) * rank, dtype=object)
        return at_least_zero(lowering, shape, [*signed, *digits], nothing, "reached")

    try:
        found = count_reached(lowering, shape, steps, reached, "count", most=steps)
    except TooWide:
        raise lowering.unsupported("the sum of squares does not fit: use fewer bits") from None
    if not least:
        return found
    return found + lowering.tensor_constant([least], "lo")
