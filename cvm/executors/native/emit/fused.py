"""`requantize` in two multiply-adds of 52 bits, for sums that are proven to fit in 23 bits.

The instruction multiplies the lowest 52 bits of two unsigned 64-bit lanes and adds the upper 52 bits of their product
to a third lane. Let the sums be 0 <= x < 2^b. A 64-bit lane holds the sum x of an odd 32-bit lane in its upper half and
the sum y of the even lane in its lower half, and these need not be separated: shifted so that x ends at bit 52, the
64-bit lane is (x + y / 2^32) * 2^(52 - b), where y / 2^32 is far below 1. So

    code(x) = (C + floor((x + y / 2^32) * M / 2^b)) >> 32,   M about m * 2^(32 + b - s)

is the upper half of a lane. M and C are chosen such that code(x) = floor((m x + c) / 2^s) for all x and y. Both sides
rise with x. So it is enough to compare them, for each result, at the first x that has it, with the least y, and at the
x before, with the largest y.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cvm.executors.native.emit.ir import Code, V, lanes
from cvm.executors.native.exact import Exact, Operand, exact, where

__all__ = ["LEAST", "MOST", "fused_parameters", "fused_product"]

Integers = npt.NDArray[np.int64]
LEAST, MOST = 20, 23
"""The least and the largest number of bits b of the sums. With 20 bits, no shift is needed; with more than 23, the
neighbouring lane moves too many thresholds.
"""
RESULTS = 1024
"""The fused form is not tried for requantizes with more different results than this."""
ROOM = 2**61
"""The bound of offsets: the sum of two numbers up to this size fits in 64 bits."""
FAR = 2**62
ADJUSTMENTS = (0, *(side * size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) for side in (1, -1)))
"""The adjustments of the multiplier that are tried. One unit moves the last threshold about as far as the neighbouring
lane does. Results often lie symmetrically around a zero point; then there may be no C between its least and its largest
value, and another multiplier moves these apart.
"""


def fused_parameters(
    multiplier: Operand, offset: Operand, shift: Operand, largest: Operand, lo: int, hi: int
) -> tuple[Integers, Integers, int] | None:
    """M and C of each channel, and b, for sums 0 .. ``largest``. All arrays have one axis, the channels.

    Returns None if some channel has no such numbers. A result below ``lo`` may come out as any number below ``lo``, and
    one above ``hi`` as any number above it, since results are clipped afterwards.
    """
    m, c, s, most = (exact(array).reshape(-1, 1) for array in (multiplier, offset, shift, largest))
    bits = max(LEAST, most.hull[1].bit_length())
    if most.hull[0] < 0 or bits > MOST or s.hull[0] < 1 or s.hull[1] > 52:
        return None
    if m.hull[0] < 1 or bool((m >= ((exact(1) << s) >> (bits - LEAST))).any()) or c.magnitude > ROOM:
        return None
    # The results that some sum has, one more on either side, and none that the clip removes.
    lo, hi = max(lo, (c >> s).hull[0] - 1), min(hi, (m * most + c >> s).hull[1] + 1)
    if not 0 < hi - lo <= RESULTS:
        return None
    results = exact(np.arange(lo + 1, hi + 1, dtype=np.int64).reshape(1, -1))
    # For each result, the first x with this result or a larger one: from 0 to the largest x plus 1.
    first = (-((c - (results << s)) // m)).clip(0, most + 1)
    ideal, beside = m << -s + (32 + bits), most.hull[1] >> (bits - LEAST)
    unit = (_neighbour_bound(ideal, beside) << bits) // (first[:, -1:] - first[:, :1]).larger(1) + 1
    wide, addend = ideal.int64().copy(), np.zeros(ideal.shape, np.int64)
    left = np.arange(ideal.shape[0])
    for adjustment in ADJUSTMENTS:
        tried = (ideal[left] + unit[left] * adjustment).clip(1, 2**52 - 1)
        least, highest = _bounds(first[left], results, most[left], tried, beside, bits)
        wide[left], addend[left] = tried.int64(), _between(least, highest).int64()
        left = left[(least > highest)[:, 0]]
        if not left.size:
            return wide[:, 0], addend[:, 0], bits
    return None


def _bounds(first: Exact, results: Exact, most: Exact, wide: Exact, beside: int, bits: int) -> tuple[Exact, Exact]:
    """For each channel, the least and the largest C with which every result begins exactly at its first x."""
    least = where(first <= most, (results << 32) - _upper(first, wide, bits), -FAR)
    before = _upper((first - 1).larger(0), wide, bits) + _neighbour_bound(wide, beside)
    highest = where(first >= 1, (results << 32) - 1 - before, FAR)
    return least.max(axis=1), highest.min(axis=1)


def _between(least: Exact, highest: Exact) -> Exact:
    """The middle of two bounds, or the only bound where the other one does not exist (-FAR or FAR)."""
    middle = least + (highest - least >> 1)
    return where(least <= -FAR, highest, where(highest >= FAR, least, middle))


def _neighbour_bound(wide: Exact, beside: int) -> Exact:
    """A bound of what the neighbouring lane adds to the product, plus one for the two roundings downward."""
    return (((wide >> 20) + 1) * beside >> 32) + 1


def _upper(x: Exact, wide: Exact, bits: int) -> Exact:
    """floor(x * M / 2^b) for x <= 2^b and M < 2^52, computed in two parts: the product may exceed 64 bits."""
    high, low = wide >> 26, wide & (2**26 - 1)
    return (x * high << 26 - bits) + (x * low >> bits)


def fused_product(code: Code, x: V, bits: int, multipliers: tuple[V, V], addends: tuple[V, V]) -> tuple[V, V]:
    """C + floor((x + y / 2^32) M / 2^b) of the even and of the odd lanes, in i64. The upper halves are the codes."""
    (m0, m1), (c0, c1) = multipliers, addends
    lanes_ = code.bitcast(x, m0.type)
    even = code.binary("shl", lanes_, 52 - bits)
    odd = code.binary("lshr", lanes_, bits - LEAST) if bits > LEAST else lanes_
    name = f"llvm.x86.avx512.vpmadd52h.uq.{64 * lanes(odd.type)}"
    return code.call(odd.type, name, c0, even, m0), code.call(odd.type, name, c1, odd, m1)
