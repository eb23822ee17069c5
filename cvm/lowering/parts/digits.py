"""Products and sums that do not fit 32 bits, computed digit by digit.

If a product, or a sum of many products, would not fit 32 bits, its operands are split into digits first. The result
then consists of several values of the program with weights, mostly powers of two, which become terms of a linear form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import holding, magnitude
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
"""A value of the program, and the integer by which it is multiplied."""


def budget(count: int) -> int:
    """The largest m such that the sum of any ``count`` integers of magnitudes up to m fits 32 bits."""
    return INT32_MAX // max(count, 1)


def array_digits(items: Array, limit: int) -> list[tuple[Array, int]]:
    """Integers as sums of digits: pairs of an array of digits, of magnitudes up to ``limit`` >= 1, and its weight.

    A digit has the sign of its integer. A power of two has a single digit other than zero.
    """
    bits = (limit + 1).bit_length() - 1
    wide = np.int64 if items.dtype.kind == "i" and items.dtype.itemsize < 8 else object
    signs = np.where(items < 0, -1, 1).astype(wide)
    rest = items.astype(wide) * signs
    found: list[tuple[Array, int]] = []
    while not found or rest.any():
        whole = bool((rest <= limit).all())
        low = rest if whole else rest % 2**bits
        found.append((low * signs, 2 ** (bits * len(found))))
        rest = rest * 0 if whole else rest // 2**bits
    return found


def value_digits(value: Value, limit: int) -> list[Weighted]:
    """Emit digits of a value, of magnitudes up to ``limit`` >= 2: X = 2^b * h + l with h = round(X / 2^b).

    The high part h is split again where it is still too wide.
    """
    reach = value.range.magnitude()
    if reach <= limit:
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
    """Digits of ``x`` and of ``y`` such that a sum of ``count`` products of a digit of x and a digit of y fits 32 bits.

    Raises `Unsupported` if ``count`` is so large that digits of two bits would be too wide.
    """
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
    """Triples of a digit of the value, a digit of the constant weights, and the power of two that weighs their sum.

    For each triple, the sum of the products over all axes of the weights except ``kept`` fits 32 bits. Raises
    `Unsupported` if there are too many products for that.
    """
    lowering = value.emission
    along = tuple(axis for axis in range(weights.ndim) if axis not in kept)
    lo, hi = value.range.hull()
    if _sum_fits(weights, min(lo, 0), max(hi, 0), along):
        return [(value, weights, 1)]
    count = max(int((weights != 0).sum(axis=along).max()), 1)
    room, reach, widest = budget(count), max(-lo, hi), magnitude(weights)
    root = isqrt(room)
    if root < 2:
        raise lowering.unsupported(f"it adds up {count} products, which do not fit 32 bits")
    if reach <= root:
        limits = reach, room // reach
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
    """Whether the sums along the axes ``along`` of weights times integers in [lo, hi] fit 32 bits; lo <= 0 <= hi."""
    count = int(np.prod([weights.shape[axis] for axis in along]))
    # Sums of narrower integers are made in 64 bits.
    narrow = weights.dtype.itemsize < 8 and count < 2**31
    exact = weights if narrow else holding(weights, magnitude(weights) * count)
    # The greatest sum has the integer hi where a weight is positive, and lo where it is negative.
    above = exact.sum(axis=along, where=exact > 0, initial=0).astype(object)
    below = exact.sum(axis=along).astype(object) - above
    greatest, least = above * hi + below * lo, above * lo + below * hi
    return int(np.max(greatest)) <= INT32_MAX and int(np.min(least)) >= -INT32_MAX


def narrowed(lowering: Lowering, form: LinearForm, count: int) -> LinearForm:
    """An equal form with values so narrow that the sum of ``count`` items of any of them fits 32 bits."""
    terms: list[Term] = []
    for term in form.terms:
        rank = len(term.factor.shape)
        for value, weight in value_digits(term.value, max(budget(count), 2)):
            terms.append(Term(value, term.factor * Rationals.scalar(weight, rank)))
    return replace(form, terms=tuple(terms))


def product(x: Value, y: Value, count: int = 1) -> list[Weighted]:
    """Emit x * y, with broadcasting, as weighted values. The sum of ``count`` items of each value fits 32 bits."""
    if x == y:
        return square(x, count)
    digits = narrow_digits(x, y, count)
    return [(a * b, p * q) for a, p in digits[0] for b, q in digits[1]]


def square(x: Value, count: int = 1) -> list[Weighted]:
    """Emit x * x as `product` does. Products of a digit with itself are proven not to be negative."""
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
    """The square of a form, as a form in the squares and products of its values, and in the values themselves.

    The values are shifted towards zero first. The sum of ``count`` items of each square and product fits 32 bits.
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
