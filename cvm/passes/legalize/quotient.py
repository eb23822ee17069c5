"""``quotient`` in the document's ops: a long division, bit by bit.

With q = lo + k, the code reaches q if R - k S >= 0. For roundings to the nearest integer R = 2 N + (1 - 2 lo) D and
S = 2 D; for N / D >= 0 toward zero, R = N - lo D and S = D; for N / D <= 0, R = N - (lo - 1) D - 1. With half_even a
tie does not reach an odd q, so that R - k S >= 1 is asked. The bits of k are found from the highest: what is left of R
is reduced by the multiples of S that are set. The parity of q is that of lo for all bits but the lowest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.passes.legalize.expressions import Expression, Expressions
from cvm.passes.legalize.integers import Integers
from cvm.passes.legalize.tensors import Tensors
from cvm.passes.legalize.wide import Numbers, in_two_parts

__all__ = ["quotient"]


def quotient(
    made: Expressions,
    tensors: Sequence[Expression],
    factors: Sequence[Integers],
    terms: int,
    rounding: str,
    lo: int,
    hi: int,
) -> Expression:
    """The result of a quotient whose elements lie in [lo, hi]: ``factors`` are m_i, w_j, c and e.

    Raises `Unprovable`, as for operands whose interval admits that D is not positive in digits that do not fit.
    """
    numbers = Numbers(Tensors(made))
    *products, c, e = (factor.astype(object) for factor in factors)

    def combined(of_n: int, of_d: int, rest: int) -> tuple[list[tuple[Expression, Integers]], Integers]:
        scaled = [factor * (of_n if i < terms else of_d) for i, factor in enumerate(products)]
        pairs = [(x, factor) for x, factor in zip(tensors, scaled, strict=True) if factor.any()]
        return pairs, np.asarray(c * of_n + e * of_d + rest, object)

    def code(least: int, largest: int) -> Expression:
        if rounding == "toward_zero":
            up = least >= 0
            number = numbers.linear(*combined(1, -least if up else 1 - least, 0 if up else -1))
            step = numbers.linear(*combined(0, 1, 0))
        else:
            number = numbers.linear(*combined(2, 1 - 2 * least, 0))
            step = numbers.linear(*combined(0, 2, 0))
        left = number.columns

        def reached(bit: int) -> Expression:
            nonlocal left
            raised = numbers.raised(step, bit)
            odd = (least + (bit == 0)) % 2 == 1
            found = numbers.at_least(numbers.difference(left, raised), int(rounding == "half_even" and odd))
            left = numbers.difference(left, {t: column.times(found, "taken") for t, column in raised.items()})
            return found

        count = numbers.counted(largest - least, reached)
        return numbers.tensors.plus(count, np.full((1,), least), "code")

    return in_two_parts(numbers.tensors, lo, hi, rounding == "toward_zero", code)
