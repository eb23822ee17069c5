"""floor(V / 2^S) of V = sum_i M_i * x_i + C, for integers M_i, C of any width, in int32 columns of base 2^b.

With digits x_i = sum_j x_ij 2^(bj) and M_i = sum_j M_ij 2^(bj), V = sum_t C_t 2^(bt), C_t being the sum of all products
x_ij M_i,t-j and of what of C is put there. For t < t0, floor(C_t / 2^b) is carried to column t + 1 and the rest
dropped: nested floors compose. Let S = b t0 + u, k = b - u. Then

    floor(V / 2^S) = q0 + 2^k H,    q0 = floor(C_t0 / 2^u),    H = sum_{t > t0} C_t 2^(b (t - t0 - 1)).

cvm_right_shift rounds half up: rshift(z, n) = floor((z + 2^(n-1)) / 2^n). So 2^(n-1) is subtracted from every
column that is shifted. All of that is one constant, F = sum_{t < t0} 2^(b-1+bt) + 2^(S-1), taken from C beforehand. How
C - F is distributed over the columns is free, since floor((z + 2^b a) / 2^b) = floor(z / 2^b) + a: all of it goes to
the first column that has room for it, and below that a balanced digit to each.

Two sums V and V - 1, which rounding needs (see `requantize`), share all but their carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cvm.passes.legalize.expressions import Expression, Unprovable
from cvm.passes.legalize.integers import Integers, balanced, digits, roomy
from cvm.passes.legalize.tensors import Interval, Tensors

__all__ = ["Columns", "Layout", "Quotients", "WeightedSum"]


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """floor((sum of M_i * x_i + C) / 2^S) for each of one or two constants C, of which the second is C or C - 1."""

    terms: tuple[tuple[Expression, Integers], ...]
    constants: tuple[Integers, ...]
    shift: int
    """S, at least 1."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a weighted sum is laid out in columns."""

    base: int
    """b: a column has 2^b times the weight of the one before."""
    top: int
    """Tensors are split into digits until the last one's magnitude is at most 2^top."""
    multiplier_top: int
    """Likewise multipliers."""
    last: int
    """t0: the column that the result begins in."""


@dataclass(frozen=True, slots=True)
class Quotients:
    """q0 for each constant, and what stands above: the columns of H, and the constant left for the columns beyond."""

    low: tuple[Expression, ...]
    above: tuple[Expression | None, ...]
    beyond: Integers
    step: int
    """k = b - u: the result is q0 + 2^k H. Negative only if there is no H."""

    @property
    def whole(self) -> bool:
        """Whether there is no H."""
        return all(column is None for column in self.above) and not self.beyond.any()


@dataclass(frozen=True, slots=True)
class Columns:
    """The writer of weighted sums in the columns of a layout. All methods raise `Unprovable`."""

    tensors: Tensors
    layout: Layout

    def quotients(self, wanted: WeightedSum) -> Quotients:
        """The quotients by 2^S in two parts."""
        base, last = self.layout.base, self.layout.last
        rest = wanted.shift - base * last
        if rest > 32:
            raise Unprovable("the last shift exceeds 32 bits")
        products = self._products(wanted)
        fold = sum(1 << (base - 1 + base * t) for t in range(last)) + (1 << (wanted.shift - 1))
        remains = roomy(wanted.constants[0], fold.bit_length()) - fold
        # How much the constants of further sums exceed the first constant; the first column takes in this difference.
        excess = [constant - wanted.constants[0] for constant in wanted.constants]
        carries: list[Expression] = []
        for t in range(last + 1):
            product = products.pop(t, None)
            if product is None and not carries:
                # All multipliers are multiples of 2^b, and S is 1: the only column to be shifted is constant.
                digit = balanced(remains, base)
                columns, remains = (
                    [self.tensors.made.constant(digit + item) for item in excess],
                    (remains - digit) >> base,
                )
            else:
                columns, remains = self._column(product, carries, excess, remains, beyond=t == last and rest > base)
            carries = [
                self.tensors.down(column, base, "carry") if t < last else self.tensors.down(column, rest, "low")
                for column in columns
            ]
        above, remains = self._above(products, remains)
        found = Quotients(tuple(carries), above, remains, base - rest)
        if found.step < 0 and not found.whole:
            raise Unprovable("columns above the one that is shifted by more than the base")
        return found

    def _products(self, wanted: WeightedSum) -> dict[int, Expression]:
        """The sum of the products of every column that has any."""
        base = self.layout.base
        parts: dict[int, list[Expression]] = {}
        for x, multipliers in wanted.terms:
            factors = digits(multipliers, base, self.layout.multiplier_top)
            for i, digit in enumerate(self.tensors.digits(x, base, self.layout.top)):
                for j, factor in enumerate(factors):
                    if factor.any():
                        parts.setdefault(i + j, []).append(self.tensors.times(digit, factor, "product"))
        return {t: self.tensors.total(parts[t], "column") for t in sorted(parts)}

    def _column(
        self,
        product: Expression | None,
        carries: Sequence[Expression],
        excess: Sequence[Integers],
        remains: Integers,
        beyond: bool,
    ) -> tuple[list[Expression], Integers]:
        """One column with its constant, for every carry; and the constant that remains, in units of the next column.

        The whole constant is taken in if there is room, and must be where the column is shifted beyond the next one.
        """
        try:
            return self._with(product, carries, excess, remains), np.zeros_like(remains)
        except Unprovable:
            if beyond:
                raise
        digit = balanced(remains, self.layout.base)
        return self._with(product, carries, excess, digit), (remains - digit) >> self.layout.base

    def _with(
        self, product: Expression | None, carries: Sequence[Expression], excess: Sequence[Integers], digit: Integers
    ) -> list[Expression]:
        plus, total = self.tensors.plus, self.tensors.total
        if not carries:
            assert product is not None
            return [plus(product, digit + item, "column") for item in excess]
        if product is None:
            return [plus(carry, digit, "column") for carry in carries]
        shared = plus(product, digit, "column")
        return [total((shared, carry), "column") for carry in carries]

    def _above(
        self, products: dict[int, Expression], remains: Integers
    ) -> tuple[tuple[Expression | None, ...], Integers]:
        """The columns of H up to the last product, with constants; and the constant for all columns beyond."""
        above: list[Expression | None] = []
        for t in range(self.layout.last + 1, max(products, default=0) + 1):
            product = products.get(t)
            if product is None:
                digit = balanced(remains, self.layout.base)
                above.append(self.tensors.made.constant(digit) if digit.any() else None)
                remains = (remains - digit) >> self.layout.base
            else:
                (column,), remains = self._column(product, (), [np.zeros_like(remains)], remains, beyond=False)
                above.append(column)
        return tuple(above), remains

    def high(self, columns: Sequence[Expression | None], beyond: Integers, needed: Interval) -> Expression | None:
        """A tensor that may stand for H where H is wanted within ``needed`` only; None if H is 0.

        Horner's rule from the top. If what is made of the columns from t on is wanted within [A, B], what is made of
        those above is wanted within [(A - max C_t) / 2^b, (B - min C_t) / 2^b]: beyond, no C_t leads back inside.
        """
        base = self.layout.base
        wanted = [needed]
        for column in columns:
            lo, hi = (column.lo, column.hi) if column else (0, 0)
            wanted.append(((wanted[-1][0] - hi) >> base, -((lo - wanted[-1][1]) >> base)))
        found = None
        if beyond.any():
            found = self.tensors.made.constant(np.clip(beyond, *wanted[-1]))
        for column, limits in zip(reversed(columns), reversed(wanted[:-1]), strict=True):
            below = (column.lo, column.hi) if column else (0, 0)
            upper = found and self.tensors.raised(found, base, below, limits, "high")
            parts = [part for part in (upper, column) if part]
            found = self.tensors.total(parts, "high") if parts else None
        return found
