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
"""A shift that the machine's powers of two have."""


@rule("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """And, or and xor of the bits of integers."""
    operands, shape, data_type = pair(translation, call)
    kind = call.node.op.removeprefix("Bitwise").lower()
    return Made(translation.emit("bitwise", *operands, quantizer=unit(*bounds(data_type)), kind=kind), shape, data_type)


@rule("BitwiseNot")
def bitwise_not(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Flip all bits: the largest integer minus x for unsigned types, -1 - x for signed ones."""
    source = call.operand()
    lo, hi = bounds(source.data_type)
    negative = translation.emit("neg", translation.name(source))
    name = translation.emit("add", negative, Fraction(-1 if lo < 0 else hi))
    return result(translation, name, source.shape, source.data_type)


@rule("BitShift")
def bit_shift(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Multiply by a power of two, or divide by one and round down. A shift beyond the width leaves only the sign."""
    (name, by), shape, data_type = pair(translation, call)
    left = call.text("direction", "", "LEFT", "RIGHT") == "LEFT"
    lo, hi = bounds(data_type)
    width = min((hi - lo).bit_length(), 32)
    by = _within(translation, by, width, lo < 0)
    if left:
        return result(translation, translation.emit("mul", name, _power(translation, by)), shape, data_type)
    if lo < 0:  # floor(x / d) is -1 - floor((-1 - x) / d): of numbers that are not negative, division truncates down
        below = translation.emit("lt", name, Fraction(0))
        name = _flipped(translation, name, below)
    for part in _parts(translation, by, width):
        name = translation.emit("truncated_div", name, _power(translation, part))
    if lo < 0:
        name = _flipped(translation, name, below)
    return result(translation, name, shape, data_type)


def _flipped(translation: OnnxTranslation, name: str, where: str) -> str:
    """All bits flipped where a condition holds: -1 - x."""
    return translation.selected(where, translation.emit("sub", Fraction(-1), name), name)


def _within(translation: OnnxTranslation, name: str, width: int, signed: bool) -> str:
    """A shift from 0 to the width; a negative one counts as the width (ONNX 28)."""
    if signed:
        negative = translation.emit("lt", name, Fraction(0))
        name = translation.selected(negative, Fraction(width), name)
    return translation.clamped(name, 0, width)


def _power(translation: OnnxTranslation, by: str) -> str:
    """2^by as a tensor; by is at most 32."""
    return translation.emit("integer_pow", Fraction(2), by, lo=0, hi=2**40)


def _parts(translation: OnnxTranslation, by: str, width: int) -> list[str]:
    """Shifts of at most 30 bits that are the whole one together."""
    if width <= _MOST:
        return [by]
    first = translation.clamped(by, 0, _MOST)
    return [first, translation.emit("sub", by, first, quantizer=unit(0, width - _MOST))]
