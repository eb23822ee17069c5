"""Expressions for cvm-runtime: each op of cvm on operands that the library's precision rules admit, around its defects.

An operand has the precision that is proven for it: writing adds a ``cvm_clip`` that states it, where the library's
rules would derive a larger one. An op that the library does not compute as cvm means it is decomposed:

    a + b       with 32 bits: halves, a = h + h + r, r in {-1, 0, 1}
    a * b       beyond 32 bits together: the constant in halves, or one operand in digits
    x * 2^s     products and doublings; a left shift of the library fails on one backend
    x >> s      apart from the clip, where that backend omits it; other forms for 31 and 32, and for 1 from 32 bits
    sum, max    without extents of 1, which that backend confuses; explicit axes; a wide sum in digits
    where       element by element, since the library copies rows only in part
    clip        without bounds that no element reaches: their precision is one bit too large

Every function raises `Unprovable` where no such form exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cvm.export.cvm_runtime.contractions import contraction
from cvm.export.cvm_runtime.expressions import LibraryExpressions, bits_of
from cvm.frontends.cvm_runtime.precisions import LARGEST, magnitude
from cvm.limits import INT32_MAX
from cvm.ops import Call
from cvm.ops import get as declaration_of
from cvm.passes.legalize.expressions import Expression, Unprovable
from cvm.passes.legalize.tensors import Tensors

__all__ = ["RULES"]


def _add(made: LibraryExpressions, a: Expression, b: Expression, label: str) -> Expression:
    return made.total("broadcast_add", a, b, label)


def _sub(made: LibraryExpressions, a: Expression, b: Expression, label: str) -> Expression:
    return made.total("broadcast_sub", a, b, label)


def _elemwise_add(made: LibraryExpressions, a: Expression, b: Expression, label: str) -> Expression:
    return made.total("elemwise_add", a, b, label)


def _elemwise_sub(made: LibraryExpressions, a: Expression, b: Expression, label: str) -> Expression:
    return made.total("elemwise_sub", a, b, label)


def _mul(made: LibraryExpressions, a: Expression, b: Expression, label: str) -> Expression:
    return made.product(a, b, label)


def _shift_left(made: LibraryExpressions, x: Expression, label: str, precision: int, shift_bit: int) -> Expression:
    """clip(x * 2^s, +-alpha): x is first clipped to what reaches alpha, so that the product has precision + 1 bits."""
    alpha = magnitude(precision)
    if bits_of(x) + shift_bit > LARGEST:
        if precision == LARGEST:
            raise Unprovable("a left shift that is clipped to 32 bits")
        if alpha < 1 << shift_bit:  # any number but 0 reaches alpha
            sign = x.clip(-1, 1, label)
            return made.product(sign, made.number(alpha), label)
        reached = -(-alpha >> shift_bit)
        x = x.clip(-reached, reached, label)
    x = made.raised(x, shift_bit, label)
    return made.plain("cvm_clip", x, label=label, precision=precision) if max(-x.lo, x.hi) > alpha else x


def _shift_right(made: LibraryExpressions, x: Expression, label: str, precision: int, shift_bit: int) -> Expression:
    """The library's other backend omits the clip if precision + shift_bit >= 32, and does not round shifts of 31 or
    more.
    """
    bits = bits_of(x)
    if bits <= shift_bit or shift_bit == 32:
        return made.zeros(x, label)
    if shift_bit == 31:
        above = made.plain("broadcast_greater", x, made.number(2**30 - 1), label=label)
        below = made.plain("broadcast_greater", made.number(-(2**30)), x, label=label)
        found = made.plain("broadcast_sub", above, below, label=label)
    elif shift_bit == 1 and bits == LARGEST:
        # floor((x + 1) / 2) = h + [x > 2 h] for h = x / 2 toward zero
        half = made.plain("broadcast_div", x, made.number(2), label=label)
        even = made.plain("broadcast_add", half, half, label=label)
        odd = made.plain("broadcast_greater", x, even, label=label)
        found = made.plain("broadcast_add", half, odd, label=label)
    else:
        enough = bits - shift_bit + 1
        kept = precision if precision + shift_bit < LARGEST else enough
        found = made.plain("cvm_right_shift", x, label=label, precision=min(kept, enough), shift_bit=shift_bit)
    alpha = magnitude(precision)
    return (
        made.plain("cvm_clip", found, label=label, precision=precision) if max(-found.lo, found.hi) > alpha else found
    )


def _clip(made: LibraryExpressions, x: Expression, label: str, a_min: int, a_max: int) -> Expression:
    """The library would give a bound of 2^31 - 1 a precision of 33 bits, and refuses equal bounds."""
    if a_min == a_max:
        return made.filled(x, a_min, label)
    low, high = a_min > -INT32_MAX, a_max < INT32_MAX
    if low and high:
        return made.plain("clip", x, label=label, a_min=a_min, a_max=a_max)
    if low:
        return made.plain("broadcast_max", x, made.number(a_min), label=label)
    if high:
        negative = made.plain("negative", x, label=label)
        return made.plain(
            "negative", made.plain("broadcast_max", negative, made.number(-a_max), label=label), label=label
        )
    return x


def _where(made: LibraryExpressions, condition: Expression, a: Expression, b: Expression, label: str) -> Expression:
    """The library writes the condition with the precision of the result, so it must not need more bits."""
    if a.lo == a.hi == b.lo == b.hi == 0:
        return made.zeros(a, label)
    if condition.shape != a.shape or bits_of(condition) > max(bits_of(a), bits_of(b)):
        condition = made.plain("clip", condition, label=label, a_min=-1, a_max=1)
    if condition.shape != a.shape:
        rows = made.reshaped(condition, (*condition.shape, *(1,) * (len(a.shape) - 1)), label)
        condition = made.plain("broadcast_add", rows, made.zeros(a, label), label=label)
    return made.plain("where", condition, a, b, label=label)


def _reduce(op: str) -> Callable[..., Expression]:
    def rule(
        made: LibraryExpressions, x: Expression, label: str, axes: tuple[int, ...], keepdims: bool, exclude: bool
    ) -> Expression:
        attributes: dict[str, Any] = {"axes": axes, "keepdims": keepdims, "exclude": exclude}
        over = _summed if op == "sum" else _largest
        if axes and 1 not in x.shape:
            return over(made, x, label, attributes)
        call = Call((x.shape,), declaration_of(op).parse(attributes))
        (shape,) = declaration_of(op).shape(call)
        kept = tuple(extent for extent in x.shape if extent > 1)
        reduced = {axis % len(x.shape) for axis in axes} or set(range(len(x.shape)))
        if axes and exclude:
            reduced = set(range(len(x.shape))) - reduced
        numbers = [axis for axis, extent in enumerate(x.shape) if extent > 1]
        chosen = tuple(index for index, axis in enumerate(numbers) if axis in reduced)
        if chosen:
            dense = made.reshaped(x, kept, label)
            x = over(made, dense, label, {"axes": chosen, "keepdims": False, "exclude": False})
        if x.shape != shape:
            return made.reshaped(x, shape, label)
        return x

    return rule


def _largest(made: LibraryExpressions, x: Expression, label: str, attributes: Mapping[str, Any]) -> Expression:
    return made.plain("max", x, label=label, **attributes)


def _summed(made: LibraryExpressions, x: Expression, label: str, attributes: Mapping[str, Any]) -> Expression:
    """A sum of n terms has bl(n) bits more than a term; where these are too many, digits are summed separately."""
    found = made.plain("sum", x, label=label, **attributes)
    terms = math.prod(x.shape) // math.prod(found.shape)
    room = LARGEST - terms.bit_length()
    if bits_of(x) <= room:
        return found
    base = room // 2
    low, high = Tensors(made).split(x, base)
    if max(bits_of(low), bits_of(high)) > room:
        raise Unprovable(f"a sum of {terms} terms of {bits_of(x)} bits")
    lower, upper = (made.plain("sum", part, label=label, **attributes) for part in (low, high))
    return made.total("broadcast_add", made.raised(upper, base, label), lower, label)


def _flatten(made: LibraryExpressions, x: Expression, label: str) -> Expression:
    return made.reshaped(x, (math.prod(x.shape),), label)


def _expand_dims(made: LibraryExpressions, x: Expression, label: str, axis: int, num_newaxis: int) -> Expression:
    return made.plain("expand_dims", x, label=label, axis=axis, num_newaxis=num_newaxis) if num_newaxis else x


RULES: Mapping[str, Callable[..., Expression]] = {
    "broadcast_add": _add,
    "broadcast_sub": _sub,
    "elemwise_add": _elemwise_add,
    "elemwise_sub": _elemwise_sub,
    "broadcast_mul": _mul,
    "cvm_left_shift": _shift_left,
    "cvm_right_shift": _shift_right,
    "clip": _clip,
    "where": _where,
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "flatten": _flatten,
    "expand_dims": _expand_dims,
    "conv2d": contraction("conv2d"),
    "dense": contraction("dense"),
}
"""The rules of the ops that the library does not have, or does not compute as cvm means them, by op of cvm."""
