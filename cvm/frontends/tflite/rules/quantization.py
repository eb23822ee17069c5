"""QUANTIZE, DEQUANTIZE and CAST: the same numbers in another type."""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.common.data_types import bounds, unit
from cvm.frontends.tflite.call import Made, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.tensors import FLOATS, integer_range
from cvm.frontends.tflite.translation import TfliteTranslation

__all__: list[str] = []


@rule("QUANTIZE")
def quantize(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The numbers of a tensor on another grid, rounded once as every result with a scale is."""
    source = call.operand()
    planar = translation.is_planar(source)
    name = translation.planar(source) if planar else translation.name(source)
    return Made(translation.emit("copy", name), planar)


@rule("DEQUANTIZE")
def dequantize(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The numbers that codes stand for, as floats."""
    source = call.operand()
    grid = translation.grid(source)
    if grid is not None and grid.axis is None:
        translation.on_grid(call.result, grid)
    planar = translation.is_planar(source)
    return Made(translation.planar(source) if planar else translation.name(source), planar)


@rule("CAST")
def cast(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Integers and truth values in another type, floats truncated toward zero; codes are cast
    as their integers.
    """
    source, target = call.operand(), call.result.data_type
    name = translation.name(source)
    if source.quantizer is not None and call.result.quantization is None and target not in FLOATS:
        raise call.refuse("it casts codes to integers", "put DEQUANTIZE before it")
    if source.data_type == "bool":
        return Made(translation.emit("select", name, Fraction(1), Fraction(0), quantizer=unit(0, 1)))
    if target == "bool":
        return Made(translation.nonzero(name))
    if target in FLOATS:
        if not source.real:
            translation.on_grid(call.result, unit(*integer_range(source.data_type)))
        return Made(name)
    if source.real:
        raise call.refuse("it casts numbers to integers, which rounds toward zero", "put QUANTIZE after it")
    lo, hi = bounds(target)
    least, most = bounds(source.data_type)
    return Made(name if lo <= least and most <= hi else translation.result(name, target))
