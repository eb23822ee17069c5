"""Integers wider than int32 as digits of base 2^13: sums, products, comparisons with zero, and codes found bit by bit.

A `Wide` is balanced in all digits but the last: these lie in [-2^12, 2^12 - 1], and the last one within +-2^12. A
column of a product of two of them is a sum of at most as many products of up to 24 bits as the shorter one has digits.
That it is an int32 is proven by the intervals of the expressions, like everything here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cvm.passes.legalize.expressions import Expression
from cvm.passes.legalize.integers import Integers, digits
from cvm.passes.legalize.tensors import Tensors
from cvm.records import dataclass

__all__ = ["BASE", "Columns", "Numbers", "Wide", "in_two_parts"]

BASE = 13
"""Bits of a digit."""
_TOP = BASE - 1

Columns = Mapping[int, Expression]
"""An integer as the sum of columns, column t times 2^(13 t); what is left out is 0."""


@dataclass(frozen=True, slots=True)
class Wide:
    """An integer in digits, the lowest first; a digit that is 0 everywhere is None."""

    digits: tuple[Expression | None, ...]

    @property
    def columns(self) -> Columns:
        """The digits as columns."""
        return {t: digit for t, digit in enumerate(self.digits) if digit is not None}


@dataclass(frozen=True, slots=True)
class Numbers:
    """The writer of wide integers. All methods raise `Unprovable`."""

    tensors: Tensors

    def of(self, x: Expression) -> Wide:
        """An int32 tensor."""
        return Wide(tuple(self.tensors.digits(x, BASE, _TOP)))

    def constant(self, items: Integers) -> Wide:
        """Constants of any width."""
        parts = digits(items.astype(object), BASE, _TOP)
        return Wide(tuple(self.tensors.made.constant(part) if part.any() else None for part in parts))

    def product(self, a: Wide, b: Wide) -> Columns:
        """The product, in columns."""
        parts: dict[int, list[Expression]] = {}
        for i, x in a.columns.items():
            for j, y in b.columns.items():
                parts.setdefault(i + j, []).append(self._times(x, y))
        return {t: self.tensors.total(items, "column") for t, items in parts.items()}

    def _times(self, x: Expression, y: Expression) -> Expression:
        if x.elements is not None:
            x, y = y, x
        return x.times(y, "product") if y.elements is None else self.tensors.times(x, y.elements, "product")

    def total(self, *parts: Columns) -> Columns:
        """The sum, in columns."""
        found: dict[int, list[Expression]] = {}
        for columns in parts:
            for t, column in columns.items():
                found.setdefault(t, []).append(column)
        return {t: self.tensors.total(items, "column") for t, items in found.items()}

    def difference(self, a: Columns, b: Columns) -> Columns:
        """The difference, in columns."""
        found = dict(a)
        for t, column in b.items():
            found[t] = found[t].minus(column, "column") if t in found else column.negative("column")
        return found

    def linear(self, terms: Sequence[tuple[Expression, Integers]], constant: Integers) -> Wide:
        """The sum of tensors times constants, and of a constant."""
        products = [self.product(self.of(x), self.constant(factor)) for x, factor in terms]
        return self.normal(self.total(*products, self.constant(constant).columns))

    def normal(self, columns: Columns) -> Wide:
        """The digits of a sum of columns."""
        found: list[Expression | None] = []
        carry: Expression | None = None
        last = max(columns, default=-1)
        while len(found) <= last or carry is not None:
            parts = [part for part in (columns.get(len(found)), carry) if part is not None]
            column = self.tensors.total(parts, "column") if parts else None
            if column is None or (len(found) >= last and max(-column.lo, column.hi) <= 1 << _TOP):
                low, carry = column, None
            else:
                low, carry = self.tensors.split(column, BASE)
            found.append(None if low is None or low.lo == low.hi == 0 else low)
        return Wide(tuple(found))

    def raised(self, number: Wide, bit: int) -> Columns:
        """The number times 2^bit, in columns."""
        skipped, shift = divmod(bit, BASE)
        factor = np.full((1,), 1 << shift)
        return {t + skipped: self.tensors.times(d, factor, "raised") for t, d in number.columns.items()}

    def at_least(self, columns: Columns, least: int) -> Expression:
        """1 where the sum of the columns is ``least`` (0 or 1) or more, else 0.

        Nested floors compose: the sum over 2^13, 2^26, .. is carried from column to column, and it is not negative
        exactly if the last column with its carry is not.
        """
        last = max(columns, default=0)
        carry = self.tensors.made.constant(np.full((1,), -least))
        half = np.full((1,), -(1 << _TOP))
        for t in range(last + 1):
            column = columns.get(t)
            whole = carry if column is None else self.tensors.total((column, carry), "column")
            if t < last:
                carry = self.tensors.down(self.tensors.plus(whole, half, "floor"), BASE, "carry")
        return self.tensors.clip(self.tensors.plus(whole, np.full((1,), 1), "reached"), 0, 1, "reached")

    def counted(self, steps: int, step: Callable[[int], Expression]) -> Expression:
        """The count of the steps 1 .. ``steps`` that are reached, where a step is reached only if all below it are.

        ``step`` is called with the bits of the count, from the highest: it gives 1 where the number that is made of
        the bits that were set so far and this one is reached, else 0.
        """
        found: Expression | None = None
        for bit in reversed(range(steps.bit_length())):
            weighted = self.tensors.up(step(bit), bit, "count")
            found = weighted if found is None else found.plus(weighted, "count")
        if found is None:
            return self.tensors.made.constant(np.zeros((1,), np.int64))
        return self.tensors.clip(found, 0, steps, "count")


def in_two_parts(tensors: Tensors, lo: int, hi: int, apart: bool, code: Callable[[int, int], Expression]) -> Expression:
    """A code in [lo, hi]; ``code`` gives it clipped to any bounds, lo <= hi, of which 0 may not be inside if ``apart``.

    With 0 inside, or with so many codes that their count is no int32, it is the sum of what it is clipped to [lo, 0]
    and to [0, hi]: one of these is 0.
    """
    if lo < 0 < hi and (apart or hi - lo >= 2**31):
        return tensors.total((code(lo, 0), code(0, hi)), "code")
    return code(lo, hi)
