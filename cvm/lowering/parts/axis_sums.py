"""Weighted sums along one axis of a linear form: box filters, resampling, strides, borders.

out[o] = sum over k of weights[o, k] * in[sources[o, k]], where a source of -1 reads zero. The sum is applied to each
term and to the constant of a form. Ops of the program move and add the values; the coefficients are summed when
compiling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.context import Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known, LinearForm, Term
from cvm.lowering.forms.gather import around, gathered, gathered_windows
from cvm.lowering.forms.windows import Axis, Indices
from cvm.lowering.parts.movement import valued
from cvm.quantization.exact import round_fraction
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__ = [
    "AxisSum",
    "common_factors",
    "moved_to_zero",
    "parts_of",
    "spread",
    "summed",
    "with_common_factor",
    "with_constant_as_value",
]

Array = npt.NDArray[Any]

_MOST_PARTS = 4
"""The most parts into which `parts_of` splits a sum by factor. Each part has its own accumulator."""
_MOST_UNRELATED = 16
"""The most parts if a factor, in units of the common measure, exceeds `_FAR`."""
_FAR = 2**12
"""For factors of up to this many units, `_MOST_PARTS` is the limit; for larger ones, `_MOST_UNRELATED`."""
_SIMPLE = 2**6
"""Factors of up to this many units of their common measure are multiplied into the integers, which leaves one
accumulator.
"""


@dataclass(frozen=True, eq=False, slots=True)
class AxisSum:
    """The items of an axis that each output adds, and their weights: two (outputs, terms) arrays.

    A source is an index along the axis, or -1, which adds nothing.
    """

    sources: Indices
    weights: Indices

    @staticmethod
    def of(axis: Axis) -> AxisSum:
        """The sum over a window, in which every tap has the weight 1."""
        sources = axis.sources()
        counts = (sources >= 0).sum(axis=1)
        # Taps that read nothing are dropped: the others move to the front of each row, in order.
        order = np.argsort(sources < 0, axis=1, kind="stable")[:, : max(1, int(counts.max(initial=0)))]
        packed = np.take_along_axis(sources, order, axis=1)
        return AxisSum(packed, (packed >= 0).astype(np.int64))

    @property
    def identity(self) -> bool:
        """Whether output o is item o, for every o. There may be fewer outputs than items."""
        return self.moves and bool((self.sources[:, 0] == np.arange(len(self.sources))).all())

    @property
    def moves(self) -> bool:
        """Whether every output is a single item with the weight 1, or zero."""
        return self.sources.shape[1] == 1 and bool((self.weights[self.sources >= 0] == 1).all())

    def totals(self) -> Indices:
        """The sum of the weights of each output, without those of sources -1."""
        return np.asarray((self.weights * (self.sources >= 0)).sum(axis=1))

    def of_items(self, items: Rationals, axis: int, extent: int) -> Rationals:
        """The sums of constant ``items``. An extent of 1 along ``axis`` means ``extent`` equal items."""
        if items.shape[axis] == 1 != extent:
            totals = self.totals()
            totals = totals[:1] if (totals == totals[0]).all() else totals
            along = [1] * len(items.shape)
            along[axis] = totals.size
            return Rationals(items.numerators * totals.astype(object).reshape(along), items.denominator).reduced()
        total: Any = 0
        for sources, weights in zip(self.sources.T, (self.weights * (self.sources >= 0)).T, strict=True):
            along = [1] * len(items.shape)
            along[axis] = sources.size
            part = np.take(items.numerators, np.maximum(sources, 0), axis)
            total = total + part * weights.astype(object).reshape(along)
        return Rationals(total, items.denominator)


def summed(lowering: Lowering, form: LinearForm, sums: Sequence[AxisSum | None]) -> LinearForm:
    """The form after the given sum along each axis. ``sums`` has one entry per axis; None leaves the axis unchanged.

    Raises `Unsupported` if a sum would add items whose factors are no small multiples of a common measure.
    """
    if any(sums_of is not None and len(set(sums_of.totals().tolist())) > 1 for sums_of in sums):
        form = moved_to_zero(lowering, form, [i for i, item in enumerate(sums) if item is not None])
    for axis, sums_of in enumerate(sums):
        if sums_of is not None and not (sums_of.identity and len(sums_of.sources) == form.shape[axis]):
            form = _summed_along(lowering, form, axis, sums_of)
    return form


def _summed_along(lowering: Lowering, form: LinearForm, axis: int, sums: AxisSum) -> LinearForm:
    extent = form.shape[axis]
    shape = (*form.shape[:axis], len(sums.sources), *form.shape[axis + 1 :])
    terms = []
    for term in form.terms:
        if term.value.shape[axis] == 1 != extent:
            terms.append(Term(term.value, sums.of_items(term.factor, axis, extent)))
            continue
        value, factor = term.value, term.factor
        if factor.shape[axis] > 1 and sums.moves:
            factor = sums.of_items(factor, axis, extent)
        elif factor.shape[axis] > 1:
            if parts := parts_of(factor, axis):
                for part, same in parts:
                    kept = AxisSum(np.where(same[sums.sources], sums.sources, -1), sums.weights)
                    if (kept.sources >= 0).any():
                        terms.append(Term(_value_sum(value, axis, kept), part))
                continue
            value, factor = with_common_factor(term, [axis])
        terms.append(Term(_value_sum(value, axis, sums), factor))
    return LinearForm(shape, tuple(terms), sums.of_items(form.constant, axis, extent))


def _value_sum(value: Value, axis: int, sums: AxisSum) -> Value:
    lowering = value.emission
    if sums.moves:
        return gathered(value, axis, sums.sources[:, 0])
    if (sums.weights[sums.sources >= 0] == 1).all():
        return _plain_sum(value, axis, sums.sources)
    shape = value.shape
    along = [len(sums.sources) if i == axis else 1 for i in range(len(shape))]
    parts = []
    for sources, weights in zip(sums.sources.T, (sums.weights * (sums.sources >= 0)).T, strict=True):
        if not weights.any():
            continue
        part = gathered(value, axis, np.maximum(sources, 0))
        if (weights != 1).any():
            scale = lowering.tensor_constant(weights.reshape(along), "weights")
            part = part * scale
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _plain_sum(value: Value, axis: int, sources: Indices) -> Value:
    shape = value.shape
    if len(sources) == 1 and np.array_equal(np.sort(sources[0]), np.arange(shape[axis])):
        return value.sum((axis,), keepdims=True)
    target = (*shape[:axis], len(sources), *shape[axis + 1 :])
    if len(shape) == 8:  # an intermediate of rank 9 is not possible
        if (sources < 0).any():
            value = gathered(value, axis, np.append(np.arange(shape[axis]), -1))
            sources = np.where(sources < 0, shape[axis], sources)
            shape = value.shape
        value = value.reshape(around(shape, axis))
        axis = 1
    windows = gathered_windows(value, axis, sources)
    total = windows.sum((axis + 1,))
    if total.shape != target:
        total = total.reshape(target)
    return total


# Factors and zeros of terms


def parts_of(factor: Rationals, axis: int) -> list[tuple[Rationals, Array]]:
    """Split factors by value: each distinct factor, and a mask of the indices of ``axis`` that have it.

    A sum along ``axis`` then needs one accumulator per factor. The list is empty if the factors vary along another
    axis, if there are too many, or if their ratios are so simple that they are multiplied into the integers instead.
    """
    numerators = factor.numerators
    distinct = sorted(set(numerators.ravel().tolist()))
    largest = max(abs(item) for item in distinct) // (math.gcd(*distinct) or 1)
    most = _MOST_PARTS if largest <= _FAR else _MOST_UNRELATED
    if numerators.size != numerators.shape[axis] or not 1 < len(distinct) <= most or largest <= _SIMPLE:
        return []
    rank = numerators.ndim
    return [
        (Rationals.scalar(Fraction(item, factor.denominator), rank), np.asarray(numerators.ravel() == item, dtype=bool))
        for item in distinct
    ]


def common_factors(factor: Rationals, axes: Sequence[int]) -> Rationals:
    """The greatest common measure of the factors along ``axes``. Every factor is an integer multiple of it.

    The result has extent 1 along ``axes``.
    """
    divisors = factor.numerators
    for axis in axes:
        divisors = np.gcd.reduce(divisors, axis=axis, keepdims=True)
    return Rationals(np.where(divisors == 0, 1, divisors).astype(object), factor.denominator)


def with_common_factor(term: Term, axes: Sequence[int]) -> tuple[Value, Rationals]:
    """The value and the factor of an equal term whose factor has extent 1 along ``axes``.

    The value is multiplied by the factors in units of their common measure. Raises `Unsupported` if the products are
    not proven to fit 32 bits.
    """
    lowering = term.value.emission
    common = common_factors(term.factor, axes)
    multiples = term.factor.numerators // common.numerators
    if (multiples == 1).all():
        return term.value, common
    largest = max(abs(int(item)) for item in multiples.ravel())
    if largest * term.value.range.magnitude() > INT32_MAX:
        message = "adds up items whose scales have no simple ratio: give its operand one quantiser for all of them"
        raise lowering.unsupported(message)
    scale = lowering.tensor_constant(multiples, "multiples")
    return term.value * scale, common


def moved_to_zero(lowering: Lowering, form: LinearForm, axes: Sequence[int]) -> LinearForm:
    """An equal form in which one value is shifted so that the real number 0 is near the integer 0, for zero borders.

    The constant shrinks by the exact amount. The shift is limited if the code of zero lies far outside of the codes
    that occur. The form is returned unchanged if its constant varies along ``axes``, or if no term can be shifted.
    """
    if form.constant.is_zero() or any(form.constant.shape[axis] > 1 for axis in axes):
        return form
    for number, term in enumerate(form.terms):
        if any(term.factor.shape[axis] > 1 for axis in axes) or (term.factor.numerators == 0).any():
            continue
        value_shape = term.value.shape
        if any(value_shape[axis] != form.shape[axis] for axis in axes):
            continue
        zero = -form.constant / term.factor
        lo, hi = term.value.range.hull()
        nearest = [round_fraction(item, "half_up") for item in zero.fractions()]
        codes = np.array([min(max(item, 2 * lo - hi), 2 * hi - lo) for item in nearest], dtype=object)
        if not codes.any():
            return form
        codes = codes.reshape(zero.shape)
        value = _minus(term.value, codes)
        if value is None:
            return form
        terms = (*form.terms[:number], Term(value, term.factor), *form.terms[number + 1 :])
        return replace(form, terms=terms, constant=(form.constant + term.factor * Rationals(codes)).reduced())
    return form


def with_constant_as_value(lowering: Lowering, form: LinearForm, axes: Sequence[int]) -> LinearForm:
    """An equal form whose constant does not vary along ``axes``. A constant that does becomes terms."""
    constant = form.constant
    if not any(constant.shape[axis] > 1 for axis in axes):
        return form
    rank = form.rank
    whole = Known(
        constant.numerators, Rationals.scalar(Fraction(1, constant.denominator), rank), Rationals.scalar(0, rank)
    )
    terms = valued(lowering, whole, "constant").terms
    return replace(form, terms=(*form.terms, *terms), constant=Rationals.scalar(0, rank))


def _minus(value: Value, codes: Array) -> Value | None:
    lowering = value.emission
    shape = value.shape
    if any(extent not in (1, wide) for extent, wide in zip(codes.shape, shape, strict=True)):
        return None
    if codes.size == 1:
        codes = codes.reshape(1)
    shift = lowering.tensor_constant(codes, "zero")
    return value - shift


def spread(lowering: Lowering, form: LinearForm, axes: Sequence[int]) -> LinearForm:
    """An equal form whose values have the form's extents along ``axes``. Values of extent 1 are repeated."""
    terms = []
    for term in form.terms:
        value, shape = term.value, term.value.shape
        for axis in axes:
            if shape[axis] != form.shape[axis]:
                value = value.repeat(axis, form.shape[axis])
        terms.append(Term(value, term.factor))
    return replace(form, terms=tuple(terms))
