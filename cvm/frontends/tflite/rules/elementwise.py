"""Element-wise operators."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from cvm.frontends.common.data_types import EVERYTHING
from cvm.frontends.tflite.call import Made, Operand, TfliteCall
from cvm.frontends.tflite.rules.registry import rule
from cvm.frontends.tflite.translation import TfliteTranslation

__all__ = ["aligned"]


def aligned(translation: TfliteTranslation, call: TfliteCall, *operands: Operand) -> tuple[list[str], bool]:
    """The operands with one rank and one order of axes, and whether the channels are axis 1 in that order.

    The channels are axis 1 where a computed operand of full rank exists in that order alone, and no operand would have
    to broadcast along other axes.
    """
    shape = call.broadcast(*operands)
    rank = max(len(shape), 1)
    full = [operand for operand in operands if operand.rank == rank]
    planar = rank >= 3 and any(translation.is_planar(operand) for operand in full)
    names = []
    for operand in operands:
        if planar and operand.rank == rank:
            names.append(translation.planar(operand))
            continue
        name = translation.aligned(translation.name(operand), rank)
        if planar:
            name = translation.transposed(name, (0, rank - 1, *range(1, rank - 1)))
        names.append(name)
    return names, planar


def _unary(translation: TfliteTranslation, call: TfliteCall) -> tuple[str, bool]:
    (name,), planar = aligned(translation, call, call.operand())
    return name, planar


# Two operands

_ARITHMETIC = {
    "ADD": "add",
    "SUB": "sub",
    "MUL": "mul",
    "DIV": "div",
    "MAXIMUM": "max",
    "MINIMUM": "min",
    "POW": "pow",
}


@rule(*_ARITHMETIC)
def arithmetic(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Arithmetic of two operands (sum, difference, product, quotient, maximum, minimum, power), then a fused
    activation.
    """
    x, y = call.operand(0), call.operand(1)
    (a, b), planar = aligned(translation, call, x, y)
    op = call.operator.op
    if not x.real:
        if op == "POW":
            raise call.refuse("powers of integers are not computed")
        name = translation.emit(
            "truncated_div" if op == "DIV" else _ARITHMETIC[op],
            a,
            b,
            quantizer=EVERYTHING if op in ("MAXIMUM", "MINIMUM") else None,
        )
        name = name if op in ("MAXIMUM", "MINIMUM") else translation.result(name, x.data_type)
    else:
        name = translation.emit(_ARITHMETIC[op], a, b)
    return Made(translation.activated(call, name), planar)


@rule("SQUARED_DIFFERENCE")
def squared_difference(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """(x - y)^2."""
    x = call.operand(0)
    (a, b), planar = aligned(translation, call, x, call.operand(1))
    difference = translation.emit("sub", a, b)
    square = translation.emit("mul", difference, difference)
    return Made(square if x.real else translation.result(square, x.data_type), planar)


@rule("FLOOR_DIV", "FLOOR_MOD")
def floor_division(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The quotient rounded down, or its remainder; the divisor must be constant."""
    x, y = call.operand(0), call.operand(1)
    if x.real or y.values is None or (y.values == 0).any():
        raise call.refuse("only integers are divided and rounded down, by constants other than 0")
    (a, b), planar = aligned(translation, call, x, y)
    quotient = translation.emit("floor", translation.emit("div", a, b), quantizer=EVERYTHING)
    if call.operator.op == "FLOOR_MOD":
        product = translation.emit("mul", quotient, b, quantizer=EVERYTHING)
        quotient = translation.emit("sub", a, product, quantizer=EVERYTHING)
    return Made(quotient, planar)


_COMPARISONS = {
    "EQUAL": "eq",
    "NOT_EQUAL": "ne",
    "LESS": "lt",
    "LESS_EQUAL": "le",
    "GREATER": "gt",
    "GREATER_EQUAL": "ge",
    "LOGICAL_AND": "and",
    "LOGICAL_OR": "or",
}


@rule(*_COMPARISONS)
def comparison(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """Comparisons of two numbers, and LOGICAL_AND and LOGICAL_OR of two truth values."""
    x = call.operand(0)
    names, planar = aligned(translation, call, x, call.operand(1))
    if x.data_type == "bool" and not call.operator.op.startswith("LOGICAL"):
        raise call.refuse("truth values are not compared", "use LOGICAL_AND and LOGICAL_OR")
    return Made(translation.emit(_COMPARISONS[call.operator.op], *names), planar)


@rule("LOGICAL_NOT")
def logical_not(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The negated truth value."""
    name, planar = _unary(translation, call)
    return Made(translation.emit("not", name), planar)


@rule("SELECT", "SELECT_V2")
def select(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """One of two tensors by a truth value; SELECT may have one truth value per index of axis 0."""
    condition, x, y = (call.operand(i) for i in range(3))
    if call.operator.op == "SELECT" and condition.rank == 1 < x.rank:
        column = (condition.shape[0],) + (1,) * (x.rank - 1)
        spread = translation.reshape(translation.name(condition), column, dtype="logical")
        names, planar = [spread, *map(translation.name, (x, y))], False
    else:
        names, planar = aligned(translation, call, condition, x, y)
    kind: Literal["logical"] | None = "logical" if x.data_type == "bool" else None
    quantizer = EVERYTHING if not x.real and kind is None else None
    return Made(translation.emit("select", *names, quantizer=quantizer, dtype=kind), planar)


# One operand

_FUNCTIONS = {
    "RELU": "relu",
    "LOGISTIC": "sigmoid",
    "TANH": "tanh",
    "ELU": "elu",
    "EXP": "exp",
    "LOG": "log",
    "SIN": "sin",
    "COS": "cos",
    "SQRT": "sqrt",
    "RSQRT": "rsqrt",
    "CEIL": "ceil",
    "FLOOR": "floor",
    "SIGN": "sign",
    "ABS": "abs",
}


@rule(*_FUNCTIONS)
def function(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """A function of one real number."""
    if not call.operand().real:
        if call.operator.op != "ABS":
            raise call.refuse("of integers it is not computed", "cast them to floats and quantise these")
        name, planar = _unary(translation, call)
        return Made(translation.emit("max", name, translation.emit("neg", name), quantizer=EVERYTHING), planar)
    name, planar = _unary(translation, call)
    return Made(translation.emit(_FUNCTIONS[call.operator.op], name), planar)


@rule("NEG", "SQUARE")
def negated_or_squared(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """-x, or x^2."""
    name, planar = _unary(translation, call)
    found = translation.emit("neg", name) if call.operator.op == "NEG" else translation.emit("mul", name, name)
    return Made(found if call.operand().real else translation.result(found, call.operand().data_type), planar)


@rule("ROUND")
def round_(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """The nearest integer, ties to even."""
    name, planar = _unary(translation, call)
    return Made(translation.emit("copy", name, quantizer=EVERYTHING), planar)


@rule("RELU6", "RELU_N1_TO_1", "RELU_0_TO_1")
def clipped(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X clipped to [0, 6], [-1, 1] or [0, 1]."""
    name, planar = _unary(translation, call)
    lo, hi = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}[call.operator.op]
    return Made(translation.emit("clamp", name, Fraction(lo), Fraction(hi)), planar)


@rule("HARD_SWISH")
def hard_swish_(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X * clip(x + 3, 0, 6) / 6."""
    name, planar = _unary(translation, call)
    return Made(translation.emit("hard_swish", name), planar)


@rule("LEAKY_RELU")
def leaky_relu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X where it is not negative, else alpha * x."""
    name, planar = _unary(translation, call)
    return Made(translation.emit("leaky_relu", name, alpha=call.number("Alpha")), planar)


@rule("PRELU")
def prelu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X where it is not negative, else slope * x."""
    names, planar = aligned(translation, call, call.operand(0), call.operand(1))
    return Made(translation.emit("prelu", *names), planar)


@rule("GELU")
def gelu(translation: TfliteTranslation, call: TfliteCall) -> Made:
    """X times the normal distribution function of x, or its approximation by tanh."""
    name, planar = _unary(translation, call)
    return Made(translation.emit("gelu", name, approximate="tanh" if call.flag("Approximate") else "none"), planar)
