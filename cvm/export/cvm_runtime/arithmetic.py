"""Expressions that cvm-runtime takes: every op on operands that its precision rules admit, and without its defects.

An operand counts with the precision that is proven of it: writing adds the ``cvm_clip`` that says so where the rules
derive a larger one. What an op cannot say directly is said in parts:

    a + b       with 32 bits: halves, a = h + h + r, r in {-1, 0, 1}
    a * b       beyond 32 bits together: the constant in halves, or one operand in digits
    x * 2^s     products and doublings; their left shift fails on one backend
    x >> s      apart from the clip, where that backend leaves it out; by 31 and 32, and by 1 from 32 bits, otherwise
    sum, max    without extents of 1, which that backend confuses; over axes by their numbers; a wide sum in digits
    where       by elements, since rows are copied in part
    clip        without bounds that nothing reaches: their precisions are one bit too many

Everything raises `Unprovable` for what no such rule says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cvm.export.cvm_runtime.contractions import contraction
from cvm.frontends.cvm_runtime.precisions import LARGEST, magnitude
from cvm.limits import INT32_MAX
from cvm.ops import Call, precision
from cvm.ops import get as declaration_of
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable
from cvm.passes.legalize.tensors import Tensors
from cvm.program import AttributeValue

__all__ = ["LibraryExpressions", "bits_of", "shifts_alike"]

_DIGIT = 15
"""Bits of a digit of a wide operand of a product."""


def bits_of(x: Expression) -> int:
    """The proven precision of an expression."""
    return precision(x.lo, x.hi)


def _narrow(x: Expression) -> Expression:
    """An operand of a sum, which has at most 31 bits."""
    if bits_of(x) == LARGEST:
        raise Unprovable("an operand of a sum has 32 bits")
    return x


def shifts_alike(bits: int, precision: int, shift_bit: int) -> bool:
    """Whether both backends shift a tensor of so many bits right as the op means it."""
    clipped = precision + shift_bit < LARGEST or precision > bits - shift_bit
    return clipped and shift_bit < 31 and not (shift_bit == 1 and bits == LARGEST)


class LibraryExpressions(Expressions):
    """Expressions in the rules of the library. `apply` takes the ops of cvm and says them in those of the library."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = Tensors(self)
        self._within = 0

    def apply(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """An op on expressions. Raises `Unprovable`."""
        rule = _RULES.get(op)
        if rule is None:
            return self.plain(op, *inputs, label=label, **attributes)
        return rule(self, *inputs, label=label, **attributes)

    def plain(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """An op as it is. Of constants it is one, of the op's shape: what reads it may count its elements."""
        found = super().apply(op, *inputs, label=label, **attributes)
        if found.elements is None:
            return found
        declaration = declaration_of(op)
        (shape,) = declaration.shape(Call(tuple(item.shape for item in inputs), declaration.parse(attributes)))
        return found if found.shape == shape else self.constant(np.broadcast_to(found.elements, shape), narrow=False)

    def valid_counts(self, x: Expression, threshold: int, label: str) -> tuple[Expression, Expression]:
        """Both results of get_valid_count, of which each is an expression with its index as an attribute."""
        declaration = declaration_of("get_valid_count")
        call = Call((x.shape,), declaration.parse({"score_threshold": threshold}), (x.range,))
        found = []
        for index, (shape, bounds) in enumerate(zip(declaration.shape(call), declaration.range(call), strict=True)):
            key = ("get_valid_count", x.number, threshold, index)
            attributes: Mapping[str, AttributeValue] = {"score_threshold": threshold, "output": index}
            item = self._known.get(key) or self._add(
                key, shape, bounds.per_channel(), op="get_valid_count", inputs=(x,), attributes=attributes, label=label
            )
            found.append(item)
        return found[0], found[1]

    def number(self, value: int) -> Expression:
        """A constant that broadcasts to any tensor."""
        return self.constant(np.array([value]))

    def zeros(self, x: Expression, label: str) -> Expression:
        """Zeros of the shape of ``x``."""
        if x.elements is not None:
            return self.constant(np.zeros(x.shape, np.int64), narrow=False)
        return self.plain("cvm_clip", x, label=label, precision=1)

    def filled(self, x: Expression, value: int, label: str) -> Expression:
        """A number in the shape of ``x``."""
        zeros = self.zeros(x, label)
        if value == 0:
            return zeros
        largest = self.plain("broadcast_max", zeros, self.number(abs(value)), label=label)
        return largest if value > 0 else self.plain("negative", largest, label=label)

    def reshaped(self, x: Expression, shape: tuple[int, ...], label: str) -> Expression:
        """``x`` in another shape."""
        return x if x.shape == shape else self.plain("reshape", x, label=label, target_shape=shape)

    # --- sums and products --------------------------------------------------------------------------------------------

    def total(self, op: str, a: Expression, b: Expression, label: str) -> Expression:
        """The sum a + b or the difference a - b, as ``op`` says."""
        wide = bits_of(a) == LARGEST, bits_of(b) == LARGEST
        if not any(wide):
            return self.plain(op, a, b, label=label)
        joint = "broadcast_sub" if op.endswith("sub") else "broadcast_add"
        try:
            return self._total_of_halves(joint, a, b, wide, label)
        except Unprovable:
            return self._total_of_halves(joint, a, b, (True, True), label)

    def _total_of_halves(
        self, op: str, a: Expression, b: Expression, split: tuple[bool, bool], label: str
    ) -> Expression:
        """With x = h + h + r for each operand that is split: H + (R + H), where H is of the h, R of all the rest."""
        half, rest = self.halves(a, label) if split[0] else (None, a)
        other, others = self.halves(b, label) if split[1] else (None, b)
        rest = self.plain(op, _narrow(rest), _narrow(others), label=label)
        if half is None:
            assert other is not None
            half = self.plain("negative", other, label=label) if op.endswith("sub") else other
        elif other is not None:
            half = self.plain(op, half, other, label=label)
        lower = self.plain("broadcast_add", _narrow(half), _narrow(rest), label=label)
        return self.plain("broadcast_add", half, _narrow(lower), label=label)

    def halves(self, x: Expression, label: str) -> tuple[Expression, Expression]:
        """(h, r) with x = h + h + r, where h is x / 2 toward zero: r is -1, 0 or 1, of the sign of x."""
        h = self.plain("broadcast_div", x, self.number(2), label=label)
        if h.elements is not None and x.elements is not None:
            return h, self.constant(x.elements - 2 * h.elements)
        even = self.plain("broadcast_add", h, h, label=label)
        rest = self.plain("broadcast_greater", x, even, label=label)
        if x.lo < 0:
            below = self.plain("broadcast_greater", even, x, label=label)
            rest = self.plain("broadcast_sub", rest, below, label=label)
        return h, rest

    def product(self, a: Expression, b: Expression, label: str) -> Expression:
        """The product a * b."""
        if bits_of(a) + bits_of(b) <= LARGEST:
            return self.plain("broadcast_mul", a, b, label=label)
        for x, factor in ((a, b), (b, a)):
            power = max(0, factor.lo.bit_length() - 1)
            if (
                factor.lo == factor.hi == 1 << power
                and math.prod(factor.shape) == 1
                and len(factor.shape) <= len(x.shape)
            ):
                return self.raised(x, power, label)
        if self._within > 1:  # what has been split twice is split no further
            raise Unprovable("a product of more than 32 bits")
        self._within += 1
        try:
            return self._split_product(a, b, label)
        finally:
            self._within -= 1

    def _split_product(self, a: Expression, b: Expression, label: str) -> Expression:
        if a.elements is not None:
            a, b = b, a
        if b.elements is not None and max(abs(b.lo), abs(b.hi)) > 1 and bits_of(a) + bits_of(b) <= LARGEST + 2:
            first = np.sign(b.elements) * (np.abs(b.elements) >> 1)
            upper, lower = (self.product(a, self.constant(items), label) for items in (first, b.elements - first))
            return self.total("broadcast_add", upper, lower, label)
        if bits_of(a) < bits_of(b):
            a, b = b, a
        low, high = self.tensors.split(a, _DIGIT)
        raised = self.raised(self.product(high, b, label), _DIGIT, label)
        return self.total("broadcast_add", raised, self.product(low, b, label), label)

    def raised(self, x: Expression, shift: int, label: str) -> Expression:
        """The product x * 2^shift: a product by as much as the rules admit, doubled as often as is left."""
        if max(abs(x.lo), abs(x.hi)) << shift > INT32_MAX:
            raise Unprovable("a product by a power of two exceeds int32")
        by_product = max(0, min(shift, LARGEST - 2 - bits_of(x)))
        if by_product > 1:
            x = self.plain("broadcast_mul", x, self.number(1 << by_product), label=label)
            shift -= by_product
        for _ in range(shift):
            x = self.plain("broadcast_add", x, x, label=label)
        return x


# --- one rule per op --------------------------------------------------------------------------------------------------


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
    """clip(x * 2^s, +-alpha): where x is clipped first to what reaches alpha, the product has precision + 1 bits."""
    alpha = magnitude(precision)
    if bits_of(x) + shift_bit > LARGEST:
        if precision == LARGEST:
            raise Unprovable("a left shift that is clipped to 32 bits")
        if alpha < 1 << shift_bit:  # any number but 0 reaches alpha
            sign = made.apply("clip", x, label=label, a_min=-1, a_max=1)
            return made.product(sign, made.number(alpha), label)
        reached = -(-alpha >> shift_bit)
        x = made.apply("clip", x, label=label, a_min=-reached, a_max=reached)
    x = made.raised(x, shift_bit, label)
    return made.plain("cvm_clip", x, label=label, precision=precision) if max(-x.lo, x.hi) > alpha else x


def _shift_right(made: LibraryExpressions, x: Expression, label: str, precision: int, shift_bit: int) -> Expression:
    """Their other backend leaves the clip out if precision + shift_bit >= 32, and does not round by 31 bits or more."""
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
    """A bound of 2^31 - 1 would need 33 bits there; equal bounds are refused."""
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
    """The condition is written with the precision of the result, so it must not need more."""
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
    """A sum of n terms has bl(n) bits more than a term: where these are too many, digits are summed."""
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


_RULES: Mapping[str, Callable[..., Expression]] = {
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
