"""Logistic and tanh of 16-bit fixed-point numbers, as TFLite's LSTM kernels compute them, for all codes at once.

A number is raw / 2^(15 - k) with k integer bits; results are multiples of 2^-15. The source is the published definition
of gemmlowp ("fixedpoint"). All intermediate results have at most 32 bits, so 64-bit arithmetic is exact.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

__all__ = ["logistic_codes", "tanh_codes"]

Raw = npt.NDArray[np.int64]

_ONE = 2**15 - 1
_EXP = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""For each n, e^-(2^n) as a multiple of 2^-31."""


@lru_cache(maxsize=16)
def logistic_codes(integer_bits: int) -> tuple[int, ...]:
    """1 / (1 + e^-x) for the codes -2^15 .. 2^15 - 1 of x, which has ``integer_bits`` integer bits."""
    x = np.arange(-(2**15), 2**15)
    positive = _reciprocal_of_sum(_exp_of_negative(-np.abs(x), integer_bits))
    found = np.where(x > 0, positive, _ONE - positive)
    return tuple(np.where(x == 0, 2**14, found).tolist())


@lru_cache(maxsize=16)
def tanh_codes(integer_bits: int) -> tuple[int, ...]:
    """tanh(x) for the codes -2^15 .. 2^15 - 1 of x, which has ``integer_bits`` integer bits."""
    x = np.arange(-(2**15), 2**15)
    size = _difference_over_sum(_exp_of_negative(-np.abs(x), integer_bits + 1))
    return tuple(np.where(x == 0, 0, np.where(x < 0, -size, size)).tolist())


def _saturated(x: Raw) -> Raw:
    return np.clip(x, -(2**15), 2**15 - 1)


def _high(a: Raw, b: Raw | int) -> Raw:
    """The product over 2^15, rounded half up and saturated: SaturatingRoundingDoublingHighMul of 16 bits."""
    product: Raw = (a * b + 2**14) >> 15
    return np.minimum(product, 2**15 - 1)


def _shifted_right(x: Raw, bits: int) -> Raw:
    """An integer over 2^bits, rounded to the nearest, ties away from 0: RoundingDivideByPOT."""
    size = (np.abs(x) + 2 ** (bits - 1)) >> bits
    found: Raw = np.where(x < 0, -size, size)
    return found


def _constant(raw: int) -> int:
    """A constant of 32 bits rounded to 16 bits."""
    return (raw + 2**15) >> 16


def _exp_of_negative(x: Raw, integer_bits: int) -> Raw:
    """e^x for x <= 0 with ``integer_bits``: a polynomial in [-1/4, 0), times e^-(2^n) for each further bit of x."""
    fractional = 15 - integer_bits
    quarter = 2**fractional >> 2
    rest = (x & (quarter - 1)) - quarter
    result = _exp_near_zero(_saturated(rest << integer_bits))
    left = rest - x
    for exponent, factor in _EXP:
        if integer_bits > exponent:
            taken = left & (1 << (fractional + exponent)) != 0
            result = np.where(taken, _high(result, _constant(factor)), result)
    if integer_bits > 5:
        result = np.where(x < -(2 ** (fractional + 5)), 0, result)
    return np.where(x == 0, _ONE, result)


def _exp_near_zero(raw: Raw) -> Raw:
    """e^x for x = raw / 2^15 in [-1/4, 0): a polynomial around -1/8."""
    constant = _constant(1895147668)
    x = raw + 2**12
    x2 = _high(x, x)
    x3, x4 = _high(x2, x), _high(x2, x2)
    sum_ = _high(_shifted_right(x4, 2) + x3, _constant(715827883)) + x2
    return _saturated(constant + _high(x + _shifted_right(sum_, 1), constant))


def _newton(x: Raw) -> Raw:
    """2 / (1 + x) as a multiple of 2^-13, for x in [0, 1] as a multiple of 2^-15: three steps of Newton's method."""
    total = x + _ONE
    half = (total + 1) // 2
    found = _constant(1515870810) + _high(half, _constant(-1010580540))
    for _ in range(3):
        error = 2**13 - _high(half, found)
        found = found + _saturated(_high(found, error) << 2)
    return found


def _reciprocal_of_sum(x: Raw) -> Raw:
    """1 / (1 + x) for x in [0, 1]."""
    return _saturated(_newton(x) << 1)


def _difference_over_sum(x: Raw) -> Raw:
    """(1 - x) / (1 + x) for x in [0, 1]."""
    return _saturated((_newton(x) - 2**13) << 2)
