"""Elementwise ops (the document's section "Elemwise Operators")."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cvm.ops.attributes import INT32, PRECISION, SHIFT, Attribute, TypedAttributes
from cvm.ops.declaration import Call, Constraint, Input, Op, register
from cvm.ops.ranges import Bounds, Range, Shape, pointwise

__all__ = ["Abs", "Clip", "CvmClip", "CvmLeftShift", "CvmPrecision", "CvmRightShift", "ElemwiseAdd", "ElemwiseSub",
           "Negative"]  # fmt: skip


class _Unary(Op):
    """An op on each element of one tensor."""

    family = "elemwise"
    inputs = (Input("X", "any tensor"),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)


class _Binary(Op):
    """An op on the elements of two tensors of one shape."""

    family = "elemwise"
    inputs = (Input("A", "any tensor"), Input("B", "a tensor of A's shape"))
    constraints = (Constraint("C1", "A and B of the same shape", lambda c: c.shapes[0] == c.shapes[1]),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)


def _clipped(call: Call, function: Callable[[Bounds], Bounds]) -> tuple[Range, ...]:
    """The range of a non-decreasing function of each element."""
    return (pointwise(call.ranges, lambda x: x.monotone(function)),)


def _magnitude(x: Range) -> Range:
    return Range(np.maximum(np.maximum(x.lo, -x.hi), 0), np.maximum(-x.lo, x.hi))


@register
class Abs(_Unary):
    """The absolute value of each element: Y[d] = X[d] if X[d] >= 0 else -X[d]."""

    name = "abs"
    source = "Elemwise Operators, abs"

    def range(self, call: Call) -> tuple[Range, ...]:
        return (pointwise(call.ranges, _magnitude),)


@register
class CvmPrecision(_Unary):
    """The number of bits of each element's absolute value, at least 1: Y[d] = max(1, ceil(log2(|X[d]| + 1)))."""

    name = "cvm_precision"
    source = "Elemwise Operators, cvm_precision"

    def range(self, call: Call) -> tuple[Range, ...]:
        powers = 2 ** np.arange(32, dtype=np.int64)  # |x| has as many bits as there are powers of two <= |x|

        def bits(magnitudes: Bounds) -> Bounds:
            return np.maximum(np.searchsorted(powers, magnitudes, side="right"), 1)

        return (pointwise(call.ranges, lambda x: _magnitude(x).monotone(bits)),)

    def work(self, call: Call) -> int:
        return 5 * math.prod(call.shapes[0])  # five steps: 32 bits are halved until one is left


@register
class ElemwiseAdd(_Binary):
    """The sum of two tensors of one shape: Y = A + B."""

    name = "elemwise_add"
    source = "Elemwise Operators, elemwise_add"

    def range(self, call: Call) -> tuple[Range, ...]:
        return (pointwise(call.ranges, lambda a, b: a + b),)


@register
class ElemwiseSub(_Binary):
    """The difference of two tensors of one shape: Y = A - B."""

    name = "elemwise_sub"
    source = "Elemwise Operators, elemwise_sub"

    def range(self, call: Call) -> tuple[Range, ...]:
        return (pointwise(call.ranges, lambda a, b: a - b),)


@register
class Negative(_Unary):
    """The negative of each element: Y = -X."""

    name = "negative"
    source = "Elemwise Operators, negative"

    def range(self, call: Call) -> tuple[Range, ...]:
        return (pointwise(call.ranges, lambda x: -x),)


@register
class Clip(_Unary):
    """Each element clipped to [a_min, a_max]."""

    name = "clip"
    source = "Elemwise Operators, clip"

    class Attributes(TypedAttributes):
        """The two bounds."""

        a_min = Attribute(INT32, "the lower bound")
        a_max = Attribute(INT32, "the upper bound")

    constraints = (Constraint("C1", "a_min <= a_max", lambda c: c.attributes.a_min <= c.attributes.a_max),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return _clipped(call, lambda x: np.clip(x, call.attributes.a_min, call.attributes.a_max))


@register
class CvmClip(_Unary):
    """Each element clipped to a CVM precision, that is, to [-alpha, alpha], alpha = 2^(precision - 1) - 1."""

    name = "cvm_clip"
    source = "Elemwise Operators, cvm_cilp (a misprint of cvm_clip)"

    class Attributes(TypedAttributes):
        """The precision to clip to."""

        precision = Attribute(PRECISION, "p: the result is clipped to |y| <= 2^(p - 1) - 1")

    def range(self, call: Call) -> tuple[Range, ...]:
        alpha = 2 ** (call.attributes.precision - 1) - 1
        return _clipped(call, lambda x: np.clip(x, -alpha, alpha))


class _ShiftAttributes(TypedAttributes):
    """The number of bits and the precision that the result is clipped to."""

    precision = Attribute(PRECISION, "p: the result is clipped to |y| <= 2^(p - 1) - 1")
    shift_bit = Attribute(SHIFT, "the number of bits")


@register
class CvmRightShift(_Unary):
    """Each element divided by 2^shift_bit, rounded half up, then clipped to a CVM precision.

    Y = clip(T, -alpha, alpha), T = floor((floor(X / 2^(shift_bit - 1)) + 1) / 2), alpha = 2^(precision - 1) - 1.
    """

    name = "cvm_right_shift"
    source = "Elemwise Operators, cvm_right_shift"
    Attributes = _ShiftAttributes

    def range(self, call: Call) -> tuple[Range, ...]:
        alpha = 2 ** (call.attributes.precision - 1) - 1
        shift = call.attributes.shift_bit
        return _clipped(call, lambda x: np.clip(((x >> (shift - 1)) + 1) >> 1, -alpha, alpha))


@register
class CvmLeftShift(_Unary):
    """Each element times 2^shift_bit, then clipped to a CVM precision. The product does not wrap before the clip."""

    name = "cvm_left_shift"
    source = "Elemwise Operators, cvm_left_shift"
    Attributes = _ShiftAttributes

    def range(self, call: Call) -> tuple[Range, ...]:
        alpha = 2 ** (call.attributes.precision - 1) - 1
        # |x| * 2^32 < 2^63: int64 holds the product.
        return _clipped(call, lambda x: np.clip(x << call.attributes.shift_bit, -alpha, alpha))
