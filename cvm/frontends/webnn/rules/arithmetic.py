"""Element-wise operators: integers with the wrap-around of their data type, real numbers exactly."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from cvm.frontends.common.data_types import EVERYTHING, UNBOUNDED, is_float
from cvm.frontends.common.decompositions.arithmetic import (
    absolute,
    hard_sigmoid,
    power,
    prelu,
    quotient,
    rectified,
    sign,
    signed_power,
    small_exponent,
)
from cvm.frontends.webnn.operand import WebnnNode
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal
from cvm.limits import INT32_MAX

__all__: list[str] = []


def _type(node: WebnnNode) -> str:
    return node.outputs[0].data_type


def _real(node: WebnnNode) -> bool:
    return is_float(_type(node))


def _source(translation: WebnnTranslation, node: WebnnNode) -> str:
    return translation.name(node.operands["input"])


def _aligned(translation: WebnnTranslation, node: WebnnNode) -> list[str]:
    """The operands reshaped to the rank of the result, with leading extents of 1."""
    return [translation.aligned_operand(operand, node.outputs[0].rank) for operand in node.operands.values()]


@rule("add", "sub", "mul")
def arithmetic(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Add, subtract or multiply. The result is exact; integers are wrapped to their data type."""
    return translation.result(translation.emit(node.op, *_aligned(translation, node)), _type(node))


@rule("max", "min")
def extremum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The greater, or the lesser, of two elements."""
    quantizer = None if _real(node) else EVERYTHING
    return translation.emit(node.op, *_aligned(translation, node), quantizer=quantizer)


@rule("pow")
def pow_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """a^b, by a table over both operands; a small constant integer exponent gives a product."""
    (x, y), (base, exponent) = _aligned(translation, node), node.operands.values()
    times = None
    if (not _real(node) or translation.calibrated) and base.shape == node.outputs[0].shape:
        times = small_exponent(exponent.values)
    if translation.calibrated and _real(node) and times is None and exponent.values is None:
        return signed_power(translation, x, y)
    return power(translation, x, y, _type(node), times)


_COMPARISONS = {
    "equal": "eq", "notEqual": "ne", "greater": "gt", "greaterOrEqual": "ge", "lesser": "lt", "lesserOrEqual": "le",
}  # fmt: skip


@rule(*_COMPARISONS)
def comparison(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Compare two operands: 1 where the relation holds, else 0."""
    return translation.emit(_COMPARISONS[node.op], *_aligned(translation, node))


@rule("logicalAnd", "logicalOr", "logicalXor")
def logic(translation: WebnnTranslation, node: WebnnNode) -> str:
    """And, or, exclusive or of two truth values. An element is true where it is not 0."""
    rank = node.outputs[0].rank
    parts = [translation.nonzero(translation.aligned_operand(operand, rank)) for operand in node.operands.values()]
    return translation.emit({"logicalAnd": "and", "logicalOr": "or", "logicalXor": "ne"}[node.op], *parts)


@rule("logicalNot")
def logical_not(translation: WebnnTranslation, node: WebnnNode) -> str:
    """1 where the operand is 0, else 0."""
    return translation.emit("eq", translation.name(node.operands["a"]), Fraction(0))


@rule("where")
def where(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The first value where the condition is not 0, else the second."""
    rank = node.outputs[0].rank
    condition = translation.nonzero(translation.aligned_operand(node.operands["condition"], rank))
    yes, no = (translation.aligned_operand(node.operands[name], rank) for name in ("trueValue", "falseValue"))
    return translation.selected(condition, yes, no, integer=not _real(node))


@rule("identity")
def identity(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The same tensor."""
    return _source(translation, node)


@rule("neg")
def neg(translation: WebnnTranslation, node: WebnnNode) -> str:
    """-x."""
    return translation.result(translation.emit("neg", _source(translation, node)), _type(node))


_BY_DATA_TYPE: dict[str, Callable[..., str]] = {
    "abs": absolute, "sign": sign, "relu": rectified, "div": quotient, "prelu": prelu,
}  # fmt: skip


@rule(*_BY_DATA_TYPE)
def by_data_type(translation: WebnnTranslation, node: WebnnNode) -> str:
    """|x|, the sign of x, max(x, 0), x / y (truncated toward zero for integers), or slope * x for x < 0."""
    return _BY_DATA_TYPE[node.op](translation, *_aligned(translation, node), _type(node))


@rule("clamp")
def clamp(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The operand clipped to constant bounds."""
    x = _source(translation, node)
    a = _bound(node.attributes["min_value"], -UNBOUNDED)
    b = _bound(node.attributes["max_value"], UNBOUNDED)
    if _real(node):
        return translation.emit("clamp", x, a, b)
    if a > INT32_MAX or b < -INT32_MAX:
        message = "the bounds exclude all integers of the machine, which are at most 2^31 - 1 in magnitude"
        raise refusal(node.outputs[0], message, "choose bounds within +-(2^31 - 1)")
    return translation.result(translation.emit("clamp", x, a, b, quantizer=EVERYTHING), _type(node))


def _bound(value: float | None, default: Fraction) -> Fraction:
    if value is None or value in (float("inf"), float("-inf")):
        return default if value is None or value * default > 0 else -default
    return Fraction(value)


# Functions of real numbers

_FUNCTIONS = {
    "ceil": "ceil", "cos": "cos", "erf": "erf", "exp": "exp", "floor": "floor", "hardSwish": "hard_swish", "log": "log",
    "reciprocal": "rcp", "sigmoid": "sigmoid", "sin": "sin", "softplus": "softplus", "softsign": "softsign",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip


@rule(*_FUNCTIONS)
def function(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A function without attributes; lowering makes a table over the codes of its operand."""
    return translation.emit(_FUNCTIONS[node.op], _source(translation, node))


@rule("elu", "leakyRelu")
def with_alpha(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A function with the attribute alpha; lowering makes a table over the codes of its operand."""
    op = {"elu": "elu", "leakyRelu": "leaky_relu"}[node.op]
    return translation.emit(op, _source(translation, node), alpha=node.attributes["alpha"])


@rule("gelu")
def gelu(translation: WebnnTranslation, node: WebnnNode) -> str:
    """gelu, defined by the error function; lowering makes a table over the codes of its operand."""
    return translation.emit("gelu", _source(translation, node), approximate="none")


@rule("roundEven")
def round_even(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Round half to even: the result gets a quantiser of scale 1."""
    return translation.emit("copy", _source(translation, node), quantizer=EVERYTHING)


@rule("linear")
def linear(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Alpha * x + beta."""
    scaled = translation.emit("mul", _source(translation, node), node.attributes["alpha"])
    return translation.emit("add", scaled, node.attributes["beta"])


@rule("hardSigmoid")
def hard_sigmoid_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Alpha * x + beta, clipped to [0, 1]."""
    return hard_sigmoid(translation, _source(translation, node), node.attributes["alpha"], node.attributes["beta"])
