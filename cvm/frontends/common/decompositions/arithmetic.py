"""Element-wise operators: integers with the wrap-around of their data type, real numbers exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy.typing as npt

from cvm.frontends.common.data_types import EVERYTHING, bounds, is_float
from cvm.frontends.common.emission import Emission
from cvm.limits import INT32_MAX

__all__ = [
    "absolute",
    "hard_sigmoid",
    "magnitude",
    "power",
    "prelu",
    "quotient",
    "rectified",
    "sign",
    "signed_power",
    "small_exponent",
    "truncated",
]


def quotient(graph: Emission, x: str, y: str, data_type: str) -> str:
    """The quotient x / y; of integers it is truncated toward zero."""
    op = "div" if is_float(data_type) else "truncated_div"
    return graph.result(graph.emit(op, x, y), data_type)


def small_exponent(values: npt.NDArray[Any] | None) -> int | None:
    """The exponent, if all constant elements are one whole number from 1 to 8; else None."""
    if values is None or values.size == 0 or not (values == values.flat[0]).all():
        return None
    item = values.flat[0].item()
    return int(item) if 1 <= item <= 8 and item == int(item) else None


def power(graph: Emission, x: str, y: str, data_type: str, times: int | None) -> str:
    """x^y: a product of ``times`` factors where ``times`` is given, else a table over both operands."""
    if times is not None:
        name = x
        for _ in range(times - 1):
            name = graph.left_open(graph.result(graph.emit("mul", name, x), data_type))
        return name
    if is_float(data_type):
        return graph.emit("pow", x, y)
    lo, hi = bounds(data_type)
    return graph.result(graph.emit("integer_pow", x, y, lo=lo, hi=hi), data_type)


def signed_power(graph: Emission, x: str, y: str) -> str:
    """x^y of real numbers, also for negative x: |x|^y, with the sign of x where the integer nearest to y is odd.

    The power of a negative number exists for integers y alone. Calibration may move y away from its integer, so the
    integer nearest to y decides.
    """
    whole = graph.emit("copy", y, quantizer=EVERYTHING)
    half = graph.emit("copy", graph.emit("floor", graph.emit("mul", whole, Fraction(1, 2))), quantizer=EVERYTHING)
    odd = graph.emit("ne", graph.emit("mul", half, Fraction(2)), whole)
    flipped = graph.emit("and", odd, graph.emit("lt", x, Fraction(0)))
    found = graph.left_open(graph.emit("pow", graph.left_open(graph.emit("abs", x)), y))
    return graph.emit("select", flipped, graph.emit("neg", found), found)


def truncated(graph: Emission, x: str, data_type: str) -> str:
    """Real numbers truncated toward zero, and clipped to the integer data type."""
    lo, hi = bounds(data_type)
    lo, hi = max(lo, -INT32_MAX), min(hi, INT32_MAX)
    below = graph.emit("copy", graph.emit("ceil", graph.emit("min", x, Fraction(0))), quantizer=EVERYTHING)
    above = graph.emit("copy", graph.emit("floor", graph.emit("max", x, Fraction(0))), quantizer=EVERYTHING)
    return graph.clamped(graph.emit("add", below, above), lo, hi)


def magnitude(graph: Emission, x: str, data_type: str) -> str:
    """|x|; for integers max(x, -x), which is not wrapped to the data type."""
    if is_float(data_type):
        return graph.emit("abs", x)
    return graph.emit("max", x, graph.emit("neg", x), quantizer=EVERYTHING)


def absolute(graph: Emission, x: str, data_type: str) -> str:
    """|x|; for integers wrapped to their data type."""
    return graph.result(magnitude(graph, x, data_type), data_type)


def sign(graph: Emission, x: str, data_type: str) -> str:
    """The sign of x: -1, 0 or 1."""
    return graph.emit("sign", x) if is_float(data_type) else graph.clamped(x, -1, 1)


def rectified(graph: Emission, x: str, data_type: str) -> str:
    """max(x, 0)."""
    return graph.emit("relu", x, quantizer=None if is_float(data_type) else EVERYTHING)


def prelu(graph: Emission, x: str, slope: str, data_type: str) -> str:
    """The operand x where it is not negative, else slope * x; for integers max(x, 0) + slope * min(x, 0)."""
    if is_float(data_type):
        return graph.emit("prelu", x, slope)
    above = rectified(graph, x, data_type)
    below = graph.emit("min", x, Fraction(0), quantizer=EVERYTHING)
    return graph.result(graph.emit("add", above, graph.emit("mul", below, slope)), data_type)


def hard_sigmoid(graph: Emission, x: str, alpha: Fraction, beta: Fraction) -> str:
    """The sum alpha * x + beta, clipped to [0, 1]."""
    return graph.clamped(graph.emit("add", graph.emit("mul", x, alpha), beta), 0, 1, integer=False)
