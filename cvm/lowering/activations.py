"""Activation functions of the Khronos dialect that chapter 4 does not have, as their tools define them.

gelu is x * sigmoid(1.702 * x) there, not the one of the error function.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from cvm.graph import GraphOperation
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.operands import function
from cvm.quantization.reals import FUNCTIONS, Real, exp, power, rational

__all__: list[str] = []


def _attribute(operation: GraphOperation, name: str, default: str) -> Real:
    return rational(Fraction(operation.attributes.get(name, Fraction(default))))  # type: ignore[arg-type]


def _gelu(x: Real) -> Real:
    return x * FUNCTIONS["sigmoid"](x * rational(Fraction("1.702")))


def _exponential_unit(alpha: Real) -> Callable[[Real], Real]:
    return lambda x: alpha * (exp(x) - rational(1)) if x.sign < 0 else x


@rule("gelu", claim=exact("a table over the codes, correctly rounded"))
def gelu(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """X * sigmoid(1.702 * x)."""
    return [function(lowering, operation, ["x"], _gelu)]


@rule("elu", claim=exact("a table over the codes, correctly rounded"))
def elu(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Alpha * (e^x - 1) where x < 0, else x."""
    return [function(lowering, operation, ["x"], _exponential_unit(_attribute(operation, "alpha", "1")))]


@rule("selu", claim=exact("a table over the codes, correctly rounded"))
def selu(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """Lambda * elu(x, alpha)."""
    inner = _exponential_unit(_attribute(operation, "alpha", "1.67326319"))
    factor = _attribute(operation, "lambda", "1.05070102")
    return [function(lowering, operation, ["x"], lambda x: factor * inner(x))]


@rule("softabs", claim=exact("a table over the codes, correctly rounded"))
def softabs(lowering: Lowering, operation: GraphOperation) -> list[Result]:
    """sqrt(x^2 + epsilon)."""
    epsilon = _attribute(operation, "epsilon", "0")
    return [function(lowering, operation, ["x"], lambda x: power(x * x + epsilon, Fraction(1, 2)))]
