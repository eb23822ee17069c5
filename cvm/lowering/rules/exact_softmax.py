"""softmax of few items, exactly.

y_i = 1 / sum_j F(q_j - q_i) with F(d) = e^(s * d), so y_i reaches T > 0 if the sum is at most 1 / T. For two items, y_i
is a function of one difference, which a table gives. For more items, the sum is computed in fixed point, as
sum_j round(2^W * F), which is wrong by at most (n - 1) / 2 units, and compared with 2^W / T. The comparison has the
same result as with the true sum if, for every T, no sum of n - 1 values of F is nearer to 1 / T - 1 than
(n - 1) / 2^(W + 1). The smallest distance over all inputs is found by meeting in the middle: the sorted sums of one
half of the items are compared with what the sums of the other half leave.

The search uses float64. It starts from correctly rounded values of F, and only adds and subtracts; its error is far
below the distances that it accepts. If all differences are 0, the fixed-point sum is exact, and so is the comparison.
By the theorem of Lindemann and Weierstrass there are no other ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from cvm.lowering.context import Coded, Lowering, Result
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, TableForm, Term
from cvm.lowering.forms.gather import gathered
from cvm.lowering.parts.digits import array_digits, budget
from cvm.lowering.proofs.staircase import staircase_codes
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import Undecided, exp, rational, rounded, sigmoid
from cvm.quantization.steps import Step, step
from cvm.quantization.surds import least_integer

__all__ = ["softmax_of_few", "softmax_of_two"]

Floats = npt.NDArray[np.float64]

_MOST_SUMS = 2**19
"""The most sums of half of the items."""
_MOST_SEARCHES = 2**25
_MOST_BITS = 50
_MOST_STEPS = 2**12
_FLOAT_ERROR = 2.0**-45
"""A bound of the relative error of sums of up to 16 correctly rounded numbers, larger than necessary by a factor of 4.
"""
_MOST_RANK = 7


def softmax_of_two(lowering: Lowering, value: Value, scale: Fraction, axes: Sequence[int]) -> TableForm:
    """1 / (1 + e^-(x_i - x_j)): the logistic function of the difference to the other item."""
    shape = value.shape
    (axis,) = (axis for axis in axes if shape[axis] == 2)
    other = gathered(value, axis, np.array([1, 0]))
    lo, hi = value.range.hull()
    least = lowering.tensor_constant([hi - lo], "least")
    difference = value - other
    index = difference + least
    numbers = tuple(sigmoid(rational(scale * d)) for d in range(lo - hi, hi - lo + 1))
    return TableForm(shape, index, numbers)


def softmax_of_few(
    lowering: Lowering, value: Value, scale: Fraction, axes: Sequence[int], quantizer: Quantizer
) -> Result | None:
    """The exact codes, or None where exactness cannot be proven by enumeration."""
    shape = value.shape
    count = math.prod(shape[axis] for axis in axes)
    moving = [axis for axis in axes if shape[axis] > 1]
    if len(moving) != 1 or len(shape) > _MOST_RANK:
        return None
    lo, hi = value.range.hull()
    inverses = _inverses(quantizer)
    if inverses is None:
        return None
    bits = _proven_bits(scale, hi - lo, count, inverses)
    if bits is None:
        return None
    most = math.ceil(max(inverses, default=1)) + 1
    one = 1 << bits
    table = [_fixed_point(scale * d, one, most) for d in range(lo - hi, hi - lo + 1)]
    terms = _sums(lowering, value, moving[0], np.array(table, dtype=object), (hi - lo, count))
    form = LinearForm(shape, tuple(terms), Rationals.scalar(0, len(shape)))

    def reached(at: Step, scale: Fraction, constants: Sequence[Fraction]) -> int | None:
        """The least L = -sum in units with L >= -2^W / T. The sum exceeds 2^W, so y is between 0 and 1."""
        if at.sign <= 0:
            return None
        if at.square >= 1:
            return math.floor(-one / scale) + 1
        return least_integer(Fraction(0), [(-1, one * one / (at.square * scale * scale))], at.strict)

    found, note = staircase_codes(lowering, form, quantizer, reached)
    return Coded(found, note=f"softmax of {count} items: {note}, {bits} bits", any_rounding=True)


def _inverses(quantizer: Quantizer) -> list[float] | None:
    """1 / T for all steps 0 < T < 1 of the quantiser; None if there are too many."""
    channels = len(quantizer.scale) if isinstance(quantizer, LinearQuantizer) else 1
    if (quantizer.hi - quantizer.lo) * channels > _MOST_STEPS:
        return None
    steps = (step(quantizer, code, i) for i in range(channels) for code in range(quantizer.lo + 1, quantizer.hi + 1))
    squares = {item.square for item in steps if item.sign > 0 and item.square < 1}
    if any(square < Fraction(1, 2**40) for square in squares):
        return None
    return [math.sqrt(1 / square) for square in squares]


def _proven_bits(scale: Fraction, span: int, count: int, inverses: Sequence[float]) -> int | None:
    """A W with which fixed-point sums are proven to compare like the true sums; None if none is found."""
    if not inverses:
        return 0
    most = max(inverses)
    # A larger value makes every sum exceed all thresholds.
    largest = min(span, math.floor(math.log(most) / scale) + 1)
    first, second = (count - 1) // 2, count // 2
    sizes = [math.comb(span + largest + size, size) for size in (first, second)]
    if max(sizes) > _MOST_SUMS or sizes[0] * len(inverses) > _MOST_SEARCHES:
        return None
    try:
        values = np.array([_nearest(scale * d) for d in range(-span, largest + 1)])
    except Undecided:  # the scale is so large that a power of e has more digits than are tried
        return None
    (small, alone), (large, also_alone) = (_sums_of(values, size) for size in (first, second))
    if not (alone and also_alone):
        return None
    least = math.inf
    for inverse in inverses:
        wanted = (inverse - 1.0) - small
        index = np.searchsorted(large, wanted)
        for side in (np.minimum(index, large.size - 1), np.maximum(index - 1, 0)):
            distance = np.abs(large[side] - wanted)
            # If all differences are 0, the fixed-point sum is exact.
            ones = (small == first) & (large[side] == second)
            least = min(least, float(np.min(np.where(ones, np.inf, distance))))
    least -= _FLOAT_ERROR * (most + 1)
    if least <= 0:
        return None
    if math.isinf(least):  # the only difference that occurs is 0
        return 0
    bits = math.ceil(math.log2(count / least)) + 1
    return max(bits, 0) if bits <= _MOST_BITS else None


def _fixed_point(exponent: Fraction, one: int, most: int) -> int:
    """min(round(one * e^x), one * most)."""
    if exponent > math.log(most) + 1:
        return one * most
    return min(rounded(rational(one) * exp(rational(exponent))), one * most)


def _nearest(exponent: Fraction) -> float:
    """e^x as the nearest float64 or one next to it; 0 if it is below 10^-300."""
    if exponent < -700:
        return 0.0
    bits = 60 + max(0, -math.floor(exponent * Fraction(3, 2)))
    return float(Fraction(rounded(rational(2**bits) * exp(rational(exponent))), 2**bits))


def _sums_of(values: Floats, size: int) -> tuple[Floats, bool]:
    """The distinct sums of all multisets of ``size`` values, and whether at most one multiset has the sum ``size``."""
    if size == 0:
        return np.zeros(1), True
    choices = np.array(list(combinations_with_replacement(range(values.size), size)))
    sums, counts = np.unique(values[choices].sum(axis=1), return_counts=True)
    return sums, bool((counts[sums == size] == 1).all())


def _sums(
    lowering: Lowering, value: Value, axis: int, table: npt.NDArray[np.object_], size: tuple[int, int]
) -> list[Term]:
    """Emit -sum_j table[q_j - q_i] as terms, one for each digit of the table's entries."""
    span, count = size
    rank, shape = value.rank, value.shape
    rows, columns = ((*shape[:axis], *pair, *shape[axis + 1 :]) for pair in ((1, count), (count, 1)))
    others = value.reshape(rows)
    own = value.reshape(columns)
    least = lowering.tensor_constant([span], "least")
    index = (others - own) + least
    terms = []
    for digit, weight in array_digits(table, budget(count)):
        looked = lowering.emit("cvm_lut", lowering.tensor_constant(digit, "exp"), index)
        total = looked.sum((axis + 1,))
        terms.append(Term(total, Rationals.scalar(-weight, rank)))
    return terms
