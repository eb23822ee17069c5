"""Operations on integers of a data type, which NNEF does not have: wrapping to N bits, truncated division, powers.

Their operands are real tensors whose numbers are all integers. ``lo`` and ``hi`` are the ends of the data type.
"""

from __future__ import annotations

import math

import numpy as np

from cvm.errors import Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Known, LinearForm, TableForm, Term
from cvm.lowering.parts.operands import function, integers
from cvm.lowering.proofs.table import Operand
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, rational

__all__ = ["combined"]

_MOST_WRAPPED = 2**16
"""The most integers of a data type that wraps. A wider type would have numbers beyond 32 bits."""


def _ends(lowering: Emission) -> tuple[int, int]:
    lo, hi = (int(lowering.operation.attributes[name]) for name in ("lo", "hi"))  # type: ignore[arg-type]
    return lo, hi


def _wrapped(x: int, lo: int, hi: int) -> int:
    return (x - lo) % (hi - lo + 1) + lo


@rule(
    "wrap",
    claim=exact("the integers themselves where they are proven to fit, else two requantizes"),
)
def wrap(lowering: Lowering) -> list[Result]:
    """``x mod 2^N`` in [lo, hi], in two's complement. With ``overflow`` = "error", x must be proven to lie there."""
    lo, hi = _ends(lowering)
    operand = lowering.operand("x")
    low, high = _hull(lowering, operand)
    if lo <= low and high <= hi:
        return [operand]
    wide = hi - lo >= _MOST_WRAPPED or max(-low, high) > INT32_MAX
    if wide or lowering.operation.attributes["overflow"] == "error":
        message = f"the integers of this tensor are in [{low}, {high}], not proven to fit [{lo}, {hi}]"
        raise Unsupported("lowering.overflow", message, lowering.location)
    if isinstance(operand, Known):
        items = [number.numerator for number in operand.rationals().fractions()]
        wrapped = np.array([_wrapped(item, lo, hi) for item in items], dtype=object).reshape(operand.shape)
        return [Known.of(Rationals(wrapped))]
    if isinstance(operand, TableForm):
        numbers = tuple(rational(_wrapped(int(number.known()), lo, hi)) for number in operand.numbers)
        return [TableForm(operand.shape, operand.value, numbers)]
    value, shape = integers(lowering, "x"), operand.shape
    bits = (hi - lo).bit_length()
    periods = combined(lowering, [value], (1,), -lo - 2 ** (bits - 1), bits, (-INT32_MAX, INT32_MAX))
    rest = combined(lowering, [value, periods], (1, -(2**bits)), 0, 0, (lo, hi))
    one, zero = (Rationals.scalar(item, len(shape)) for item in (1, 0))
    return [LinearForm(shape, (Term(rest, one),), zero)]


def combined(
    lowering: Lowering, values: list[Value], factors: tuple[int, ...], offset: int, shift: int, bounds: tuple[int, int]
) -> Value:
    """Emit clip(round((sum of factors * values + offset) / 2^shift), bounds), rounded half up."""
    one = np.ones((1,) * len(values[0].shape), dtype=np.int64)
    parameters = [lowering.parameter(one * item, lowering.operation.name) for item in (*factors, offset, shift)]
    return lowering.emit("requantize", *values, *parameters, rounding="half_up", lo=bounds[0], hi=bounds[1])


def _hull(lowering: Lowering, operand: Operand) -> tuple[int, int]:
    """The least and the greatest number that an operand is proven to have."""
    if isinstance(operand, Known):
        items = operand.rationals().fractions()
        return math.floor(min(items)), math.ceil(max(items))
    if isinstance(operand, TableForm):
        numbers = [number.known() for number in operand.numbers]
        return math.floor(min(numbers)), math.ceil(max(numbers))
    form = operand if isinstance(operand, LinearForm) else lowering.linear("x")
    low, high = form.ends()
    if form.lower is not None:
        low, high = max(low, form.lower), max(high, form.lower)
    if form.upper is not None:
        low, high = min(low, form.upper), min(high, form.upper)
    return math.floor(low), math.ceil(high)


@rule("truncated_div", claim=exact("the division of the machine; x / 0 is 0"))
def truncated_div(lowering: Lowering) -> list[Result]:
    """``x / y`` truncated toward zero, and 0 where y is 0. The operands have the same rank."""
    sides = [integers(lowering, name) for name in ("x", "y")]
    value = lowering.emit("broadcast_div", *sides)
    shape = lowering.output_shape()
    one, zero = (Rationals.scalar(item, len(shape)) for item in (1, 0))
    return [LinearForm(shape, (Term(value, one),), zero)]


@rule("integer_pow", claim=exact("a table over both operands"))
def integer_pow(lowering: Lowering) -> list[Result]:
    """``x^y mod 2^N`` in [lo, hi]. For y < 0 it is 1 / x^-y truncated toward zero, and 0 for x = 0."""
    lo, hi = _ends(lowering)

    def power(x: Real, y: Real) -> Real:
        base, exponent = int(x.known()), int(y.known())
        if exponent >= 0:
            return rational(_wrapped(pow(base, exponent, hi - lo + 1), lo, hi))
        return rational(base ** (exponent % 2) if abs(base) == 1 else 0)

    return [function(lowering, ["x", "y"], power)]
