"""Element-wise operators: on integers as the machine has them, on real numbers as exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from cvm.frontends.common.data_types import bounds, is_float, unit
from cvm.frontends.onnx.call import Call, Made, Operand
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.tensors import data_type_of
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.limits import INT32_MAX

__all__ = ["EVERYTHING", "pair", "result", "truth_of"]

EVERYTHING = unit(-INT32_MAX, INT32_MAX)
_UNBOUNDED = Fraction(2) ** 200
"""Beyond every number that 32-bit integers times float scales give."""


def pair(translation: OnnxTranslation, call: Call) -> tuple[dict[str, str], Shape, str]:
    """Two operands in the rank of the result, its shape, and the data type that they have."""
    first, second = call.operand(0), call.operand(1)
    data_type, shape = call.same_type(first, second), call.broadcast(first, second)
    rank = len(shape)
    return {"x": translation.aligned(first, rank), "y": translation.aligned(second, rank)}, shape, data_type


def result(translation: OnnxTranslation, name: str, shape: Shape, data_type: str) -> Made:
    """Real numbers as they are, integers wrapped to their data type."""
    if not is_float(data_type):
        name = translation.wrapped(name, data_type, shape)
    return Made(name, shape, data_type)


@rule("Add", "Sub", "Mul")
def arithmetic(translation: OnnxTranslation, call: Call) -> Made:
    """Exact; integers are wrapped."""
    inputs, shape, data_type = pair(translation, call)
    return result(translation, translation.emit(call.node.op.lower(), inputs, shape), shape, data_type)


@rule("Div")
def div(translation: OnnxTranslation, call: Call) -> Made:
    """Exact; integers truncated toward zero."""
    inputs, shape, data_type = pair(translation, call)
    op = "div" if is_float(data_type) else "truncated_div"
    return result(translation, translation.emit(op, inputs, shape), shape, data_type)


@rule("Mod")
def mod(translation: OnnxTranslation, call: Call) -> Made:
    """What a division leaves: truncated for ``fmod``, else of a floor."""
    inputs, shape, data_type = pair(translation, call)
    truncated = call.flag("fmod", False)
    quotient = translation.emit("truncated_div", inputs, shape)
    product = translation.emit("mul", {"x": quotient, "y": inputs["y"]}, shape)
    rest = translation.emit("sub", {"x": inputs["x"], "y": product}, shape, quantizer=EVERYTHING)
    if truncated or data_type.startswith("u"):
        return Made(rest, shape, data_type)
    # Where the rest is not 0 and of another sign than the divisor, a floor is one less than what was truncated to.
    signs = [
        translation.clamped(name, -1, 1, extents)
        for name, extents in ((rest, shape), (inputs["y"], translation.shape(inputs["y"])))
    ]
    product = translation.emit("mul", {"x": signs[0], "y": signs[1]}, shape)
    apart = translation.emit("lt", {"x": product, "y": Fraction(0)}, shape, dtype="logical")
    more = translation.emit("mul", {"x": apart, "y": inputs["y"]}, shape)
    return result(translation, translation.emit("add", {"x": rest, "y": more}, shape), shape, data_type)


@rule("Sum", "Mean", "Max", "Min")
def several(translation: OnnxTranslation, call: Call) -> Made:
    """Of any number of operands, one after the other."""
    operands = call.every()
    data_type, shape = call.same_type(*operands), call.broadcast(*operands)
    op = {"Sum": "add", "Mean": "add", "Max": "max", "Min": "min"}[call.node.op]
    quantizer = EVERYTHING if op != "add" and not is_float(data_type) else None
    name, reached = translation.aligned(operands[0], len(shape)), operands[0].shape
    for operand in operands[1:]:
        reached = call.broadcast(Operand("", data_type, reached), operand)
        inputs = {"x": name, "y": translation.aligned(operand, len(shape))}
        extents = (1,) * (len(shape) - len(reached)) + reached
        name = translation.emit(op, inputs, extents, quantizer=quantizer)
    if call.node.op == "Mean":
        name = translation.emit("mul", {"x": name, "y": Fraction(1, len(operands))}, shape)
    return result(translation, name, shape, data_type) if op == "add" else Made(name, shape, data_type)


@rule("Pow")
def pow_(translation: OnnxTranslation, call: Call) -> Made:
    """By a table of both operands; with one small constant exponent a product."""
    base, exponent = call.operand(0), call.operand(1)
    shape, data_type = call.broadcast(base, exponent), base.data_type
    if not base.real and exponent.real:
        raise call.refuse("an integer to a power of real numbers is rounded by no rule", "cast the base first")
    inputs = {"x": translation.aligned(base, len(shape)), "y": translation.aligned(exponent, len(shape))}
    times = _small(exponent) if base.shape == shape else None
    if times is not None:
        name = inputs["x"]
        for _ in range(times - 1):
            name = translation.emit("mul", {"x": name, "y": inputs["x"]}, shape)
            name = result(translation, name, shape, data_type).name
        return Made(name, shape, data_type)
    if base.real:
        return Made(translation.emit("pow", inputs, shape), shape, data_type)
    lo, hi = bounds(data_type)
    return result(translation, translation.emit("integer_pow", inputs, shape, lo=lo, hi=hi), shape, data_type)


def _small(exponent: Operand) -> int | None:
    """The exponent, if it is one whole constant from 1 to 8."""
    values = exponent.values
    if values is None or values.size == 0 or not (values == values.flat[0]).all():
        return None
    item = values.flat[0].item()
    return int(item) if 1 <= item <= 8 and item == int(item) else None


@rule("Neg")
def neg(translation: OnnxTranslation, call: Call) -> Made:
    """-x."""
    source = call.operand()
    name = translation.emit("neg", {"x": translation.name(source)}, source.shape)
    return result(translation, name, source.shape, source.data_type)


@rule("Abs")
def abs_(translation: OnnxTranslation, call: Call) -> Made:
    """|x|, of integers max(x, -x)."""
    source = call.operand()
    name, shape = translation.name(source), source.shape
    if source.real:
        return Made(translation.emit("abs", {"x": name}, shape), shape, source.data_type)
    negative = translation.emit("neg", {"x": name}, shape)
    greater = translation.emit("max", {"x": name, "y": negative}, shape, quantizer=EVERYTHING)
    return result(translation, greater, shape, source.data_type)


@rule("Sign")
def sign(translation: OnnxTranslation, call: Call) -> Made:
    """-1, 0 or 1."""
    source = call.operand()
    name, shape = translation.name(source), source.shape
    if source.real:
        return Made(translation.emit("sign", {"x": name}, shape), shape, source.data_type)
    return Made(translation.clamped(name, -1, 1, shape), shape, source.data_type)


@rule("Relu")
def relu(translation: OnnxTranslation, call: Call) -> Made:
    """max(x, 0)."""
    source = call.operand()
    quantizer = None if source.real else EVERYTHING
    name = translation.emit("relu", {"x": translation.name(source)}, source.shape, quantizer=quantizer)
    return Made(name, source.shape, source.data_type)


@rule("Clip")
def clip(translation: OnnxTranslation, call: Call) -> Made:
    """min(max(x, least), most), where each bound is one constant or left out."""
    source = call.operand()
    least, most = (_bound(call, index, default) for index, default in ((1, -_UNBOUNDED), (2, _UNBOUNDED)))
    least = min(least, most)  # the greatest that is allowed is taken last
    name = translation.clamped(translation.name(source), least, most, source.shape, not source.real)
    return Made(name, source.shape, source.data_type)


def _bound(call: Call, index: int, default: Fraction) -> Fraction:
    operand = call.optional(index)
    if operand is None:
        return default
    call.same_type(call.operand(), operand)
    values = call.constant(index, "a bound")
    if values.size != 1 or (operand.real and np.isnan(values).any()):
        raise call.invalid("shape", f"bound {operand.name!r} is no single number")
    item = values.ravel()[0].item()
    if item in (float("inf"), float("-inf")):
        return _UNBOUNDED if item > 0 else -_UNBOUNDED
    return Fraction(item)


@rule("PRelu")
def prelu(translation: OnnxTranslation, call: Call) -> Made:
    """X where it is not negative, else slope * x: max(x, 0) + slope * min(x, 0) for integers."""
    inputs, shape, data_type = pair(translation, call)
    if is_float(data_type):
        name = translation.emit("prelu", {"x": inputs["x"], "alpha": inputs["y"]}, shape)
        return Made(name, shape, data_type)
    extents = translation.shape(inputs["x"])
    above = translation.emit("relu", {"x": inputs["x"]}, extents, quantizer=EVERYTHING)
    below = translation.emit("min", {"x": inputs["x"], "y": Fraction(0)}, extents, quantizer=EVERYTHING)
    product = translation.emit("mul", {"x": below, "y": inputs["y"]}, shape)
    return result(translation, translation.emit("add", {"x": above, "y": product}, shape), shape, data_type)


# Truth values


_COMPARISONS = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}


@rule(*_COMPARISONS)
def comparison(translation: OnnxTranslation, call: Call) -> Made:
    """Whether it holds."""
    inputs, shape, _ = pair(translation, call)
    return Made(translation.emit(_COMPARISONS[call.node.op], inputs, shape, dtype="logical"), shape, "bool")


@rule("And", "Or", "Xor")
def logic(translation: OnnxTranslation, call: Call) -> Made:
    """Of truth values."""
    inputs, shape, data_type = pair(translation, call)
    op = {"And": "and", "Or": "or", "Xor": "ne"}[call.node.op]
    return Made(translation.emit(op, inputs, shape, dtype="logical"), shape, data_type)


@rule("Not")
def not_(translation: OnnxTranslation, call: Call) -> Made:
    """1 - x."""
    source = call.operand()
    return Made(
        translation.emit("not", {"x": translation.name(source)}, source.shape, dtype="logical"), source.shape, "bool"
    )


def truth_of(translation: OnnxTranslation, name: str, shape: Shape) -> str:
    """Whether integers are not 0."""
    return translation.emit("ne", {"x": name, "y": Fraction(0)}, shape, dtype="logical")


@rule("Where")
def where(translation: OnnxTranslation, call: Call) -> Made:
    """A choice."""
    condition, first, second = (call.operand(index) for index in range(3))
    data_type, shape = call.same_type(first, second), call.broadcast(condition, first, second)
    names = [translation.aligned(operand, len(shape)) for operand in (condition, first, second)]
    name = translation.selected(names[0], names[1], names[2], shape, not is_float(data_type))
    return Made(name, shape, data_type)


# Data types


@rule("Cast", "CastLike")
def cast(translation: OnnxTranslation, call: Call) -> Made:
    """To integers the low bits, of floats what is before the point; to floats and truth values without rounding."""
    source = call.operand()
    if call.node.op == "CastLike":
        data_type = call.operand(1).data_type
    else:
        data_type = data_type_of(call.integer("to", 0), "the result")
    call.ignore("saturate", "round_mode")
    name, shape = translation.name(source), source.shape
    if is_float(data_type) or data_type == source.data_type:
        return Made(name, shape, data_type)
    if data_type == "bool":
        return Made(truth_of(translation, name, shape), shape, data_type)
    if source.real:
        name = translation.emit("cast", {"input": name}, shape, dtype="integer")
    return result(translation, name, shape, data_type)


@rule("BitCast")
def bit_cast(translation: OnnxTranslation, call: Call) -> Made:
    """The bits of integers as those of others of the same width."""
    source, data_type = call.operand(), data_type_of(call.integer("to", 0), "the result")
    if is_float(data_type):
        raise call.refuse("the bits of a float are computed by nothing here")
    types = (source.data_type, data_type)
    widths = [8 if item == "bool" else int(item.removeprefix("u").removeprefix("int")) for item in types]
    if widths[0] != widths[1]:
        raise call.refuse(f"{source.data_type} and {data_type} differ in width")
    return result(translation, translation.name(source), source.shape, data_type)
