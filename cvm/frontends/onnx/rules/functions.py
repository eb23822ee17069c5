"""Functions of real numbers, lowered to tables over the codes of their operand."""

from __future__ import annotations

from fractions import Fraction

from cvm.frontends.common.data_types import EVERYTHING
from cvm.frontends.common.decompositions.arithmetic import hard_sigmoid
from cvm.frontends.onnx.call import Made, OnnxCall
from cvm.frontends.onnx.declarations import functions
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation

__all__: list[str] = []


def _float32(numerator: int, exponent: int) -> Fraction:
    """The float32 number numerator * 2^exponent."""
    return Fraction(numerator) * Fraction(2) ** exponent


_DEFAULTS = {
    "LeakyRelu": _float32(10737418, -30), "Elu": Fraction(1), "Celu": Fraction(1), "ThresholdedRelu": Fraction(1),
}  # fmt: skip
"""The default values of alpha in the schemas, as exact float32 numbers (0.01 for LeakyRelu)."""
_SELU = {"alpha": _float32(14036349, -23), "gamma": _float32(8813919, -23)}
_HARD = {"alpha": _float32(13421773, -26), "beta": Fraction(1, 2)}


def _like(call: OnnxCall, name: str) -> Made:
    """A result with the shape and the data type of the operand."""
    source = call.operand()
    return Made(name, source.shape, source.data_type)


def _operand(translation: OnnxTranslation, call: OnnxCall) -> str:
    return translation.name(call.operand())


@rule(*functions())
def function(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """A function of one number without attributes."""
    return _like(call, translation.emit(functions()[call.node.op], _operand(translation, call)))


@rule("Round")
def round_(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Round: half to even, by a quantiser of scale 1."""
    return _like(call, translation.emit("copy", _operand(translation, call), quantizer=EVERYTHING))


@rule("Elu", "LeakyRelu")
def with_alpha(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Elu and LeakyRelu, with alpha."""
    alpha = call.number("alpha", _DEFAULTS[call.node.op])
    op = {"Elu": "elu", "LeakyRelu": "leaky_relu"}[call.node.op]
    return _like(call, translation.emit(op, _operand(translation, call), alpha=alpha))


@rule("Gelu")
def gelu(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Gelu: x times the normal distribution function of x, or its approximation by tanh."""
    approximate = call.text("approximate", "none", "none", "tanh")
    return _like(call, translation.emit("gelu", _operand(translation, call), approximate=approximate))


@rule("Celu")
def celu(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Celu: max(x, 0) + min(0, alpha * (e^(x / alpha) - 1)), which is alpha times elu of x / alpha."""
    alpha = call.number("alpha", _DEFAULTS["Celu"])
    if alpha == 0:
        raise call.invalid("attribute", "alpha must not be 0, since x is divided by it")
    if alpha < 0:
        raise call.refuse("a negative alpha is not computed", "use an alpha above 0")
    part = translation.emit("div", _operand(translation, call), alpha)
    return _like(call, translation.emit("mul", translation.emit("elu", part, alpha=Fraction(1)), alpha))


@rule("Selu")
def selu(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Selu: gamma times elu with alpha."""
    alpha, gamma = (call.number(name, default) for name, default in _SELU.items())
    part = translation.emit("elu", _operand(translation, call), alpha=alpha)
    return _like(call, translation.emit("mul", part, gamma))


@rule("ThresholdedRelu", "Shrink")
def thresholds(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """ThresholdedRelu and Shrink: x where it is beyond a threshold (Shrink shifts it by a bias), else 0."""
    x, emit = _operand(translation, call), translation.emit
    if call.node.op == "ThresholdedRelu":
        beyond = emit("gt", x, call.number("alpha", _DEFAULTS["ThresholdedRelu"]))
        return _like(call, emit("mul", beyond, x))
    bias, lambd = call.number("bias", Fraction(0)), call.number("lambd", Fraction(1, 2))
    above, below = emit("gt", x, lambd), emit("lt", x, -lambd)
    parts = [emit("mul", above, emit("sub", x, bias)), emit("mul", below, emit("add", x, bias))]
    if lambd < 0:  # with a negative lambd both conditions may hold; the specification takes the first
        raise call.refuse("a negative lambd is not computed", "use a lambd of at least 0")
    return _like(call, emit("add", *parts))


@rule("HardSigmoid", "HardSwish")
def hard(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """HardSigmoid: alpha * x + beta clipped to [0, 1]. HardSwish: x times HardSigmoid with alpha 1/6 and beta 1/2."""
    x = _operand(translation, call)
    if call.node.op == "HardSwish":
        return _like(call, translation.emit("hard_swish", x))
    alpha, beta = (call.number(name, default) for name, default in _HARD.items())
    return _like(call, hard_sigmoid(translation, x, alpha, beta))


@rule("Softsign", "Mish", "Swish")
def composed(translation: OnnxTranslation, call: OnnxCall) -> Made:
    """Softsign, Mish and Swish: x / (1 + |x|), x * tanh(softplus(x)), x * sigmoid(alpha * x)."""
    x, emit = _operand(translation, call), translation.emit
    if call.node.op == "Softsign":
        name = emit("div", x, emit("add", emit("abs", x), Fraction(1)))
    elif call.node.op == "Mish":
        name = emit("mul", x, emit("tanh", emit("softplus", x)))
    else:
        name = emit("mul", x, emit("sigmoid", emit("mul", x, call.number("alpha", Fraction(1)))))
    return _like(call, name)
