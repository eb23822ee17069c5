"""softmax, sigmoid and tanh (4.9.1) as one kind of number: the share e^x_i / sum_j e^x_j of rational exponents.

sigmoid(x) = e^x / (e^x + e^0) and tanh(x) = 2 * e^2x / (e^2x + e^0) - 1, so one enclosure and one argument about
ties serve all three.

Ties. A share is rational only if all its exponents are equal. Proof: let the share be t; it lies in ]0, 1], so
sum_j e^(x_j - x_i) = 1/t. Collect equal exponents: a combination of exponentials of distinct rationals, every
coefficient a positive count except possibly that of e^0 (its count less 1/t). By Lindemann-Weierstrass exponentials of
distinct algebraic numbers are linearly independent over the algebraic numbers, so there is no exponent but 0.
Hence equal exponents (1/n each) are settled by rational arithmetic, and any other share is irrational: it never meets
a rational threshold, and enclosures that shrink to it must in the end leave every threshold on one side.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from .rational import Flags, Integers, Rational, integers

FIRST_BITS = 64
"""The precision of the first enclosure; every further one has twice as many bits."""

Gaps = tuple[Fraction, ...]
"""max_j x_j - x_j >= 0 for every exponent x_j of a share, the share's own exponent first."""


@lru_cache(maxsize=100_000)
def exp_bounds(gap: Fraction, bits: int) -> tuple[int, int]:
    """Integers lo, hi with lo <= 2^bits * e^(-gap) <= hi, for a rational gap >= 0.

    With w = gap / 2^halvings < 1/2, e^w is the sum of t_n = w^n / n!, each kept between a term rounded down and one
    rounded up. Since t_(n+1) <= t_n / 2, all terms after t_n sum to at most t_n: adding the upper bound of the last
    term once more bounds the rest. The reciprocal is rounded outwards, and so is each squaring that undoes a halving
    (bounds are not negative, so squares keep their order). All relative errors vanish as bits grows.
    """
    one = 1 << bits
    halvings = max(0, gap.numerator.bit_length() - gap.denominator.bit_length() + 2)
    w, denominator = gap.numerator, gap.denominator << halvings
    term_low = term_high = sum_low = sum_high = one
    for n in count(1):
        term_low = term_low * w // (denominator * n)
        term_high = -(-term_high * w // (denominator * n))
        sum_low, sum_high = sum_low + term_low, sum_high + term_high
        if term_high <= 1:
            break
    low, high = one * one // (sum_high + term_high), -(-one * one // sum_low)
    for _ in range(halvings):
        low, high = low * low >> bits, -(-high * high >> bits)
    return low, min(high, one)


def share_bounds(gaps: Gaps, bits: int) -> tuple[Fraction, Fraction]:
    """Rationals around e^(-gaps[0]) / sum_j e^(-gaps[j]).

    own / (own + rest) grows with own and falls with rest, so the outer bounds of both bound the share. Some gap is 0
    and its lower bound is positive, hence so is every denominator.
    """
    (own_low, own_high), *others = (exp_bounds(gap, bits) for gap in gaps)
    rest_low, rest_high = sum(low for low, _ in others), sum(high for _, high in others)
    return Fraction(own_low, own_low + rest_high), Fraction(own_high, own_high + rest_low)


def floor_of_share(gaps: Gaps, scale: Fraction, offset: Fraction) -> tuple[int, bool]:
    """floor(scale * share + offset), scale > 0, and whether scale * share + offset is an integer.

    Equal exponents are exact; otherwise the value is irrational (see the module), never an integer, and it is decided
    as soon as both ends of an enclosure have the same floor.
    """
    if len(set(gaps)) == 1:
        exact = scale / len(gaps) + offset
        return floor(exact), exact.denominator == 1
    bits = FIRST_BITS
    while True:
        low, high = (floor(scale * bound + offset) for bound in share_bounds(gaps, bits))
        if low == high:
            return low, False
        bits *= 2


@dataclass(frozen=True, eq=False)
class Shares:
    """The tensor factor * share + constant, factor > 0; an item of `gaps` is the `Gaps` of that item's share."""

    gaps: npt.NDArray[Any]
    factor: Fraction = Fraction(1)
    constant: Fraction = Fraction(0)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.gaps.shape

    def floors(self, scale: Fraction, offset: Fraction) -> tuple[Integers, Flags]:
        """Rigorous by `floor_of_share`, item by item."""

        def decide(gaps: Gaps) -> tuple[int, bool]:
            return floor_of_share(gaps, scale * self.factor, scale * self.constant + offset)

        decided: Any = np.frompyfunc(decide, 1, 2)(self.gaps)
        return integers(decided[0]), np.asarray(decided[1], dtype=bool)


def _gaps(exponents: list[Fraction], own: int) -> Gaps:
    largest = max(exponents)
    gaps = [largest - exponent for exponent in exponents]
    return (gaps[own], *gaps[:own], *gaps[own + 1 :])


def shares_along(x: Rational, axes: tuple[int, ...]) -> Shares:
    """softmax: the share of every item among the items that differ from it along `axes` only."""
    gaps = np.empty(x.shape, dtype=object)
    kept = [1 if axis in axes else extent for axis, extent in enumerate(x.shape)]
    for corner in np.ndindex(*kept):
        index = tuple(slice(None) if axis in axes else slice(i, i + 1) for axis, i in enumerate(corner))
        exponents = [Fraction(numerator, x.denominator) for numerator in x.numerators[index].flat]
        part = np.empty(len(exponents), dtype=object)
        for own in range(len(exponents)):
            part[own] = _gaps(exponents, own)
        gaps[index] = part.reshape(gaps[index].shape)
    return Shares(gaps)


def shares_against_zero(x: Rational, multiple: int, factor: Fraction, constant: Fraction) -> Shares:
    """factor * e^(multiple * x) / (e^(multiple * x) + e^0) + constant of every item."""
    gaps = np.empty(x.shape, dtype=object)
    for index in np.ndindex(*x.shape):
        gaps[index] = _gaps([multiple * x.item(*index), Fraction(0)], 0)
    return Shares(gaps, factor, constant)
