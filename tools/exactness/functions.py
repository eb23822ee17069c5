"""Operations on corresponding elements: functions of one, two or three numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracle import real
from tests.oracle.activations import logistic
from tests.oracle.operations import OPERATIONS as ORACLE
from tests.oracle.real import Number, Real, floor_of, power, sign
from tests.oracle.tensors import from_numbers

__all__ = ["FUNCTIONS", "clamp", "greatest", "least"]

_HALF = Fraction(1, 2)


def _of_oracle(name: str) -> Callable[..., Number]:
    """The function of the oracle, applied to single items."""
    function = ORACLE[name]

    def apply(*numbers: Number) -> Number:
        items = [np.empty(1, dtype=object) for _ in numbers]
        for array, number in zip(items, numbers, strict=True):
            array[0] = number
        found: Number = function(*map(from_numbers, items)).numbers()[0]
        return found

    return apply


def greatest(x: Number, y: Number) -> Number:
    """The greater of two numbers."""
    return x if sign(x - y) > 0 else y


def least(x: Number, y: Number) -> Number:
    """The lesser of two numbers."""
    return x if sign(x - y) < 0 else y


def clamp(x: Number, a: Number, b: Number) -> Number:
    """max(min(x, b), a)."""
    return greatest(least(x, b), a)


def _truncated(x: Number) -> Number:
    return Fraction(sign(x) * floor_of(abs(x))[0])


def _truncated_div(x: Number, y: Number) -> Number:
    return _truncated(x * real.reciprocal(y)) if sign(y) else Fraction(0)


def _flag(holds: bool) -> Fraction:
    return Fraction(int(holds))


def _erf_share(x: Number) -> Number:
    """(1 + erf(x / sqrt 2)) / 2, the share of a normal distribution below x."""
    return (real.erf(x * power(Fraction(2), -_HALF)) + 1) * _HALF


def gelu(x: Number, approximate: str) -> Number:
    """GELU by its definition, or by one of its two approximations."""
    if approximate == "none":
        return x * _erf_share(x)
    if approximate == "sigmoid":
        return x * logistic(x * Fraction("1.702"))
    root = power(Fraction(2) / 1, _HALF) * power(real.arctangent(Fraction(1)) * 4, -_HALF)
    inner = (x + x * x * x * Fraction("0.044715")) * root
    return x * logistic(inner * 2)  # (1 + tanh(z)) / 2 = logistic(2 z)


def wrap(x: Number, lo: int, hi: int, overflow: str = "wrap") -> Number:
    """The integer in [lo, hi] that is x modulo hi - lo + 1."""
    return (x - lo) % (hi - lo + 1) + lo if not isinstance(x, Real) else x


def _softplus(x: Number) -> Number:
    logarithm = real.log(real.exp(-abs(x)) + 1)
    return x + logarithm if sign(x) > 0 else logarithm


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: _of_oracle(name) for name in
       ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "log2")},
    "copy": lambda x: x,
    "neg": lambda x: -x,
    "rcp": real.reciprocal,
    "exp": real.exp,
    "log": real.log,
    "abs": abs,
    "sign": lambda x: Fraction(sign(x)),
    "not": lambda x: _flag(sign(x) == 0),
    "floor": lambda x: Fraction(floor_of(x)[0]),
    "ceil": real.ceiling,
    "round": real.round_up,
    "sqr": lambda x: x * x,
    "sqrt": lambda x: power(x, _HALF),
    "rsqr": lambda x: power(x, -2),
    "rsqrt": lambda x: power(x, -_HALF),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x * real.reciprocal(y),
    "pow": power,
    "lt": lambda x, y: _flag(sign(x - y) < 0),
    "gt": lambda x, y: _flag(sign(x - y) > 0),
    "le": lambda x, y: _flag(sign(x - y) <= 0),
    "ge": lambda x, y: _flag(sign(x - y) >= 0),
    "eq": lambda x, y: _flag(sign(x - y) == 0),
    "ne": lambda x, y: _flag(sign(x - y) != 0),
    "and": lambda x, y: _flag(bool(x) and bool(y)),
    "or": lambda x, y: _flag(bool(x) or bool(y)),
    "min": least,
    "max": greatest,
    "clamp": clamp,
    "select": lambda condition, true_value, false_value: true_value if condition else false_value,
    "sigmoid": logistic,
    "relu": lambda x: greatest(x, Fraction(0)),
    "tanh": lambda x: logistic(x * 2) * 2 - 1,
    "softplus": _softplus,
    "erf": real.erf,
    "hard_swish": lambda x: x * clamp(x + 3, Fraction(0), Fraction(6)) * Fraction(1, 6),
    "softsign": lambda x: x * real.reciprocal(abs(x) + 1),
    "prelu": lambda x, alpha: x * alpha if sign(x) < 0 else x,
    "leaky_relu": lambda x, alpha: x * alpha if sign(x) < 0 else x,
    "elu": lambda x, alpha=1: (real.exp(x) - 1) * alpha if sign(x) < 0 else x,
    "silu": lambda x: x * logistic(x),
    "gelu": gelu,
    "wrap": wrap,
    "truncated_div": _truncated_div,
    "update": lambda variable, value: value,
}  # fmt: skip
"""By name: the function of the elements of the operation's tensors, then of its attributes by name."""
