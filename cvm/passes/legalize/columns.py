"""floor(V / 2^S) of V = sum_i M_i * x_i + C, for integers M_i, C of any width, in int32 columns of base 2^b.

Let x_i = sum_j x_ij 2^(bj) and M_i = sum_j M_ij 2^(bj) be split into digits. Then V = sum_t C_t 2^(bt), where column
C_t is the sum of all products x_ij M_i,t-j and of a part of C. For t < t0, floor(C_t / 2^b) is carried to column t + 1,
and the remainder is dropped; that is exact, because nested floors compose. Let S = b t0 + u and k = b - u. Then

    floor(V / 2^S) = q0 + 2^k H,    q0 = floor(C_t0 / 2^u),    H = sum_{t > t0} C_t 2^(b (t - t0 - 1)).

cvm_right_shift rounds half up: rshift(z, n) = floor((z + 2^(n-1)) / 2^n). So 2^(n-1) must be subtracted from every
column that is shifted. All these terms together are F = sum_{t < t0} 2^(b-1+bt) + 2^(S-1), which is subtracted from C
first. C - F may be distributed over the columns in any way, since floor((z + 2^b a) / 2^b) = floor(z / 2^b) + a. The
first column with enough room takes all of it; the columns below take a balanced digit each.

Rounding may need both sums V and V - 1 (see `requantize`). They share everything except their carries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.passes.legalize.expressions import Expression, Unprovable
from cvm.passes.legalize.integers import Integers, balanced, digits, roomy
from cvm.passes.legalize.tensors import Interval, Tensors
from cvm.records import dataclass

__all__ = ["Columns", "Layout", "Quotients", "WeightedSum"]


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """floor((sum of M_i * x_i + C) / 2^S), for one or two constants C. The second constant is C or C - 1."""

    terms: tuple[tuple[Expression, Integers], ...]
    constants: tuple[Integers, ...]
    shift: int
    """S, which is at least 1."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a weighted sum is divided into columns."""

    base: int
    """b: each column weighs 2^b times as much as the column before it."""
    top: int
    """Tensors are split into digits until the last one's magnitude is at most 2^top."""
    multiplier_top: int
    """Multipliers are split into digits until the last one's magnitude is at most 2^multiplier_top."""
    last: int
    """t0: the column in which the result begins."""


@dataclass(frozen=True, slots=True)
class Quotients:
    """The parts of the quotients: q0 for each constant, the columns of H, and the constant for columns above these."""

    low: tuple[Expression, ...]
    above: tuple[Expression | None, ...]
    beyond: Integers
    step: int
    """k = b - u, where the result is q0 + 2^k H. It is negative only if H is 0."""

    @property
    def whole(self) -> bool:
        """Whether H is 0."""
        return all(column is None for column in self.above) and not self.beyond.any()


@dataclass(frozen=True, slots=True)
class Columns:
    """Builds weighted sums in the columns of a layout. All methods raise `Unprovable`."""

    tensors: Tensors
    layout: Layout

    def quotients(self, wanted: WeightedSum) -> Quotients:
        """The quotients by 2^S, in their parts q0 and H."""
        base, last = self.layout.base, self.layout.last
        rest = wanted.shift - base * last
        if rest > 32:
            raise Unprovable("the last shift exceeds 32 bits")
        products = self._products(wanted)
        fold = sum(1 << (base - 1 + base * t) for t in range(last)) + (1 << (wanted.shift - 1))
        remains = roomy(wanted.constants[0], fold.bit_length()) - fold
        # The first column adds the difference between the constant of each sum and the first constant.
        excess = [constant - wanted.constants[0] for constant in wanted.constants]
        carries: list[Expression] = []
        for t in range(last + 1):
            product = products.pop(t, None)
            if product is None and not carries:
                # All multipliers are multiples of 2^b, and S is 1: the only column that is shifted is constant.
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
            raise Unprovable("there are columns above a column that is shifted by more than the base")
        return found

    def _products(self, wanted: WeightedSum) -> dict[int, Expression]:
        """The sum of the products in each column that has products, by column."""
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
        """One column plus its constant, for every carry; and the rest of the constant, in units of the next column.

        The column takes the whole constant if it has enough room. It must if it is shifted by more than the base
        (``beyond``).
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
        """The columns of H up to the last product, with constants; and the constant for all columns above."""
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
        """A tensor that may replace H if only values of H within ``needed`` matter; None if H is 0.

        The columns are added by Horner's rule from the top. If the sum of the columns from t on matters only within
        [A, B], the sum of the columns above t matters only within [(A - max C_t) / 2^b, (B - min C_t) / 2^b]: outside
        of it, no C_t brings the sum back into [A, B].
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
