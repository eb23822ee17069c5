"""Activation functions that chapter 4 does not have: those of the Khronos dialect, as the Khronos tools define them,
and gelu as other formats define it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Emission
from cvm.lowering.parts.operands import function
from cvm.lowering.parts.thresholds import function_of_sum
from cvm.lowering.proofs.curves import Course
from cvm.quantization.reals import FUNCTIONS, Real, exp, gelu_sigmoid, gelu_tanh, power, rational
from cvm.quantization.reals import gelu as gelu_by_erf

__all__: list[str] = []


def _attribute(lowering: Emission, name: str) -> Real:
    return rational(Fraction(lowering.operation.attributes[name]))  # type: ignore[arg-type]


_GELU: Mapping[str, Callable[[Real], Real]] = MappingProxyType(
    {"sigmoid": gelu_sigmoid, "none": gelu_by_erf, "tanh": gelu_tanh}
)


def _sigmoid_slope(x: Real) -> Real:
    """The slope of x * sigmoid(y) for y = 1.702 x: e^y + 1 + y."""
    y = rational(Fraction("1.702")) * x
    return exp(y) + rational(1) + y


def _erf_slope(x: Real) -> Real:
    """The slope of x * P(x), for P the normal distribution function and p its density: P(x) / p(x) + x.

    This is the derivative divided by p(x) > 0. It is 0 near -0.75, and it rises because P(x) / p(x) < 1 / |x| for x <
    0. Outside of [-1, 0], `_far` replaces it, and only its sign is right.
    """
    if (far := _far(x)) is not None:
        return far
    half = rational(Fraction(1, 2))
    density = exp(-half * x * x) / power(rational(8) * FUNCTIONS["atan"](rational(1)), Fraction(1, 2))
    return half * (rational(1) + FUNCTIONS["erf"](x * power(rational(2), Fraction(-1, 2)))) / density + x


def _tanh_slope(x: Real) -> Real:
    """The slope of x * (1 + tanh(k * (x + a * x^3))) / 2: e^(2k * (x + a * x^3)) + 1 + 2k * (x + 3a * x^3).

    This is the derivative divided by a positive number. It is 0 near -0.75.
    """
    if (far := _far(x)) is not None:
        return far
    twice = power(rational(2) / FUNCTIONS["atan"](rational(1)), Fraction(1, 2))  # 2 sqrt(2 / pi)
    cube = rational(Fraction("0.044715")) * x * x * x
    return exp(twice * (x + cube)) + rational(1) + twice * (x + rational(3) * cube)


def _far(x: Real) -> Real | None:
    """A number with the sign of a slope far from the slope's zero: -1 for x < -1, 2 for x > 0, None in between."""
    if x.compare(Fraction(-1)) < 0:
        return rational(-1)
    return rational(2) if x.sign > 0 else None


_GELU_SLOPE: Mapping[str, Callable[[Real], Real]] = MappingProxyType(
    {"sigmoid": _sigmoid_slope, "none": _erf_slope, "tanh": _tanh_slope}
)
"""The slope for each kind of gelu: a rising function, which is the derivative divided by a positive number."""


def _exponential_unit(alpha: Real) -> Callable[[Real], Real]:
    return lambda x: alpha * (exp(x) - rational(1)) if x.sign < 0 else x


def _unit_course(alpha: Real) -> Course:
    """The course of the exponential unit: it rises or, if alpha is negative, falls for x < 0 and rises for x > 0."""
    return Course() if alpha.sign >= 0 else Course(slope=lambda x: x)


_HOW = "a table over the codes, correctly rounded; of wide sums thresholds, found by exact search"


@rule("gelu", claim=exact(_HOW))
def gelu(lowering: Lowering) -> list[Result]:
    """The function that the attribute ``approximate`` names.

    "none": x * (1 + erf(x / sqrt(2))) / 2. "tanh": x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2. "sigmoid":
    x * sigmoid(1.702 * x), as the Khronos tools define it. The operand is ``x``.
    """
    kind = lowering.operation.attributes["approximate"]
    if not isinstance(kind, str) or kind not in _GELU:
        raise lowering.unsupported(f"approximate is {kind!r}, not one of {', '.join(_GELU)}")
    return [function_of_sum(lowering, _GELU[kind], Course(slope=_GELU_SLOPE[kind]))]


@rule("elu", claim=exact(_HOW))
def elu(lowering: Lowering) -> list[Result]:
    """Alpha * (e^x - 1) where x < 0, else x."""
    alpha = _attribute(lowering, "alpha")
    return [function_of_sum(lowering, _exponential_unit(alpha), _unit_course(alpha))]


@rule("selu", claim=exact(_HOW))
def selu(lowering: Lowering) -> list[Result]:
    """Lambda * elu(x, alpha)."""
    alpha, factor = (_attribute(lowering, name) for name in ("alpha", "lambda"))
    inner = _exponential_unit(alpha)

    def real(x: Real) -> Real:
        return factor * inner(x)

    if factor.sign < 0:
        return [function(lowering, ["x"], real)]
    return [function_of_sum(lowering, real, _unit_course(alpha))]


@rule("softabs", claim=exact(_HOW))
def softabs(lowering: Lowering) -> list[Result]:
    """sqrt(x^2 + epsilon)."""
    epsilon = _attribute(lowering, "epsilon")
    return [function_of_sum(lowering, lambda x: power(x * x + epsilon, Fraction(1, 2)), Course(slope=lambda x: x))]
