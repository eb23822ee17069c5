"""Element-wise operators: on integers as the machine has them, on real numbers as exact arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from cvm.frontends.webnn.operand import WebnnNode, bounds, is_float
from cvm.frontends.webnn.rules.registry import rule
from cvm.frontends.webnn.translation import WebnnTranslation, refusal, unit
from cvm.graph import Operand
from cvm.limits import INT32_MAX

__all__: list[str] = []

_EVERYTHING = unit(-INT32_MAX, INT32_MAX)
_UNBOUNDED = Fraction(2) ** 200
"""Beyond every number that 32-bit integers times float scales give."""


def _real(node: WebnnNode) -> bool:
    return is_float(node.outputs[0].data_type)


def _pair(translation: WebnnTranslation, node: WebnnNode) -> dict[str, str]:
    rank = node.outputs[0].rank
    first, second = node.operands.values()
    return {"x": translation.aligned(first, rank), "y": translation.aligned(second, rank)}


@rule("add", "sub", "mul")
def arithmetic(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Exact; integers are wrapped."""
    name = translation.emit(node.op, _pair(translation, node), node.outputs[0].shape)
    return name if _real(node) else translation.integers(name, node)


@rule("div")
def div(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Exact; integers truncated toward zero."""
    pair, shape = _pair(translation, node), node.outputs[0].shape
    if _real(node):
        return translation.emit("div", pair, shape)
    return translation.integers(translation.emit("truncated_div", pair, shape), node)


@rule("max", "min")
def extremum(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The greater or lesser."""
    quantizer = None if _real(node) else _EVERYTHING
    return translation.emit(node.op, _pair(translation, node), node.outputs[0].shape, quantizer=quantizer)


@rule("pow")
def pow_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """By a table of both operands; with one small constant exponent a product."""
    pair, shape = _pair(translation, node), node.outputs[0].shape
    if _real(node):
        return translation.emit("pow", pair, shape)
    exponent = _constant_exponent(node)
    if exponent is not None:
        name = pair["x"]
        for _ in range(exponent - 1):
            name = translation.emit("mul", {"x": name, "y": pair["x"]}, shape)
            name = translation.integers(name, node)
        return name
    lo, hi = bounds(node.outputs[0].data_type)
    power = translation.emit("integer_pow", pair, shape, lo=lo, hi=hi)
    return translation.integers(power, node)


def _constant_exponent(node: WebnnNode) -> int | None:
    """The exponent, if it is one constant from 1 to 8 and the base has the shape of the result."""
    values = node.operands["b"].values
    if values is None or not (values == values.flat[0]).all() or node.operands["a"].shape != node.outputs[0].shape:
        return None
    return int(values.flat[0]) if 1 <= values.flat[0] <= 8 else None


_COMPARISONS = {
    "equal": "eq", "notEqual": "ne", "greater": "gt", "greaterOrEqual": "ge", "lesser": "lt", "lesserOrEqual": "le",
}  # fmt: skip


@rule(*_COMPARISONS)
def comparison(translation: WebnnTranslation, node: WebnnNode) -> str:
    """0 or 1."""
    return _truth(translation, _COMPARISONS[node.op], _pair(translation, node), node)


def _truth(translation: WebnnTranslation, op: str, inputs: Mapping[str, Operand], node: WebnnNode) -> str:
    return translation.emit(op, inputs, node.outputs[0].shape, dtype="logical")


def _nonzero(translation: WebnnTranslation, name: str, shape: tuple[int, ...]) -> str:
    return translation.emit("ne", {"x": name, "y": Fraction(0)}, shape, dtype="logical")


@rule("logicalAnd", "logicalOr", "logicalXor")
def logic(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Of whether the operands are not 0."""
    rank = max(node.outputs[0].rank, 1)
    pair = {}
    for key, operand in zip("xy", node.operands.values(), strict=True):
        shape = (1,) * (rank - operand.rank) + operand.shape
        pair[key] = _nonzero(translation, translation.aligned(operand, rank), shape)
    return _truth(translation, {"logicalAnd": "and", "logicalOr": "or", "logicalXor": "ne"}[node.op], pair, node)


@rule("logicalNot")
def logical_not(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Whether the operand is 0."""
    return _truth(translation, "eq", {"x": translation.name(node.operands["a"]), "y": Fraction(0)}, node)


@rule("where")
def where(translation: WebnnTranslation, node: WebnnNode) -> str:
    """A choice."""
    output = node.outputs[0]
    rank = max(output.rank, 1)
    condition = node.operands["condition"]
    inputs = {
        "condition": _nonzero(
            translation, translation.aligned(condition, rank), (1,) * (rank - condition.rank) + condition.shape
        ),
        "true_value": translation.aligned(node.operands["trueValue"], rank),
        "false_value": translation.aligned(node.operands["falseValue"], rank),
    }
    return translation.emit("select", inputs, output.shape, quantizer=None if _real(node) else _EVERYTHING)


@rule("identity")
def identity(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The same tensor."""
    return translation.name(node.operands["input"])


@rule("neg")
def neg(translation: WebnnTranslation, node: WebnnNode) -> str:
    """-x."""
    name = translation.emit("neg", {"x": translation.name(node.operands["input"])}, node.outputs[0].shape)
    return name if _real(node) else translation.integers(name, node)


@rule("abs")
def abs_(translation: WebnnTranslation, node: WebnnNode) -> str:
    """|x|, of integers max(x, -x)."""
    source, shape = translation.name(node.operands["input"]), node.outputs[0].shape
    if _real(node):
        return translation.emit("abs", {"x": source}, shape)
    negative = translation.emit("neg", {"x": source}, shape)
    name = translation.emit("max", {"x": source, "y": negative}, shape, quantizer=_EVERYTHING)
    return translation.integers(name, node)


@rule("sign")
def sign(translation: WebnnTranslation, node: WebnnNode) -> str:
    """-1, 0 or 1."""
    source, shape = translation.name(node.operands["input"]), node.outputs[0].shape
    if _real(node):
        return translation.emit("sign", {"x": source}, shape)
    limits: dict[str, Operand] = {"x": source, "a": Fraction(-1), "b": Fraction(1)}
    return translation.emit("clamp", limits, shape, quantizer=unit(-1, 1))


@rule("relu")
def relu(translation: WebnnTranslation, node: WebnnNode) -> str:
    """max(x, 0)."""
    source, quantizer = translation.name(node.operands["input"]), None if _real(node) else _EVERYTHING
    return translation.emit("relu", {"x": source}, node.outputs[0].shape, quantizer=quantizer)


@rule("clamp")
def clamp(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Cut to constant bounds."""
    lo, hi = node.attributes["min_value"], node.attributes["max_value"]
    source = translation.name(node.operands["input"])
    a, b = (_bound(value, default) for value, default in ((lo, -_UNBOUNDED), (hi, _UNBOUNDED)))
    if _real(node):
        return translation.emit("clamp", {"x": source, "a": a, "b": b}, node.outputs[0].shape)
    if a > INT32_MAX or b < -INT32_MAX:
        raise refusal(node.outputs[0], "a bound is beyond +-(2^31 - 1), and all integers are", "choose another bound")
    name = translation.emit("clamp", {"x": source, "a": a, "b": b}, node.outputs[0].shape, quantizer=_EVERYTHING)
    return translation.integers(name, node)


def _bound(value: float | None, default: Fraction) -> Fraction:
    if value is None or value in (float("inf"), float("-inf")):
        return default if value is None or value * default > 0 else -default
    return Fraction(value)


@rule("prelu")
def prelu(translation: WebnnTranslation, node: WebnnNode) -> str:
    """X where it is not negative, else slope * x: max(x, 0) + slope * min(x, 0) for integers."""
    pair, output = _pair(translation, node), node.outputs[0]
    if _real(node):
        return translation.emit("prelu", {"x": pair["x"], "alpha": pair["y"]}, output.shape)
    shape = (1,) * (output.rank - node.operands["input"].rank) + node.operands["input"].shape
    above = translation.emit("relu", {"x": pair["x"]}, shape, quantizer=_EVERYTHING)
    below = translation.emit("min", {"x": pair["x"], "y": Fraction(0)}, shape, quantizer=_EVERYTHING)
    product = translation.emit("mul", {"x": below, "y": pair["y"]}, output.shape)
    return translation.integers(translation.emit("add", {"x": above, "y": product}, output.shape), node)


# Functions of real numbers

_FUNCTIONS = {
    "ceil": "ceil", "cos": "cos", "erf": "erf", "exp": "exp", "floor": "floor", "log": "log", "reciprocal": "rcp",
    "sigmoid": "sigmoid", "sin": "sin", "softplus": "softplus", "softsign": "softsign", "sqrt": "sqrt", "tan": "tan",
    "tanh": "tanh",
}  # fmt: skip


@rule(*_FUNCTIONS)
def function(translation: WebnnTranslation, node: WebnnNode) -> str:
    """By a table over the codes."""
    source = translation.name(node.operands["input"])
    return translation.emit(_FUNCTIONS[node.op], {"x": source}, node.outputs[0].shape)


@rule("elu", "leakyRelu")
def with_alpha(translation: WebnnTranslation, node: WebnnNode) -> str:
    """By a table over the codes."""
    op = {"elu": "elu", "leakyRelu": "leaky_relu"}[node.op]
    source = translation.name(node.operands["input"])
    return translation.emit(op, {"x": source}, node.outputs[0].shape, alpha=node.attributes["alpha"])


@rule("gelu")
def gelu(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The function of the error function, by a table over the codes."""
    source = translation.name(node.operands["input"])
    return translation.emit("gelu", {"x": source}, node.outputs[0].shape, approximate="none")


@rule("roundEven")
def round_even(translation: WebnnTranslation, node: WebnnNode) -> str:
    """The integers of a quantiser of scale 1, which rounds half to even."""
    source = translation.name(node.operands["input"])
    return translation.emit("copy", {"x": source}, node.outputs[0].shape, quantizer=_EVERYTHING)


@rule("linear", "hardSigmoid")
def linear(translation: WebnnTranslation, node: WebnnNode) -> str:
    """Alpha * x + beta; for hardSigmoid cut to [0, 1]."""
    source, shape = translation.name(node.operands["input"]), node.outputs[0].shape
    scaled = translation.emit("mul", {"x": source, "y": node.attributes["alpha"]}, shape)
    moved = translation.emit("add", {"x": scaled, "y": node.attributes["beta"]}, shape)
    if node.op == "linear":
        return moved
    return translation.emit("clamp", {"x": moved, "a": Fraction(0), "b": Fraction(1)}, shape)


@rule("hardSwish")
def hard_swish(translation: WebnnTranslation, node: WebnnNode) -> str:
    """X * clamp(x + 3, 0, 6) / 6."""
    source, shape = translation.name(node.operands["input"]), node.outputs[0].shape
    moved = translation.emit("add", {"x": source, "y": Fraction(3)}, shape)
    cut = translation.emit("clamp", {"x": moved, "a": Fraction(0), "b": Fraction(6)}, shape)
    part = translation.emit("mul", {"x": cut, "y": Fraction(1, 6)}, shape)
    return translation.emit("mul", {"x": source, "y": part}, shape)
