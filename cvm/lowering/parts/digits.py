"""Integers that are too wide: values and constants as digits, products and sums digit by digit.

Where a product, or a sum of many, would leave 32 bits, its operands are split into digits first; what one op would have
given becomes several values of the program with weights 2^k, which are terms of a linear form like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.context import Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.parts.axis_sums import moved_to_zero, spread
from cvm.quantization.rationals import Rationals

__all__ = [
    "Weighted",
    "array_digits",
    "budget",
    "narrow_digits",
    "narrowed",
    "product",
    "square",
    "squared",
    "value_digits",
    "weighed_digits",
]

Array = npt.NDArray[Any]
Weighted = tuple[Value, int]
"""A value of the program, and what it is multiplied with."""


def budget(count: int) -> int:
    """The largest magnitude of items of which ``count`` may be added up."""
    return INT32_MAX // max(count, 1)


def array_digits(items: Array, limit: int) -> list[tuple[Array, int]]:
    """Integers as digits of magnitudes up to ``limit`` >= 1, each with the sign of the whole, and their weights.

    A power of two stands in one digit.
    """
    bits = (limit + 1).bit_length() - 1
    signs = np.where(items < 0, -1, 1).astype(object)
    rest = items.astype(object) * signs
    found: list[tuple[Array, int]] = []
    while not found or rest.any():
        whole = bool((rest <= limit).all())
        low = rest if whole else rest % 2**bits
        found.append((low * signs, 2 ** (bits * len(found))))
        rest = rest * 0 if whole else rest // 2**bits
    return found


def value_digits(value: Value, limit: int) -> list[Weighted]:
    """A value as digits of magnitudes up to ``limit`` >= 2: X = 2^b * h + l with h = round(X / 2^b)."""
    magnitude = value.range.magnitude()
    if magnitude <= limit:
        return [(value, 1)]
    bits = limit.bit_length()  # a low digit lies in [-2^(b-1), 2^(b-1) - 1]
    high = _rounded_sum([(value, 1)], bits, (-INT32_MAX, INT32_MAX))
    half = 2 ** (bits - 1)
    low = _rounded_sum([(value, 1), (high, -(2**bits))], 0, (-half, half - 1))
    above = value_digits(high, limit)
    return [(low, 1), *((digit, weight * 2**bits) for digit, weight in above)]


def _rounded_sum(terms: Sequence[Weighted], shift: int, bounds: tuple[int, int]) -> Value:
    lowering = terms[0][0].emission
    parameters = [
        lowering.parameter(np.full((1,) * terms[0][0].rank, item), "digit")
        for item in (*(weight for _, weight in terms), 0, shift)
    ]
    values = (value for value, _ in terms)
    return lowering.emit("requantize", *values, *parameters, rounding="half_up", lo=bounds[0], hi=bounds[1])


def narrow_digits(x: Value, y: Value, count: int) -> tuple[list[Weighted], list[Weighted]]:
    """Digits of two values such that ``count`` products of any two of them may be added up."""
    lowering = x.emission
    room = budget(count)
    a, b = (value.range.magnitude() for value in (x, y))
    if a * b <= room:
        return [(x, 1)], [(y, 1)]
    if room < 4:
        raise lowering.unsupported(f"it adds up {count} products, which do not fit 32 bits")
    root = isqrt(room)
    limits = (a, room // a) if a <= root else (room // b, b) if b <= root else (root, root)
    first, second = (value_digits(*side) for side in zip((x, y), limits, strict=True))
    return first, second


def weighed_digits(value: Value, weights: Array, kept: tuple[int, ...]) -> list[tuple[Value, Array, int]]:
    """Digits of a value and of constant weights, such that the sum of their products over all but the ``kept`` axes of
    the weights fits 32 bits; and the weights of these sums.
    """
    lowering = value.emission
    along = tuple(axis for axis in range(weights.ndim) if axis not in kept)
    lo, hi = value.range.hull()
    if _sum_fits(weights, min(lo, 0), max(hi, 0), along):
        return [(value, weights, 1)]
    count = max(int((weights != 0).sum(axis=along).max()), 1)
    room, magnitude, widest = budget(count), max(-lo, hi), int(abs(weights).max())
    root = isqrt(room)
    if root < 2:
        raise lowering.unsupported(f"it adds up {count} products, which do not fit 32 bits")
    if magnitude <= root:
        limits = magnitude, room // magnitude
    elif widest <= root:
        limits = room // widest, widest
    else:
        limits = root, root
    return [
        (digit, part, weight * times)
        for digit, weight in value_digits(value, limits[0])
        for part, times in array_digits(weights, limits[1])
        if part.any()
    ]


def _sum_fits(weights: Array, lo: int, hi: int, along: tuple[int, ...]) -> bool:
    """Whether the sums of weights times integers in [lo, hi], which holds 0, are within 32 bits."""
    count = int(np.prod([weights.shape[axis] for axis in along]))
    widest = int(abs(weights).max()) if weights.size else 0
    exact = weights.astype(np.int64 if widest * max(-lo, hi) * count < 2**62 else object)
    ends = exact * lo, exact * hi
    greatest, least = (choose(*ends).sum(axis=along) for choose in (np.maximum, np.minimum))
    return int(greatest.max()) <= INT32_MAX and int(least.min()) >= -INT32_MAX


def narrowed(lowering: Lowering, form: LinearForm, count: int) -> LinearForm:
    """The form in values of which ``count`` may be added up."""
    terms: list[Term] = []
    for term in form.terms:
        rank = len(term.factor.shape)
        for value, weight in value_digits(term.value, max(budget(count), 2)):
            terms.append(Term(value, term.factor * Rationals.scalar(weight, rank)))
    return replace(form, terms=tuple(terms))


def product(x: Value, y: Value, count: int = 1) -> list[Weighted]:
    """X * y, broadcast: values of which ``count`` may be added up, and their weights."""
    if x == y:
        return square(x, count)
    digits = narrow_digits(x, y, count)
    return [(a * b, p * q) for a, p in digits[0] for b, q in digits[1]]


def square(x: Value, count: int = 1) -> list[Weighted]:
    """X * x, as `product`. Squares are proven not to be negative."""
    lowering = x.emission
    room = budget(count)
    if room < 4:
        raise lowering.unsupported(f"it adds up {count} squares, which do not fit 32 bits")
    digits = value_digits(x, isqrt(room))
    found = []
    for number, (a, p) in enumerate(digits):
        size = abs(a)
        found.append((size * size, p * p))
        found += [(a * b, 2 * p * q) for b, q in digits[number + 1 :]]
    return found


def squared(lowering: Lowering, form: LinearForm, count: int) -> LinearForm:
    """The square of a sum: the squares and products of its integers, moved to those around zero, and the integers.

    ``count`` of each may be added up.
    """
    form = moved_to_zero(lowering, spread(lowering, form, range(form.rank)), ())
    two = Rationals.scalar(2, form.rank)
    terms = []
    for i, first in enumerate(form.terms):
        for value, weight in square(first.value, count):
            terms.append(Term(value, first.factor * first.factor * Rationals.scalar(weight, form.rank)))
        for second in form.terms[i + 1 :]:
            for value, weight in product(first.value, second.value, count):
                factor = two * first.factor * second.factor * Rationals.scalar(weight, form.rank)
                terms.append(Term(value, factor))
        if not form.constant.is_zero():
            terms.append(Term(first.value, two * first.factor * form.constant))
    return LinearForm(form.shape, tuple(terms), form.constant * form.constant)
