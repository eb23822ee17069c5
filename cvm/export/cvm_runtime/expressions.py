"""Expressions in the ops of cvm-runtime: an op of cvm becomes ops for which the library has precision rules.

`cvm.export.cvm_runtime.arithmetic` has the rule of each op; this module has what the rules build expressions with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from cvm.frontends.cvm_runtime.precisions import LARGEST
from cvm.limits import INT32_MAX
from cvm.ops import Call, precision
from cvm.ops import get as declaration_of
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable
from cvm.passes.legalize.tensors import Tensors
from cvm.program import AttributeValue

__all__ = ["LibraryExpressions", "bits_of", "narrow", "shifts_alike"]

_DIGIT = 15
"""The bits of a digit of a wide operand of a product."""


def bits_of(x: Expression) -> int:
    """The proven precision of an expression."""
    return precision(x.lo, x.hi)


def narrow(x: Expression) -> Expression:
    """An operand of a sum, which may have at most 31 bits. Raises `Unprovable`."""
    if bits_of(x) == LARGEST:
        raise Unprovable("an operand of a sum has 32 bits")
    return x


def shifts_alike(bits: int, precision: int, shift_bit: int) -> bool:
    """Whether both backends of the library shift a tensor of ``bits`` bits to the right as the op means it."""
    clipped = precision + shift_bit < LARGEST or precision > bits - shift_bit
    return clipped and shift_bit < 31 and not (shift_bit == 1 and bits == LARGEST)


class LibraryExpressions(Expressions):
    """Expressions under the rules of the library. `apply` takes an op of cvm and expresses it in ops of the library."""

    def __init__(self, rules: Mapping[str, Callable[..., Expression]]) -> None:
        """``rules`` has the rules of those ops of cvm that the library does not compute as cvm means them, by name."""
        super().__init__()
        self._rules = rules
        self.tensors = Tensors(self)
        self._within = 0

    def apply(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """Express an op of cvm. Raises `Unprovable`."""
        rule = self._rules.get(op)
        if rule is None:
            return self.plain(op, *inputs, label=label, **attributes)
        return rule(self, *inputs, label=label, **attributes)

    def plain(self, op: str, *inputs: Expression, label: str, **attributes: AttributeValue) -> Expression:
        """Apply an op unchanged. With constant inputs the result is a constant of the op's full shape."""
        found = super().apply(op, *inputs, label=label, **attributes)
        if found.elements is None:
            return found
        declaration = declaration_of(op)
        (shape,) = declaration.shape(Call(tuple(item.shape for item in inputs), declaration.parse(attributes)))
        return found if found.shape == shape else self.constant(np.broadcast_to(found.elements, shape), narrow=False)

    def valid_counts(self, x: Expression, threshold: int, label: str) -> tuple[Expression, Expression]:
        """Both results of get_valid_count, as two expressions that have the index of the result as an attribute."""
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
        """A tensor of the shape of ``x``, filled with a number."""
        zeros = self.zeros(x, label)
        if value == 0:
            return zeros
        largest = self.plain("broadcast_max", zeros, self.number(abs(value)), label=label)
        return largest if value > 0 else self.plain("negative", largest, label=label)

    def reshaped(self, x: Expression, shape: tuple[int, ...], label: str) -> Expression:
        """The expression ``x`` in another shape."""
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
        """The sum of operands of which some are split as x = h + h + r: H + (R + H), H from the h, R from the rest."""
        half, rest = self.halves(a, label) if split[0] else (None, a)
        other, others = self.halves(b, label) if split[1] else (None, b)
        rest = self.plain(op, narrow(rest), narrow(others), label=label)
        if half is None:
            assert other is not None
            half = self.plain("negative", other, label=label) if op.endswith("sub") else other
        elif other is not None:
            half = self.plain(op, half, other, label=label)
        lower = self.plain("broadcast_add", narrow(half), narrow(rest), label=label)
        return self.plain("broadcast_add", half, narrow(lower), label=label)

    def halves(self, x: Expression, label: str) -> tuple[Expression, Expression]:
        """(h, r) with x = h + h + r, where h is x / 2 truncated toward zero; r is -1, 0 or 1 and has the sign of x."""
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
        if self._within > 1:  # an operand is split at most twice
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
        """The product x * 2^shift: one product as large as the rules admit, then doublings."""
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
