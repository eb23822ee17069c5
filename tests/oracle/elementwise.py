"""Element-wise operations (4.2), and the Khronos dialect's sin, cos and cast.

Every function has the document's parameter names. Results undefined over the reals (1 / 0, the logarithm of what is not
positive, a fractional power of a negative number) are refused.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod, trunc
from typing import Any

import numpy as np

from . import real
from .real import Number, Real
from .tensors import (
    Tensor,
    TensorLike,
    aligned_items,
    common_rank,
    each,
    exact,
    flags,
    from_numbers,
    require,
    tensor,
)

# --- unary (4.2.1) ----------------------------------------------------------------------------------------------------


def copy(x: TensorLike) -> Tensor:
    return tensor(x)


def neg(x: TensorLike) -> Tensor:
    return tensor(x).scaled(Fraction(-1))


def rcp(x: TensorLike) -> Tensor:
    return each(real.reciprocal, x)


def exp(x: TensorLike) -> Tensor:
    return each(real.exp, x)


def log(x: TensorLike) -> Tensor:
    return each(real.log, x)


def sin(x: TensorLike) -> Tensor:
    """Khronos dialect."""
    return each(real.sin, x)


def cos(x: TensorLike) -> Tensor:
    """Khronos dialect."""
    return each(real.cos, x)


def tan(x: TensorLike) -> Tensor:
    """Khronos dialect, as are the functions below."""
    return each(lambda item: real.sin(item) / real.cos(item), x)


def asin(x: TensorLike) -> Tensor:
    return each(_arcsine, x)


def acos(x: TensorLike) -> Tensor:
    return each(lambda item: Fraction(0) if item == 1 else real.arctangent(1) * 2 - _arcsine(item), x)


def _arcsine(x: Number) -> Number:
    """atan(x / sqrt(1 - x^2)), and pi/2 with the sign of x at 1 and -1."""
    beyond = real.sign(x * x - 1)
    require(beyond <= 0, "x is in [-1, 1]")
    return real.arctangent(1) * 2 * x if beyond == 0 else real.arctangent(x / real.power(1 - x * x, Fraction(1, 2)))


def atan(x: TensorLike) -> Tensor:
    return each(real.arctangent, x)


def sinh(x: TensorLike) -> Tensor:
    return each(lambda item: (real.exp(item) - real.exp(-item)) * Fraction(1, 2), x)


def cosh(x: TensorLike) -> Tensor:
    return each(lambda item: (real.exp(item) + real.exp(-item)) * Fraction(1, 2), x)


def asinh(x: TensorLike) -> Tensor:
    return each(lambda item: real.log(item + real.power(item * item + 1, Fraction(1, 2))), x)


def acosh(x: TensorLike) -> Tensor:
    return each(_inverse_cosine, x)


def _inverse_cosine(x: Number) -> Number:
    require(real.sign(x - 1) >= 0, "x is at least 1")
    return real.log(x + real.power(x * x - 1, Fraction(1, 2)))


def atanh(x: TensorLike) -> Tensor:
    return each(_inverse_tangent, x)


def _inverse_tangent(x: Number) -> Number:
    require(real.sign(x * x - 1) < 0, "x is in (-1, 1)")
    return real.log((1 + x) / (1 - x)) * Fraction(1, 2)


def abs(x: TensorLike) -> Tensor:
    return tensor(x).map(np.abs(tensor(x).items))


def sign(x: TensorLike) -> Tensor:
    return Tensor(exact(np.frompyfunc(real.sign, 1, 1)(tensor(x).items)))


def floor(x: TensorLike) -> Tensor:
    return Tensor(tensor(x).floors(Fraction(1), Fraction(0))[0])


def ceil(x: TensorLike) -> Tensor:
    """-floor(-x)."""
    return neg(floor(neg(x)))


def round(x: TensorLike) -> Tensor:
    """floor(x + 0.5): halves up, also below zero."""
    return Tensor(tensor(x).floors(Fraction(1), Fraction(1, 2))[0])


def not_(x: TensorLike) -> Tensor:
    return Tensor(exact(1 - _logical(x)))


def cast(type_name: str, input: TensorLike) -> Tensor:
    """Khronos dialect: to logical, not 0; to integer, truncated toward zero; to scalar, the same number."""
    x = tensor(input)
    if type_name == "logical":
        return _from_flags(x.items != 0)
    if type_name == "integer":
        return each(lambda item: Fraction(trunc(item) if not isinstance(item, Real) else _truncated(item)), x)
    require(type_name == "scalar", "cast to scalar, integer or logical")
    return x


def _truncated(x: Real) -> int:
    return real.sign(x) * real.floor_of(x * real.sign(x))[0]


# --- binary (4.2.2) ---------------------------------------------------------------------------------------------------


def add(x: TensorLike, y: TensorLike) -> Tensor:
    (left, right), denominator = aligned_items(x, y)
    return Tensor(exact(left + right), denominator)


def sub(x: TensorLike, y: TensorLike) -> Tensor:
    return add(x, neg(y))


def mul(x: TensorLike, y: TensorLike) -> Tensor:
    left, right = common_rank(x, y)
    return Tensor(exact(left.items * right.items), left.denominator * right.denominator)


def div(x: TensorLike, y: TensorLike) -> Tensor:
    return mul(x, rcp(y))


def pow(x: TensorLike, y: TensorLike) -> Tensor:
    """0^0 = 1; a negative base needs an integer exponent, a zero base one that is not negative."""
    return each(real.power, x, y)


def _from_flags(items: Any) -> Tensor:
    return Tensor(exact(flags(items).astype(int).astype(object)))


def lt(x: TensorLike, y: TensorLike) -> Tensor:
    (left, right), _ = aligned_items(x, y)
    return _from_flags(left < right)


def gt(x: TensorLike, y: TensorLike) -> Tensor:
    return lt(y, x)


def le(x: TensorLike, y: TensorLike) -> Tensor:
    return not_(lt(y, x))


def ge(x: TensorLike, y: TensorLike) -> Tensor:
    return not_(lt(x, y))


def eq(x: TensorLike, y: TensorLike) -> Tensor:
    (left, right), _ = aligned_items(x, y)
    return _from_flags(left == right)


def ne(x: TensorLike, y: TensorLike) -> Tensor:
    return not_(eq(x, y))


def _logical(x: TensorLike) -> Any:
    """0 and 1 of a logical tensor."""
    truths = tensor(x)
    require(bool(np.all(flags((truths.items == 0) | (truths.items == truths.denominator)))), "the tensor is logical")
    return truths.items // truths.denominator


def and_(x: TensorLike, y: TensorLike) -> Tensor:
    left, right = common_rank(x, y)
    return Tensor(exact(_logical(left) * _logical(right)))


def or_(x: TensorLike, y: TensorLike) -> Tensor:
    return not_(and_(not_(x), not_(y)))


# --- select (4.2.3) and simplifiers (4.2.4) ---------------------------------------------------------------------------


def select(condition: TensorLike, true_value: TensorLike, false_value: TensorLike) -> Tensor:
    where, *values = common_rank(condition, true_value, false_value)
    (true, false), denominator = aligned_items(*values)
    return Tensor(exact(np.where(flags(_logical(where)), true, false)), denominator)


def sqr(x: TensorLike) -> Tensor:
    return mul(x, x)


def sqrt(x: TensorLike) -> Tensor:
    return pow(x, Fraction(1, 2))


def rsqr(x: TensorLike) -> Tensor:
    return pow(x, -2)


def rsqrt(x: TensorLike) -> Tensor:
    return pow(x, Fraction(-1, 2))


def log2(x: TensorLike) -> Tensor:
    """log(x) / log(2.0); powers of two have integer results."""
    return each(binary_logarithm, x)


def binary_logarithm(x: Number) -> Number:
    """The logarithm of one number to the base 2."""
    if not isinstance(x, Real) and x > 0 and 1 in x.as_integer_ratio():
        exponent = x.numerator.bit_length() - x.denominator.bit_length()
        if x == Fraction(2) ** exponent:
            return Fraction(exponent)
    return real.log(x) / real.log(2)


def min(x: TensorLike, y: TensorLike) -> Tensor:
    (left, right), denominator = aligned_items(x, y)
    return Tensor(exact(np.minimum(left, right)), denominator)


def max(x: TensorLike, y: TensorLike) -> Tensor:
    (left, right), denominator = aligned_items(x, y)
    return Tensor(exact(np.maximum(left, right)), denominator)


def clamp(x: TensorLike, a: TensorLike, b: TensorLike) -> Tensor:
    """max(min(x, b), a): a wins where a > b."""
    return max(min(x, b), a)


def add_n(x: list[TensorLike]) -> Tensor:
    """4.9.6, the sum of all tensors; 0.0 of none."""
    total: Tensor = tensor(0)
    for part in x:
        total = add(total, part)
    return total


def copy_n(x: TensorLike, times: int) -> list[Tensor]:
    """4.9.6."""
    require(times >= 0, "times is not negative")
    return [tensor(x)] * times


def constant(shape: list[int], value: list[Fraction | int | bool]) -> Tensor:
    """4.1.2: row-major; a single value is repeated."""
    require(all(extent > 0 for extent in shape), "items in shape are strictly positive")
    require(len(value) in {1, prod(shape)}, "the length of value equals the volume of shape or is 1")
    return from_numbers(np.resize(np.array([Fraction(item) for item in value], dtype=object), shape))
