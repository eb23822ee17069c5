"""``normalize`` in the document's ops: sums of rows once, then comparisons of squares, bit by bit.

With q = lo + k, the code reaches q if A |A| - T |T| V >= 0 for A = 2 m t r and T = (2 q - 1) k - 2 c (formal.computed);
with half_even, for an odd q, >= 1. The parity of q is that of lo for all bits of k but the lowest one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cvm.ops.axes import normal
from cvm.passes.legalize.expressions import Expression, Expressions
from cvm.passes.legalize.integers import Integers
from cvm.passes.legalize.tensors import Tensors
from cvm.passes.legalize.wide import BASE, Numbers, Wide, in_two_parts

__all__ = ["normalize"]


def normalize(
    made: Expressions,
    x: Expression,
    parameters: Sequence[Integers],
    axes: tuple[int, ...],
    statistic: str,
    shift: int,
    rounding: str,
    lo: int,
    hi: int,
) -> Expression:
    """The result of a normalize: ``parameters`` are m, c, k, r and e. Raises `Unprovable`."""
    numbers = Numbers(Tensors(made))
    m, c, k, r, e = (item.astype(object) for item in parameters)
    root, added = int(r.item()), np.full((1,), int(e.item()) << shift, object)
    n, t, squares = _moments(numbers, x, axes, statistic)
    V = numbers.normal(
        numbers.total(
            numbers.product(squares, numbers.constant(np.full((1,), root * root, object))),
            numbers.constant(added).columns,
        )
    )
    A = numbers.normal(numbers.product(t, numbers.constant(2 * root * n * m)))
    left = numbers.normal(_signed_square(numbers, A)).columns

    def code(least: int, largest: int) -> Expression:
        T = numbers.constant((2 * least - 1) * k - 2 * c).columns
        step = numbers.constant(2 * k)

        def reached(bit: int) -> Expression:
            nonlocal T
            raised = numbers.raised(step, bit)
            square = numbers.normal(_signed_square(numbers, numbers.normal(numbers.total(T, raised))))
            odd = (least + (bit == 0)) % 2 == 1
            difference = numbers.difference(left, numbers.product(square, V))
            found = numbers.at_least(difference, int(rounding == "half_even" and odd))
            T = numbers.total(T, {place: found.times(column, "taken") for place, column in raised.items()})
            return found

        count = numbers.counted(largest - least, reached)
        return numbers.tensors.plus(count, np.full((1,), least), "code")

    return in_two_parts(numbers.tensors, lo, hi, apart=False, code=code)


def _moments(numbers: Numbers, x: Expression, axes: tuple[int, ...], statistic: str) -> tuple[int, Wide, Wide]:
    """A factor, a wide integer that gives t times that factor, and Q; sums keep their axes with extent 1."""
    places = normal(axes, len(x.shape))
    n = math.prod(x.shape[axis] for axis in places)
    digits = numbers.of(x)
    square = numbers.normal(numbers.product(digits, digits))
    # A digit is within +-2^12, so that the sum of fewer than 2^19 of them is an int32.
    squares = numbers.normal({t: digit.sum(places, keepdims=True) for t, digit in square.columns.items()})
    if statistic == "square_sum":
        return 1, digits, squares
    many = numbers.constant(np.full((1,), n, object))
    of_n = numbers.product(squares, many)
    if statistic == "mean_square":
        return n, digits, numbers.normal(of_n)
    total = numbers.of(x.sum(places, keepdims=True))
    t = numbers.difference(numbers.product(digits, many), total.columns)
    return 1, numbers.normal(t), numbers.normal(numbers.difference(of_n, numbers.product(total, total)))


def _signed_square(numbers: Numbers, number: Wide) -> dict[int, Expression]:
    """The product x |x|, in columns."""
    positive = numbers.at_least(number.columns, 0)
    sign = numbers.tensors.plus(numbers.tensors.up(positive, 1, "sign"), np.full((1,), -1), "sign")
    magnitude = Wide(tuple(None if digit is None else digit.times(sign, "magnitude") for digit in number.digits))
    return dict(numbers.product(number, magnitude))


assert 2 * BASE < 31, "a product of two digits is an int32"
