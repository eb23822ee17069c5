"""The integer and float32 arithmetic of other engines, as small pure functions on arrays.

Integers are int64 arrays here, wide enough for every step. float32 steps are NumPy's, which are those of IEEE 754:
one operation, rounded once to nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "doubling_high_multiply",
    "fixed_point",
    "fused_multiply_add",
    "nearest_even",
    "rounding_divide",
    "rounding_shift",
    "single_rounding",
]

Array = npt.NDArray[Any]


def fixed_point(real: Array) -> tuple[Array, Array]:
    """A positive multiplier as a 31-bit integer and a power of two: ``real = multiplier * 2^(shift - 31)``, nearly.

    TFLite's ``QuantizeMultiplier`` (tensorflow/lite/kernels/internal/quantization_util.cc).
    """
    fraction, shift = np.frexp(real)
    multiplier = np.floor(fraction * 2.0**31 + 0.5).astype(np.int64)
    full = multiplier == 2**31
    multiplier, shift = np.where(full, 2**30, multiplier), np.where(full, shift + 1, shift).astype(np.int64)
    tiny = shift < -31
    return np.where(tiny, 0, multiplier), np.where(tiny, 0, shift)


def doubling_high_multiply(a: Array, b: Array) -> Array:
    """The upper half of 2ab, rounded to nearest, ties away from zero.

    ``SaturatingRoundingDoublingHighMul`` of gemmlowp (fixedpoint/fixedpoint.h).
    """
    product = a * b
    nudged = product + np.where(product >= 0, 2**30, 1 - 2**30)
    high: Array = np.sign(nudged) * (np.abs(nudged) >> 31)  # the division of C cuts toward zero
    return high


def rounding_shift(x: Array, shift: Array) -> Array:
    """``x / 2^shift``, rounded to nearest, ties away from zero. ``RoundingDivideByPOT`` of gemmlowp."""
    mask = (1 << shift) - 1
    rest, threshold = x & mask, (mask >> 1) + (x < 0)
    shifted: Array = (x >> shift) + (rest > threshold)
    return shifted


def single_rounding(x: Array, multiplier: Array, shift: Array) -> Array:
    """``x * multiplier * 2^(shift - 31)``, rounded once, ties upward: TFLite built with TFLITE_SINGLE_ROUNDING."""
    total = 31 - shift
    scaled: Array = (x * multiplier + (1 << (total - 1))) >> total
    return scaled


def rounding_divide(x: Array, by: Array | int) -> Array:
    """``x / by``, rounded to nearest, ties away from zero: what ``(x + by / 2) / by`` does in C for x > 0."""
    return np.sign(x) * ((np.abs(x) + by // 2) // by)


def nearest_even(x: Array) -> Array:
    """A float to the nearest integer, ties to even: ``lrintf`` in the usual mode."""
    return np.rint(x).astype(np.int64)


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c`` of float32 numbers, rounded once to float32: the instruction ``vfmadd``.

    float64 holds the product exactly. Its sum with ``c`` is rounded to odd: an inexact sum takes the neighbour whose
    last bit is 1. The second rounding, to float32, then gives what one rounding of the exact sum gives (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008).
    """
    product, addend = np.float64(a) * np.float64(b), np.float64(c)
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    even = (np.ascontiguousarray(total).view(np.int64).reshape(total.shape) & 1) == 0
    beside = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    found: Array = np.where((lost != 0) & even, beside, total).astype(np.float32)
    return found
