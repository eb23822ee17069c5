"""The arithmetic of TFLite's reference kernels in Python integers, one element at a time, written from its definition.

Nothing here is shared with the product: scales are floats of NumPy, shifts and products are those of C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

INT32 = (-(2**31), 2**31 - 1)


def truncated(a: int, b: int) -> int:
    """The quotient of C: toward zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def doubling_high(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul of 32 bits."""
    if a == b == INT32[0]:
        return INT32[1]
    product = a * b
    return truncated(product + (2**30 if product >= 0 else 1 - 2**30), 2**31)


def divide_by_power(x: int, exponent: int) -> int:
    """RoundingDivideByPOT."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if (x & mask) > threshold else 0)


def quantize_multiplier(real: float) -> tuple[int, int]:
    """QuantizeMultiplier: an integer of 31 bits and a shift to the left."""
    if real == 0:
        return 0, 0
    q, shift = math.frexp(real)
    fixed = math.floor(q * 2.0**31 + 0.5)
    if fixed == 2**31:
        fixed, shift = fixed // 2, shift + 1
    return (0, 0) if shift < -31 else (fixed, shift)


def multiply(x: int, multiplier: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier."""
    return divide_by_power(doubling_high(x * (1 << max(shift, 0)), multiplier), max(-shift, 0))


def clamp(x: int, lo: int, hi: int) -> int:
    return min(max(x, lo), hi)


def rounded(x: float) -> int:
    """TfLiteRound: ties away from zero."""
    return int(math.floor(abs(x) + 0.5) * (1 if x >= 0 else -1))


def activation(kind: int, scale: float, zero: int, lo: int, hi: int) -> tuple[int, int]:
    """CalculateActivationRangeQuantized."""
    ends = {0: (None, None), 1: (0, None), 2: (-1, 1), 3: (0, 6)}[kind]
    low, high = (None if end is None else zero + rounded(float(np.float32(end) / np.float32(scale))) for end in ends)
    return (lo if low is None else max(lo, low)), (hi if high is None else min(hi, high))


def average(codes: Sequence[int]) -> int:
    """The mean of the codes of a window of int8."""
    total, count = sum(codes), len(codes)
    return truncated(total + count // 2, count) if total > 0 else truncated(total - count // 2, count)


def exp_on_negative(a: int, integer_bits: int = 5) -> int:
    """gemmlowp's exp_on_negative_values: a is a fixed-point number with these integer bits, the result has none."""
    if a == 0:
        return INT32[1]
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    rest = (a & (quarter - 1)) - quarter
    x = rest * (1 << integer_bits) + (1 << 28)
    x2 = doubling_high(x, x)
    x3 = doubling_high(x2, x)
    x4 = doubling_high(x2, x2)
    polynomial = divide_by_power(doubling_high(divide_by_power(x4, 2) + x3, 715827883) + x2, 1)
    result = 1895147668 + doubling_high(1895147668, x + polynomial)
    remainder = rest - a
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in zip(range(-2, 5), factors, strict=True):
        if integer_bits > exponent and remainder & (1 << (fraction + exponent)):
            result = doubling_high(result, factor)
    return result


def shifted_left(x: int, bits: int) -> int:
    return clamp(x << bits, *INT32)


def reciprocal(x: int) -> int:
    """1 / (1 + x) for x in [0, 1), of numbers without integer bits."""
    half = truncated(x + INT32[1] + 1, 2)
    found = 1515870810 + doubling_high(half, -1010580540)
    for _ in range(3):
        error = (1 << 29) - doubling_high(half, found)
        found += shifted_left(doubling_high(found, error), 2)
    return shifted_left(found, 1)


def softmax(row: Sequence[int], scale: float, beta: float, lo: int, hi: int) -> list[int]:
    """The codes of a row of 8 bits."""
    real = min(beta * float(np.float32(scale)) * 2.0**26, 2.0**31 - 1)
    multiplier, left = quantize_multiplier(real)
    least = -math.floor(31 * 2.0**26 / 2**left)
    greatest = max(row)
    terms = []
    for code in row:
        distance = code - greatest
        scaled = doubling_high(distance * (1 << left), multiplier)
        terms.append(exp_on_negative(scaled) if distance >= least else None)
    total = sum(divide_by_power(term, 12) for term in terms if term is not None)
    headroom = 32 - total.bit_length()
    scale_ = reciprocal((total << headroom) - 2**31)
    exponent = 12 - headroom + 31 - 8
    return [
        lo if term is None else clamp(divide_by_power(doubling_high(scale_, term), exponent) + lo, lo, hi)
        for term in terms
    ]


def hard_swish(code: int, scales: tuple[float, float], zeros: tuple[int, int]) -> int:
    """The code of int8 for a code."""
    f = np.float32
    fine_scale = f(1 / 128) * f(scales[0])
    outer, outer_shift = quantize_multiplier(float(fine_scale / f(scales[1])))
    inner, inner_shift = quantize_multiplier(float(fine_scale / (f(3) / f(32768))))

    def narrow(x: int) -> int:
        return 32767 if x >= INT32[1] - 2**15 else (x + 2**15) >> 16

    def high16(a: int, b: int) -> int:
        product = a * b
        return truncated(product + (2**14 if product >= 0 else 1 - 2**14), 2**15)

    fine = (code - zeros[0]) * 128
    value, gate = high16(fine, narrow(outer)), fine
    if inner_shift > 0:
        gate = clamp(gate << (inner_shift - 1), -32768, 32767)
    gate = high16(gate, narrow(inner))
    if inner_shift > 0:
        gate = clamp(gate << 1, -32768, 32767)
    if inner_shift < 0:
        gate = divide_by_power(gate, -inner_shift)
    gate = (gate + 32768) >> 1
    return clamp(divide_by_power(truncated(gate * value, 2**15), -outer_shift) + zeros[1], -128, 127)


# Numbers of 16 bits, as the LSTM kernels have them: raw / 2^(15 - integer bits).


def saturated_16(x: int) -> int:
    return clamp(x, -(2**15), 2**15 - 1)


def doubling_high_16(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul of 16 bits."""
    if a == b == -(2**15):
        return 2**15 - 1
    product = a * b
    return truncated(product + (2**14 if product >= 0 else 1 - 2**14), 2**15)


def constant_16(raw: int) -> int:
    return divide_by_power(raw, 16)


def exp_on_negative_16(a: int, integer_bits: int) -> int:
    """e^a for a <= 0 with so many integer bits, as a number without integer bits."""
    if a == 0:
        return 2**15 - 1
    fraction = 15 - integer_bits
    quarter = 2**fraction // 4
    rest = a % quarter - quarter
    x = saturated_16(rest * 2**integer_bits) + 2**12
    x2 = doubling_high_16(x, x)
    x3, x4 = doubling_high_16(x2, x), doubling_high_16(x2, x2)
    third = doubling_high_16(divide_by_power(x4, 2) + x3, constant_16(715827883))
    polynomial = divide_by_power(third + x2, 1)
    constant = constant_16(1895147668)
    result = saturated_16(constant + doubling_high_16(constant, x + polynomial))
    remainder = rest - a
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in zip(range(-2, 5), factors, strict=True):
        if integer_bits > exponent and remainder & int(2.0 ** (fraction + exponent)):
            result = doubling_high_16(result, constant_16(factor))
    if integer_bits > 5 and a < -(2 ** (fraction + 5)):
        return 0
    return result


def newton_16(x: int) -> int:
    """2 / (1 + x), with two integer bits."""
    half = truncated(x + 2**15 - 1 + 1, 2)
    found = constant_16(1515870810) + doubling_high_16(half, constant_16(-1010580540))
    for _ in range(3):
        error = 2**13 - doubling_high_16(half, found)
        found += saturated_16(doubling_high_16(found, error) * 4)
    return found


def logistic_16(a: int, integer_bits: int = 3) -> int:
    if a == 0:
        return 2**14
    positive = saturated_16(newton_16(exp_on_negative_16(-abs(a), integer_bits)) * 2)
    return positive if a > 0 else 2**15 - 1 - positive


def tanh_16(a: int, integer_bits: int = 3) -> int:
    if a == 0:
        return 0
    size = saturated_16((newton_16(exp_on_negative_16(-abs(a), integer_bits + 1)) - 2**13) * 4)
    return size if a > 0 else -size
