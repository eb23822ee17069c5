"""Normalisation (NNEF 1.0.1 section 4.9.4) and moments (4.9.6).

Mean normalisation is linear. l1 normalisation is a quotient of linear forms. Those that divide by a power of a sum of
squares are decided row by row: where x has few codes, each of them and each step T of the result's quantiser leave one
threshold for the sum, since x / d(sigma) >= T is d(sigma) <= x / T for x >= 0 < T and d(sigma) >= x / T for x, T < 0,
and d grows with sigma. The thresholds are exact: squares of rationals, or roots of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.graph import GraphOperation
from cvm.lowering.claims import NO_RATIO, THRESHOLDS, WHOLE_TENSOR, ZERO_BY_ZERO, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.decide import Summand, TooWide, at_least_zero, count_reached
from cvm.lowering.form import LinearForm, SurdForm, Term
from cvm.lowering.operands import around_zero, full_value, integer_value, scaled, sum_of
from cvm.lowering.pooling import window_total, window_volume
from cvm.lowering.ratio import at_least, ratio_codes, summands, table_digits
from cvm.lowering.reduce import axes_of_reduction, total
from cvm.lowering.table import MOST_ENTRIES
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

Array = npt.NDArray[Any]

_HALF = Fraction(1, 2)
_MOST_ROOT = 16


@rule(
    "batch_normalization",
    claim=exact(
        "one requantize whose thresholds are decided by integer square roots",
        "mean, variance, offset or scale is computed",
    ),
)
def batch_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Offset + scale * (input - mean) / sqrt(variance + epsilon), with constant parameters.

    The root is irrational in general; the quantiser's thresholds are decided by integer square roots.
    """
    value, factor, constant, form = lowering.single(operation, "input")
    mean, variance, offset, scale = (
        lowering.constant(operation, name).expanded(form.rank) for name in ("mean", "variance", "offset", "scale")
    )
    radicand = variance + Rationals.scalar(_attribute(operation, "epsilon"), form.rank)
    if min(radicand.numerators.ravel().tolist()) <= 0:
        raise Invalid(
            "lowering.variance", "variance + epsilon must be positive in every channel", lowering.location(operation)
        )
    if lowering.quantizer(operation) is None:
        raise lowering.needs_quantization(operation, operation.outputs[0])
    return [SurdForm(form.shape, value, scale * factor, scale * (constant - mean), offset, radicand)]


def _attribute(operation: GraphOperation, name: str) -> Fraction:
    return Fraction(operation.attributes[name])  # type: ignore[arg-type]


# Means and squares


@rule("local_mean_normalization", claim=exact("x minus a sum of integers over the volume", NO_RATIO))
def local_mean_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X minus the mean of its window; positions outside of the tensor count as zeros."""
    return [_centred(lowering, operation, lowering.linear(operation, "input"))]


def _centred(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    volume = Rationals.scalar(Fraction(-1, window_volume(operation)), form.rank)
    mean = window_total(lowering, operation, form)
    return sum_of(form, scaled(mean, lambda factor: factor * volume))


@rule("moments", claim=exact("sums and sums of squares: n * sum x^2 - (sum x)^2 over n^2"))
def moments(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """The mean and (n * sum x^2 - (sum x)^2) / n^2, from the mean as it is, unquantised.

    A constant added to x drops out of the variance.
    """
    form, axes = lowering.linear(operation, "input"), axes_of_reduction(operation)
    count = math.prod(form.shape[axis] for axis in axes)
    mean = total(lowering, operation, form, axes, count)
    if len(form.terms) != 1 or not (form.terms[0].factor.uniform and form.constant.uniform):
        raise lowering.needs_quantization(operation, str(operation.inputs["input"]))
    (term,) = around_zero(lowering, operation, form).terms
    value, rank = full_value(lowering, operation, term.value, form.shape), form.rank
    square = lowering.emit(operation, "broadcast_mul", value, value)
    along = {"axes": axes, "keepdims": True, "exclude": False}
    sums = [lowering.emit(operation, "sum", item, **along) if axes else item for item in (square, value)]
    unit = term.factor * term.factor
    variance = LinearForm(mean.shape, (Term(sums[0], unit * Rationals.scalar(Fraction(1, count), rank)),),
                          Rationals.scalar(0, rank))  # fmt: skip
    for item, weight in _square(lowering, operation, sums[1]):
        part = Term(item, unit * Rationals.scalar(Fraction(-weight, count * count), rank))
        variance = sum_of(variance, LinearForm(mean.shape, (part,), Rationals.scalar(0, rank)))
    return [mean, variance]


def _square(lowering: Lowering, operation: GraphOperation, value: str) -> list[tuple[str, int]]:
    """The square of a value as values and their weights: of its digits in base 2^12 where it is wide."""
    magnitude = lowering.builder.range(value).magnitude()
    if magnitude * magnitude <= 2**31 - 1:
        return [(lowering.emit(operation, "broadcast_mul", value, value), 1)]
    high = lowering.emit(operation, "cvm_right_shift", value, precision=32, shift_bit=12)
    back = lowering.emit(operation, "cvm_left_shift", high, precision=32, shift_bit=12)
    low = lowering.emit(
        operation, "clip", lowering.emit(operation, "elemwise_sub", value, back), a_min=-2048, a_max=2047
    )
    pairs = ((high, high, 2**24), (high, low, 2**13), (low, low, 1))
    return [(lowering.emit(operation, "broadcast_mul", a, b), weight) for a, b, weight in pairs]


def _squares(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    """X^2 for x = s * q + c: s^2 * q^2 + 2 s c * q + c^2."""
    (term,) = form.terms
    value = full_value(lowering, operation, term.value, form.shape)
    square = lowering.emit(operation, "broadcast_mul", value, value)
    result = LinearForm(form.shape, (Term(square, term.factor * term.factor),), form.constant * form.constant)
    if not form.constant.is_zero():
        mixed = Term(value, term.factor * form.constant * Rationals.scalar(2, form.rank))
        result = sum_of(result, LinearForm(form.shape, (mixed,), Rationals.scalar(0, form.rank)))
    return result


# Division by a sum


@rule(
    "l1_normalization",
    claim=exact("a quotient of sums, decided bit by bit", WHOLE_TENSOR, ZERO_BY_ZERO),
)
def l1_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X / max(sum |x| + bias, epsilon): a quotient of linear forms."""
    form, quantizer = _few_codes(lowering, operation)
    bias, epsilon = _attribute(operation, "bias"), _attribute(operation, "epsilon")
    (term,) = form.terms
    positive = at_least(lowering, operation, form.shape, form)
    sign = LinearForm(form.shape, (Term(positive, Rationals.scalar(2, form.rank)),), Rationals.scalar(-1, form.rank))
    # |x| = sign(x) * (s * q + c): the integers sign * q, and the signs.
    signs = lowering.emit(operation, "broadcast_add", positive, positive)
    one = lowering.tensor_constant(operation, np.ones((1,) * form.rank, dtype=object), "one")
    signs = lowering.emit(operation, "broadcast_sub", signs, one)
    product = lowering.emit(operation, "broadcast_mul", signs, term.value)
    magnitude = LinearForm(form.shape, (Term(product, term.factor),),
                           form.constant * sign.constant)  # fmt: skip
    if not form.constant.is_zero():
        part = Term(positive, form.constant * Rationals.scalar(2, form.rank))
        magnitude = sum_of(magnitude, LinearForm(form.shape, (part,), Rationals.scalar(0, form.rank)))
    sigma = total(lowering, operation, magnitude, axes_of_reduction(operation), 1)
    sigma = sum_of(sigma, LinearForm(sigma.shape, (), Rationals.scalar(bias, form.rank)))
    least = _least_magnitude(lowering, form) * math.prod(form.shape[axis] for axis in axes_of_reduction(operation))
    if max(least + bias, epsilon) <= 0:
        raise _division_by_zero(lowering, operation)
    divisor = _at_least_number(lowering, operation, sigma, epsilon, least + bias)
    value = ratio_codes(lowering, operation, form, divisor, quantizer)
    return [Coded(value, note="a quotient, bit by bit")]


def _at_least_number(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, bound: Fraction, least: Fraction
) -> LinearForm:
    """max(u, bound) = bound + [u >= bound] * (u - bound)."""
    if least >= bound:
        return form
    rank = form.rank
    above = sum_of(form, LinearForm(form.shape, (), Rationals.scalar(-bound, rank)))
    answer = at_least(lowering, operation, form.shape, above)
    result = LinearForm(form.shape, (Term(answer, above.constant),), Rationals.scalar(bound, rank))
    for term in above.terms:
        product = lowering.emit(operation, "broadcast_mul", answer, term.value)
        result = sum_of(result, LinearForm(form.shape, (Term(product, term.factor),), Rationals.scalar(0, rank)))
    return result


def _few_codes(lowering: Lowering, operation: GraphOperation) -> tuple[LinearForm, LinearQuantizer]:
    """The operand, one value around zero with one factor, and the quantiser of the result."""
    quantizer = lowering.quantizer(operation)
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported(operation, "the result needs a quantiser for the whole tensor")
    _, _, _, form = lowering.coded(operation, "input")
    return around_zero(lowering, operation, form), quantizer


def _least_magnitude(lowering: Lowering, form: LinearForm) -> Fraction:
    """The least |x| of a form of one term, over its integers."""
    (term,) = form.terms
    lo, hi = lowering.builder.range(term.value).hull()
    factor, constant = term.factor.item(), form.constant.item()
    nearest = min(max(round(-constant / factor), lo), hi)
    return min(abs(factor * q + constant) for q in (nearest - 1, nearest, nearest + 1) if lo <= q <= hi)


def _division_by_zero(lowering: Lowering, operation: GraphOperation) -> Exception:
    return lowering.unsupported(
        operation, "items that are all zero would be divided by zero: give it a bias or an epsilon above 0"
    )


# Division by a power of a sum of squares


@dataclass(frozen=True, slots=True)
class _Divisor:
    """A function d(sigma) that grows: d <= r is sigma <= limit(r, unit) * unit, and d >= r likewise.

    ``limit`` gives, in units, the greatest integer at or below that sigma and the least at or above it; None for a
    sigma below all.
    """

    limit: Callable[[Fraction, Fraction], tuple[int, int] | None]
    least: Fraction
    """D is at least this, whatever sigma: r below it is never reached from above."""


def _root_divisor(operation: GraphOperation) -> _Divisor:
    """max(sqrt(sigma) + bias, epsilon)."""
    bias, epsilon = _attribute(operation, "bias"), _attribute(operation, "epsilon")

    def limit(r: Fraction, unit: Fraction) -> tuple[int, int] | None:
        if r < bias:
            return None
        steps = (r - bias) ** 2 / unit
        return math.floor(steps), math.ceil(steps)

    return _Divisor(limit, epsilon)


def _power_divisor(lowering: Lowering, operation: GraphOperation) -> _Divisor:
    """(bias + alpha * sigma)^beta for beta = a/b: d <= r is (bias + alpha * sigma)^a <= r^b."""
    alpha, beta, bias = (_attribute(operation, name) for name in ("alpha", "beta", "bias"))
    if alpha <= 0 or beta <= 0 or max(beta.numerator, beta.denominator) > _MOST_ROOT:
        raise lowering.unsupported(
            operation, f"alpha and beta must be positive, beta a fraction of integers up to {_MOST_ROOT}"
        )
    a, b = beta.numerator, beta.denominator

    def limit(r: Fraction, unit: Fraction) -> tuple[int, int] | None:
        # sigma / unit <= E * w - F with w the a-th root of r^b.
        e, f = 1 / (alpha * unit), bias / (alpha * unit)
        power = (f.denominator * e) ** a * r**b
        root = _integer_root(power.numerator // power.denominator, a)
        below = (root - f.numerator) // f.denominator
        exact = below + f >= 0 and ((below + f) / e) ** a == r**b
        return below, below if exact else below + 1

    return _Divisor(limit, Fraction(0))


def _integer_root(n: int, degree: int) -> int:
    """The greatest integer whose power is at most n."""
    if degree == 1:
        return n
    if degree == 2:
        return math.isqrt(n)
    root = 1 << -(-n.bit_length() // degree)
    while True:
        better = ((degree - 1) * root + n // root ** (degree - 1)) // degree if root else 0
        if better >= root:
            return root
        root = better


@rule(
    "l2_normalization",
    claim=exact("per code of x and step of the result one threshold for the sum of squares", *THRESHOLDS),
)
def l2_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X / max(sqrt(sum x^2) + bias, epsilon)."""
    form, quantizer = _few_codes(lowering, operation)
    axes = axes_of_reduction(operation)
    sigma = total(lowering, operation, _squares(lowering, operation, form), axes, 1)
    least = _least_magnitude(lowering, form) ** 2 * math.prod(form.shape[axis] for axis in axes)
    return [_divided(lowering, operation, form, sigma, _root_divisor(operation), least, quantizer)]


@rule(
    "local_variance_normalization",
    claim=exact("per code of x and step of the result one threshold for the sum of squares", *THRESHOLDS),
)
@rule(
    "local_contrast_normalization",
    claim=exact(
        "as local_variance_normalization, of exact differences from the local mean",
        *THRESHOLDS,
        "zero is no code of the input",
    ),
)
def local_variance_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X / max(sqrt(mean x^2 of the window) + bias, epsilon); for local contrast, of x minus its local mean."""
    form, quantizer = _few_codes(lowering, operation)
    if operation.name == "local_contrast_normalization":
        form = _single_integer(lowering, operation, _centred(lowering, operation, form))
    sigma = _mean_of_squares(lowering, operation, form)
    least = _least_magnitude(lowering, form) ** 2 / window_volume(operation)
    return [_divided(lowering, operation, form, sigma, _root_divisor(operation), least, quantizer)]


@rule(
    "local_response_normalization",
    claim=exact(
        "per code of x and step of the result one threshold for the sum of squares",
        *THRESHOLDS,
        f"alpha or beta is not positive, or beta has a numerator or denominator above {_MOST_ROOT}",
    ),
)
def local_response_normalization(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X / (bias + alpha * mean x^2 of the window)^beta."""
    form, quantizer = _few_codes(lowering, operation)
    sigma = _mean_of_squares(lowering, operation, form)
    least = _least_magnitude(lowering, form) ** 2 / window_volume(operation)
    divisor = _power_divisor(lowering, operation)
    if _attribute(operation, "bias") + _attribute(operation, "alpha") * least <= 0:
        raise _division_by_zero(lowering, operation)
    return [_divided(lowering, operation, form, sigma, divisor, Fraction(1), quantizer)]


def _mean_of_squares(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    volume = Rationals.scalar(Fraction(1, window_volume(operation)), form.rank)
    sums = window_total(lowering, operation, _squares(lowering, operation, form))
    return scaled(sums, lambda factor: factor * volume)


def _single_integer(lowering: Lowering, operation: GraphOperation, form: LinearForm) -> LinearForm:
    """A form without a constant as one integer times its unit."""
    found, _, unit = summands(form.terms, form.constant)
    if not form.constant.is_zero() or any(item.coefficients.size > 1 for item in found):
        raise lowering.unsupported(operation, "zero must be a code of the input")
    value: str | None = None
    for item in found:
        weight = lowering.tensor_constant(operation, item.coefficients, "weight")
        part = lowering.emit(operation, "broadcast_mul", item.value, weight)
        value = part if value is None else lowering.emit(operation, "broadcast_add", value, part)
    assert value is not None
    return LinearForm(form.shape, (Term(value, Rationals.scalar(unit, form.rank)),), Rationals.scalar(0, form.rank))


def _divided(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, sigma: LinearForm, divisor: _Divisor,
    least: Fraction, quantizer: LinearQuantizer,
) -> Coded:  # fmt: skip
    """The codes of x / d(sigma); ``least`` is a lower bound of sigma."""
    bias = Fraction(operation.attributes["bias"])  # type: ignore[arg-type]
    if divisor.least <= 0 and bias <= 0 and (bias < 0 or least <= 0):
        raise _division_by_zero(lowering, operation)
    (term,) = form.terms
    lo, hi = lowering.builder.range(term.value).hull()
    steps = quantizer.hi - quantizer.lo
    run = 2 ** steps.bit_length()
    if (hi - lo + 1) * run > MOST_ENTRIES:
        raise lowering.unsupported(
            operation, f"the input has {hi - lo + 1} values and the result {steps + 1} codes, together more than "
            f"{MOST_ENTRIES}: give them quantisers of fewer bits"
        )  # fmt: skip
    found, constant, unit = summands(sigma.terms, sigma.constant, whole=True)
    rest = constant.numerators // constant.denominator
    bound = int(abs(rest).max()) + sum(
        int(abs(item.coefficients).max()) * lowering.builder.range(item.value).magnitude() for item in found
    )
    thresholds = _thresholds(form, (lo, hi), quantizer, divisor, unit, bound, run)
    return Coded(
        _selected(lowering, operation, form, (lo, hi), found, rest, thresholds, (steps, run), quantizer.lo),
        note=f"{len(thresholds)} thresholds",
    )


def _thresholds(
    form: LinearForm, codes: tuple[int, int], quantizer: LinearQuantizer, divisor: _Divisor, unit: Fraction,
    bound: int, run: int,
) -> list[int]:  # fmt: skip
    """For each integer of x and each step, the least signed sum that reaches it; the sum is negated where x >= 0."""
    (term,) = form.terms
    scale, offset = quantizer.scale[0], quantizer.offset[0]
    always, never = -bound, bound + 1
    found = []
    for q in range(codes[0], codes[1] + 1):
        x = term.factor.item() * q + form.constant.item()
        for t in range(run):
            step = offset + scale * (quantizer.lo + t - _HALF)
            if x >= 0:
                if step <= 0:
                    found.append(always)
                    continue
                r = x / step
                limit = divisor.limit(r, unit) if r >= divisor.least and r > 0 else None
                found.append(never if limit is None else min(max(-limit[0], always), never))
            elif step >= 0:
                found.append(never)
            else:
                r = x / step
                limit = divisor.limit(r, unit) if r > divisor.least else None
                found.append(always if limit is None else min(max(limit[1], always), never))
    return found


def _selected(
    lowering: Lowering, operation: GraphOperation, form: LinearForm, codes: tuple[int, int], sigma: list[Summand],
    rest: Array, thresholds: list[int], size: tuple[int, int], least: int,
) -> str:  # fmt: skip
    """The count of steps that the signed sum reaches, by digits of the thresholds in tables."""
    shape, rank = form.shape, form.rank
    (term,) = form.terms
    value = full_value(lowering, operation, term.value, shape)
    zero, start, (steps, run) = Rationals.scalar(0, rank), codes[0], size
    x = (term.factor.item() * q + form.constant.item() for q in range(start, codes[1] + 1))
    signs = lowering.tensor_constant(operation, np.array([-1 if item >= 0 else 1 for item in x], dtype=object), "signs")
    row = LinearForm(shape, (Term(value, Rationals.scalar(1, rank)),), Rationals.scalar(-start, rank))
    sign = lowering.emit(operation, "cvm_lut", signs, integer_value(lowering, operation, row, "row"))
    signed = [Summand(lowering.emit(operation, "broadcast_mul", sign, item.value), item.coefficients) for item in sigma]
    if rest.any():
        signed.append(Summand(sign, rest))
    places = scaled(row, lambda factor: factor * Rationals.scalar(run, rank))

    def reached(trial: str) -> str:
        at = sum_of(places, LinearForm(shape, (Term(trial, Rationals.scalar(1, rank)),), zero))
        index = integer_value(lowering, operation, at, "index")
        digits = table_digits(lowering, operation, thresholds, index, rank)
        nothing = np.zeros((1,) * rank, dtype=object)
        return at_least_zero(lowering.builder, shape, [*signed, *digits], nothing, f"{operation.outputs[0]}.reached")

    try:
        found = count_reached(lowering.builder, shape, steps, reached, f"{operation.outputs[0]}.count", most=steps)
    except TooWide:
        raise lowering.unsupported(operation, "the sum of squares does not fit: use fewer bits") from None
    if not least:
        return found
    return lowering.emit(
        operation, "broadcast_add", found, lowering.tensor_constant(operation, np.array([least], dtype=object), "lo")
    )
