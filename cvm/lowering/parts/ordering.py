"""Replacement of real tensors by integers in the same order, for comparisons, maxima and their positions.

The integers of a form with one positive factor already have the order of its numbers. The number 0, which a constant
border adds, is one of these integers or lies between two of them. Any other operand with few codes is replaced by
ranks: the index of each number among all numbers that occur, in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.limits import INT32_MAX
from cvm.lowering.context import Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Form, LinearForm, Shape, TableForm, Term
from cvm.lowering.parts.axis_sums import spread
from cvm.lowering.proofs.table import tabulate
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Real, Undecided, rational
from cvm.records import dataclass

__all__ = ["Ordered", "by_ranks", "in_order"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Ordered:
    """A ``value`` whose integers have the order of the real numbers, and the integers ``zero`` that stand for 0.

    ``zero`` broadcasts to the value. ``decoded`` maps integers that were selected from both, and their shape, back to a
    form. It is None if ``zero`` has its place in the order, but no number of the form can express it.
    """

    value: Value
    zero: Array
    decoded: Callable[[Value, Shape], LinearForm | TableForm] | None


def in_order(
    lowering: Lowering, operand: Form, axes: Sequence[int], zero: bool, beside_items: bool = False
) -> Ordered | None:
    """Order a linear form of one term. Items are compared with each other along ``axes``.

    Returns None for other forms, and if factor or constant vary along ``axes``. With ``zero``, the number 0 is compared
    too: if it lies between two integers, all integers are doubled, and zero is the odd integer between them. A pending
    clamp stays pending. It keeps the order but makes numbers equal, so the result is right for maxima, but not for
    their positions. ``beside_items`` says that only maxima of zero and at least one item are needed. Then a zero below
    all items may be any integer that is not above them.
    """
    if not isinstance(operand, LinearForm) or len(operand.terms) != 1:
        return None
    lower, upper = operand.lower, operand.upper
    if zero and ((lower is not None and lower > 0) or (upper is not None and upper < 0)):
        return None
    (term,) = operand.terms
    numerators, constant, rank = term.factor.numerators, operand.constant, operand.rank
    if any(items.shape[axis] > 1 for items in (term.factor, constant) for axis in axes):
        return None
    if (numerators == 0).any():
        return None
    value, factor = spread(lowering, operand, range(rank)).terms[0].value, term.factor
    if (numerators < 0).all():
        value, factor = -value, -factor
    elif (numerators < 0).any():
        signs = np.where(numerators < 0, -1, 1).astype(object)
        value = value * lowering.tensor_constant(signs, "signs")
        factor = Rationals(numerators * signs, factor.denominator)

    def decoded(found: Value, shape: Shape) -> LinearForm:
        return LinearForm(shape, (Term(found, factor),), constant, lower, upper)

    if not zero:
        return Ordered(value, np.zeros((1,) * rank, dtype=object), decoded)
    root = -constant / factor
    floors = root.numerators // root.denominator
    odd = np.where(root.numerators % root.denominator == 0, 0, 1)
    if not odd.any() and max(abs(int(item)) for item in floors.ravel()) < 2**31:
        return Ordered(value, floors, decoded)
    lo, hi = value.range.hull()
    if beside_items and (floors < lo).all():
        return Ordered(value, np.full((1,) * rank, lo, dtype=object), decoded)
    if 2 * max(hi + 1, 1 - lo) > INT32_MAX:
        return None
    # If zero lies beyond all integers that occur, only the side matters.
    doubled = np.where((floors < lo - 1) | (floors > hi), 2 * np.clip(floors, lo - 1, hi) + 1, 2 * floors + odd)
    two = lowering.tensor_constant([2], "two")
    return Ordered(value * two, doubled, None)


def by_ranks(lowering: Lowering, operand: Form) -> Ordered | None:
    """Order an operand by the ranks of its numbers and of zero; None if it has too many codes for a table.

    Raises `Unsupported` if the order of two numbers cannot be decided.
    """
    try:
        table = operand if isinstance(operand, TableForm) else tabulate(lowering, [operand], lambda x: x, operand.shape)
    except Unsupported:
        return None
    numbers = (*table.numbers, rational(0))
    try:
        ranks, sorted_numbers = _ranks(numbers)
    except Undecided as error:
        message = f"the order of two numbers cannot be decided: {error}"
        raise lowering.unsupported(message) from None
    lookup = lowering.tensor_constant(ranks[:-1], "ranks")
    value = lowering.emit("cvm_lut", lookup, table.value)

    def decoded(found: Value, shape: Shape) -> TableForm:
        return TableForm(shape, found, sorted_numbers)

    return Ordered(value, np.array([ranks[-1]], dtype=object), decoded)


def _ranks(numbers: Sequence[Real]) -> tuple[list[int], tuple[Real, ...]]:
    """The rank of each number among the distinct numbers, and the distinct numbers in ascending order."""
    exact = [number.exact for number in numbers]
    if all(item is not None for item in exact):
        values: list[Any] = exact
        order = sorted(set(values))
        index_of = {item: index for index, item in enumerate(order)}
        return [index_of[item] for item in values], tuple(rational(item) for item in order)

    def rising(i: int, j: int) -> int:
        return _compare(numbers[i], numbers[j])

    positions = sorted(range(len(numbers)), key=cmp_to_key(rising))
    ranks, distinct = [0] * len(numbers), [numbers[positions[0]]]
    for before, position in pairwise(positions):
        if _compare(numbers[before], numbers[position]):
            distinct.append(numbers[position])
        ranks[position] = len(distinct) - 1
    return ranks, tuple(distinct)


def _compare(x: Real, y: Real) -> int:
    if x is y:
        return 0
    if y.exact is not None:
        return x.compare(y.exact)
    if x.exact is not None:
        return -y.compare(x.exact)
    if x.infinite or y.infinite:
        return x.infinite - y.infinite
    return (x - y).compare(Fraction(0))
