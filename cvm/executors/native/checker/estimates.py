"""Estimates: how wrong the float64 estimates of a kernel may be, in exact rationals, for the numbers of a program.

With ROUNDING = 2^-53, every operation of IEEE 754 gives its exact result times some 1 + d with |d| <= ROUNDING, as long
as the result is 0 or its magnitude lies between 2^-1022 and 2^1023. Here all magnitudes but 0 lie within 2^+-400, since
they are made of a few integers below 2^64. Integers below 2^53 are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.executors.native.checker.addresses import Array, require
from cvm.executors.native.descriptions.computed import Normalization, Quotient

__all__ = ["require_normalization", "require_quotient"]

ROUNDING = Fraction(1, 2**53)
DOUBTS = range(2, 52)
"""The exponents d for which 1/2 - 2^-d is a float64 number greater than 0."""


def _several(count: int) -> Fraction:
    """The greatest d such that a number that was rounded ``count`` times may be wrong by the factor 1 + d.

    Where a divisor has been rounded, its roundings count too: 1 / (1 - u) > 1 + u.
    """
    return 1 / (1 - ROUNDING) ** count - 1


def require_normalization(
    kernel: Normalization,
    attributes: Any,
    shape: Sequence[int],
    given: Sequence[Array | None],
    factors: Sequence[Array],
) -> None:
    """Prove that a kernel computes `normalize` with these attributes, and that its doubt bounds its errors.

    ``given`` are m, c and k, ``factors`` the bits of m / k and c / k in float64 if there is an estimate.

    The estimate is fl(fl(a z') + b), a being close to m / k, b to c / k. z' has five roundings, of the halves of V and
    of their sum, which its root halves, of the root, of the quotient by it, and of the product with t; with the one of
    a z' they are six at most. |z| is at most the square root of n.
    """
    a, rank = attributes, len(shape)
    along = {axis % rank for axis in a.axes}
    count = math.prod(shape[axis] for axis in along)
    taken = math.prod(loop.extent for loop in kernel.taken)
    require((kernel.count, taken) == (count, count), "rows of another length")
    same = (kernel.statistic, kernel.shift, kernel.half_even, kernel.lo, kernel.hi)
    require(same == (a.statistic, a.shift, a.rounding == "half_even", a.lo, a.hi), "other attributes")
    if kernel.doubt is None:
        require(not factors, "an estimate without a bound of its error")
        return
    require(kernel.doubt in DOUBTS and len(factors) == 2, "an estimate without a bound of its error")
    require(all(one is not None for one in given), "a parameter is not a constant")
    m, c, k = given
    (scale, of_scale), (offset, of_offset) = (_apart(one, k, bits) for one, bits in zip((m, c), factors, strict=True))
    largest = math.isqrt(count - 1) + 1  # the least integer that is no less than the square root of n
    product = scale * (1 + _several(6)) * largest
    error = product - scale * largest + of_scale * largest + of_offset + ROUNDING * (product + offset)
    require(error <= Fraction(1, 2**kernel.doubt), "an estimate may be wrong by more than the kernel allows for")


def _apart(number: Array | None, k: Array | None, bits: Array) -> tuple[Fraction, Fraction]:
    """The largest magnitude of the float64 numbers with these bits, and how far any lies from number / k."""
    assert number is not None
    assert k is not None
    try:
        columns = [array.ravel().tolist() for array in np.broadcast_arrays(number, k, bits)]
    except ValueError:
        columns = []
    require(bool(columns), "the factors of an estimate have another shape")
    largest = wrong = Fraction(0)
    for above, below, stored in set(zip(*columns, strict=True)):
        value = float(np.int64(stored).view(np.float64))
        require(math.isfinite(value), "a factor of an estimate is not a number")
        exact = Fraction(value)
        largest, wrong = max(largest, abs(exact)), max(wrong, abs(exact - Fraction(above, below)))
    return largest, wrong


def require_quotient(kernel: Quotient, attributes: Any, hulls: Sequence[tuple[int, int]]) -> None:
    """Prove that a kernel computes `quotient` with these attributes, and that its doubt bounds its errors.

    ``hulls`` are the intervals of all operands. In a sum of t products and a constant, each product is rounded once and
    one of its factors once, and t additions follow: t + 2 roundings. So the sum is wrong by that share of the sum of
    all magnitudes, and if none of these is negative, of itself. With v = N / D the estimate is v (1 + r) + s; what the
    kernel clips beyond B = max(|lo|, |hi|) + 1 is clipped in the exact result too if r B + s < 1/2.
    """
    a, (n, k) = attributes, kernel.terms
    require((n, 2 * (n + k) + 2) == (a.terms, len(hulls)), "other terms")
    require((kernel.rounding, kernel.lo, kernel.hi) == (a.rounding, a.lo, a.hi), "other attributes")
    ends = [(min(products), max(products)) for products in (
        [x * m for x in hulls[number] for m in hulls[n + k + number]] for number in range(n + k)
    )]  # fmt: skip
    numerator, divisor = [*ends[:n], hulls[-2]], [*ends[n:], hulls[-1]]
    least = sum(lo for lo, _ in divisor)
    most = 2 * _magnitudes(numerator) + (1 + 2 * abs(a.lo)) * _magnitudes(divisor)
    require(most + (_magnitudes(divisor) << kernel.digits + 1) < 2 ** (kernel.bits - 1), "too few bits")
    if kernel.doubt is None:
        return
    require(kernel.doubt in DOUBTS and a.rounding != "toward_zero", "an estimate without a bound of its error")
    require(least >= 1, "a divisor is not surely positive")
    of_numerator = _several(n + 2) * _magnitudes(numerator)
    of_divisor = _several(k + 2) * (1 if min(lo for lo, _ in divisor) >= 0 else Fraction(_magnitudes(divisor), least))
    require(of_divisor < 1, "an estimate of a divisor may have no correct digit")
    factor = (1 + _several(2)) / (1 - of_divisor)  # 1 / D, and the product with it, are rounded once each
    error = (factor - 1) * (max(abs(a.lo), abs(a.hi)) + 1) + factor * of_numerator / least
    require(error <= Fraction(1, 2**kernel.doubt), "an estimate may be wrong by more than the kernel allows for")


def _magnitudes(ends: Sequence[tuple[int, int]]) -> int:
    return sum(max(-lo, hi) for lo, hi in ends)
