"""`requantize` in 32-bit lanes, by a multiplier of two digits.

Sums x of some 20 bits and multipliers of 31 bits have products of more than 32 bits. A multiplier M = m 2^k + n with
-2^(k-1) <= n < 2^(k-1) needs none: with C = c 2^k + d and 0 <= d < 2^k,

    floor((M x + C) / 2^k) = m x + c + floor((n x + d) / 2^k)

is exact if n x + d and the whole fit in 32 bits. A right shift by S then gives the code. The more bits sums have, the
fewer are left for n. So M and C are searched such that every sum has the code that the program gives it: it is enough
to compare the first x with each code, and the x before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.executors.native.exact import Exact, Operand, exact, where
from cvm.records import dataclass

__all__ = ["Digits", "digit_parameters"]

Integers = npt.NDArray[np.int64]
RESULTS = 1024
"""The form is not tried for requantizes with more different results than this."""
ROOM = 2**8
"""How much larger in magnitude the results may become when a bias is added."""
MOST = 24
"""The most bits of a lower digit, so that the search fits in 64 bits."""
FAR = 2**62
ADJUSTMENTS = (0, 1, -1, 2, -2, 3, -3, 4, -4, 6, -6, 8, -8)
"""The adjustments of the multiplier that are tried. They move the first x of a code by a fraction of 1."""


@dataclass(frozen=True, slots=True)
class Digits:
    """M and C of each channel, k (``bits``) and S (``shift``)."""

    multiplier: Integers
    offset: Integers
    bits: int
    shift: int


def digit_parameters(
    multiplier: Operand, offset: Operand, shift: Operand, sums: tuple[Operand, Operand], bounds: tuple[int, int]
) -> Digits | None:
    """The digits for floor((m x + c) / 2^s), clipped to ``bounds`` = (lo, hi), of ``sums`` (least, most). All arrays
    have one axis, the channels.

    Returns None if some channel has no such numbers. A result below ``lo`` may come out as any number below ``lo``, and
    one above ``hi`` as any number above it, since results are clipped afterwards.
    """
    m, c, s, x0, x1 = (exact(array).reshape(-1, 1) for array in (multiplier, offset, shift, *sums))
    if m.hull[0] < 0 or s.hull[1] > 62 or c.magnitude >= FAR:
        return None
    ends = _hull((m * x0 + c >> s), (m * x1 + c >> s))
    whole = 31 - (max(map(abs, ends)) + ROOM).bit_length()
    bits = min(32 - (max(x0.magnitude, x1.magnitude) + 2).bit_length(), MOST)
    lo, hi = max(bounds[0], ends[0] - 1), min(bounds[1], ends[1] + 1)
    if whole < 1 or bits < 1 or not 0 < hi - lo <= RESULTS:
        return None
    # Channels with one result have a line of their own, and the search must not divide by their multiplier.
    still = m.int64() == 0
    constant = c >> s
    m, x0, x1 = where(still, 1, m), where(still, 0, x0), where(still, 0, x1)
    results = exact(np.arange(lo + 1, hi + 1, dtype=np.int64).reshape(1, -1))
    first = (-((c - (results << s)) // m)).clip(x0, x1 + 1)
    found = _searched(m, s, first, results, (x0, x1), whole + bits)
    if found is None:
        return None
    M, C = where(still, 0, found[0]), where(still, constant << whole + bits, found[1])
    largest = max(*map(abs, _hull(M * x0 + C, M * x1 + C)), M.magnitude, C.magnitude)
    if largest + (ROOM << whole + bits - 1) >= 1 << 31 + bits:
        return None
    return Digits(M.int64()[:, 0], C.int64()[:, 0], bits, whole)


def _hull(a: Exact, b: Exact) -> tuple[int, int]:
    return min(a.hull[0], b.hull[0]), max(a.hull[1], b.hull[1])


def _searched(
    m: Exact, s: Exact, first: Exact, results: Exact, bounds: tuple[Exact, Exact], scale: int
) -> tuple[Exact, Exact] | None:
    """M and C over 2^scale of each channel: with them, each result is first reached at its ``first`` x."""
    ideal = m << (-s + scale).larger(0) >> (s - scale).larger(0)
    x0, x1 = bounds
    goal = results << scale
    chosen, added = np.zeros(ideal.shape, np.int64), np.zeros(ideal.shape, np.int64)
    left = np.arange(ideal.shape[0])
    for adjustment in ADJUSTMENTS:
        tried, at = (ideal[left] + adjustment).larger(0), first[left]
        reached = goal - tried * at
        if reached.magnitude + tried.magnitude >= FAR:
            return None
        least = where(at <= x1[left], reached, -FAR).max(axis=1)
        most = where(at > x0[left], reached + tried - 1, FAR).min(axis=1)
        middle = least + (most - least >> 1)
        chosen[left] = tried.int64()
        added[left] = where(least <= -FAR, most, where(most >= FAR, least, middle)).int64()
        left = left[(least > most)[:, 0]]
        if not left.size:
            return exact(chosen), exact(added)
    return None
