"""Element-wise operators: integers with the wrap-around of their data type, real numbers exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import EVERYTHING, UNBOUNDED, is_float
from cvm.frontends.common.decompositions.arithmetic import (
    absolute,
    power,
    prelu,
    quotient,
    rectified,
    sign,
    small_exponent,
)
from cvm.frontends.common.decompositions.movement import tiled
from cvm.frontends.onnx.call import Made, OnnxCall, Operand, target_of_cast
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.tensors import data_type_of
from cvm.frontends.onnx.translation import OnnxTranslation

__all__ = ["pair", "result"]


def pair(translation: OnnxTranslation, call: OnnxCall) -> tuple[tuple[str, str], Shape, str]:
    """The two operands reshaped to the rank of the result, the shape of the result, and the common data type."""
    first, second = call.operand(0), call.operand(1)
    data_type, shape = call.same_type(first, second), call.broadcast(first, second)
    rank = len(shape)
    x = translation.aligned_operand(first, rank)
    return (x, translation.aligned_operand(second, rank)), shape, data_type


def result(translation: OnnxTranslation, name: str, shape: Shape, data_type: str) -> Made:
    """The result: a real tensor as it is, an integer tensor wrapped to its data type."""
    return Made(translation.result(name, data_type), shape, data_type)


@rule("Add", "Sub", "Mul")
def arithmetic(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Add, Sub and Mul: exact; integers are wrapped to their data type."""
    operands, shape, data_type = pair(translation, call)
    return result(translation, translation.emit(call.node.op.lower(), *operands), shape, data_type)


@rule("Mod")
def mod(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Mod: the remainder of a division that is truncated with ``fmod`` and rounded down without."""
    (x, y), shape, data_type = pair(translation, call)
    truncated = call.flag("fmod", False)
    product = translation.emit("mul", translation.emit("truncated_div", x, y), y)
    rest = translation.emit("sub", x, product, quantizer=EVERYTHING)
    if truncated or data_type.startswith("u"):
        return Made(rest, shape, data_type)
    # Where the remainder is not 0 and its sign differs from the divisor's, the floor is the truncated quotient - 1.
    signs = [translation.clamped(name, -1, 1) for name in (rest, y)]
    apart = translation.emit("lt", translation.emit("mul", *signs), Fraction(0))
    more = translation.emit("mul", apart, y)
    return result(translation, translation.emit("add", rest, more), shape, data_type)


@rule("Sum", "Mean", "Max", "Min")
def several(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Sum, Mean, Max and Min: apply an operator of two operands to any number of operands, one after another."""
    operands = call.every()
    data_type, shape = call.same_type(*operands), call.broadcast(*operands)
    op = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[call.node.op]
    operands = _without_ends(operands, op)
    quantizer = EVERYTHING if op != "add" and not is_float(data_type) else None
    name = translation.aligned_operand(operands[0], len(shape))
    for operand in operands[1:]:
        name = translation.emit(op, name, translation.aligned_operand(operand, len(shape)), quantizer=quantizer)
    if call.node.op == "Mean":
        name = translation.emit("mul", name, Fraction(1, len(operands)))
    if translation.shape(name) != (shape or (1,)):  # an infinite operand that was dropped had larger extents
        name = tiled(translation, name, shape)
    return result(translation, name, shape, data_type) if op == "add" else Made(name, shape, data_type)


def _without_ends(operands: list[Operand], op: str) -> list[Operand]:
    """The operands without constant infinities that can never be the maximum (-inf) or the minimum (inf)."""
    end = {"max": -math.inf, "min": math.inf}.get(op)
    kept = [item for item in operands if item.values is None or not item.real or not (item.values == end).all()]
    return kept or operands


@rule("Pow")
def pow_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Pow: x^y by a table over both operands; a small constant exponent gives a product of factors."""
    base, exponent = call.operand(0), call.operand(1)
    shape, data_type = call.broadcast(base, exponent), base.data_type
    if not base.real and exponent.real:
        raise call.refuse("an integer to a power of real numbers is rounded by no rule", "cast the base first")
    x = translation.aligned_operand(base, len(shape))
    y = translation.aligned_operand(exponent, len(shape))
    times = small_exponent(exponent.values) if base.shape == shape else None
    return Made(power(translation, x, y, data_type, times), shape, data_type)


@rule("Neg")
def neg(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Neg: -x."""
    source = call.operand()
    return result(translation, translation.emit("neg", translation.name(source)), source.shape, source.data_type)


_UNARY = {"Abs": absolute, "Sign": sign, "Relu": rectified}


@rule(*_UNARY)
def unary(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Abs, Sign and Relu: |x|, the sign of x, or max(x, 0)."""
    source = call.operand()
    name = _UNARY[call.node.op](translation, translation.name(source), source.data_type)
    return Made(name, source.shape, source.data_type)


@rule("Clip")
def clip(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Clip: min(max(x, least), most), where each bound is a single constant or left out."""
    source = call.operand()
    least, most = (_bound(call, index, default) for index, default in ((1, -UNBOUNDED), (2, UNBOUNDED)))
    least = min(least, most)  # Clip takes the minimum with ``most`` last, so ``most`` wins where the bounds cross
    name = translation.clamped(translation.name(source), least, most, not source.real)
    return Made(name, source.shape, source.data_type)


def _bound(call: OnnxCall, index: int, default: Fraction) -> Fraction:
    operand = call.optional(index)
    if operand is None:
        return default
    call.same_type(call.operand(), operand)
    values = call.constant(index, "a bound")
    if values.size != 1 or (operand.real and np.isnan(values).any()):
        raise call.invalid("shape", f"the bound {operand.name!r} must be a single number")
    item = values.ravel()[0].item()
    if item in (float("inf"), float("-inf")):
        return UNBOUNDED if item > 0 else -UNBOUNDED
    return Fraction(item)


_OF_TWO = {"Div": quotient, "PRelu": prelu}


@rule(*_OF_TWO)
def of_two(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Div: exact; quotients of integers are truncated toward zero. PRelu: x where not negative, else slope * x."""
    operands, shape, data_type = pair(translation, call)
    return Made(_OF_TWO[call.node.op](translation, *operands, data_type), shape, data_type)


# Truth values


_COMPARISONS = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}


@rule(*_COMPARISONS)
def comparison(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Comparisons, element by element: 1 where the comparison holds, else 0."""
    operands, shape, _ = pair(translation, call)
    return Made(translation.emit(_COMPARISONS[call.node.op], *operands), shape, "bool")


@rule("And", "Or", "Xor")
def logic(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """And, Or and Xor of truth values."""
    operands, shape, data_type = pair(translation, call)
    op = {"And": "and", "Or": "or", "Xor": "ne"}[call.node.op]
    return Made(translation.emit(op, *operands), shape, data_type)


@rule("Not")
def not_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Not: 1 - x."""
    source = call.operand()
    return Made(translation.emit("not", translation.name(source)), source.shape, "bool")


@rule("Where")
def where(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Where: each element from the second operand where the condition holds, else from the third."""
    condition, first, second = (call.operand(index) for index in range(3))
    data_type, shape = call.same_type(first, second), call.broadcast(condition, first, second)
    if condition.values is not None and len(set(condition.values.ravel().tolist())) == 1:
        chosen = first if condition.values.any() else second
        if chosen.shape == shape:
            return Made(translation.name(chosen), shape, data_type)
    test, yes, no = (translation.aligned_operand(operand, len(shape)) for operand in (condition, first, second))
    return Made(translation.selected(test, yes, no, integer=not is_float(data_type)), shape, data_type)


# Data types


@rule("Cast", "CastLike")
def cast(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Cast: to integers the low bits (floats are truncated first); to floats and truth values without rounding."""
    source, data_type = call.operand(), target_of_cast(call)
    name, shape = translation.name(source), source.shape
    if is_float(data_type) or data_type == source.data_type:
        return Made(name, shape, data_type)
    if data_type == "bool":
        return Made(translation.nonzero(name), shape, data_type)
    if source.real:
        name = translation.emit("cast", name, dtype="integer")
    return result(translation, name, shape, data_type)


@rule("BitCast")
def bit_cast(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """BitCast: the bits of an integer type read as another integer type of the same width."""
    source, data_type = call.operand(), data_type_of(call.integer("to", 0), "the result")
    if is_float(data_type) or is_float(source.data_type):
        raise call.refuse("the bits of floats are not computed", "cast between integers only")
    types = (source.data_type, data_type)
    widths = [8 if item == "bool" else int(item.removeprefix("u").removeprefix("int")) for item in types]
    if widths[0] != widths[1]:
        raise call.refuse(f"{source.data_type} and {data_type} differ in width", "use Cast")
    return result(translation, translation.name(source), source.shape, data_type)
