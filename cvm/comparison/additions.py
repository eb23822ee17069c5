"""Rounding models for sums and differences of two quantised tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import doubling_high_multiply, fixed_point, nearest_even, rounding_shift
from cvm.comparison.numbers import ROUNDED, Numbers, Stages

__all__ = ["fixed_addition", "float_addition", "shifted_addition"]

Array = npt.NDArray[Any]
F = np.float32


def _operands(numbers: Numbers) -> tuple[Array, Array, float, float]:
    """The codes of both operands, less their zero points, and their scales; of a difference, the second one negated."""
    a, b = numbers.region.operands
    assert a is not None
    assert b is not None
    sign = -1 if numbers.region.operation.name == "sub" else 1
    return numbers.codes(a), sign * numbers.codes(b), float(a.scale), float(b.scale)


def shifted_addition(numbers: Numbers) -> Stages:
    """Both operands shifted left by 20, rescaled to twice the larger scale, added, and rescaled."""
    a, b, scale_a, scale_b = _operands(numbers)
    twice = 2 * max(scale_a, scale_b)
    parts = []
    for codes, scale in ((a, scale_a), (b, scale_b)):
        multiplier, shift = fixed_point(np.array(scale / twice))
        parts.append(rounding_shift(doubling_high_multiply(codes << 20, multiplier), -shift))
    total = parts[0] + parts[1]
    multiplier, shift = fixed_point(np.array(twice / (2**20 * numbers.scale)))
    scaled = rounding_shift(doubling_high_multiply(total, multiplier), np.maximum(-shift, 0))
    return [
        ("first operand, shifted left by 20 and rescaled", parts[0]),
        ("second operand, likewise", parts[1]),
        ("sum", total),
        ("rescaled to steps of the output", scaled),
        ("plus zero point, clipped: the code", numbers.clipped(scaled)),
    ]


def fixed_addition(numbers: Numbers) -> Stages:
    """Both operands times integer multipliers of about 21 bits, added, and shifted with one rounding upward."""
    a, b, scale_a, scale_b = _operands(numbers)
    ratios = [F(scale) / F(numbers.scale) for scale in (scale_a, scale_b)]
    shift = 20 - int(np.frexp(max(ratios))[1] - 1)
    multipliers = [int(np.rint(np.ldexp(float(ratio), shift))) for ratio in ratios]
    total = a * multipliers[0] + b * multipliers[1]
    scaled = (total + (1 << (shift - 1))) >> shift
    return [
        (f"operands times {multipliers[0]} and {multipliers[1]}, added", total),
        (f"shifted right by {shift}, rounded", scaled),
        ("plus zero point, clipped: the code", numbers.clipped(scaled)),
    ]


def float_addition(numbers: Numbers, form: str) -> Stages:
    """Additions in float32: ``reals`` (dequantised, added, divided), or ``ratios`` (of scales, with a fixed part)."""
    a, b, scale_a, scale_b = _operands(numbers)
    out, zero = F(numbers.scale), numbers.region.zero
    if form in ("reals", "reals reciprocal"):
        real = a.astype(F) * F(scale_a) + b.astype(F) * F(scale_b)
        steps = real / out if form == "reals" else real * (F(1) / out)
        return [
            ("sum of the real operands in float32", real),
            ("in steps of the scale", steps),
            (ROUNDED, numbers.clipped(nearest_even(steps))),
        ]
    ratio_a, ratio_b = F(scale_a) / out, F(scale_b) / out
    zero_a, zero_b = (item.zero for item in numbers.region.operands if item is not None)
    fixed = F(zero) - (ratio_a * F(zero_a) + ratio_b * F(zero_b))
    if form == "ratios fused":
        moved = _fused(b + zero_b, ratio_b, _fused(a + zero_a, ratio_a, np.full(a.shape, fixed)))
    else:
        moved = fixed + (a + zero_a).astype(F) * ratio_a + (b + zero_b).astype(F) * ratio_b
    codes = np.clip(nearest_even(moved), numbers.region.lo, numbers.region.hi)
    return [
        ("codes times ratios of scales, plus a fixed part, in float32", moved),
        ("rounded half to even: the code", codes),
    ]


def _fused(codes: Array, ratio: Any, addend: Array) -> Array:
    """A fused multiply-add in float32: codes have few bits, so float64 holds the product exactly."""
    return (codes.astype(np.float64) * float(ratio) + addend.astype(np.float64)).astype(F)
