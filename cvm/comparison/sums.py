"""Rounding models for sums of products: convolutions, and products of matrices with a bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import doubling_high_multiply, fixed_point, nearest_even, rounding_shift, single_rounding
from cvm.comparison.numbers import ROUNDED, Numbers, Stages
from cvm.comparison.saturation import lost

__all__ = ["bfloat16_sum", "float_scale", "float_sum", "of_sum", "rescaled", "saturating"]

Array = npt.NDArray[Any]
F = np.float32


def rescaled(acc: Array, unit: Array, numbers: Numbers, how: str) -> Stages:
    """An accumulator times a fixed-point multiplier.

    ``how``: two roundings ("double"), one ("single"), or one with a multiplier of 15 bits ("reduced").
    """
    multiplier, shift = fixed_point(unit / numbers.scale)
    if int(np.abs(acc).max()) >= 2**31:
        return []
    if how == "reduced":
        short = np.minimum((multiplier + 2**15) >> 16, 2**15 - 1)
        scaled = (acc * short + (1 << (14 - shift))) >> (15 - shift)
        return [
            ("accumulator", acc),
            ("times a multiplier of 15 bits, rounded once", scaled),
            ("code", numbers.clipped(scaled)),
        ]
    if how == "single":
        scaled = single_rounding(acc, multiplier, shift)
        return [("accumulator", acc), ("times multiplier, rounded once", scaled), ("code", numbers.clipped(scaled))]
    if int(np.abs(acc).max()) << max(int(shift.max()), 0) >= 2**31:
        return []  # no engine with accumulators of 32 bits computes this
    high = doubling_high_multiply(acc << np.maximum(shift, 0), multiplier)
    scaled = rounding_shift(high, np.maximum(-shift, 0))
    return [
        ("accumulator", acc),
        ("31-bit multiplier", multiplier + np.zeros_like(acc)),
        ("doubled product, upper half, rounded", high),
        ("shifted right, rounded again", scaled),
        ("plus zero point, clipped: the code", numbers.clipped(scaled)),
    ]


def float_scale(acc: Array, unit: Array, numbers: Numbers, form: str) -> Stages:
    """An accumulator times a float32 scale, rounded half to even. ``form`` says how the scale is made."""
    out = F(numbers.scale)
    scale = unit.astype(F) / out if form == "float32" else (unit / numbers.scale).astype(F)
    if form == "reciprocal":
        scale = unit.astype(F) * (F(1) / out)
    product = acc.astype(F) * scale
    return [
        ("accumulator", acc),
        ("float32 scale", scale + np.zeros(acc.shape, F)),
        ("product in float32", product),
        (ROUNDED, numbers.clipped(nearest_even(product))),
    ]


def float_sum(numbers: Numbers, by: str, late: bool, cut: bool) -> Stages:
    """The sum without its bias in float32, times its scale, plus the bias in float32; divided by the output's scale.

    ``by``: "division", "reciprocal", or "merged" (scale and bias divided before). ``late``: the zero point is added
    after rounding. ``cut``: the result is rounded to bfloat16 first.
    """
    acc, unit = numbers.accumulator()
    bias = numbers.bias()
    out = F(numbers.scale)
    scale, real_bias = unit.astype(F), (bias * unit).astype(F)
    bare = (acc - bias).astype(F)
    if by == "merged":
        real = bare * (scale / out) + real_bias / out
    else:
        real = bare * scale + real_bias
        real = _bfloat16(real) if cut else real
        real = real / out if by == "division" else real * (F(1) / out)
    stages: Stages = [("accumulator without bias", acc - bias), ("result in float32, in steps of the scale", real)]
    if late:
        return [
            *stages,
            (ROUNDED, numbers.clipped(nearest_even(real))),
        ]
    moved = real + F(numbers.region.zero)
    codes = np.clip(nearest_even(moved), numbers.region.lo, numbers.region.hi)
    return [*stages, ("plus zero point in float32", moved), ("rounded half to even, clipped: the code", codes)]


def _bfloat16(x: Array) -> Array:
    """A float32 to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, F).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(F)


def bfloat16_sum(numbers: Numbers, whole: bool) -> Stages:
    """Operands as bfloat16, their products summed, the bias added. ``whole``: the result is a bfloat16, too."""
    region = numbers.region
    data = [item.tensor for item in region.operands if item is not None]
    operands = {name: _bfloat16(array) if name in data else array for name, array in numbers.real.items()}
    result = numbers.regions.recomputed(region, operands)
    if region.bias is not None and region.bias not in region.reads:
        result = result + numbers.real[region.bias]
    real = _bfloat16(result) if whole else result.astype(F)
    steps = real / F(numbers.scale)
    return [
        ("result of bfloat16 operands", real),
        ("in steps of the scale", steps),
        (ROUNDED, numbers.clipped(nearest_even(steps))),
    ]


def saturating(numbers: Numbers) -> Stages:
    """Sums of neighbouring products saturate at 16 bits; then the result and its bias in float32."""
    region = numbers.region
    data, weights = region.operands
    if data is None or weights is None or weights.zero != 0 or region.operation.name == "deconv":
        return []
    lowest = 128 if data.lowest < 0 else 0
    unsigned = numbers.codes(data) + data.zero + lowest
    stored, turned = numbers.real[weights.tensor], region.operation.attributes.get("transposeB") is True
    channels = 0 if region.operation.name != "matmul" else stored.ndim - (2 if turned else 1)
    scales = np.reshape(weights.scale, [-1 if axis == channels else 1 for axis in range(stored.ndim)])
    missing = lost(region, unsigned, nearest_even(stored / scales), numbers.result.shape, data.zero + lowest)
    if missing is None:
        return []
    acc, unit = numbers.accumulator()
    total = acc + missing
    real = (total - numbers.bias()).astype(F) * unit.astype(F) + (numbers.bias() * unit).astype(F)
    steps = real / F(numbers.scale)
    return [
        ("exact accumulator", acc),
        ("what saturated pairs of products lose", missing),
        ("accumulator", total),
        ("result in float32, in steps of the scale", steps),
        (ROUNDED, numbers.clipped(nearest_even(steps))),
    ]


def of_sum(how: str) -> Callable[[Numbers], Stages]:
    """The model that rescales an accumulator: ``how`` is "double", "single" or a form of `float_scale`."""

    def stages(numbers: Numbers) -> Stages:
        acc, unit = numbers.accumulator()
        if how in ("double", "single", "reduced"):
            return rescaled(acc, unit, numbers, how)
        return float_scale(acc, unit, numbers, how)

    return stages
