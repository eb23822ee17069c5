"""Activation functions that chapter 4 does not have: those of the Khronos dialect, as their tools define them, and gelu
as other formats define it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Emission
from cvm.lowering.parts.operands import function
from cvm.quantization.reals import Real, exp, gelu_sigmoid, gelu_tanh, power, rational
from cvm.quantization.reals import gelu as gelu_by_erf

__all__: list[str] = []


def _attribute(lowering: Emission, name: str) -> Real:
    return rational(Fraction(lowering.operation.attributes[name]))  # type: ignore[arg-type]


_GELU: Mapping[str, Callable[[Real], Real]] = MappingProxyType(
    {"sigmoid": gelu_sigmoid, "none": gelu_by_erf, "tanh": gelu_tanh}
)


def _exponential_unit(alpha: Real) -> Callable[[Real], Real]:
    return lambda x: alpha * (exp(x) - rational(1)) if x.sign < 0 else x


@rule("gelu", claim=exact("a table over the codes, correctly rounded"))
def gelu(lowering: Lowering) -> list[Result]:
    """The function that the attribute ``approximate`` names.

    "none": x * (1 + erf(x / sqrt(2))) / 2. "tanh": x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2. "sigmoid":
    x * sigmoid(1.702 * x), as the Khronos tools define it. The operand is ``x``.
    """
    kind = lowering.operation.attributes["approximate"]
    if not isinstance(kind, str) or kind not in _GELU:
        raise lowering.unsupported(f"approximate is {kind!r}, not one of {', '.join(_GELU)}")
    return [function(lowering, ["x"], _GELU[kind])]


@rule("elu", claim=exact("a table over the codes, correctly rounded"))
def elu(lowering: Lowering) -> list[Result]:
    """Alpha * (e^x - 1) where x < 0, else x."""
    return [function(lowering, ["x"], _exponential_unit(_attribute(lowering, "alpha")))]


@rule("selu", claim=exact("a table over the codes, correctly rounded"))
def selu(lowering: Lowering) -> list[Result]:
    """Lambda * elu(x, alpha)."""
    inner = _exponential_unit(_attribute(lowering, "alpha"))
    factor = _attribute(lowering, "lambda")
    return [function(lowering, ["x"], lambda x: factor * inner(x))]


@rule("softabs", claim=exact("a table over the codes, correctly rounded"))
def softabs(lowering: Lowering) -> list[Result]:
    """sqrt(x^2 + epsilon)."""
    epsilon = _attribute(lowering, "epsilon")
    return [function(lowering, ["x"], lambda x: power(x * x + epsilon, Fraction(1, 2)))]
