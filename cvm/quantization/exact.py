"""Exact conversion of real arrays to codes and back.

A float item stands for exactly its rational value. The code of an item is decided in float64 only if the item is not
near a rounding threshold; all other items are decided with integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding
from cvm.quantization.rationals import Rationals

__all__ = ["code", "dequantize", "nearest_float", "quantize", "quantize_rationals", "round_fraction"]

_MARGIN = 2.0**-10
"""Items within this distance of a rounding threshold, in codes, are decided exactly. The float64 estimate of an item
within the code range is wrong by less than 2^-20 codes as long as |offset| / scale and the codes are below 2^31."""
_SAFE = 2**31
_LEAST_SCALE, _MOST_SCALE = Fraction(1, 2**900), Fraction(2**900)
"""For scales between these, float64 neither overflows nor loses bits to subnormal numbers."""
_ROOT_OF_HALF = (math.isqrt(2 ** (2 * 53 - 1)) + 1) / 2**53
"""The least float64 that is not below sqrt(1/2). A mantissa, which is a float64, reaches it if and only if it reaches
sqrt(1/2)."""


def round_fraction(value: Fraction, rounding: Rounding) -> int:
    """``value`` rounded to an integer: floor(x + 1/2), nearest with ties to even, or truncated."""
    if rounding == "half_up":
        return (2 * value.numerator + value.denominator) // (2 * value.denominator)
    if rounding == "half_even":
        return round(value)
    return abs(value.numerator) // value.denominator * (1 if value >= 0 else -1)


def code(x: Fraction, quantizer: Quantizer, index: int = 0) -> int:
    """The code of one real number under the scale and offset with index ``index``."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return _power_code(x, quantizer)
    steps = round_fraction((x - quantizer.offset[index]) / quantizer.scale[index], quantizer.rounding)
    return min(max(steps, quantizer.lo), quantizer.hi)


def _power_code(x: Fraction, quantizer: LogarithmicQuantizer) -> int:
    """sign(x) times the index of the nearest exponent, counted from 1, by round(log2 x) >= k <=> x^2 >= 2^(2k-1).

    Rounding and clipping of the exponent commute, since rounding is monotone and keeps integers.
    """
    if x == 0:
        return 0
    square = x * x
    # 2^(n-1) < x^2 < 2^(n+1): round(log2 x) = floor((log2 x^2 + 1) / 2) is decided by one comparison.
    n = square.numerator.bit_length() - square.denominator.bit_length()
    doubled = n if square >= Fraction(2) ** n else n - 1
    exponent = (doubled + 1) // 2
    lowest = quantizer.top - quantizer.hi + 1
    index = min(max(exponent, lowest), quantizer.top) - lowest + 1
    return index if x > 0 else -index


def quantize(values: npt.NDArray[Any], quantizer: Quantizer, location: Location | None = None) -> npt.NDArray[np.int64]:
    """The exact codes of an array of real numbers (any float, integer or boolean dtype), which are rounded once.

    Raises `Invalid` (``quantization.nan``) if an item is not a real number, and (``quantization.axis``) if a
    per-channel quantiser does not fit the array.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Invalid("quantization.nan", "an item is NaN or infinite: not a real number", location)
    if isinstance(quantizer, LogarithmicQuantizer):
        return _quantize_powers(values, quantizer)
    if quantizer.axis is None:
        return _quantize_uniform(values, quantizer, 0)
    axis = quantizer.axis
    if axis >= values.ndim or values.shape[axis] != len(quantizer.scale):
        raise Invalid(
            "quantization.axis",
            f"a quantiser of {len(quantizer.scale)} channels along axis {axis} does not fit the shape {values.shape}",
            location,
        )
    parts = np.split(values, len(quantizer.scale), axis)
    return np.concatenate([_quantize_uniform(part, quantizer, i) for i, part in enumerate(parts)], axis)


def _quantize_uniform(values: npt.NDArray[Any], quantizer: LinearQuantizer, index: int) -> npt.NDArray[np.int64]:
    scale, offset = quantizer.scale[index], quantizer.offset[index]
    lo, hi = quantizer.lo, quantizer.hi
    safe = _LEAST_SCALE < scale < _MOST_SCALE
    if max(abs(lo), abs(hi)) >= _SAFE or abs(offset) >= _SAFE * scale or not safe:
        codes = np.array([code(_fraction(x), quantizer, index) for x in values.ravel()], dtype=np.int64)
        return codes.reshape(values.shape)
    bounded = np.clip(values.astype(np.float64), float(offset + (lo - 2) * scale), float(offset + (hi + 2) * scale))
    steps = (bounded - float(offset)) / float(scale)
    # The thresholds of truncation are the integers; those of the other two roundings lie half-way between them.
    estimate = steps if quantizer.rounding == "toward_zero" else steps + 0.5
    nearest = np.rint(estimate)
    close = np.abs(estimate - nearest) < _MARGIN
    rounded = np.trunc(estimate) if quantizer.rounding == "toward_zero" else np.floor(estimate)
    codes = np.clip(rounded, lo, hi).astype(np.int64)
    distinct, inverse = np.unique(values[close], return_inverse=True)
    codes[close] = np.array([code(_fraction(x), quantizer, index) for x in distinct], np.int64)[inverse]
    return codes


def _quantize_powers(values: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> npt.NDArray[np.int64]:
    """The codes of powers. For |x| = m * 2^e with 1/2 <= m < 1, log2 |x| is rounded to e if m >= sqrt(1/2), else to
    e - 1.
    """
    if values.dtype.kind != "f":
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = np.array([_power_code(_fraction(x), quantizer) for x in distinct], dtype=np.int64)
        return codes[inverse].reshape(values.shape)
    mantissa, exponent = np.frexp(np.abs(values.astype(np.float64)))
    rounded = exponent.astype(np.int64) - (mantissa < _ROOT_OF_HALF)
    lowest = quantizer.top - quantizer.hi + 1
    indices = np.clip(rounded, lowest, quantizer.top) - lowest + 1
    signed: npt.NDArray[np.int64] = np.sign(values).astype(np.int64) * indices
    return signed


def _fraction(item: Any) -> Fraction:
    return Fraction(item.item())


def quantize_rationals(values: Rationals, quantizer: Quantizer) -> npt.NDArray[np.int64]:
    """The codes of an array of exact rationals in its full shape."""
    axis = quantizer.axis
    indices = np.zeros(values.shape, np.int64) if axis is None else np.indices(values.shape)[axis]
    channels = len(quantizer.scale) if isinstance(quantizer, LinearQuantizer) else 1
    if axis is not None and values.shape[axis] != channels:
        raise ValueError(f"{channels} channels along axis {axis} of the shape {values.shape}")
    pairs = zip(values.fractions(), indices.ravel().tolist(), strict=True)
    codes = [code(value, quantizer, index) for value, index in pairs]
    return np.array(codes, dtype=np.int64).reshape(values.shape)


def dequantize(codes: npt.NDArray[Any], quantizer: Quantizer) -> npt.NDArray[np.float64]:
    """The real numbers that codes stand for, each as the float64 nearest to the exact rational."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return _nearest_floats(codes, quantizer.value)
    real = np.empty(codes.shape, np.float64)
    axis = quantizer.axis
    for i in range(len(quantizer.scale)):
        part = codes if axis is None else np.take(codes, i, axis)
        where = (slice(None),) * (axis or 0) + (() if axis is None else (i,))
        real[where] = _nearest_floats(part, partial(quantizer.value, index=i))
    return real


def _nearest_floats(codes: npt.NDArray[Any], number: Callable[[int], Fraction]) -> npt.NDArray[np.float64]:
    distinct, inverse = np.unique(codes, return_inverse=True)
    table = np.array([nearest_float(number(int(item))) for item in distinct], dtype=np.float64)
    return table[inverse].reshape(codes.shape)


def nearest_float(number: Fraction) -> float:
    """The float64 nearest to a rational number; infinite if rounding to nearest gives infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
