"""`requantize` in two multiply-adds of 52 bits: for sums of channels that are proven to lie in 23 bits.

The instruction takes the lowest 52 bits of two unsigned 64-bit lanes and adds the upper 52 bits of their product to a
third. With sums 0 <= x < 2^b, a lane of 64 bits with x above (of an odd lane) and y below (of the even lane) need not
be taken apart: shifted so that x ends at bit 52, it is (x + y / 2^32) * 2^(52 - b), where y / 2^32 is far below 1. So

    code(x) = (C + floor((x + y / 2^32) * M / 2^b)) >> 32,   M about m * 2^(32 + b - s)

is the upper half of a lane. M and C are chosen such that it is floor((m x + c) / 2^s) for all x and y. Both rise
with x: it is enough to look at each result's first x, with the least y, and at the x before it, with the largest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.executors.native.ir import Code, V, lanes

__all__ = ["LEAST", "MOST", "ROOM", "fused_parameters", "fused_product"]

Integers = npt.NDArray[np.int64]
LEAST, MOST = 20, 23
"""Bits of the sums: with 20 nothing is shifted; beyond 23 the lane beside is too much for many thresholds."""
RESULTS = 1024
"""Of more different results than so many, nothing is tried."""
ROOM = 2**61
"""More than this is not added to more than this: 64 bits hold it."""
FAR = 2**62
TURNS = (0, *(side * size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) for side in (1, -1)))
"""By how much the multiplier may be turned, times what moves its far end about as much as a lane beside does. Results
often lie alike to both sides of a zero point; then two limits for C may meet, which a turn takes apart.
"""


def fused_parameters(
    multiplier: Integers, offset: Integers, shift: Integers, largest: Integers, lo: int, hi: int
) -> tuple[Integers, Integers, int] | None:
    """M and C of each channel, and b, for sums 0 .. ``largest``, if every channel has them. All arrays have one axis.

    Results below ``lo`` and above ``hi`` may come out as any number there: they are cut.
    """
    m, c, s, most = (array.astype(np.int64).reshape(-1, 1) for array in (multiplier, offset, shift, largest))
    bits = max(LEAST, int(most.max()).bit_length())
    if int(most.min()) < 0 or bits > MOST or int(s.min()) < 1 or int(s.max()) > 52:
        return None
    if int(m.min()) < 1 or (m >= np.left_shift(1, s) >> (bits - LEAST)).any() or int(np.abs(c).max()) > ROOM:
        return None
    # Results that are reached, or would be next, and are not cut.
    lo, hi = max(lo, int((c >> s).min()) - 1), min(hi, int(((m * most + c) >> s).max()) + 1)
    if not 0 < hi - lo <= RESULTS or (max(abs(lo), abs(hi)) + 1) << int(s.max()) > ROOM:
        return None
    results = np.arange(lo + 1, hi + 1, dtype=np.int64).reshape(1, -1)
    # The first x with at least each result: from 0 up to one more than there is.
    first = np.clip(-((c - (results << s)) // m), 0, most + 1)
    exact, beside = np.left_shift(m, 32 + bits - s), int(most.max()) >> (bits - LEAST)
    turned = (_beside(exact, beside) << bits) // np.maximum(first[:, -1:] - first[:, :1], 1) + 1
    wide, addend, left = exact.copy(), np.zeros_like(exact), np.arange(exact.size)
    for turn in TURNS:
        tried = np.clip(exact[left] + turn * turned[left], 1, 2**52 - 1)
        least, highest = _bounds(first[left], results, most[left], tried, beside, bits)
        wide[left], addend[left] = tried, _between(least, highest)
        left = left[(least > highest)[:, 0]]
        if not left.size:
            return wide[:, 0], addend[:, 0], bits
    return None


def _bounds(
    first: Integers, results: Integers, most: Integers, wide: Integers, beside: int, bits: int
) -> tuple[Integers, Integers]:
    """The least and the largest C with which every result begins at its first x."""
    least = np.where(first <= most, (results << 32) - _upper(first, wide, bits), -FAR)
    before = _upper(np.maximum(first - 1, 0), wide, bits) + _beside(wide, beside)
    highest = np.where(first >= 1, (results << 32) - 1 - before, FAR)
    return least.max(axis=1, keepdims=True), highest.min(axis=1, keepdims=True)


def _between(least: Integers, highest: Integers) -> Integers:
    """The middle of two bounds, either of which may be none."""
    middle = least + (highest - least) // 2
    return np.where(least == -FAR, highest, np.where(highest == FAR, least, middle))


def _beside(wide: Integers, beside: int) -> Integers:
    """What the lane beside adds to the product at most, one more for two times rounding down."""
    return ((beside * ((wide >> 20) + 1)) >> 32) + 1


def _upper(x: Integers, wide: Integers, bits: int) -> Integers:
    """floor(x * M / 2^b), of x <= 2^b and M < 2^52, in 64 bits."""
    high, low = wide >> 26, wide & (2**26 - 1)
    return ((x * high) << (26 - bits)) + ((x * low) >> bits)


def fused_product(code: Code, x: V, bits: int, multipliers: tuple[V, V], addends: tuple[V, V]) -> tuple[V, V]:
    """C + floor(.. M / 2^b) of the even and of the odd lanes, in i64: the codes are the upper halves."""
    (m0, m1), (c0, c1) = multipliers, addends
    lanes_ = code.bitcast(x, m0.type)
    even = code.binary("shl", lanes_, 52 - bits)
    odd = code.binary("lshr", lanes_, bits - LEAST) if bits > LEAST else lanes_
    name = f"llvm.x86.avx512.vpmadd52h.uq.{64 * lanes(odd.type)}"
    return code.call(odd.type, name, c0, even, m0), code.call(odd.type, name, c1, odd, m1)
