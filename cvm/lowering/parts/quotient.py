"""Codes of quotients and of normalised rows by single ops of op-set 2.

The code of N / M under a quantiser is clip(round((N - offset * M) / (scale * M))), one `quotient`. The code of
offset + weight * (x - mean) / sqrt(variance + epsilon) over the rows of one tensor of integers is one `normalize`. Both
are exact: coefficients are multiplied by the denominators that they have in common, and where such integers do not fit
the parameters of the op, None is returned, and the caller finds the codes bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.errors import Invalid
from cvm.limits import INT64_MAX
from cvm.lowering.context import Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, scale_and_offset
from cvm.lowering.parts.operands import scaled, sum_of
from cvm.ops import REGISTRY, Call, Range
from cvm.ops.computed import MAX_DIVISOR_TERMS, MAX_QUOTIENT_TERMS
from cvm.program.model import Shape
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals, core
from cvm.records import dataclass

__all__ = ["Rows", "Statistic", "normalized_codes", "quotient_by_op", "quotient_factors"]

Array = npt.NDArray[Any]
Statistic: TypeAlias = Literal["variance", "mean_square"]
"""The square of what rows are divided by. With the variance, rows are those of x less their mean."""


def quotient_by_op(
    lowering: Lowering, numerator: LinearForm, denominator: LinearForm, quantizer: LinearQuantizer
) -> Value | None:
    """Emit the codes of numerator / denominator as one `quotient`; None where the op does not take them.

    The op needs one quantiser for the whole tensor, at most six terms above and three below, a denominator without
    coefficients per channel that its intervals prove to be positive, and coefficients that fit 64 bits. Nothing is
    emitted where it does not.
    """
    if not quantizer.per_tensor:
        return None
    shape = lowering.output_shape()
    scale, offset = scale_and_offset(quantizer, len(shape))
    above = sum_of(numerator, scaled(denominator, lambda factor: -(factor * offset)))
    below = scaled(denominator, lambda factor: factor * scale)
    tops, bottoms = (tuple(term for term in form.terms if not term.factor.is_zero()) for form in (above, below))
    # The first tensor of the op has the shape of the result.
    tops = tuple(sorted(tops, key=lambda term: term.value.shape != shape))
    factors = quotient_factors(
        [*(term.factor for term in tops), above.constant], [*(term.factor for term in bottoms), below.constant]
    )
    if factors is None:
        return None
    values = [term.value for term in (*tops, *bottoms)]
    attributes: dict[str, Any] = {
        "terms": len(tops),
        "rounding": quantizer.rounding,
        "lo": quantizer.lo,
        "hi": quantizer.hi,
    }
    operands = [(shape, Range.uniform(len(shape), *values[0].range.hull()))]
    operands += [(value.shape, value.range) for value in values[1:]]
    if not _admitted("quotient", operands, factors, attributes):
        return None
    parameters = [lowering.parameter(item, "factor") for item in factors]
    return lowering.emit("quotient", values[0].broadcast(shape), *values[1:], *parameters, **attributes)


def quotient_factors(above: Sequence[Rationals], below: Sequence[Rationals]) -> list[Array] | None:
    """The parameters of a `quotient` in its order, from the factors of the terms above and below, each with its
    constant as the last item; None where the op has not as many terms, or the integers do not fit its parameters.
    """
    n, k = len(above) - 1, len(below) - 1
    if not (1 <= n <= MAX_QUOTIENT_TERMS and 1 <= k <= MAX_DIVISOR_TERMS and all(item.uniform for item in below)):
        return None
    *found, e = _integers([*above[:-1], above[-1], *below])
    if max(magnitude(item) for item in (*found, e)) > INT64_MAX:
        return None
    tops, c, bottoms = found[:n], found[n], found[n + 1 :]
    return [*map(core, tops), *(item.ravel()[:1] for item in bottoms), core(c), e.ravel()[:1]]


def _integers(items: Sequence[Rationals]) -> list[Array]:
    """The items times the least positive rational that makes all of them integers, which have no common divisor."""
    common = math.lcm(*(item.denominator for item in items))
    found = [item.over(common) for item in items]
    divisor = math.gcd(*(int(number) for item in found for number in np.unique(item)))
    return [item // divisor for item in found] if divisor > 1 else found


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A tensor of ``unit`` times integers, unit > 0, whose rows run along ``axes``, and what they are divided by."""

    value: Value
    unit: Fraction
    axes: tuple[int, ...]
    statistic: Statistic = "variance"


def normalized_codes(
    rows: Rows, weight: Rationals, offset: Rationals, epsilon: Fraction, quantizer: LinearQuantizer
) -> Value | None:
    """Emit the codes of offset + weight * (x - mean) / sqrt(variance + epsilon) as one `normalize`.

    x are the rows; mean and variance are those of each row. With the statistic "mean_square" the mean counts as 0.
    Returns None where the op does not take them: its squares do not fit such long rows, or parameters are too wide.
    """
    value, lowering = rows.value, rows.value.emission
    count = math.prod(value.shape[axis] for axis in rows.axes)
    # x - mean = unit * t / n and variance = unit^2 * Q / n^2, so that both are divided by unit / n; mean squares alike.
    root, rest, shift = _over_square(epsilon * count * count / (rows.unit * rows.unit))
    step, zero = scale_and_offset(quantizer, value.rank)
    items = [*_per_item([weight, offset - zero, step]), *(np.array([item], dtype=object) for item in (root, rest))]
    attributes: dict[str, Any] = {
        "axes": rows.axes,
        "statistic": rows.statistic,
        "shift": shift,
        "rounding": quantizer.rounding,
        "lo": quantizer.lo,
        "hi": quantizer.hi,
    }
    if not _admitted("normalize", [(value.shape, value.range)], items, attributes):
        return None
    labels = ("weight", "offset", "step", "root", "epsilon")
    parameters = [lowering.parameter(item, label) for item, label in zip(items, labels, strict=True)]
    return lowering.emit("normalize", value, *parameters, **attributes)


def _admitted(
    name: str, operands: Sequence[tuple[Shape, Range]], parameters: Sequence[Array], attributes: dict[str, Any]
) -> bool:
    """Whether an op admits tensors of these shapes and ranges with parameters and attributes: its own rules say so."""
    if max(magnitude(item) for item in parameters) > INT64_MAX:
        return False
    op = REGISTRY[name]
    shapes = (*(shape for shape, _ in operands), *(item.shape for item in parameters))
    ranges = (*(found for _, found in operands), *(Range.exactly(item.astype(np.int64)) for item in parameters))
    try:
        call = Call(shapes, op.parse(attributes), ranges)
        op.infer(call)
        op.prove(call)
    except Invalid:
        return False
    return True


def _over_square(number: Fraction) -> tuple[int, int, int]:
    """Integers r, e and s with number = e * 2^s / r^2, r the least one; e is odd. ``number`` is positive."""
    root, rest = 1, number.denominator
    divisor = 2
    while divisor * divisor <= rest and divisor < 2**16:
        power = 0
        while rest % divisor == 0:
            rest, power = rest // divisor, power + 1
        root *= divisor ** ((power + 1) // 2)
        divisor += 1
    whole = math.isqrt(rest)
    root *= whole if whole * whole == rest else rest
    numerator = number * root * root
    assert numerator.denominator == 1
    shift = (int(numerator) & -int(numerator)).bit_length() - 1
    return root, int(numerator) >> shift, shift


def _per_item(items: Sequence[Rationals]) -> list[Array]:
    """The items, broadcast to each other, times one positive rational per index that makes them integers.

    They are as small as possible there: without a common divisor.
    """
    shape = np.broadcast_shapes(*(item.shape for item in items))
    wide = [np.broadcast_to(item.numerators, shape).ravel() for item in items]
    found = np.empty((len(items), wide[0].size), dtype=object)
    for index, numbers in enumerate(zip(*wide, strict=True)):
        fractions = [Fraction(number, item.denominator) for number, item in zip(numbers, items, strict=True)]
        common = math.lcm(*(fraction.denominator for fraction in fractions))
        integers = [int(fraction * common) for fraction in fractions]
        divisor = math.gcd(*integers)
        found[:, index] = [integer // divisor for integer in integers]
    return [row.reshape(shape) for row in found]
