"""Tables of the activation functions (vx_nn_activation_function_e): the code of f(x) for every code of x.

Rational results are rounded by arithmetic, irrational ones from enclosures (`cvm.quantization.reals`), half to even;
they saturate. A monotone function has few distinct codes compared with the number of its arguments, so its table is
filled by bisection: an interval whose ends have one code has that code throughout. Softrelu for x > 0 is
x + softrelu(-x), whose first term is a whole number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from cvm.frontends.openvx.constants import Activation
from cvm.frontends.openvx.formats import Format
from cvm.quantization.quantizer import LinearQuantizer
from cvm.quantization.reals import FUNCTIONS, Real, code, power, rational

__all__ = ["activation_codes"]

Function = Callable[[Fraction], Real]


def activation_codes(function: Activation, a: Fraction, b: Fraction, format: Format) -> tuple[int, ...]:
    """The codes of the results for the raw integers lo .. hi of a format."""
    uses = _USES.get(function, "")
    return _codes(function, *(item if name in uses else Fraction(0) for item, name in ((a, "a"), (b, "b"))), format)


_USES = {
    Activation.VX_NN_ACTIVATION_HYPERBOLIC_TAN: "ab",
    Activation.VX_NN_ACTIVATION_BRELU: "a",
    Activation.VX_NN_ACTIVATION_LINEAR: "ab",
}
"""The parameters that each function has."""


@lru_cache(maxsize=64)
def _codes(function: Activation, a: Fraction, b: Fraction, format: Format) -> tuple[int, ...]:
    quantizer, unit = format.quantizer(), format.unit
    raw = range(format.lo, format.hi + 1)
    exact = _EXACT.get(function)
    if exact is not None:
        return tuple(code(rational(exact(x * unit, a, b)), quantizer) for x in raw)
    if function == Activation.VX_NN_ACTIVATION_SOFTRELU:
        return _soft_relu(format)
    if function == Activation.VX_NN_ACTIVATION_SQRT:
        roots = _monotone(range(format.hi + 1), lambda x: power(rational(x), Fraction(1, 2)), unit, quantizer)
        return (0,) * -format.lo + roots
    if function == Activation.VX_NN_ACTIVATION_LOGISTIC:
        return _monotone(raw, lambda x: FUNCTIONS["sigmoid"](rational(x)), unit, quantizer)
    return _monotone(raw, lambda x: rational(a) * FUNCTIONS["tanh"](rational(b * x)), unit, quantizer)


_EXACT: dict[Activation, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    Activation.VX_NN_ACTIVATION_RELU: lambda x, a, b: max(x, Fraction(0)),
    Activation.VX_NN_ACTIVATION_BRELU: lambda x, a, b: min(a, max(x, Fraction(0))),
    Activation.VX_NN_ACTIVATION_ABS: lambda x, a, b: abs(x),
    Activation.VX_NN_ACTIVATION_SQUARE: lambda x, a, b: x * x,
    Activation.VX_NN_ACTIVATION_LINEAR: lambda x, a, b: a * x + b,
}


def _monotone(raw: range, function: Function, unit: Fraction, quantizer: LinearQuantizer) -> tuple[int, ...]:
    """The codes of a non-decreasing function for the arguments ``raw`` * ``unit``."""
    found = [0] * len(raw)

    def at(index: int) -> int:
        return code(function(raw[index] * unit), quantizer)

    def fill(first: int, last: int, low: int, high: int) -> None:
        pending = [(first, last, low, high)]
        while pending:
            first, last, low, high = pending.pop()
            found[first], found[last] = low, high
            if low == high:
                found[first : last + 1] = [low] * (last + 1 - first)
            elif last - first > 1:
                middle = (first + last) // 2
                between = at(middle)
                pending += [(first, middle, low, between), (middle, last, between, high)]

    fill(0, len(raw) - 1, at(0), at(len(raw) - 1))
    return tuple(found)


def _soft_relu(format: Format) -> tuple[int, ...]:
    """The codes of log(1 + e^x); for x > 0 computed as x + log(1 + e^-x)."""
    unit, quantizer = format.unit, format.quantizer()
    least = min(format.lo, -format.hi)
    below = _monotone(range(least, 1), lambda x: FUNCTIONS["softplus"](rational(x)), unit, quantizer)
    negative = below[format.lo - least :] if format.lo else below[-1:]
    positive = (x + below[-1 - x] for x in range(1, format.hi + 1))
    return (*negative, *(min(item, format.hi) for item in positive))
