"""Operators on the bits of integers."""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.common.data_types import bounds, unit
from cvm.frontends.onnx.call import Made, OnnxCall
from cvm.frontends.onnx.rules.arithmetic import pair, result
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__: list[str] = []

_MOST = 30
"""The greatest shift for which the machine has the power of two."""


@rule("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """BitwiseAnd, BitwiseOr and BitwiseXor of integers."""
    operands, shape, data_type = pair(translation, call)
    kind = call.node.op.removeprefix("Bitwise").lower()
    return Made(translation.emit("bitwise", *operands, quantizer=unit(*bounds(data_type)), kind=kind), shape, data_type)


@rule("BitwiseNot")
def bitwise_not(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """BitwiseNot: the largest integer minus x for unsigned types, -1 - x for signed types."""
    source = call.operand()
    lo, hi = bounds(source.data_type)
    negative = translation.emit("neg", translation.name(source))
    name = translation.emit("add", negative, Fraction(-1 if lo < 0 else hi))
    return result(translation, name, source.shape, source.data_type)


@rule("BitShift")
def bit_shift(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """BitShift: multiply by a power of two, or divide by it and round down. A shift beyond the width leaves only the
    sign.
    """
    (name, by), shape, data_type = pair(translation, call)
    left = call.text("direction", "", "LEFT", "RIGHT") == "LEFT"
    lo, hi = bounds(data_type)
    width = min((hi - lo).bit_length(), 32)
    by = _within(translation, by, width, lo < 0)
    if left:
        return result(translation, translation.emit("mul", name, _power(translation, by)), shape, data_type)
    if lo < 0:  # floor(x / d) is -1 - floor((-1 - x) / d): for numbers that are not negative, division truncates down
        below = translation.emit("lt", name, Fraction(0))
        name = _flipped(translation, name, below)
    for part in _parts(translation, by, width):
        name = translation.emit("truncated_div", name, _power(translation, part))
    if lo < 0:
        name = _flipped(translation, name, below)
    return result(translation, name, shape, data_type)


def _flipped(translation: OnnxTranslation, name: str, where: str) -> str:
    """All bits flipped (-1 - x) where a condition holds, else x."""
    return translation.selected(where, translation.emit("sub", Fraction(-1), name), name)


def _within(translation: OnnxTranslation, name: str, width: int, signed: bool) -> str:
    """A shift clamped to 0 .. width; a negative shift counts as the width (ONNX 28)."""
    if signed:
        negative = translation.emit("lt", name, Fraction(0))
        name = translation.selected(negative, Fraction(width), name)
    return translation.clamped(name, 0, width)


def _power(translation: OnnxTranslation, by: str) -> str:
    """The tensor 2^by; ``by`` is at most 32."""
    return translation.emit("integer_pow", Fraction(2), by, lo=0, hi=2**40)


def _parts(translation: OnnxTranslation, by: str, width: int) -> list[str]:
    """Shifts of at most 30 bits each that together make the whole shift."""
    if width <= _MOST:
        return [by]
    first = translation.clamped(by, 0, _MOST)
    return [first, translation.emit("sub", by, first, quantizer=unit(0, width - _MOST))]
