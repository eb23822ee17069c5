"""The rows of a form under a quantiser: what has to be proven for its codes.

A row is a distinct combination of coefficients, constants and bounds among the channels and positions of a form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import require_fits
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, SurdForm
from cvm.quantization import LinearQuantizer
from cvm.quantization.fixed_point import decides_without
from cvm.quantization.rationals import Rationals, core
from cvm.quantization.rows import LinearRow, Row, SurdRow
from cvm.records import dataclass

__all__ = ["Sums", "sums_of", "without_idle_terms"]

Array = npt.NDArray[Any]
_HALF = Fraction(1, 2)
_MANY = 2**14
"""The rows of more positions than this are compared by arrays of numbers, not one by one."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums that become codes within ``bounds``: the values that are summed, and the distinct rows.

    ``where`` has the index of the row for each position, and extent 1 along axes along which no coefficient varies.
    """

    shape: tuple[int, ...]
    values: list[Value]
    rows: list[Row]
    where: Array
    bounds: tuple[int, int]


def sums_of(
    form: LinearForm | SurdForm,
    quantizer: LinearQuantizer,
    bounds: tuple[int, int],
    below: bool = False,
    half: Fraction = _HALF,
) -> Sums:
    """The sums of a form, with ``half`` added before the floor is taken. Ties are rounded upward, or downward with
    ``below``.
    """
    rank = len(form.shape)
    extents = [1] * rank
    if quantizer.axis is not None:
        extents[quantizer.axis] = len(quantizer.scale)
    scale = Rationals.of(quantizer.scale, extents)
    offset = Rationals.of(quantizer.offset, extents)
    addend = Rationals.scalar(half, rank)
    if isinstance(form, SurdForm):
        values = [term.value for term in form.terms]
        slopes = [term.factor / scale for term in form.terms]
        parts = [*slopes, form.origin / scale, (form.offset - offset) / scale + addend, form.radicand]
    else:
        values = [term.value for term in form.terms]
        parts = [*(term.factor / scale for term in form.terms), (form.constant - offset) / scale + addend]
    columns = [core(part.numerators) for part in parts]
    columns += [end for value in values for end in (value.range.lo, value.range.hi)]
    keys, where = _distinct(columns)
    denominators = [part.denominator for part in parts]
    rows = [
        _surd_row(key, denominators, *bounds)
        if isinstance(form, SurdForm)
        else _linear_row(key, denominators, *bounds, below)
        for key in keys
    ]
    return Sums(form.shape, values, rows, where, bounds)


def _distinct(columns: Sequence[Array]) -> tuple[list[tuple[int, ...]], Array]:
    """The distinct combinations of the items of columns, which broadcast, and the index of the combination at each
    position.

    Combinations are in the order in which they first occur.
    """
    whole = np.broadcast_shapes(*(column.shape for column in columns))
    if math.prod(whole) < _MANY:
        flat = [np.broadcast_to(column, whole).ravel().tolist() for column in columns]
        index: dict[tuple[int, ...], int] = {}
        at = [index.setdefault(key, len(index)) for key in zip(*flat, strict=True)]
        return list(index), np.array(at).reshape(whole)
    # For many positions, number the distinct items of each column first, and then the pairs of numbers.
    found = np.zeros((1,) * len(whole), np.int64)
    for column in columns:
        numbers: dict[int, int] = {}
        items = core(column)
        ordinals = np.array([numbers.setdefault(item, len(numbers)) for item in items.ravel().tolist()])
        if len(numbers) == 1:
            continue
        require_fits((int(found.max()) + 1) * len(numbers), 63, "pairs of numbers")
        pairs = found * len(numbers) + ordinals.reshape(items.shape)
        found = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
    _, first = np.unique(found, return_index=True)
    order = np.argsort(first)
    firsts = np.unravel_index(first[order], found.shape)
    keys = zip(*(np.broadcast_to(column, whole)[firsts].tolist() for column in columns), strict=True)
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return list(keys), np.broadcast_to(rank[found], whole)


def _linear_row(key: Sequence[int], denominators: Sequence[int], lo: int, hi: int, below: bool) -> Row:
    count = len(denominators)
    *factors, constant = (Fraction(n, d) for n, d in zip(key[:count], denominators, strict=True))
    denominator = math.lcm(*(factor.denominator for factor in factors)) if factors else 1
    # floor((n + r) / D) = floor((n + floor(r)) / D) for integers n and D, so the constant needs no common denominator.
    return LinearRow(
        tuple(int(factor * denominator) for factor in factors),
        math.ceil(constant * denominator) - 1 if below else math.floor(constant * denominator),
        denominator,
        tuple(zip(key[count::2], key[count + 1 :: 2], strict=True)),
        lo,
        hi,
    )


def _surd_row(key: Sequence[int], denominators: Sequence[int], lo: int, hi: int) -> Row:
    slope, origin, height, radicand = (Fraction(n, d) for n, d in zip(key[:4], denominators, strict=True))
    bounds = ((key[4], key[5]),)
    if slope:
        return SurdRow(slope, origin, height, radicand, bounds, lo, hi)
    # If the slope is 0, the code is constant: that of an accumulator with the factor 1 whose only value is 0.
    steps = SurdRow(Fraction(1), origin, height, radicand, ((0, 0),), lo, hi)
    reached = sum(int(at <= 0) for at in steps.thresholds(np.arange(lo + 1, hi + 1, dtype=object)).tolist())
    return LinearRow((0,), lo + reached, 1, bounds, lo, hi)


def without_idle_terms(sums: Sums) -> Sums:
    """Leave out one of two accumulators, preferably the second, if its value never changes a code."""
    linear = [row for row in sums.rows if isinstance(row, LinearRow)]
    for term in (1, 0) if len(sums.values) == 2 and len(linear) == len(sums.rows) else ():
        if all(decides_without(row, term) for row in linear):
            rows: list[Row] = [row.fixed(term, row.bounds[term][0]) for row in linear]
            return replace(sums, values=[sums.values[1 - term]], rows=rows)
    return sums
