"""Operators on the bits of integers."""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.common.data_types import bounds, unit
from cvm.frontends.onnx.call import Call, Made
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import pair, result
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.limits import INT32_MAX

__all__: list[str] = []

_MOST = 30
"""A shift that the machine's powers of two have."""


@rule("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(translation: OnnxTranslation, call: Call) -> Made:
    """Bit by bit."""
    inputs, shape, data_type = pair(translation, call)
    kind = call.node.op.removeprefix("Bitwise").lower()
    lo, hi = (max(-INT32_MAX, min(end, INT32_MAX)) for end in bounds(data_type))
    return Made(translation.emit("bitwise", inputs, shape, quantizer=unit(lo, hi), kind=kind), shape, data_type)


@rule("BitwiseNot")
def bitwise_not(translation: OnnxTranslation, call: Call) -> Made:
    """All bits turned: the greatest less x, which is -1 - x of signed integers."""
    source = call.operand()
    lo, hi = bounds(source.data_type)
    most = -1 if lo < 0 else hi
    negative = translation.emit("neg", {"x": translation.name(source)}, source.shape)
    name = translation.emit("add", {"x": negative, "y": Fraction(most)}, source.shape)
    return result(translation, name, source.shape, source.data_type)


@rule("BitShift")
def bit_shift(translation: OnnxTranslation, call: Call) -> Made:
    """Times a power of two, or divided by one, rounded down. Beyond the width nothing is left but the sign."""
    inputs, shape, data_type = pair(translation, call)
    left = call.text("direction", "", "LEFT", "RIGHT") == "LEFT"
    lo, hi = bounds(data_type)
    width = (hi - lo).bit_length()
    extents = translation.shape(inputs["y"])
    by = _within(translation, inputs["y"], extents, width, lo < 0)
    if left:
        name = translation.emit("mul", {"x": inputs["x"], "y": _power(translation, by, extents)}, shape)
        return result(translation, name, shape, data_type)
    name, reached = inputs["x"], translation.shape(inputs["x"])
    if lo < 0:  # floor(x / d) is -1 - floor((-1 - x) / d): of numbers that are not negative, division truncates down
        below = translation.emit("lt", {"x": name, "y": Fraction(0)}, reached, dtype="logical")
        turned = translation.emit("sub", {"x": Fraction(-1), "y": name}, reached)
        name = translation.selected(below, turned, name, reached)
    for step in _steps(translation, by, extents, min(width, 32)):
        name = translation.emit("truncated_div", {"x": name, "y": _power(translation, step, extents)}, shape)
    if lo < 0:
        turned = translation.emit("sub", {"x": Fraction(-1), "y": name}, shape)
        name = translation.selected(below, turned, name, shape)
    return result(translation, name, shape, data_type)


def _within(translation: OnnxTranslation, name: str, shape: Shape, width: int, signed: bool) -> str:
    """A shift from 0 to the width; a negative one counts as the width (ONNX 28)."""
    most = min(width, 32)
    if signed:
        negative = translation.emit("lt", {"x": name, "y": Fraction(0)}, shape, dtype="logical")
        name = translation.selected(negative, Fraction(most), name, shape)
    return translation.clamped(name, 0, most, shape)


def _power(translation: OnnxTranslation, by: str, shape: Shape) -> str:
    """2^by as a tensor; by is at most 32."""
    return translation.emit("integer_pow", {"x": Fraction(2), "y": by}, shape, lo=0, hi=2**40)


def _steps(translation: OnnxTranslation, by: str, shape: Shape, width: int) -> list[str]:
    """Shifts of at most 30 bits that are the whole one together."""
    if width <= _MOST:
        return [by]
    first = translation.clamped(by, 0, _MOST, shape)
    return [first, translation.emit("sub", {"x": by, "y": first}, shape, quantizer=unit(0, width - _MOST))]
