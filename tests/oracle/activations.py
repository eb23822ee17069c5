"""Activation functions (4.9.1), and the Khronos dialect's gelu, selu, silu, softabs and elu with alpha.

Where the document's formula has two exponentials or a large one, an equal formula with e^-|x| is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from . import real
from .elementwise import add, div, exp, lt, max, mul, pow, select, sqrt, sub
from .real import Number
from .reductions import max_reduce, sum_reduce
from .tensors import Tensor, TensorLike, each


def logistic(x: Number) -> Number:
    """1 / (1 + e^-x), below 0 as 1 - 1 / (1 + e^x)."""
    share = real.reciprocal(real.exp(-abs(x)) + 1)
    return share if real.sign(x) >= 0 else 1 - share


def sigmoid(x: TensorLike) -> Tensor:
    return each(logistic, x)


def tanh(x: TensorLike) -> Tensor:
    """(e^x - e^-x) / (e^x + e^-x) = 2 * sigmoid(2 * x) - 1."""
    return each(lambda item: logistic(item * 2) * 2 - 1, x)


def relu(x: TensorLike) -> Tensor:
    return max(x, 0)


def prelu(x: TensorLike, alpha: TensorLike) -> Tensor:
    return select(lt(x, 0), mul(alpha, x), x)


def leaky_relu(x: TensorLike, alpha: TensorLike) -> Tensor:
    return prelu(x, alpha)


def _exponential_unit(x: Number, alpha: Fraction) -> Number:
    return (real.exp(x) - 1) * alpha if real.sign(x) < 0 else x


def elu(x: TensorLike, alpha: Fraction | int = 1) -> Tensor:
    """alpha is the dialect's."""
    return each(lambda item: _exponential_unit(item, Fraction(alpha)), x)


def selu(x: TensorLike, alpha: Fraction = Fraction("1.67326319"), **named: Fraction) -> Tensor:
    """Khronos dialect: lambda * elu(x, alpha); `lambda` is no name in Python."""
    factor = named.pop("lambda", Fraction("1.05070102"))
    if named:
        raise TypeError(f"selu has no parameters {sorted(named)}")
    return mul(factor, elu(x, alpha))


def gelu(x: TensorLike) -> Tensor:
    """Khronos dialect: x * sigmoid(1.702 * x)."""
    return mul(x, sigmoid(mul(Fraction("1.702"), x)))


def silu(x: TensorLike) -> Tensor:
    """Khronos dialect: x * sigmoid(x)."""
    return mul(x, sigmoid(x))


def softabs(x: TensorLike, epsilon: Fraction) -> Tensor:
    """Khronos dialect: sqrt(x^2 + epsilon)."""
    return sqrt(add(pow(x, 2), epsilon))


def softmax(x: TensorLike, axes: Sequence[int] = (1,)) -> Tensor:
    e = exp(sub(x, max_reduce(x, axes)))
    return div(e, sum_reduce(e, axes))


def softplus(x: TensorLike) -> Tensor:
    """log(e^x + 1) = max(x, 0) + log(e^-|x| + 1)."""

    def one(item: Number) -> Number:
        logarithm = real.log(real.exp(-abs(item)) + 1)
        return item + logarithm if real.sign(item) > 0 else logarithm

    return each(one, x)
