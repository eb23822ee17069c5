"""Reductions (NNEF 1.0.1 section 4.4) and moments (4.9.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.lowering.claims import SCATTERED, exact
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Known, LinearForm, Shape, TableForm, Term
from cvm.lowering.parts.digits import narrowed
from cvm.lowering.parts.operands import codes_of, sum_of
from cvm.lowering.proofs.table import Operand, tabulate
from cvm.lowering.rules.logic import truth
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, Undecided
from cvm.records import dataclass

__all__ = ["axes_of_reduction", "total"]


@rule(
    "sum_reduce",
    "mean_reduce",
    claim=exact("a sum of integers; 1/n joins the scale", SCATTERED),
)
def sum_reduce(lowering: Lowering) -> list[Result]:
    """The sum or the mean over some axes, which keep extent 1."""
    form, axes = lowering.linear("input"), axes_of_reduction(lowering)
    mean = lowering.operation.name == "mean_reduce" or bool(lowering.operation.attributes["normalize"])
    return [total(lowering, form, axes, math.prod(form.shape[axis] for axis in axes) if mean else 1)]


def total(lowering: Lowering, form: LinearForm, axes: Sequence[int], divisor: int) -> LinearForm:
    """The sum over ``axes``, divided by an integer: sum_j (f_j * X_j + c_j) = sum_j f_j * X_j + sum_j c_j.

    If the factor varies along the axes, the items of each factor are summed separately, in a term of their own.
    """
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(form.shape))
    scale = Rationals.scalar(Fraction(1, divisor), form.rank)
    form = narrowed(lowering, form, math.prod(form.shape[axis] for axis in axes))
    whole = form.constant.broadcast(
        [n if i in axes else m for i, (n, m) in enumerate(zip(form.shape, form.constant.shape, strict=True))]
    )
    constant = whole.moved(lambda array: array.sum(axis=tuple(axes), keepdims=True)) * scale
    result = LinearForm(shape, (), constant)
    zero = Rationals.scalar(0, form.rank)
    for term in form.terms:
        for value, factor in _apart(lowering, term, axes, form.shape):
            extents = value.shape
            along = tuple(axis for axis in axes if extents[axis] > 1)
            repeated = math.prod(form.shape[axis] for axis in axes if extents[axis] == 1)
            if along:
                value = value.sum(along, keepdims=True)
            part = Term(value, factor * Rationals.scalar(repeated, form.rank) * scale)
            result = sum_of(result, LinearForm(shape, (part,), zero))
    return result


def _apart(lowering: Lowering, term: Term, axes: Sequence[int], shape: Shape) -> list[tuple[Value, Rationals]]:
    """A term as values whose factors do not vary along ``axes``."""
    varying = [axis for axis in axes if term.factor.shape[axis] > 1]
    if not varying:
        return [(term.value, term.factor)]
    if any(extent > 1 for axis, extent in enumerate(term.factor.shape) if axis not in varying):
        raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
    value = term.value.broadcast(shape)
    parts = []
    for numerator in dict.fromkeys(term.factor.numerators.ravel().tolist()):
        mask = (term.factor.numerators == numerator).astype(object) * 1
        chosen = value * lowering.tensor_constant(mask, "mask")
        parts.append((chosen, Rationals.scalar(Fraction(numerator, term.factor.denominator), len(shape))))
    return parts


def axes_of_reduction(lowering: Emission) -> tuple[int, ...]:
    """The axes that are reduced, in increasing order."""
    return tuple(sorted(int(axis) for axis in lowering.operation.attributes["axes"]))  # type: ignore[union-attr, arg-type]


# Order: the greatest and the least item, and their positions

_MOST_IRRATIONAL = 4096
"""The most irrational numbers that are sorted. Each comparison evaluates both numbers to many digits."""


@dataclass(frozen=True, slots=True)
class _Ranks:
    """A value whose integers have the order of the real numbers, and ``meaning``, which maps such integers to a result.

    Equal numbers have equal integers.
    """

    value: Value
    meaning: Callable[[Value, Shape], Result]


def _ranks(lowering: Lowering, axes: Sequence[int], negated: bool) -> _Ranks:
    """The ranks of the operand ``input``, or of its negative, for comparisons along ``axes``."""
    operand = lowering.operand("input")
    if isinstance(operand, LinearForm) and len(operand.terms) == 1:
        found = _ranks_of_integers(lowering, operand, axes, negated)
        if found is not None:
            return found
    return _ranks_of_table(lowering, operand, negated)


def _ranks_of_integers(lowering: Lowering, form: LinearForm, axes: Sequence[int], negated: bool) -> _Ranks | None:
    """The integers of a linear form, if each reduced row has one factor and one constant. A clamp keeps the order."""
    (term,) = form.terms
    signs = {numerator > 0 for numerator in term.factor.numerators.ravel().tolist() if numerator}
    if len(signs) != 1 or not all(term.factor.numerators.ravel().tolist()):
        return None
    if any(items.shape[axis] > 1 for items in (term.factor, form.constant) for axis in axes):
        return None
    falling = (signs == {False}) != negated
    value = term.value.broadcast(form.shape)
    if falling:
        value = -value

    def meaning(reduced: Value, shape: Shape) -> Result:
        if falling:
            reduced = -reduced
        return replace(form, shape=shape, terms=(Term(reduced, term.factor),))

    return _Ranks(value, meaning)


def _ranks_of_table(lowering: Lowering, operand: Operand, negated: bool) -> _Ranks:
    """The ranks of the numbers of an operand with few codes."""
    if not isinstance(operand, TableForm):
        operand = tabulate(lowering, [operand], lambda x: x, operand.shape)
    numbers = operand.numbers
    if len(numbers) > _MOST_IRRATIONAL and any(number.exact is None for number in numbers):
        raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
    try:
        order = _sorted(numbers)
    except Undecided as error:
        raise Unsupported("lowering.undecided", f"{lowering.operation.name}: {error}", lowering.location) from None
    rank_of = {entry: rank for rank, entries in enumerate(order) for entry in entries}
    table = np.array([rank_of[entry] for entry in range(len(numbers))], dtype=object)
    ascending = tuple(numbers[entries[0]] for entries in order)
    if negated:
        table = len(order) - 1 - table
        ascending = ascending[::-1]
    ranks = lowering.tensor_constant(table, "ranks")
    value = lowering.emit("cvm_lut", ranks, operand.value)
    return _Ranks(value, lambda reduced, shape: TableForm(shape, reduced, ascending))


def _sorted(numbers: Sequence[Real]) -> list[list[int]]:
    """The indices of the entries in increasing order of their numbers. Entries with equal numbers form one list."""
    if all(number.exact is not None for number in numbers):
        groups: dict[Fraction, list[int]] = {}
        for entry, number in enumerate(numbers):
            assert number.exact is not None
            groups.setdefault(number.exact, []).append(entry)
        return [groups[key] for key in sorted(groups)]

    def compare(a: int, b: int) -> int:
        x, y = numbers[a], numbers[b]
        if y.exact is not None:
            return x.compare(y.exact)
        return -y.compare(x.exact) if x.exact is not None else (x - y).sign

    distinct: dict[int, list[int]] = {}
    for entry, number in enumerate(numbers):
        distinct.setdefault(id(number), []).append(entry)
    firsts = sorted((entries[0] for entries in distinct.values()), key=cmp_to_key(compare))
    order: list[list[int]] = []
    for first in firsts:
        entries = distinct[id(numbers[first])]
        if order and compare(order[-1][0], first) == 0:
            order[-1] += entries
        else:
            order.append(list(entries))
    return order


@rule(
    "max_reduce", "min_reduce", claim=exact("the greatest of integers in the order of the reals, of ranks, or of codes")
)
def max_reduce(lowering: Lowering) -> list[Result]:
    """The greatest or the least item over some axes. The least item is the negated greatest of the negatives.

    It is found among integers that have the order of the real numbers, or else among the codes of the result's
    quantiser, which is monotone.
    """
    operand, axes = lowering.operand("input"), axes_of_reduction(lowering)
    negated, shape = lowering.operation.name == "min_reduce", lowering.output_shape()
    if isinstance(operand, Known):
        choose = np.min if negated else np.max
        values = operand.rationals().moved(lambda items: choose(items, axis=axes, keepdims=True))
        return [LinearForm(shape, (), values)]
    if not axes:
        return [operand]
    try:
        ranks = _ranks(lowering, axes, negated)
    except Unsupported:
        quantizer = lowering.quantizer()
        if quantizer is None:
            raise
        value = codes_of(lowering, operand, quantizer, "codes")
        op: list[tuple[str, dict[str, Any]]] = [("negative", {})] if negated else []
        for name, attributes in (*op, ("max", {"axes": axes, "keepdims": True, "exclude": False}), *op):
            value = lowering.emit(name, value, **attributes)
        return [Coded(value, note=f"{lowering.operation.name} of codes", any_rounding=True)]
    greatest = ranks.value.max(axes, keepdims=True)
    return [ranks.meaning(greatest, shape)]


@rule(
    "argmax_reduce", "argmin_reduce", claim=exact("the first index of the greatest integer, or rank among all numbers")
)
def argmax_reduce(lowering: Lowering) -> list[Result]:
    """The first index of the greatest or least item, row-major over the axes in increasing order.

    For indices j = 0 .. n - 1, the first index of the greatest item is n - 1 - max((n - 1 - j) * [item = greatest]).
    """
    operand, axes = lowering.operand("input"), axes_of_reduction(lowering)
    count = math.prod(operand.shape[axis] for axis in axes)
    if isinstance(operand, Known):
        return [_constant_positions(lowering, operand, axes)]
    shape = lowering.output_shape()
    if count == 1:
        return [LinearForm(shape, (), Rationals.scalar(0, len(shape)))]
    negated = lowering.operation.name == "argmin_reduce"
    if isinstance(operand, LinearForm) and operand.clamped:  # a pending clamp can change which of them is the first
        ranks = _ranks_of_table(lowering, operand, negated)
    else:
        ranks = _ranks(lowering, axes, negated)
    greatest = ranks.value.max(axes, keepdims=True)
    behind = greatest.greater(ranks.value)
    extents = [n if axis in axes else 1 for axis, n in enumerate(operand.shape)]
    left = np.arange(count - 1, -1, -1).reshape(extents).astype(object)
    wanted = lowering.tensor_constant(np.broadcast_to(left, operand.shape), "places")
    none = lowering.tensor_constant(np.zeros(operand.shape, dtype=object), "zeros")
    chosen = lowering.emit("where", behind, none, wanted)
    best = chosen.max(axes, keepdims=True)
    last = lowering.tensor_constant([count - 1], "last")
    value = last - best
    if value.shape != shape:
        raise AssertionError("a difference must have the shape of its larger operand")
    return [LinearForm(shape, (Term(value, Rationals.scalar(1, len(shape))),), Rationals.scalar(0, len(shape)))]


def _constant_positions(lowering: Lowering, known: Known, axes: Sequence[int]) -> LinearForm:
    numbers = known.rationals().numerators * (1 if lowering.operation.name == "argmax_reduce" else -1)
    kept = [axis for axis in range(numbers.ndim) if axis not in axes]
    rows: npt.NDArray[Any] = numbers.transpose([*kept, *axes]).reshape([*(numbers.shape[axis] for axis in kept), -1])
    indices = rows.argmax(axis=-1).astype(object)
    shape = lowering.output_shape()
    return LinearForm(shape, (), Rationals(np.asarray(indices, dtype=object).reshape(shape)))


@rule(
    "any_reduce",
    "all_reduce",
    claim=exact("the greatest, or least, of zeros and ones"),
)
def any_reduce(lowering: Lowering) -> list[Result]:
    """The greatest (any) or the least (all) of zeros and ones."""
    shape = lowering.output_shape()
    operand, axes = lowering.operand("input"), axes_of_reduction(lowering)
    value = truth(lowering, "input", len(shape)).broadcast(operand.shape)
    one = Rationals.scalar(1, len(shape))
    if lowering.operation.name == "all_reduce":
        value = _ones(lowering, len(shape)) - value
    if axes:
        value = value.max(axes, keepdims=True)
    if lowering.operation.name == "all_reduce":
        value = _ones(lowering, len(shape)) - value
    return [LinearForm(shape, (Term(value, one),), Rationals.scalar(0, len(shape)))]


def _ones(lowering: Lowering, rank: int) -> Value:
    return lowering.tensor_constant(np.ones((1,) * rank, dtype=object), "one")
