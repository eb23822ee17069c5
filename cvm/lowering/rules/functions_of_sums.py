"""Roots and logarithms of sums, which other formats have as reductions and as pooling.

A code is monotone in the sum, so thresholds of codes become thresholds of the sum: the root of a sum reaches T if the
sum reaches T^2, and its logarithm reaches T if the sum reaches e^T (`cvm.lowering.proofs.staircase`).

For the logarithm of a sum of exponentials, e^x is a table in fixed point, E(q) = round(2^W * e^(x - top)), where top is
the greatest x. A sum of n such numbers is wrong by at most n/2 units. It is compared with 2^W * e^(T - top), with the
same result as for the true sum unless that is within n/2 units of the threshold. For few items, meeting in the middle
proves that no sum is; by the theorem of Lindemann and Weierstrass there are no ties. For more items, W is so large that
only logarithms within 2^-40 of a step may be decided wrongly, and the report says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from cvm.lowering.claims import NO_RATIO, SCATTERED, bounded, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term, constant_of
from cvm.lowering.forms.windows import axes_of, sizes_of
from cvm.lowering.parts.digits import array_digits, budget, squared
from cvm.lowering.parts.operands import scaled
from cvm.lowering.parts.ratio import least_value
from cvm.lowering.proofs.staircase import staircase_codes
from cvm.lowering.proofs.table import folded, tabulate
from cvm.lowering.rules.pooling import boxed, root_of_sum
from cvm.lowering.rules.reduce import axes_of_reduction, total
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import exp, floor, log, rational, rounded
from cvm.quantization.steps import Step
from cvm.quantization.surds import least_integer

__all__: list[str] = []

_FEW = 2**12
"""For sums with at most this many values, a table of codes is made instead of a search among thresholds."""
_GUARD = 40
"""Logarithms whose distance from every step is more than 2^-40 are decided rightly."""
_MOST_SUMS = 2**17
"""The most sums of half of the items in a proof."""
_MOST_SEARCHES = 2**25
_MOST_BITS = 4096
_FLOAT_ERROR = 2.0**-45
"""A bound of the relative error of sums of up to 16 correctly rounded numbers, larger than necessary by a factor of 4.
"""


@rule(
    "l2_reduce",
    claim=exact("sums of squares; the root is compared with each step between codes by its square", SCATTERED),
)
def l2_reduce(lowering: Lowering) -> list[Result]:
    """The root of the sum of squares over ``axes``, which keep extent 1. Without axes it is the magnitude."""
    form, axes = lowering.linear("input"), axes_of_reduction(lowering)
    count = math.prod(form.shape[axis] for axis in axes)
    sums = total(lowering, squared(lowering, form, count), axes, 1)
    return [root_of_sum(lowering, sums)]


@rule(
    "l2_pool",
    claim=exact("sums of squares; the root is compared with each step between codes by its square", NO_RATIO),
)
def l2_pool(lowering: Lowering) -> list[Result]:
    """The root of the sum of squares of each window. The attributes are those of ``avg_pool``."""
    form = lowering.linear("input")
    axes = axes_of(lowering, form.shape, sizes_of(lowering, form.rank))
    squares = squared(lowering, form, math.prod(axis.size for axis in axes))
    return [root_of_sum(lowering, boxed(lowering, squares, axes, False))]


# Logarithms


@rule(
    "log_sum_reduce",
    claim=exact(
        "a sum of integers; its logarithm is compared with each step between codes by way of e^step",
        SCATTERED,
        "the sum is not proven to be at least 0",
    ),
)
def log_sum_reduce(lowering: Lowering) -> list[Result]:
    """The logarithm of the sum over ``axes``, which keep extent 1. The logarithm of 0 is below every code."""
    form, axes = lowering.linear("input"), axes_of_reduction(lowering)
    sums = total(lowering, form, axes, 1)
    quantizer = lowering.linear_quantizer()
    if not sums.terms:
        return [folded(lowering, [constant_of(sums)], log, sums.shape, quantizer)]
    if least_value(lowering, sums) < 0:
        raise lowering.unsupported("the sum is not proven to be at least 0: clamp the operand first")
    entries = math.prod(hi - lo + 1 for lo, hi in (t.value.range.hull() for t in sums.terms))
    if quantizer is None or (len(sums.terms) == 1 and entries <= _FEW):
        return [tabulate(lowering, [sums], log, sums.shape)]
    most = -least_value(lowering, scaled(sums, lambda factor: -factor))

    def reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int:
        """The least L for which L * u + c reaches e^T."""
        (constant,) = constants
        at = step.number()
        if at == 0:
            return least_integer((1 - constant) / unit, [], step.strict)
        if at > max(most, Fraction(1)).numerator.bit_length():  # e^T exceeds the greatest sum M, since ln M < log2 M
            return math.floor((most - constant) / unit) + 1
        return floor((exp(rational(at)) - rational(constant)) / rational(unit)) + 1

    value, note = staircase_codes(lowering, sums, quantizer, reached)
    return [Coded(value, note=f"logarithm of a sum: {note}", any_rounding=True)]


@rule(
    "log_sum_exp_reduce",
    claim=bounded(
        "tables of the exponential in a fixed point of many digits, sums, and thresholds e^step",
        "the more items, the nearer their sums come to a threshold: of more than four items of 8 bits it is not "
        "enumerated how near; only logarithms within 2^-40 of a step between codes may be decided otherwise",
        "the result has no linear quantiser",
        "the exponentials span more than 4096 bits",
    ),
)
def log_sum_exp_reduce(lowering: Lowering) -> list[Result]:
    """Ln of the sum of e^x over ``axes``, which keep extent 1."""
    axes = axes_of_reduction(lowering)
    found = lowering.operand("input")
    count = math.prod(found.shape[axis] for axis in axes)
    if count == 1:
        return [found]
    quantizer = lowering.linear_quantizer()
    if quantizer is None:
        raise lowering.unsupported("the result needs a quantiser")
    value, scale, constant, form = lowering.coded("input")
    lo, hi = value.range.hull()
    top = scale * hi + constant
    numbers = [scale * q + constant - top for q in range(lo, hi + 1)]
    steps = [item - top for item in _steps(quantizer)]
    bits = _proven_bits(numbers, steps, count)
    proven = bits is not None
    if bits is None:
        bits = _guarded_bits(numbers, steps, count)
    if bits > _MOST_BITS:
        raise lowering.unsupported(f"the exponentials span {bits} bits: use a smaller scale")
    one = 2**bits
    items = np.array([rounded(rational(one) * exp(rational(number))) for number in numbers], dtype=object)
    sums = _summed(lowering, value, lo, items, axes, form)

    def reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int:
        """The least L that is not below 2^W * e^(T - top)."""
        at = step.number() - top
        if at > count.bit_length() + 1:  # the sum is at most n * 2^W
            return math.floor(Fraction(2 * count * one) / unit) + 1
        if at == 0:
            return math.ceil(Fraction(one) / unit)
        return floor(rational(Fraction(one) / unit) * exp(rational(at))) + 1

    codes, note = staircase_codes(lowering, sums, quantizer, reached)
    note = f"logarithm of a sum of exponentials: {note}, {bits} bits"
    if proven:
        return [Coded(codes, note=note, any_rounding=True)]
    bound = math.floor(Fraction(2, 2**_GUARD) / min(quantizer.scale)) + 1
    return [Coded(codes, Fraction(bound), f"{note}; may differ only within 2^-{_GUARD} of a step", any_rounding=True)]


def _steps(quantizer: LinearQuantizer) -> list[Fraction]:
    return [
        offset + (code - Fraction(1, 2)) * scale
        for scale, offset in zip(quantizer.scale, quantizer.offset, strict=True)
        for code in range(quantizer.lo + 1, quantizer.hi + 1)
    ]


def _depth_bits(numbers: Sequence[Fraction], steps: Sequence[Fraction]) -> int:
    """A W with which 2^W * e^x is at least 1 for the least x or, if that is greater, for the least step.

    Every sum reaches a step below the least x. With this W, the fixed-point sums reach it too.
    """
    depth = -max(min(numbers), min(steps, default=Fraction(0)))
    return max(math.ceil(depth * Fraction(3, 2)), 0)  # log2 e < 3/2


def _guarded_bits(numbers: Sequence[Fraction], steps: Sequence[Fraction], count: int) -> int:
    """A W with which n/2 units are at most 2^-40 times every threshold that some sums reach and others do not."""
    return _depth_bits(numbers, steps) + _GUARD + count.bit_length() + 1


def _proven_bits(numbers: Sequence[Fraction], steps: Sequence[Fraction], count: int) -> int | None:
    """A W with which fixed-point sums are proven to compare like the true sums; None if none is found."""
    first, second = count // 2, count - count // 2
    sizes = [math.comb(len(numbers) + size - 1, size) for size in (first, second)]
    if max(sizes) > _MOST_SUMS or sizes[0] * len(steps) > _MOST_SEARCHES or min(numbers) < -600:
        return None
    values = np.array([_nearest(number) for number in numbers])
    small, large = (_sums_of(values, size) for size in (first, second))
    least = math.inf
    for at in steps:
        if at > math.log(count) + 1 or at < min(numbers):  # no sum comes near this step
            continue
        wanted = _nearest(at) - small
        index = np.searchsorted(large, wanted)
        for side in (np.minimum(index, large.size - 1), np.maximum(index - 1, 0)):
            distance = np.abs(large[side] - wanted) - _FLOAT_ERROR * (small + large[side])
            least = min(least, float(distance.min()))
    if least <= 0:
        return None
    enough = 0 if math.isinf(least) else math.ceil(math.log2(count / least)) + 1
    return max(enough, _depth_bits(numbers, steps) + 2)


def _nearest(exponent: Fraction) -> float:
    """e^x as a float64, with a relative error of at most 2^-52."""
    bits = 60 + max(0, -math.floor(exponent * Fraction(3, 2)))
    return float(Fraction(rounded(rational(2**bits) * exp(rational(exponent))), 2**bits))


def _sums_of(values: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.float64]:
    """The sums of all multisets of ``size`` values, in ascending order."""
    choices = np.array(list(combinations_with_replacement(range(values.size), size)))
    return np.unique(values[choices].sum(axis=1))


def _summed(
    lowering: Lowering, value: Value, lo: int, items: npt.NDArray[np.object_], axes: Sequence[int], form: LinearForm
) -> LinearForm:
    """The sum over ``axes`` of the table's items at the codes, by digits whose sums fit 32 bits."""
    count = math.prod(form.shape[axis] for axis in axes)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(form.shape))
    if lo:
        first = lowering.tensor_constant([lo], "least")
        value = value - first
    terms = []
    for digits, weight in array_digits(items, budget(count)):
        table = lowering.tensor_constant(digits, "exp")
        part = lowering.emit("cvm_lut", table, value)
        part = part.sum(tuple(axes), keepdims=True)
        terms.append(Term(part, Rationals.scalar(weight, form.rank)))
    return LinearForm(shape, tuple(terms), Rationals.scalar(0, form.rank))
