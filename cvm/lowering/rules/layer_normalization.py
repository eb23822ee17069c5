"""Exact normalisation by statistics of the data: layer, instance and RMS normalisation of other formats.

y = offset + scale * d / sqrt(v) with d = x - mean x and v = variance + epsilon > 0. It reaches a step at T if
scale * d >= U * sqrt(v) for U = T - offset, that is, with both sides squared and their signs kept, if

    sign(scale) * scale^2 * sign(d) * d^2 - sign(U) * U^2 * v >= 0.

U = base + step * t grows by equal steps. So U^2 * v is a sum of v, t * v and t^2 * v with constant coefficients, which
may differ from channel to channel. v and t * v are written in digits so narrow that their products with t fit 32 bits,
which leaves few products. All terms are integers times rationals, which are compared exactly (`proofs.decide`). The
code is found bit by bit from the highest. Nothing is approximated, and ties are recognised. RMS normalisation is the
same with d = x and v = mean x^2 + epsilon. With op-set 2, the op `normalize` does all of this.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cvm.lowering.claims import APART, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term, scale_and_offset
from cvm.lowering.parts.digits import budget, product, squared
from cvm.lowering.parts.operands import around_zero, scaled, sum_of
from cvm.lowering.parts.quotient import Rows, Statistic, normalized_codes
from cvm.lowering.parts.ratio import from_least, signed
from cvm.lowering.proofs.decide import Summand, TooWide, at_least_zero, count_reached, digits_of_sum
from cvm.lowering.proofs.pieces import at_least, summands
from cvm.lowering.proofs.table import MOST_ENTRIES
from cvm.lowering.rules.normalization import moments
from cvm.lowering.rules.norms import single_integer
from cvm.lowering.rules.reduce import axes_of_reduction, total
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__: list[str] = []

_HALF = Fraction(1, 2)
_MOST_SUMMANDS = 32
"""Products are so small that the sum of this many fits 32 bits, since carries of a comparison are that large."""


_REFUSED = (
    "scale or offset is computed",
    "epsilon is not above 0: items that are all alike would be divided by zero",
    f"the result has no linear quantiser, or one of more than {MOST_ENTRIES} codes",
)


@dataclass(frozen=True, eq=False, slots=True)
class _Operation:
    """The operands of a normalisation: what is normalised, constants in its rank, and the quantiser of the result."""

    form: LinearForm
    scale: Rationals
    offset: Rationals
    epsilon: Fraction
    quantizer: LinearQuantizer


def _operands(lowering: Lowering) -> _Operation:
    quantizer = lowering.linear_quantizer()
    if quantizer is None:
        raise lowering.unsupported("the result needs a quantiser")
    epsilon = lowering.fraction("epsilon")
    if epsilon <= 0:
        raise lowering.unsupported("items that are all alike would be divided by zero: epsilon must be above 0")
    form = lowering.linear("input")
    if not form.terms:  # a constant becomes one tensor of integers
        *_, form = lowering.single("input")
    scale, offset = (lowering.constant(name).expanded(form.rank) for name in ("scale", "offset"))
    return _Operation(form, scale, offset, epsilon, quantizer)


@rule(
    "layer_normalization",
    claim=exact(
        "both sides of each comparison with a step are squared, and compared in integers bit by bit", APART, *_REFUSED
    ),
)
def layer_normalization(lowering: Lowering) -> list[Result]:
    """Offset + scale * (x - mean) / sqrt(variance + epsilon), with mean and variance over ``axes``, which may be empty.

    The operands are ``input``, and the constants ``scale`` and ``offset``, which broadcast to it; they have its rank or
    are literals. The attributes are ``axes`` and ``epsilon``, an exact number above 0. The variance is the mean square
    distance of the items from their mean. Instance normalisation is the same over the spatial axes.
    """
    found = _operands(lowering)
    if lowering.op_set >= 2:
        by_rows = _by_rows(lowering, found, "variance")
        if by_rows is not None:
            return [by_rows]
    mean, variance = moments(lowering)
    assert isinstance(mean, LinearForm)
    assert isinstance(variance, LinearForm)
    distance = single_integer(lowering, sum_of(found.form, scaled(mean, lambda factor: -factor)))
    return [_over_root(lowering, found, distance, variance)]


@rule("rms_normalization", claim=exact("as layer_normalization, without the mean", *_REFUSED))
def rms_normalization(lowering: Lowering) -> list[Result]:
    """Offset + scale * x / sqrt(mean of x^2 + epsilon), with the mean over ``axes``, which may be empty.

    Operands and attributes are those of layer_normalization.
    """
    found = _operands(lowering)
    if lowering.op_set >= 2:
        by_rows = _by_rows(lowering, found, "mean_square")
        if by_rows is not None:
            return [by_rows]
    form, axes = found.form, axes_of_reduction(lowering)
    if len(form.terms) == 1 and form.terms[0].factor.uniform and form.constant.uniform:
        form = around_zero(lowering, form)
    count = math.prod(form.shape[axis] for axis in axes)
    square = total(lowering, squared(lowering, form, max(count, _MOST_SUMMANDS)), axes, count)
    return [_over_root(lowering, found, form, square)]


def _over_root(lowering: Lowering, found: _Operation, distance: LinearForm, square: LinearForm) -> Coded:
    """The codes of offset + scale * distance / sqrt(square + epsilon)."""
    numerator = signed(lowering, distance, squared(lowering, distance, _MOST_SUMMANDS))
    numerator = scaled(numerator, lambda factor: factor * found.scale * _magnitude(found.scale))
    epsilon = LinearForm(square.shape, (), Rationals.scalar(found.epsilon, square.rank))
    codes = _codes(lowering, numerator, sum_of(square, epsilon), found.offset, found.quantizer)
    return Coded(codes, note="a root, bit by bit", any_rounding=True)


def _by_rows(lowering: Lowering, found: _Operation, statistic: Statistic) -> Coded | None:
    """The codes by one op of op-set 2, or None where the input is not one tensor of integers or the op refuses it."""
    axes, form = tuple(sorted(lowering.integers("axes"))), found.form
    if not axes or not form.constant.uniform:
        return None
    if len(form.terms) == 1 and form.terms[0].factor.uniform:
        form = around_zero(lowering, form)
    if statistic == "variance":  # a constant drops out, since the mean is subtracted
        form = replace(form, constant=Rationals.scalar(0, form.rank))
    elif not form.constant.is_zero():  # zero is no code: the constant is one more integer
        one = lowering.tensor_constant(np.ones((1,) * form.rank, dtype=object), "one")
        terms = (*form.terms, Term(one, form.constant))
        form = replace(form, terms=terms, constant=Rationals.scalar(0, form.rank))
    if len(form.terms) != 1 or not form.terms[0].factor.uniform:
        form = single_integer(lowering, form)
    if len(form.terms) != 1 or not form.terms[0].factor.uniform or form.terms[0].factor.item() == 0:
        return None
    (term,) = form.terms
    value, unit = term.value.broadcast(form.shape), term.factor.item()
    if unit < 0:
        value, unit = -value, -unit
    rows = Rows(value, unit, axes, statistic)
    codes = normalized_codes(rows, found.scale, found.offset, found.epsilon, found.quantizer)
    return None if codes is None else Coded(codes, note="one op per row", any_rounding=True)


def _magnitude(items: Rationals) -> Rationals:
    return items.moved(lambda numerators: abs(numerators))


def _codes(
    lowering: Lowering, numerator: LinearForm, radicand: LinearForm, offset: Rationals, quantizer: LinearQuantizer
) -> Value:
    """The codes of offset + n / sqrt(radicand) from ``numerator`` = sign(n) * n^2. Raises `Unsupported`."""
    shape = lowering.output_shape()
    rank = len(shape)
    step, zero = scale_and_offset(quantizer, rank)
    base = zero + step * Rationals.scalar(quantizer.lo - _HALF, rank) - offset
    steps = quantizer.hi - quantizer.lo
    if steps >= MOST_ENTRIES:
        raise lowering.unsupported(f"the result has more than {MOST_ENTRIES} codes: give it a quantiser of fewer bits")
    odd = [(quantizer.lo + t) % 2 for t in range(2 ** steps.bit_length())]

    bits = (budget(_MOST_SUMMANDS) >> steps.bit_length()).bit_length() - 1

    def reached(trial: Value) -> Value:
        whole = numerator
        for value, coefficient in _products(lowering, trial, digits, base, step, bits):
            whole = sum_of(whole, LinearForm(shape, (Term(value, -coefficient),), Rationals.scalar(0, rank)))
        found, rest, _ = summands(whole.terms, whole.constant, whole=True)
        if quantizer.rounding == "half_even":  # a tie reaches an even code, but not an odd one
            table = lowering.tensor_constant(odd, "odd")
            one = np.ones((1,) * rank, dtype=object)
            found.append(Summand(lowering.emit("cvm_lut", table, trial), -one))
        limit = rest.numerators // rest.denominator
        return at_least_zero(lowering, shape, found, limit, "root.reached")

    try:
        digits = _few_digits(lowering, radicand, bits)
        count = count_reached(lowering, shape, steps, reached, "root", most=steps)
    except TooWide:
        raise lowering.unsupported("the squares do not fit 64 bits: quantise the input to fewer bits") from None
    return from_least(count, quantizer)


@dataclass(frozen=True, slots=True)
class _Radicand:
    """``unit`` times an integer, plus ``constant``. The integer is the sum of ``digits``, each times its weight."""

    digits: list[tuple[Value, int]]
    unit: Rationals
    constant: Rationals


def _few_digits(lowering: Lowering, form: LinearForm, bits: int) -> _Radicand:
    """A form as one integer in digits of ``bits`` bits, times a unit. Raises `TooWide`."""
    unit = form.terms[0].factor if form.terms and all(form.terms[0].factor.fractions()) else None
    common = Rationals.scalar(1, form.rank) if unit is None else unit
    terms = [Term(term.value, term.factor / common) for term in form.terms]
    found, _, one = summands(terms, Rationals.scalar(0, form.rank))
    digits = digits_of_sum(lowering, form.shape, found, bits, "variance")
    return _Radicand(digits, common * Rationals.scalar(one, form.rank), form.constant)


def _products(
    lowering: Lowering, trial: Value, radicand: _Radicand, base: Rationals, step: Rationals, bits: int
) -> list[tuple[Value, Rationals]]:
    """sign(U) * U^2 * radicand for U = base + step * t, as values and their coefficients. U^2 has three terms.

    For the term with t^2, t times the integer of the radicand is split into digits again, which are multiplied by t.
    Raises `TooWide`.
    """
    rank, shape = base.numerators.ndim, lowering.output_shape()
    first, second, third = base * base, base * step * Rationals.scalar(2, rank), step * step
    sign = at_least(lowering, shape, LinearForm(shape, (Term(trial, step),), base))
    sign = sign + sign
    sign = sign - lowering.tensor_constant(np.ones((1,) * rank, dtype=object), "one")
    with_sign = sign * trial
    found = [(sign, first * radicand.constant), (with_sign, second * radicand.constant)]
    for value, weight in product(with_sign, trial, _MOST_SUMMANDS):
        found.append((value, third * radicand.constant * Rationals.scalar(weight, rank)))
    parts = []
    for digit, weight in radicand.digits:
        unit = radicand.unit * Rationals.scalar(weight, rank)
        times = with_sign * digit
        found += [(sign * digit, first * unit), (times, second * unit)]
        parts.append(Summand(times, np.full((1,) * rank, weight, dtype=object)))
    for value, weight in digits_of_sum(lowering, shape, parts, bits, "variance"):
        found.append((value * trial, third * radicand.unit * Rationals.scalar(weight, rank)))
    return found
