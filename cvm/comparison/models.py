"""Rounding models: how engines get the codes of a tensor from its operands. Each model names its source.

A model gives the stages of its computation, as pairs of words and arrays; the last stage are the codes. `MODELS` lists
the models for each kind of region, in the order in which they are tried: of two that explain equally many codes, the
first is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import (
    doubling_high_multiply,
    fixed_point,
    nearest_even,
    rounding_divide,
    rounding_shift,
    single_rounding,
)
from cvm.comparison.regions import Coded, Region, Regions
from cvm.frontends.tflite.compat.fixed_point import Multiplier
from cvm.frontends.tflite.floats import binary64

__all__ = ["Model", "Numbers", "Stages", "models_for"]

Array = npt.NDArray[Any]
Stages: TypeAlias = "list[tuple[str, Array]]"
F = np.float32
_ROUNDED = "rounded half to even, plus zero point, clipped: the code"


@dataclass(frozen=True, eq=False, slots=True)
class Numbers:
    """The numbers of one region on one sample, in the layout of the graph."""

    region: Region
    real: Mapping[str, Array]
    """The real numbers of the tensors around the region, in float64."""
    regions: Regions

    def codes(self, operand: Coded) -> Array:
        """The codes of an operand, less its zero point."""
        return nearest_even(self.real[operand.tensor] / operand.scale)

    @property
    def result(self) -> Array:
        """The exact result of the operation before rounding, nearly: in float64."""
        return self.real[self.region.result]

    @property
    def scale(self) -> float:
        """The scale of the place."""
        return float(self.region.scale)

    def accumulator(self) -> tuple[Array, Array]:
        """The integer sum, and the scale of its unit."""
        unit = self.region.unit
        assert unit is not None
        return nearest_even(self.result / unit), unit

    def bias(self) -> Array:
        """The stored bias in units of the accumulator, in a shape that fits it; 0 if there is none."""
        region = self.region
        unit = region.unit
        if region.bias is None or unit is None:
            return np.array(0)
        stored = self.real[region.bias]
        if region.operation.name in ("conv", "deconv"):
            stored = stored.reshape(1, -1, *[1] * (self.result.ndim - 2))
        return nearest_even(stored / unit)

    def clipped(self, steps: Array) -> Array:
        """Codes from steps of the scale: plus the zero point, clipped."""
        codes: Array = np.clip(steps + self.region.zero, self.region.lo, self.region.hi)
        return codes


@dataclass(frozen=True, slots=True)
class Model:
    """A rounding model."""

    name: str
    source: str
    """Where the engine's own code says so."""
    stages: Callable[[Numbers], Stages]


def _rescaled(acc: Array, unit: Array, numbers: Numbers, how: str) -> Stages:
    """An accumulator times a fixed-point multiplier: with two roundings ("double"), or one ("single")."""
    multiplier, shift = fixed_point(unit / numbers.scale)
    if int(np.abs(acc).max()) >= 2**31:
        return []
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


def _float_scale(acc: Array, unit: Array, numbers: Numbers, form: str) -> Stages:
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
        (_ROUNDED, numbers.clipped(nearest_even(product))),
    ]


def _float_sum(numbers: Numbers, by: str, late: bool, cut: bool) -> Stages:
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
            (_ROUNDED, numbers.clipped(nearest_even(real))),
        ]
    moved = real + F(numbers.region.zero)
    codes = np.clip(nearest_even(moved), numbers.region.lo, numbers.region.hi)
    return [*stages, ("plus zero point in float32", moved), ("rounded half to even, clipped: the code", codes)]


def _bfloat16(x: Array) -> Array:
    """A float32 to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, F).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(F)


def _bfloat16_sum(numbers: Numbers, whole: bool) -> Stages:
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
        (_ROUNDED, numbers.clipped(nearest_even(steps))),
    ]


def _of_sum(how: str) -> Callable[[Numbers], Stages]:
    def stages(numbers: Numbers) -> Stages:
        acc, unit = numbers.accumulator()
        if how in ("double", "single"):
            return _rescaled(acc, unit, numbers, how)
        return _float_scale(acc, unit, numbers, how)

    return stages


def _tied(numbers: Numbers, how: str) -> Stages:
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


def _rounded_float(numbers: Numbers, by: str) -> Stages:
    """The exact result as a float32, divided by the scale in float32."""
    real, out = numbers.result.astype(F), F(numbers.scale)
    steps = real / out if by == "division" else real * (F(1) / out)
    return [
        ("result in float32", real),
        ("in steps of the scale", steps),
        (_ROUNDED, numbers.clipped(nearest_even(steps))),
    ]


# Additions


def _operands(numbers: Numbers) -> tuple[Array, Array, float, float]:
    a, b = numbers.region.operands
    assert a is not None
    assert b is not None
    return numbers.codes(a), numbers.codes(b), float(a.scale), float(b.scale)


def _shifted_addition(numbers: Numbers) -> Stages:
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


def _fixed_addition(numbers: Numbers) -> Stages:
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


def _float_addition(numbers: Numbers, form: str) -> Stages:
    """Additions in float32: ``reals`` (dequantised, added, divided), or ``ratios`` (of scales, with a fixed part)."""
    a, b, scale_a, scale_b = _operands(numbers)
    out, zero = F(numbers.scale), numbers.region.zero
    if form in ("reals", "reals reciprocal"):
        real = a.astype(F) * F(scale_a) + b.astype(F) * F(scale_b)
        steps = real / out if form == "reals" else real * (F(1) / out)
        return [
            ("sum of the real operands in float32", real),
            ("in steps of the scale", steps),
            (_ROUNDED, numbers.clipped(nearest_even(steps))),
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


# One operand, or a product of two


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


def _of_linear(how: str) -> Callable[[Numbers], Stages]:
    def stages(numbers: Numbers) -> Stages:
        found = _linear(numbers)
        if found is None:
            return []
        if how in ("double", "single"):
            return _rescaled(*found, numbers, how)
        return _float_scale(*found, numbers, how)

    return stages


def _average(numbers: Numbers) -> Stages:
    """The sum of the codes themselves, divided by their number, ties away from zero."""
    (operand,) = numbers.region.operands
    if operand is None or float(operand.scale) != numbers.scale:
        return []
    acc, unit = _linear(numbers) or (np.array(0), np.array(1.0))
    count = round(float(operand.scale) / float(unit))
    total = acc + operand.zero * count
    codes = np.clip(rounding_divide(total, count), numbers.region.lo, numbers.region.hi)
    return [("sum of codes", total), (f"divided by {count}, ties away from zero: the code", codes)]


def _mean(numbers: Numbers) -> Stages:
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


# Softmax and other float32 functions


def _table_softmax(numbers: Numbers) -> Stages:
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
        (_ROUNDED, numbers.clipped(nearest_even(steps))),
    ]
    return [(words, np.moveaxis(array, -1, axis)) for words, array in made]


def _axis(numbers: Numbers) -> int | None:
    """The axis of a softmax, if there is one."""
    axes = numbers.region.operation.attributes.get("axes", (-1,))
    if not isinstance(axes, tuple) or len(axes) != 1 or not isinstance(axes[0], int):
        return None
    return axes[0]


def _float_softmax(numbers: Numbers, form: str) -> Stages:
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


_SUM: tuple[Model, ...] = (
    Model(
        "doubling high multiply and rounding shift",
        "gemmlowp, TFLite: MultiplyByQuantizedMultiplier (kernels/internal/common.h)",
        _of_sum("double"),
    ),
    Model(
        "float32 scale, half to even",
        "ONNX Runtime: MlasRequantizeOutput (mlas/lib/quantize_common); XNNPACK: qs8 fp32 requantisation",
        _of_sum("float32"),
    ),
    Model("fixed-point multiplier, rounded once", "TFLite with TFLITE_SINGLE_ROUNDING", _of_sum("single")),
    Model("float32 scale from float64, half to even", "XNNPACK with scales made in double", _of_sum("float64")),
    Model("float32 scale by a reciprocal, half to even", "oneDNN", _of_sum("reciprocal")),
    *(
        Model(
            f"float32 {'bfloat16 ' if cut else ''}result and bias, {by}{', zero point after rounding' if late else ''}",
            "OpenVINO, oneDNN: the bias and the output's scale are float32 post-operations",
            partial(_float_sum, by=by, late=late, cut=cut),
        )
        for cut in (False, True)
        for by in ("division", "reciprocal", "merged")
        for late in (True, False)
        if not (cut and by == "merged")
    ),
)

_SUM += tuple(
    Model(
        f"bfloat16 operands, {words}",
        "OpenVINO with bfloat16 inference",
        partial(_bfloat16_sum, whole=whole),
    )
    for whole, words in ((False, "float32 result"), (True, "bfloat16 result"))
)

_ADD = (
    Model("left shift 20, three rescalings", "TFLite: reference_ops::Add for int8 and uint8", _shifted_addition),
    Model("integer multipliers of 21 bits, one shift", "XNNPACK: qs8-vadd, qu8-vadd", _fixed_addition),
    *(
        Model(f"float32 addition, {form}", source, partial(_float_addition, form=form))
        for form, source in (
            ("reals", "DequantizeLinear, Add, QuantizeLinear in float32"),
            ("reals reciprocal", "OpenVINO: Add in float32"),
            ("ratios", "ONNX Runtime: MlasQLinearAdd"),
            ("ratios fused", "ONNX Runtime: MlasQLinearAdd with fused multiply-add"),
        )
    ),
)

_LINEAR = (
    Model("doubling high multiply and rounding shift", "TFLite: MultiplyByQuantizedMultiplier", _of_linear("double")),
    Model("float32 scale, half to even", "XNNPACK, ONNX Runtime", _of_linear("float32")),
    Model("fixed-point multiplier, rounded once", "TFLite with TFLITE_SINGLE_ROUNDING", _of_linear("single")),
    Model("float32 scale from float64, half to even", "XNNPACK", _of_linear("float64")),
    Model("float32 scale by a reciprocal, half to even", "oneDNN", _of_linear("reciprocal")),
)

_MEAN = Model("multiplier divided by the count, two roundings", "TFLite: reference_integer_ops::Mean", _mean)
_AVERAGE = (Model("average of codes, ties away from zero", "TFLite: reference_integer_ops::AveragePool", _average),)

_SOFTMAX = (
    Model(
        "table of exponentials, scale as floor(1 / scale)",
        "ONNX Runtime: QLinearSoftmax (contrib_ops/cpu/quantization/qlinear_softmax.cc)",
        _table_softmax,
    ),
    *(
        Model(f"float32 softmax, {form}", source, partial(_float_softmax, form=form))
        for form, source in (
            ("table", "TFLite: optimized_ops::Softmax by a table"),
            ("division", "Softmax in float32"),
            ("reciprocal", "ONNX Runtime: MlasComputeSoftmax"),
        )
    ),
)

_TIES = (("even", "to even"), ("away", "away from zero"), ("up", "upward"), ("zero", "cut toward zero"))
_ALWAYS = (
    *(
        Model(f"exact result, ties {words}", "the exact meaning with another rule for ties", partial(_tied, how=how))
        for how, words in (
            ("even", "to even"),
            ("away", "away from zero"),
            ("up", "upward"),
            ("zero", "cut toward zero"),
        )
    ),
    *(
        Model(f"float32 result, {by}", "the operation in float32, then QuantizeLinear", partial(_rounded_float, by=by))
        for by in ("division", "reciprocal")
    ),
)

MODELS: Mapping[str, Sequence[Model]] = {
    "sum": _SUM,
    "add": _ADD,
    "avg_pool": (*_AVERAGE, *_LINEAR),
    "mean_reduce": (_MEAN, *_AVERAGE, *_LINEAR),
    "softmax": _SOFTMAX,
    "mul": _LINEAR,
    "copy": _LINEAR,
    "concat": _LINEAR,
}


def models_for(region: Region) -> list[Model]:
    """The models to try on a region: those of its kind, then those that only know the exact result."""
    known = MODELS.get(region.kind, ())
    coded = bool(region.operands) and all(item is not None for item in region.operands)
    return [*(known if coded else ()), *_ALWAYS]
