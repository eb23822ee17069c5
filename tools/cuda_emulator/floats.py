"""Float64 as IEEE 754 has it, rounded to nearest: NumPy's operations, and a fused multiply-add."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np

from tools.cuda_emulator.arithmetic import Pure, narrowed, refuse, signed, unsigned
from tools.cuda_emulator.kinds import Array, Type, container

__all__ = ["COMPARISONS", "FLOATS", "fused", "rounded_integer", "to_double"]

FLOATS: dict[str, Pure] = {"fadd": operator.add, "fsub": operator.sub, "fmul": operator.mul, "fdiv": np.divide}

COMPARISONS: dict[str, Pure] = {
    "oeq": operator.eq, "ogt": operator.gt, "oge": operator.ge, "olt": operator.lt, "ole": operator.le,
    "une": operator.ne, "one": lambda a, b: (a < b) | (a > b), "ueq": lambda a, b: ~((a < b) | (a > b)),
    "ugt": lambda a, b: ~(a <= b), "uge": lambda a, b: ~(a < b), "ult": lambda a, b: ~(a >= b),
    "ule": lambda a, b: ~(a > b), "ord": lambda a, b: (a == a) & (b == b), "uno": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
"""fcmp."""


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum a + b and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product a * b and its error (Dekker)."""
    high, low = [], []
    for x in (a, b):
        scaled = x * 134217729.0  # 2^27 + 1
        high.append(scaled - (scaled - x))
        low.append(x - high[-1])
    product = a * b
    return product, ((high[0] * high[1] - product) + high[0] * low[1] + low[0] * high[1]) + low[0] * low[1]


def fused(a: Array, b: Array, c: Array) -> Array:
    """The number a * b + c, rounded once: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums" (2008).

    Their proof asks for no overflow and no underflow; entries that may have one are computed in fractions.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    with np.errstate(all="ignore"):
        upper, lower = _two_product(a, b)
        small, error = _two_sum(c, lower)
        large, rest = _two_sum(upper, small)
        result = large + _to_odd(rest, error)
        sizes = [np.abs(x) for x in (a, b, c)]
        safe = np.ones(a.shape, bool)
        for size in (*sizes, np.abs(a * b)):
            safe &= (size == 0) | ((size > 2.0**-400) & (size < 2.0**400))
    for place in zip(*np.nonzero(~safe), strict=True):
        result[place] = _by_fractions(float(a[place]), float(b[place]), float(c[place]))
    return result


def _to_odd(a: Array, b: Array) -> Array:
    """The sum a + b rounded to odd: if it is no float64, the neighbour with an odd last bit."""
    total, error = _two_sum(a, b)
    even = (np.ascontiguousarray(total).view(np.int64) & 1) == 0
    toward = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, toward, total)


def _by_fractions(a: float, b: float, c: float) -> float:
    if not all(np.isfinite((a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a == 0 or b == 0 or c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def to_double(a: Array, bits: int, with_sign: bool) -> Array:
    """The float64 nearest to integers, to even in the middle."""
    if with_sign and a.dtype == np.bool_:
        return -a.astype(np.float64)
    return (signed if with_sign else unsigned)(a, bits).astype(np.float64)


def rounded_integer(a: Array, type_: Type, with_sign: bool) -> Array:
    """The integer of a float64, cut towards zero. One that does not fit is open."""
    bits = type_.width
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if with_sign else (0.0, 2.0**bits)
    whole = np.trunc(a)
    refuse(~((whole >= low) & (whole < high)), "a number that does not fit in the integer")
    dtype = container(type_)
    return narrowed(whole.astype(np.int64 if with_sign else np.uint64).astype(dtype), bits)
