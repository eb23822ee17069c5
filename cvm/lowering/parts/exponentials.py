"""softmax over many items by tables of the exponential and one quotient (an op of op-set 2).

y_i = exp(x_i) / sum_j exp(x_j) over codes x = s * q. With d_j = max(q) - q_j, the tables hold E_j = 2^W * exp(-s * d_j)
and N_i = K * E_i for K = 1 / scale of the result, off by less than 1 each; the largest E is exactly 2^W, and so is
the largest N where K is an integer. The quotient N_i / sum E differs from y_i / scale by at most (n * K + 1) / 2^W
steps. Where all items are equal and K is an integer it is exact, and so is a tie; where K is no integer, 1 / n is no
tie, and by the theorem of Lindemann and Weierstrass there are no others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.context import Coded, Lowering
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm, Term
from cvm.lowering.parts.digits import array_digits, budget
from cvm.lowering.parts.quotient import quotient_by_op, quotient_factors
from cvm.ops.computed import MAX_DIVISOR_TERMS
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import code
from cvm.quantization.rationals import Rationals
from cvm.quantization.reals import exp, rational, rounded
from cvm.records import dataclass

__all__ = ["Logits", "powers_of_e", "softmax_by_quotient"]

Array = npt.NDArray[Any]

_GUARD = 40


@dataclass(frozen=True, eq=False, slots=True)
class Logits:
    """What a softmax over ``axes`` reads: ``unit`` times integers, unit > 0.

    With a ``span``, items whose integer is more than so much below the greatest one are hidden.
    """

    value: Value
    unit: Fraction
    axes: Sequence[int]
    span: int | None = None

    @property
    def farthest(self) -> int:
        """The greatest distance of an item that is not hidden."""
        lo, hi = self.value.range.hull()
        return hi - lo if self.span is None else self.span

    def table(self, found: Sequence[int]) -> Array:
        """A table of distances from the greatest item, which ends with a zero for the hidden ones if there are any."""
        return np.array([*found, *([] if self.span is None else [0])], dtype=object)


def softmax_by_quotient(lowering: Lowering, logits: Logits, quantizer: LinearQuantizer, fineness: int) -> Coded | None:
    """Emit the codes of softmax over ``axes`` of ``unit`` times the integers of ``value``.

    Numbers may differ from the exact ones by 2^-fineness steps of the result. Returns None where the op does not
    take it.
    """
    # Results lie between 0 and 1: there are no other codes.
    quantizer = replace(quantizer, lo=code(Fraction(0), quantizer), hi=code(Fraction(1), quantizer))
    value, unit, axes = logits.value, logits.unit, logits.axes
    rank, shape = value.rank, value.shape
    count = math.prod(shape[axis] for axis in axes)
    inverse = 1 / quantizer.scale[0]
    width = fineness + math.ceil(count * inverse + 1).bit_length()
    digit_bits = (budget(count) + 1).bit_length() - 1
    if -(-(width + 1) // digit_bits) > MAX_DIVISOR_TERMS:
        return None
    span = logits.farthest
    table, multiples = (
        logits.table(found) for found in (powers_of_e(unit, width, span), _multiples(unit, width, span, inverse))
    )
    above, below = array_digits(multiples, INT32_MAX), array_digits(table, budget(count))
    plain, shift = _without_offset(quantizer)
    if not _fits(above, below, plain):
        return None
    distance = value.max(tuple(axes), keepdims=True) - value

    def looked_up(digit: Array) -> Value:
        return lowering.emit("cvm_lut", lowering.tensor_constant(digit, "exp"), distance)

    def summed(digit: Array) -> Value:
        total = looked_up(digit).sum(tuple(axes), keepdims=True)
        # The item with the greatest code has the distance 0: this states what the interval does not show.
        return total.clip(int(digit[0]), total.range.hull()[1]) if digit[0] else total

    def form(terms: Iterable[tuple[Value, Fraction]]) -> LinearForm:
        items = tuple(Term(found, Rationals.scalar(weight, rank)) for found, weight in terms)
        return LinearForm(shape, items, Rationals.scalar(0, rank))

    numerator = form((looked_up(digit), weight * quantizer.scale[0]) for digit, weight in above)
    denominator = form((summed(digit), Fraction(weight)) for digit, weight in below)
    found = quotient_by_op(lowering, numerator, denominator, plain)
    assert found is not None  # as `_fits` says
    if shift:
        found = found + lowering.tensor_constant([shift], "zero")
    steps = (count * inverse + 1) / 2**width
    note = f"may differ only within {float(steps):.1e} steps of a rounding threshold"
    return Coded(found, Fraction(1), note, any_rounding=quantizer.rounding != "toward_zero")


def _fits(above: Sequence[tuple[Array, int]], below: Sequence[tuple[Array, int]], quantizer: LinearQuantizer) -> bool:
    """Whether a `quotient` has parameters for digits of the numerator and of the denominator, given with weights."""
    if not quantizer.per_tensor:
        return False
    scale, offset = quantizer.scale[0], quantizer.offset[0]

    def factors(items: Iterable[Fraction]) -> list[Rationals]:
        return [Rationals.scalar(item, 1) for item in (*items, Fraction(0))]

    tops = [*(weight * scale for _, weight in above), *(weight * -offset for _, weight in below if offset)]
    return quotient_factors(factors(tops), factors(weight * scale for _, weight in below)) is not None


def _without_offset(quantizer: LinearQuantizer) -> tuple[LinearQuantizer, int]:
    """A quantiser without offset, and the integer that its codes lack; else the quantiser itself, and 0.

    A shift by an odd number would turn ties to even codes into ties to odd ones.
    """
    shift = -quantizer.offset[0] / quantizer.scale[0]
    if shift.denominator > 1 or (shift % 2 and quantizer.rounding != "half_up"):
        return quantizer, 0
    lo, hi = quantizer.lo - int(shift), quantizer.hi - int(shift)
    return replace(quantizer, offset=(Fraction(0),), lo=lo, hi=hi), int(shift)


@lru_cache(maxsize=8)
def powers_of_e(scale: Fraction, width: int, span: int) -> tuple[int, ...]:
    """2^width * exp(-scale * d) for d = 0 .. span, off by less than 1: powers of one number with guard bits.

    Factors are at most 1, so that each product adds at most one unit for its own rounding and one for that of the
    factor: d products, fewer than 2^18, are off by less than 2^(_GUARD - 1) units in all.
    """
    bits = width + _GUARD
    ratio = rounded(rational(2**bits) * exp(rational(-scale)))
    item, found = 1 << bits, []
    for _ in range(span + 1):
        found.append((item + (1 << _GUARD >> 1)) >> _GUARD)
        item = item * ratio >> bits
    return tuple(found)


def _multiples(scale: Fraction, width: int, span: int, factor: Fraction) -> list[int]:
    """``factor`` * 2^width * exp(-scale * d), off by less than 1: from numbers with as many more bits as it has."""
    more = math.ceil(factor).bit_length() + 1
    fine = powers_of_e(scale, width + more, span)
    divisor = factor.denominator << more
    return [(item * factor.numerator + divisor // 2) // divisor for item in fine]
