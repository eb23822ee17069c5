"""Functions of real numbers: tables over the codes of their operand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from cvm.frontends.onnx.call import Call, Made
from cvm.frontends.onnx.declarations import functions
from cvm.frontends.onnx.model import Shape
from cvm.frontends.onnx.rules.arithmetic import EVERYTHING
from cvm.frontends.onnx.rules.registry import rule
from cvm.frontends.onnx.translation import OnnxTranslation
from cvm.graph import Operand as Argument

__all__: list[str] = []


def _float32(numerator: int, exponent: int) -> Fraction:
    """A float32 number, by its integer mantissa and its exponent."""
    return Fraction(numerator) * Fraction(2) ** exponent


_DEFAULTS = {
    "LeakyRelu": _float32(10737418, -30), "Elu": Fraction(1), "Celu": Fraction(1), "ThresholdedRelu": Fraction(1),
}  # fmt: skip
"""Of alpha: the numbers of the schemas as float32, 0.01 for LeakyRelu."""
_SELU = {"alpha": _float32(14036349, -23), "gamma": _float32(8813919, -23)}
_HARD = {"alpha": _float32(13421773, -26), "beta": Fraction(1, 2)}


def _made(translation: OnnxTranslation, call: Call, op: str, **attributes: Any) -> Made:
    source = call.operand()
    name = translation.emit(op, {"x": translation.name(source)}, source.shape, **attributes)
    return Made(name, source.shape, source.data_type)


class _Arithmetic:
    """Sums, products and cuts of tensors of one shape."""

    def __init__(self, translation: OnnxTranslation, shape: Shape) -> None:
        self._translation, self._shape = translation, shape

    def __call__(self, op: str, x: Argument, y: Argument) -> str:
        return self._translation.emit(op, {"x": x, "y": y}, self._shape)

    def cut(self, x: str, lo: int, hi: int) -> str:
        """X within constant bounds."""
        return self._translation.clamped(x, lo, hi, self._shape, integer=False)


@rule(*functions())
def function(translation: OnnxTranslation, call: Call) -> Made:
    """By a table over the codes."""
    return _made(translation, call, functions()[call.node.op])


@rule("Round")
def round_(translation: OnnxTranslation, call: Call) -> Made:
    """Half to even: the integers of a quantiser of scale 1."""
    source = call.operand()
    name = translation.emit("copy", {"x": translation.name(source)}, source.shape, quantizer=EVERYTHING)
    return Made(name, source.shape, source.data_type)


@rule("Elu", "LeakyRelu")
def with_alpha(translation: OnnxTranslation, call: Call) -> Made:
    """By a table over the codes."""
    alpha = call.number("alpha", _DEFAULTS[call.node.op])
    return _made(translation, call, {"Elu": "elu", "LeakyRelu": "leaky_relu"}[call.node.op], alpha=alpha)


@rule("Gelu")
def gelu(translation: OnnxTranslation, call: Call) -> Made:
    """By a table over the codes: x times the normal distribution of x, or its approximation by tanh."""
    return _made(translation, call, "gelu", approximate=call.text("approximate", "none", "none", "tanh"))


@rule("Celu")
def celu(translation: OnnxTranslation, call: Call) -> Made:
    """max(x, 0) + min(0, alpha * (e^(x / alpha) - 1)) is alpha times elu of x / alpha."""
    alpha, source = call.number("alpha", _DEFAULTS["Celu"]), call.operand()
    if alpha == 0:
        raise call.invalid("attribute", "alpha is 0")
    if alpha < 0:
        raise call.refuse("a negative alpha")
    of = _Arithmetic(translation, source.shape)
    part = of("div", translation.name(source), alpha)
    part = translation.emit("elu", {"x": part}, source.shape, alpha=Fraction(1))
    return Made(of("mul", part, alpha), source.shape, source.data_type)


@rule("Selu")
def selu(translation: OnnxTranslation, call: Call) -> Made:
    """Gamma times elu with alpha."""
    alpha, gamma = (call.number(name, default) for name, default in _SELU.items())
    made = _made(translation, call, "elu", alpha=alpha)
    return Made(_Arithmetic(translation, made.shape)("mul", made.name, gamma), made.shape, made.data_type)


@rule("ThresholdedRelu", "Shrink")
def thresholds(translation: OnnxTranslation, call: Call) -> Made:
    """X where it is beyond a threshold, moved by a bias for Shrink, else 0."""
    source = call.operand()
    x, shape = translation.name(source), source.shape
    of = _Arithmetic(translation, shape)
    if call.node.op == "ThresholdedRelu":
        alpha = call.number("alpha", _DEFAULTS["ThresholdedRelu"])
        beyond = translation.emit("gt", {"x": x, "y": alpha}, shape, dtype="logical")
        return Made(of("mul", beyond, x), shape, source.data_type)
    bias, lambd = call.number("bias", Fraction(0)), call.number("lambd", Fraction(1, 2))
    above = translation.emit("gt", {"x": x, "y": lambd}, shape, dtype="logical")
    below = translation.emit("lt", {"x": x, "y": -lambd}, shape, dtype="logical")
    parts = [of("mul", above, of("sub", x, bias)), of("mul", below, of("add", x, bias))]
    if lambd < 0:  # both may hold: the first that does is taken
        raise call.refuse("a negative lambd")
    return Made(of("add", *parts), shape, source.data_type)


@rule("HardSigmoid", "HardSwish")
def hard(translation: OnnxTranslation, call: Call) -> Made:
    """Alpha * x + beta cut to [0, 1]; HardSwish is x times that with 1/6 and 1/2."""
    source = call.operand()
    x, shape = translation.name(source), source.shape
    of = _Arithmetic(translation, shape)
    if call.node.op == "HardSigmoid":
        alpha, beta = (call.number(name, default) for name, default in _HARD.items())
        return Made(of.cut(of("add", of("mul", x, alpha), beta), 0, 1), shape, source.data_type)
    part = of("mul", of.cut(of("add", x, Fraction(3)), 0, 6), Fraction(1, 6))
    return Made(of("mul", x, part), shape, source.data_type)


@rule("Softsign", "Mish", "Swish")
def composed(translation: OnnxTranslation, call: Call) -> Made:
    """X / (1 + |x|), x * tanh(softplus(x)), or x * sigmoid(alpha * x)."""
    source = call.operand()
    x, shape = translation.name(source), source.shape
    of = _Arithmetic(translation, shape)

    def applied(op: str, argument: str) -> str:
        return translation.emit(op, {"x": argument}, shape)

    if call.node.op == "Softsign":
        name = of("div", x, of("add", applied("abs", x), Fraction(1)))
    elif call.node.op == "Mish":
        name = of("mul", x, applied("tanh", applied("softplus", x)))
    else:
        name = of("mul", x, applied("sigmoid", of("mul", x, call.number("alpha", Fraction(1)))))
    return Made(name, shape, source.data_type)
