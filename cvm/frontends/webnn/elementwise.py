"""Element-wise operators of the builder (WebNN 8.9.7, 8.9.8, 8.9.13 to 8.9.19, activations, 8.9.56)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cvm.frontends.common.data_types import bounds, is_float
from cvm.frontends.webnn.arguments import documented, snake_case
from cvm.frontends.webnn.operand import MLOperand, data_type_of
from cvm.frontends.webnn.recorder import RecordedCall, Recorder

__all__ = ["Elementwise", "cast_number"]


def cast_number(value: Any, data_type: str) -> int | float:
    """An MLNumber in a data type: NaN becomes 0; integers are rounded half to even and clipped to the type."""
    if is_float(data_type):
        with np.errstate(over="ignore"):
            nearest: float = np.array(value, data_type).item()
            return nearest
    lo, hi = bounds(data_type)
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return hi if value > 0 else lo
    whole: int = round(value)
    return min(max(whole, lo), hi)


def _of_one(op: str, text: str) -> Callable[..., MLOperand]:
    """The method of an operator with one operand and no attributes."""

    def method(self: Elementwise, input: MLOperand, *, label: str = "") -> MLOperand:
        return self._unary(op, input, label)

    return documented(method, "Elementwise", op, text)


def _truth_of_one(op: str, text: str) -> Callable[..., MLOperand]:
    """The method of an operator that tells something about each element, as uint8."""

    def method(self: Elementwise, a: MLOperand, *, label: str = "") -> MLOperand:
        call = RecordedCall(self, op, label, {"a": a})
        return call.result("uint8", call.operands["a"].shape)

    return documented(method, "Elementwise", op, text)


def _of_two(op: str, text: str, result: str | None = None) -> Callable[..., MLOperand]:
    """The method of an operator with two operands that broadcast; ``result`` is its data type if not theirs."""

    def method(self: Elementwise, a: MLOperand, b: MLOperand, *, label: str = "") -> MLOperand:
        call = RecordedCall(self, op, label, {"a": a, "b": b})
        call.same_type("a", "b")
        return call.result(result or call.operands["a"].data_type, call.broadcast("a", "b"))

    return documented(method, "Elementwise", op, text)


class Elementwise(Recorder):
    """Operators whose results depend element by element on their operands. Every method takes ``label``."""

    def _unary(self, op: str, input: Any, label: str, **attributes: Any) -> MLOperand:
        call = RecordedCall(self, op, label, {"input": input})
        operand = call.operands["input"]
        numbers = {name: call.number(name, value) for name, value in attributes.items()}
        return call.result(operand.data_type, operand.shape, **numbers)

    # Arithmetic (8.9.13)

    add = _of_two("add", "The sum a + b.")
    sub = _of_two("sub", "The difference a - b.")
    mul = _of_two("mul", "The product a * b.")
    div = _of_two("div", "The quotient a / b; for integers truncated toward zero.")
    max = _of_two("max", "The greater of a and b.")
    min = _of_two("min", "The lesser of a and b.")
    pow = _of_two("pow", "The power of a with the exponent b.")

    # Comparison and logic (8.9.14)

    equal = _of_two("equal", "Whether a = b, as uint8.", "uint8")
    not_equal = _of_two("notEqual", "Whether a differs from b, as uint8.", "uint8")
    greater = _of_two("greater", "Whether a > b, as uint8.", "uint8")
    greater_or_equal = _of_two("greaterOrEqual", "Whether a >= b, as uint8.", "uint8")
    lesser = _of_two("lesser", "Whether a < b, as uint8.", "uint8")
    lesser_or_equal = _of_two("lesserOrEqual", "Whether a <= b, as uint8.", "uint8")
    logical_and = _of_two("logicalAnd", "Whether both a and b differ from 0.")
    logical_or = _of_two("logicalOr", "Whether a or b differs from 0.")
    logical_xor = _of_two("logicalXor", "Whether exactly one of a and b differs from 0.")
    logical_not = _truth_of_one("logicalNot", "Whether a is 0.")
    is_nan = _truth_of_one("isNaN", "Whether a is NaN, as uint8.")
    is_infinite = _truth_of_one("isInfinite", "Whether a is infinite, as uint8.")

    # Operators with attributes

    def cast(self, input: MLOperand, data_type: str, *, label: str = "") -> MLOperand:
        """The input converted to another data type; from integer to integer the low bits are kept."""
        call = RecordedCall(self, "cast", label, {"input": input})
        return call.result(data_type_of(data_type, "cast", label), call.operands["input"].shape)

    def clamp(self, input: MLOperand, *, min_value: Any = None, max_value: Any = None, label: str = "") -> MLOperand:
        """The input clipped to [min_value, max_value]; None means no bound, and so does NaN for real numbers."""
        call = RecordedCall(self, "clamp", label, {"input": input})
        operand = call.operands["input"]
        limits = []
        for name, value in (("minValue", min_value), ("maxValue", max_value)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | np.number)):
                raise call.error(name, f"{name} must be a number, found {value!r}")
            limit = None if value is None else cast_number(value, operand.data_type)
            limits.append(None if isinstance(limit, float) and math.isnan(limit) else limit)
        low, high = limits
        if min_value is not None and min_value == -math.inf:
            raise call.error("minValue", "minValue is -Infinity: leave it out for no bound")
        if low is not None and high is not None and low > high:
            raise call.error("minValue", f"minValue {low} is above maxValue {high}")
        return call.result(operand.data_type, operand.shape, min_value=low, max_value=high)

    def prelu(self, input: MLOperand, slope: MLOperand, *, label: str = "") -> MLOperand:
        """Input where it is not negative, else slope * input."""
        call = RecordedCall(self, "prelu", label, {"input": input, "slope": slope})
        call.same_type("input", "slope")
        return call.result(call.operands["input"].data_type, call.broadcast("input", "slope"))

    def where(
        self, condition: MLOperand, true_value: MLOperand, false_value: MLOperand, *, label: str = ""
    ) -> MLOperand:
        """true_value where the condition is not 0, else false_value."""
        operands = {"condition": condition, "trueValue": true_value, "falseValue": false_value}
        call = RecordedCall(self, "where", label, operands)
        call.same_type("trueValue", "falseValue")
        shape = call.broadcast("condition", "trueValue", "falseValue")
        return call.result(call.operands["trueValue"].data_type, shape)

    where_ = where

    def linear(self, input: MLOperand, *, alpha: Any = 1, beta: Any = 0, label: str = "") -> MLOperand:
        """Alpha * x + beta."""
        return self._unary("linear", input, label, alpha=alpha, beta=beta)

    def elu(self, input: MLOperand, *, alpha: Any = 1, label: str = "") -> MLOperand:
        """X where positive, else alpha * (e^x - 1)."""
        return self._unary("elu", input, label, alpha=alpha)

    def leaky_relu(self, input: MLOperand, *, alpha: Any = 0.01, label: str = "") -> MLOperand:
        """X where positive, else alpha * x."""
        return self._unary("leakyRelu", input, label, alpha=alpha)

    def hard_sigmoid(self, input: MLOperand, *, alpha: Any = 0.2, beta: Any = 0.5, label: str = "") -> MLOperand:
        """max(0, min(1, alpha * x + beta))."""
        return self._unary("hardSigmoid", input, label, alpha=alpha, beta=beta)


_OF_ONE = {
    "abs": "|x|.", "neg": "-x.", "sign": "-1, 0 or 1.", "identity": "X itself.", "relu": "max(x, 0).",
    "ceil": "The least integer not below x.", "cos": "The cosine.", "exp": "e^x.", "erf": "The error function.",
    "floor": "The greatest integer not above x.", "log": "The natural logarithm.", "reciprocal": "1 / x.",
    "roundEven": "The nearest integer, ties to the even one.", "sin": "The sine.", "sqrt": "The square root.",
    "tan": "The tangent.", "gelu": "X * (1 + erf(x / sqrt(2))) / 2.", "hardSwish": "X * max(0, min(6, x + 3)) / 6.",
    "sigmoid": "1 / (1 + e^-x).", "softplus": "ln(1 + e^x).", "softsign": "X / (1 + |x|).",
    "tanh": "The hyperbolic tangent.",
}  # fmt: skip
"""The operators that have one operand and no attributes."""
for _op, _text in _OF_ONE.items():
    setattr(Elementwise, snake_case(_op), _of_one(_op, _text))
