"""Rounding models of OpenVINO, which quantises by FakeQuantize and moves scales through the operators before it.

A quantiser is given by the real numbers at both ends of its codes. OpenVINO computes a factor and an offset of them in
float32, and applies these to real numbers, or to codes if it has divided the ends by a scale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import fused_multiply_add, nearest_even
from cvm.comparison.floats import BINARY, in_codes, window_sums
from cvm.comparison.numbers import F, Numbers, Stages
from cvm.comparison.regions import Coded

__all__ = ["average_with_padding", "in_levels", "pair", "shifted_sum", "single", "sum_of_codes"]

Array = npt.NDArray[Any]


def in_levels(numbers: Numbers, values: Array, unit: Array | None = None, fused: bool = True) -> Stages:
    """The last stages of a model: values, each times ``unit`` a real number, times a factor plus an offset, rounded.

    Without ``unit`` they are real numbers. ``fused``: by a fused multiply-add.
    """
    unit = np.array(1, F) if unit is None else unit.astype(F)
    quantizer, scale = numbers.region.place.quantizer, F(numbers.scale)
    levels, zero = F(quantizer.hi - quantizer.lo), F(numbers.region.zero - quantizer.lo)
    low, high = -scale * zero / unit, scale * (levels - zero) / unit
    factor = levels / (high - low)
    offset = -low * factor
    moved = fused_multiply_add(values, factor, offset) if fused else values * factor + offset
    codes = nearest_even(np.clip(moved, F(0), levels)) + quantizer.lo
    return [
        ("value in float32", values),
        ("times the factor of the quantiser, plus its offset", moved),
        ("rounded half to even, clipped: the code", np.clip(codes, numbers.region.lo, numbers.region.hi)),
    ]


def _counted(numbers: Numbers, operand: Coded, zero: str) -> Array:
    """The codes of an operand as float32. ``zero``: its zero point is "kept" (subtracted), "left out", or "unsigned".

    With the last one it is left out, too, and the least code counts as 0.
    """
    codes = numbers.codes(operand)
    if zero != "kept":
        codes = codes + operand.zero - (operand.lowest if zero == "unsigned" else 0)
    return codes.astype(F)


def single(numbers: Numbers, zero: str) -> Stages:
    """A quantiser alone, or behind an activation that keeps signs: applied to the codes of the operand."""
    slope: Any = numbers.region.operation.attributes.get("alpha", 1)
    (operand,) = numbers.region.operands
    if operand is None:
        return []
    codes = _counted(numbers, operand, zero)
    return in_levels(numbers, np.where(codes < 0, codes * F(float(slope)), codes), operand.scale)


def pair(numbers: Numbers, form: str, zeros: tuple[str, str] = ("kept", "kept")) -> Stages:
    """A sum, difference or product. ``form``: of "reals", or of codes in steps of the "first" or "second" operand."""
    operation = numbers.region.operation.name
    if any(item is None for item in numbers.region.operands) or operation not in ("add", "sub", "mul"):
        return []
    first, second = (item for item in numbers.region.operands if item is not None)
    a, b = _counted(numbers, first, zeros[0]), _counted(numbers, second, zeros[1])
    step_a, step_b = first.scale.astype(F), second.scale.astype(F)
    if form == "reals":
        a, b = a * step_a, b * step_b
        return in_levels(numbers, BINARY[operation](a, b), fused=False)
    product = operation == "mul"
    if form == "first":
        b, unit = b * (step_b if product else step_b / step_a), first.scale
    else:
        a, unit = a * (step_a if product else step_a / step_b), second.scale
    return in_levels(numbers, BINARY[operation](a, b), unit, fused=not product)


def sum_of_codes(numbers: Numbers) -> Stages:
    """The integer sum without its bias times its scale, plus the bias, each in float32; then the quantiser."""
    acc, unit = numbers.accumulator()
    bias = numbers.bias()
    real = (acc - bias).astype(F) * unit.astype(F) + (bias * unit).astype(F)
    return [("accumulator without bias", acc - bias), *in_levels(numbers, real, fused=False)]


def average_with_padding(numbers: Numbers) -> Stages:
    """The average of a window whose padding counts, with the code 0 as padding, whatever the zero point is."""
    region = numbers.region
    (operand,) = region.operands
    padding = None if operand is None else numbers.regions.makers.get(operand.tensor)
    if operand is None or padding is None or padding.name != "pad" or numbers.result.ndim != 4:
        return []
    attributes: Any = region.operation.attributes
    edges: Any = padding.attributes["padding"]
    codes = numbers.codes(operand) + operand.zero
    outside = np.ones(codes.shape, bool)
    outside[tuple(slice(before, size - after) for (before, after), size in zip(edges, codes.shape, strict=True))] = (
        False
    )
    total = window_sums(np.where(outside, 0, codes).astype(F), numbers.result.shape, attributes)
    mean = total / F(np.prod(attributes["size"]))
    moved = mean - F(operand.zero)
    return [("sum of codes, 0 as padding", total), *in_levels(numbers, moved, operand.scale)]


def shifted_sum(numbers: Numbers, flushed: bool) -> Stages:
    """A sum of products with the codes of its data as they are, without the zero point.

    ``flushed``: the product of the scales is a subnormal float32 number, taken as zero: only the bias is left.
    """
    region = numbers.region
    data = region.operands[0]
    if data is None:
        return []
    moved = numbers.real[data.tensor] * 0 if flushed else numbers.real[data.tensor] + float(data.scale) * data.zero
    given = {name: moved if name == data.tensor else numbers.real[name] for name in region.reads}
    real = numbers.regions.recomputed(region, given)
    if region.bias is not None and region.bias not in region.reads:
        real = real + numbers.real[region.bias]
    return in_codes(numbers, real.astype(F))
