"""Integers of up to 104 bits as four limbs of 26 bits in int64 arrays, and rounded quotients of them.

x = sum of l_j 2^(26 j), with 0 <= l_j < 2^26 but for the last limb, which has the sign. A product of a limb and an
integer of 33 bits has 59 bits, so that some of them can be added before carries are passed on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.bounds import require_fits
from cvm.executors.numpy.blocks import aligned, part
from cvm.executors.numpy.step import Array
from cvm.limits import INT32_MAX, INT64_MAX
from cvm.records import dataclass

__all__ = ["WideSum", "wide_quotients"]

LIMB, LIMBS = 26, 4
_MASK = 2**LIMB - 1

Limbs = list[Array]
"""The limbs of integers, the lowest first."""


@dataclass(frozen=True, slots=True)
class WideSum:
    """A sum of int32 tensors times parameters, and of an offset: the parameters in limbs."""

    factors: tuple[Limbs, ...]
    offset: Limbs

    @staticmethod
    def of(factors: Sequence[Array], offset: Array) -> WideSum:
        """The sum for parameters of 64 bits."""
        return WideSum(tuple(_split(m) for m in factors), _split(offset))

    def limbs(self, tensors: Sequence[Array], box: tuple[slice, ...]) -> Limbs:
        """The sums of a box; tensors have its rank."""
        require_fits(len(tensors) * INT32_MAX * _MASK + _MASK, 62, "a limb of a sum of products")
        total = [part(aligned(limb, len(box)), box) for limb in self.offset]
        for x, m in zip(tensors, self.factors, strict=True):
            wide = part(x, box).astype(np.int64)
            total = [limb + wide * part(aligned(of_m, len(box)), box) for limb, of_m in zip(total, m, strict=True)]
        return _carried(total)


def _split(items: Array) -> Limbs:
    """Integers of 64 bits in limbs."""
    return _carried([items.astype(np.int64), *(np.zeros_like(items, np.int64) for _ in range(LIMBS - 1))])


def _carried(limbs: Limbs) -> Limbs:
    """The same integers, with all limbs but the last one in [0, 2^26). No sum of a limb and a carry exceeds 2^62."""
    require_fits(2**61 + 2 ** (63 - LIMB), 62, "a limb with its carry")
    found: Limbs = []
    above = limbs[0]
    for limb in limbs[1:]:
        found.append(above & _MASK)
        above = limb + (above >> LIMB)
    return [*found, above]


def _approximate(limbs: Limbs) -> Array:
    """The integers as floats, with an error of at most 2^-49 of each.

    Horner's rule from the top: a product by 2^26 is exact, and so is a sum of magnitude up to 2^53. A sum that is
    rounded has a magnitude of 2^53 or more, beside which all limbs below are small, so that the three errors of 2^-53
    add up.
    """
    found = limbs[-1].astype(np.float64)
    for limb in reversed(limbs[:-1]):
        found = found * float(2**LIMB) + limb
    return found


def wide_quotients(N: Limbs, D: Limbs, rounding: str, lo: int, hi: int) -> Array:
    """N / D > 0 rounded, as int64; results beyond [lo, hi] may be any integer beyond the same end.

    A float64 quotient, whose error is less than 2^-46 of it, is a candidate; exact integers decide. Where the true
    quotient is at most 2^40 it is within 1/2 of the candidate before that is rounded, so that the result is the rounded
    candidate or a neighbour. Where it is larger, both are beyond the same end, to which the candidate is clipped.
    """
    if not -INT32_MAX <= lo <= hi <= INT32_MAX:
        raise OverflowError("the bounds of a quotient do not fit in 32 bits")
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        candidate = _approximate(N) / _approximate(D)
    rounded = np.trunc(candidate) if rounding == "toward_zero" else np.rint(candidate)
    q = np.clip(rounded, lo - 1, hi + 1).astype(np.int64)
    require_fits(2 * (2 * (INT32_MAX + 3)), 34, "a quotient and its neighbours")
    above = _reached(N, D, q + 1, rounding)
    return np.asarray(q + above.astype(np.int64) - 1 + _reached(N, D, q, rounding))


def _reached(N: Limbs, D: Limbs, q: Array, rounding: str) -> Array:
    """Whether N / D, rounded, is q or more, for |q| of at most 2^31 + 2: the sign of an integer in limbs.

    For the roundings to the nearest integer that is 2 N - (2 q - 1) D, and a tie reaches an even q or, upward, any.
    Toward zero it is N - q D for q > 0, else N - (q - 1) D, which must be positive.
    """
    require_fits(2 * _MASK + 2**33 * _MASK, 61, "a limb of a comparison")
    nearest = rounding != "toward_zero"
    scale, factor = (2, 2 * q - 1) if nearest else (1, q - (q <= 0))
    *rest, top = _carried([scale * n - factor * d for n, d in zip(N, D, strict=True)])
    zero = top == 0
    for limb in rest:
        zero &= limb == 0
    ties = q > 0 if not nearest else q % 2 == 0 if rounding == "half_even" else np.True_
    return np.asarray((top > 0) | ((top == 0) & ~zero) | (zero & ties))


assert INT64_MAX < 2 ** (LIMB * (LIMBS - 1)), "a parameter leaves a limb for the sign of a sum"
