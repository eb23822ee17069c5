"""Rounding models for operations of one operand, for products of two, and for results that are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import (
    doubling_high_multiply,
    fixed_point,
    nearest_even,
    rounding_divide,
    rounding_shift,
)
from cvm.comparison.numbers import ROUNDED, Numbers, Stages
from cvm.comparison.sums import float_scale, rescaled
from cvm.frontends.tflite.compat.fixed_point import Multiplier
from cvm.frontends.tflite.floats import binary64

__all__ = [
    "average",
    "float_softmax",
    "mean",
    "of_linear",
    "rounded_float",
    "short_multiplier",
    "table_softmax",
    "tied",
    "two_multipliers",
]

Array = npt.NDArray[Any]
F = np.float32


def tied(numbers: Numbers, how: str) -> Stages:
    """The exact result in steps of the scale, rounded with another rule for ties."""
    steps = numbers.result / numbers.scale
    if how == "even":
        rounded = np.rint(steps)
    elif how == "away":
        rounded = np.trunc(steps + np.copysign(0.5, steps))
    else:
        rounded = np.floor(steps + 0.5) if how == "up" else np.trunc(steps)
    codes = numbers.clipped(rounded.astype(np.int64))
    return [("exact result in steps of the scale", steps), (f"rounded, {how}: the code", codes)]


def rounded_float(numbers: Numbers, by: str) -> Stages:
    """The exact result as a float32, divided by the scale in float32."""
    real, out = numbers.result.astype(F), F(numbers.scale)
    steps = real / out if by == "division" else real * (F(1) / out)
    return [
        ("result in float32", real),
        ("in steps of the scale", steps),
        (ROUNDED, numbers.clipped(nearest_even(steps))),
    ]


def _linear(numbers: Numbers) -> tuple[Array, Array] | None:
    """The integers whose real numbers, times one unit, are the result: of means, products and requantisations."""
    region, result = numbers.region, numbers.result
    operands = region.operands
    if not operands or any(item is None for item in operands):
        return None
    unit = np.array(1.0)
    for item in operands:
        assert item is not None
        unit = unit * item.scale
    if region.kind in ("avg_pool", "mean_reduce"):
        assert operands[0] is not None
        unit = unit / (numbers.real[operands[0].tensor].size / result.size)
    return nearest_even(result / unit), unit


def of_linear(how: str) -> Callable[[Numbers], Stages]:
    """The model that rescales a linear result: ``how`` is "double", "single" or a form of `float_scale`."""

    def stages(numbers: Numbers) -> Stages:
        found = _linear(numbers)
        if found is None:
            return []
        if how in ("double", "single"):
            return rescaled(*found, numbers, how)
        return float_scale(*found, numbers, how)

    return stages


def average(numbers: Numbers) -> Stages:
    """The sum of the codes themselves, divided by their number, ties away from zero."""
    (operand,) = numbers.region.operands
    if operand is None or float(operand.scale) != numbers.scale:
        return []
    acc, unit = _linear(numbers) or (np.array(0), np.array(1.0))
    count = round(float(operand.scale) / float(unit))
    total = acc + operand.zero * count
    codes = np.clip(rounding_divide(total, count), numbers.region.lo, numbers.region.hi)
    return [("sum of codes", total), (f"divided by {count}, ties away from zero: the code", codes)]


def mean(numbers: Numbers) -> Stages:
    """The sum of the codes less their zero point, times a fixed-point multiplier that was divided by their number."""
    (operand,) = numbers.region.operands
    found = _linear(numbers)
    if operand is None or found is None:
        return []
    acc, unit = found
    count = round(float(operand.scale) / float(unit))
    factor = Multiplier.of(binary64(Fraction(float(operand.scale)) / numbers.region.scale)).over(count)
    high = doubling_high_multiply(acc << max(factor.shift, 0), np.array(factor.integer))
    scaled = rounding_shift(high, np.array(factor.right))
    return [
        ("sum of codes less the zero point", acc),
        (f"times {factor.integer}, doubled, upper half, rounded", high),
        (f"shifted right by {factor.right}, rounded again", scaled),
        ("plus zero point, clipped: the code", numbers.clipped(scaled)),
    ]


def _sides(numbers: Numbers) -> tuple[Array, tuple[float, float]] | None:
    """The codes of the one operand less its zero point, and the ratios of scales of positive and negative codes."""
    (operand,) = numbers.region.operands
    if operand is None:
        return None
    slope: Any = numbers.region.operation.attributes.get("alpha", 1)
    ratio = float(operand.scale) / numbers.scale
    return numbers.codes(operand), (ratio, ratio * float(slope))


def two_multipliers(numbers: Numbers) -> Stages:
    """Positive and negative codes each times a fixed-point multiplier of their own, with two roundings."""
    found = _sides(numbers)
    if found is None:
        return []
    codes, ratios = found
    made = []
    for ratio in ratios:
        multiplier, shift = fixed_point(np.array(ratio))
        high = doubling_high_multiply(codes << np.maximum(shift, 0), multiplier)
        made.append(rounding_shift(high, np.maximum(-shift, 0)))
    scaled = np.where(codes >= 0, *made)
    return [("codes less the zero point", codes), ("rescaled", scaled), ("the code", numbers.clipped(scaled))]


def short_multiplier(numbers: Numbers) -> Stages:
    """Codes times a multiplier of 8 fractional bits, rounded upward: one for positive and one for negative codes."""
    found = _sides(numbers)
    if found is None:
        return []
    codes, ratios = found
    multipliers = [int(np.rint(-256 * np.float32(ratio))) for ratio in ratios]
    scaled = np.where(codes >= 0, *((-(codes << 7) * multiplier + 0x4000) >> 15 for multiplier in multipliers))
    return [
        ("codes less the zero point", codes),
        (f"times {-multipliers[0]} or {-multipliers[1]}, over 256, rounded", scaled),
        ("plus zero point, clipped: the code", numbers.clipped(scaled)),
    ]


def table_softmax(numbers: Numbers) -> Stages:
    """A table of float32 exponentials, their sum one by one, and the scale as floor(1 / scale)."""
    (operand,) = numbers.region.operands
    axis = _axis(numbers)
    if operand is None or axis is None:
        return []
    codes = np.moveaxis(numbers.codes(operand), axis, -1)
    away = codes - codes.max(axis=-1, keepdims=True)
    scale = float(F(operand.scale))
    headroom = max(0.0, float(np.log(float(np.finfo(F).max) / codes.shape[-1])) - 5) / scale
    exponentials = np.exp((away + headroom) * scale).astype(F)
    total = np.add.accumulate(exponentials, axis=-1, dtype=F)[..., -1:]
    steps = exponentials * np.floor(F(1) / F(numbers.scale)) / total
    made = [
        ("exponential from the table", exponentials),
        ("times floor(1 / scale), divided by the sum", steps),
        (ROUNDED, numbers.clipped(nearest_even(steps))),
    ]
    return [(words, np.moveaxis(array, -1, axis)) for words, array in made]


def _axis(numbers: Numbers) -> int | None:
    """The axis of a softmax, if there is one."""
    axes = numbers.region.operation.attributes.get("axes", (-1,))
    if not isinstance(axes, tuple) or len(axes) != 1 or not isinstance(axes[0], int):
        return None
    return axes[0]


def float_softmax(numbers: Numbers, form: str) -> Stages:
    """Softmax in float32. ``table``: by a table of exponentials, whose sum is taken one by one, as TFLite does."""
    (operand,) = numbers.region.operands
    axis = _axis(numbers)
    if operand is None or axis is None:
        return []
    codes = np.moveaxis(numbers.codes(operand), axis, -1)
    away = codes - codes.max(axis=-1, keepdims=True)
    out = F(numbers.scale)
    exponentials = np.exp((F(operand.scale) * away.astype(F)).astype(F))
    if form == "table":
        total = np.add.accumulate(exponentials, axis=-1, dtype=F)[..., -1:]
        steps = exponentials * (F(1) / (total * out))
        rounded = np.floor(steps.astype(np.float64) + 0.5).astype(np.int64)
    else:
        total = exponentials.sum(axis=-1, keepdims=True, dtype=F)
        shares = exponentials / total if form == "division" else exponentials * (F(1) / total)
        steps = shares / out
        rounded = nearest_even(steps)
    made = [("steps of the scale in float32", steps), ("rounded: the code", numbers.clipped(rounded))]
    return [(words, np.moveaxis(array, -1, axis)) for words, array in made]
