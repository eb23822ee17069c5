"""Codes of quotients and of normalised rows by single ops of op-set 2.

The code of N / M under a quantiser is clip(round((N - offset * M) / (scale * M))), one `quotient`. The code of
offset + weight * (x - mean) / sqrt(variance + epsilon) over the rows of one tensor of integers is one `normalize`. Both
are exact: coefficients are multiplied by the denominators that they have in common, and where such integers do not fit
the parameters of the op, None is returned, and the caller finds the codes bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.errors import Invalid
from cvm.limits import INT64_MAX
from cvm.lowering.context import Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term, scale_and_offset
from cvm.lowering.parts.operands import scaled, sum_of
from cvm.ops import REGISTRY, Call, Range
from cvm.ops.computed import MAX_DIVISOR_TERMS, MAX_QUOTIENT_TERMS
from cvm.quantization import LinearQuantizer
from cvm.quantization.rationals import Rationals, core

__all__ = ["Rows", "normalized_codes", "quotient_by_op"]

Array = npt.NDArray[Any]


def quotient_by_op(
    lowering: Lowering, numerator: LinearForm, denominator: LinearForm, quantizer: LinearQuantizer
) -> Value | None:
    """Emit the codes of numerator / denominator as one `quotient`; None where the op does not take them.

    The op needs one quantiser for the whole tensor, at most six terms above and three below, a denominator without
    coefficients per channel that its intervals prove to be positive, and coefficients that fit 64 bits.
    """
    if not quantizer.per_tensor:
        return None
    shape = lowering.output_shape()
    scale, offset = scale_and_offset(quantizer, len(shape))
    above = sum_of(numerator, scaled(denominator, lambda factor: -(factor * offset)))
    below = scaled(denominator, lambda factor: factor * scale)
    tops, bottoms = (tuple(term for term in form.terms if not term.factor.is_zero()) for form in (above, below))
    if not (1 <= len(tops) <= MAX_QUOTIENT_TERMS and 1 <= len(bottoms) <= MAX_DIVISOR_TERMS):
        return None
    if not all(item.uniform for item in (below.constant, *(term.factor for term in bottoms))):
        return None
    # The first tensor of the op has the shape of the result.
    tops = tuple(sorted(tops, key=lambda term: term.value.shape != shape))
    tops = (Term(tops[0].value.broadcast(shape), tops[0].factor), *tops[1:])
    factors = _integers([*(term.factor for term in (*tops, *bottoms)), above.constant, below.constant])
    if max(magnitude(item) for item in factors) > INT64_MAX:
        return None
    count = len(tops)
    divisor = [
        np.array([item.ravel()[0]], dtype=object) for item in (*factors[count : count + len(bottoms)], factors[-1])
    ]
    if _least(bottoms, divisor) < 1:
        return None
    factors = [*(core(item) for item in factors[:count]), *divisor[:-1], core(factors[-2]), divisor[-1]]
    values = [term.value for term in (*tops, *bottoms)]
    parameters = [lowering.parameter(item, "factor") for item in factors]
    bounds: dict[str, Any] = {"lo": quantizer.lo, "hi": quantizer.hi}
    return lowering.emit("quotient", *values, *parameters, terms=count, rounding=quantizer.rounding, **bounds)


def _integers(items: Sequence[Rationals]) -> list[Array]:
    """The items times the least positive rational that makes all of them integers, which have no common divisor."""
    common = math.lcm(*(item.denominator for item in items))
    found = [item.over(common) for item in items]
    divisor = math.gcd(*(int(number) for item in found for number in np.unique(item)))
    return [item // divisor for item in found] if divisor > 1 else found


def _least(terms: Sequence[Term], factors: Sequence[Array]) -> int:
    """A lower bound of a weighted sum, from the proven intervals of its values; the last factor is its constant."""
    least = int(factors[-1].item())
    for term, factor in zip(terms, factors, strict=False):
        least += min(int(factor.item()) * end for end in term.value.range.hull())
    return least


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """A tensor of ``unit`` times integers, unit > 0, whose rows run along ``axes``."""

    value: Value
    unit: Fraction
    axes: tuple[int, ...]


def normalized_codes(
    rows: Rows, weight: Rationals, offset: Rationals, epsilon: Fraction, quantizer: LinearQuantizer
) -> Value | None:
    """Emit the codes of offset + weight * (x - mean) / sqrt(variance + epsilon) as one `normalize`.

    x are the rows; mean and variance are those of each row. Returns None where the op does not take it: rows that are
    too long for its squares, or parameters that are too wide.
    """
    value, lowering = rows.value, rows.value.emission
    count = math.prod(value.shape[axis] for axis in rows.axes)
    # x - mean = unit * t / n and variance = unit^2 * Q / n^2, so that both are divided by unit / n.
    root, rest, shift = _over_square(epsilon * count * count / (rows.unit * rows.unit))
    step, zero = scale_and_offset(quantizer, value.rank)
    items = [*_per_item([weight, offset - zero, step]), *(np.array([item], dtype=object) for item in (root, rest))]
    attributes: dict[str, Any] = {
        "axes": rows.axes,
        "statistic": "variance",
        "shift": shift,
        "rounding": quantizer.rounding,
        "lo": quantizer.lo,
        "hi": quantizer.hi,
    }
    if not _admitted("normalize", value, items, attributes):
        return None
    labels = ("weight", "offset", "step", "root", "epsilon")
    parameters = [lowering.parameter(item, label) for item, label in zip(items, labels, strict=True)]
    return lowering.emit("normalize", value, *parameters, **attributes)


def _admitted(name: str, value: Value, parameters: Sequence[Array], attributes: dict[str, Any]) -> bool:
    """Whether an op admits one tensor with these parameters and attributes: its own rules say so."""
    if max(magnitude(item) for item in parameters) > INT64_MAX:
        return False
    op = REGISTRY[name]
    ranges = (value.range, *(Range.exactly(item.astype(np.int64)) for item in parameters))
    try:
        call = Call((value.shape, *(item.shape for item in parameters)), op.parse(attributes), ranges)
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
