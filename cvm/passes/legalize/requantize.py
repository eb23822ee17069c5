"""``requantize`` in the document's ops: clip(round(V / 2^s), lo, hi), V = sum of m_i * x_i + c, exactly.

Let S be the largest shift. V * 2^(S - s) / 2^S is the same quotient, so one shift suffices for all elements; from here
on, m_i and c stand for their products with 2^(S - s). Each rounding is computed from floors F(C) = floor((V - c + C) /
2^S):

    half_up      F(c + 2^(S-1))
    half_even    max(2 floor(p / 2), q), p = F(c + 2^(S-1)), q = F(c + 2^(S-1) - 1): at a tie p = q + 1, and the even
                 one of p and q is 2 floor(p / 2); otherwise p = q >= 2 floor(p / 2)
    toward_zero  max(F(c), 0) + min(F(c - 1) + 1, 0): the floor where V >= 0, and the ceiling where V <= 0

If 2^g divides all multipliers, C is replaced by floor(C / 2^g) and S by S - g. If the two constants of half_even become
equal, there are no ties. `cvm.passes.legalize.columns` explains how F is computed, as q0 + 2^k H. If k >= 1, 2^k H is
even, and half_even corrects q0 alone.

Of all layouts whose intervals are proven, the one with the fewest ops is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cvm.bounds import bits_of, magnitude, require_fits
from cvm.passes.legalize.columns import Columns, Quotients, WeightedSum
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable, missing
from cvm.passes.legalize.integers import Integers, aligned, roomy, trailing_zeros
from cvm.passes.legalize.layouts import layouts
from cvm.passes.legalize.tensors import Tensors

__all__ = ["requantize"]

SLACK = 2
"""A layout is tried if its estimate exceeds the number of ops of the best plan so far by at most this many."""


def requantize(
    made: Expressions,
    tensors: Sequence[Expression],
    parameters: Sequence[Integers],
    rounding: str,
    lo: int,
    hi: int,
    present: Mapping[int, str],
) -> Expression:
    """The result of a requantize, whose elements lie in [lo, hi], in the fewest ops that are not ``present`` already.

    ``tensors`` are x_1 .. x_n, ``parameters`` m_1 .. m_n, c, s. Raises `Unprovable` if no layout can be proven.
    """
    arithmetic = Tensors(made)
    x = tensors[0]
    wanted = weighted_sum(tensors, parameters, rounding, lo, hi)
    if not wanted.terms:
        items = _constant(wanted, rounding, lo, hi)
        lo, hi = int(items.min()), int(items.max())
        if lo < hi:
            return arithmetic.spread(made.constant(items), x, "zeros")
    if lo == hi:
        return arithmetic.clip(x, lo, hi, "constant")
    best: tuple[int, Expression] | None = None
    failure = Unprovable("there is no layout")
    for estimate, layout in layouts(wanted):
        if best is not None and estimate > best[0] + SLACK:
            break
        try:
            columns = Columns(arithmetic, layout)
            found = arithmetic.spread(_rounded(columns, columns.quotients(wanted), rounding, lo, hi), x, "zeros")
        except Unprovable as error:
            failure = error
            continue
        cost = sum(1 for item in missing(found, present) if item.op)
        if best is None or cost < best[0]:
            best = cost, found
    if best is None:
        raise failure
    return best[1]


def weighted_sum(
    tensors: Sequence[Expression], parameters: Sequence[Integers], rounding: str, lo: int, hi: int
) -> WeightedSum:
    """The floors from which the rounding is computed, with a common shift. Constant tensors become a part of C."""
    rank = len(tensors[0].shape)
    *multipliers, offset, shifts = (aligned(item, rank) for item in parameters)
    shift = max(1, int(shifts.max()))
    scales: Integers = shift - shifts
    if scales.any():
        scales = scales.astype(object)
        multipliers = [item.astype(object) << scales for item in multipliers]
        offset = offset.astype(object) << scales
    factors: dict[Expression, Integers] = {}
    for x, multiplier in zip(tensors, multipliers, strict=True):
        items = None if x.elements is None else aligned(x.elements, rank)
        if items is not None and np.broadcast(items, multiplier).size <= max(items.size, multiplier.size, offset.size):
            offset = offset.astype(object) + items.astype(object) * multiplier.astype(object)
        else:
            known = factors.get(x)
            factors[x] = multiplier if known is None else known.astype(object) + multiplier.astype(object)
    factors = {x: multiplier for x, multiplier in factors.items() if multiplier.any()}
    zeros = min([shift - 1, *map(trailing_zeros, factors.values())])
    constants = [constant >> zeros for constant in _constants(roomy(offset, shift + 1), shift, rounding, lo, hi)]
    if len(constants) == 2 and rounding == "half_even" and bool((constants[0] == constants[1]).all()):
        constants.pop()
    terms = tuple((x, roomy(multiplier >> zeros)) for x, multiplier in factors.items())
    return WeightedSum(terms, tuple(constants), shift - zeros)


def _constants(offset: Integers, shift: int, rounding: str, lo: int, hi: int) -> list[Integers]:
    """The constants C of the floors."""
    half = 1 << (shift - 1)
    require_fits(magnitude(offset) + 2 * half, bits_of(offset), "an offset and the addend of its rounding")
    if rounding == "half_up":
        return [offset + half]
    if rounding == "half_even":
        return [offset + half, offset + half - 1]
    if lo >= 0:
        return [offset]
    if hi <= 0:
        return [offset + 2 * half - 1]
    return [offset, offset - 1]


def _constant(wanted: WeightedSum, rounding: str, lo: int, hi: int) -> Integers:
    """The constant result of a requantize whose tensors are all constant."""
    first, *others = (constant >> wanted.shift for constant in wanted.constants)
    for second in others:
        even = rounding == "half_even"
        first = np.maximum(first >> 1 << 1, second) if even else np.maximum(first, 0) + np.minimum(second + 1, 0)
    return np.asarray(np.clip(first, lo, hi))


def _rounded(columns: Columns, found: Quotients, rounding: str, lo: int, hi: int) -> Expression:
    """The result, from the parts of the quotients: q0 is rounded and H added, within the bounds."""
    tensors = columns.tensors
    if len(found.low) == 1:
        return _joined(columns, found, [(lo, hi)], lo, hi)[0]
    p, q = found.low
    one = np.ones((1,) * len(p.shape), np.int64)
    if rounding == "half_even":
        if not found.step and not found.whole:
            raise Unprovable("2^k H is not known to be even")
        half = tensors.down(tensors.plus(p, -one, "half"), 1, "half")
        even = tensors.up(half, 1, "even").maximum(q, "even")
        return _joined(columns, _with_low(found, even), [(lo, hi)], lo, hi)[0]
    found = _with_low(found, p, tensors.plus(q, one, "ceiling"))
    parts = _joined(columns, found, [(0, hi), (lo, 0)], lo, hi)
    return tensors.total(parts, "rounded")


def _with_low(found: Quotients, *low: Expression) -> Quotients:
    return Quotients(low, found.above, found.beyond, found.step)


def _joined(
    columns: Columns, found: Quotients, bounds: Sequence[tuple[int, int]], lo: int, hi: int
) -> list[Expression]:
    """q0 + 2^k H for every q0, clipped to its bounds, which lie within [lo, hi]."""
    tensors = columns.tensors
    if found.whole:
        return [tensors.clip(q, *limits, "cut") for q, limits in zip(found.low, bounds, strict=True)]
    try:
        below = min(q.lo for q in found.low), max(q.hi for q in found.low)
        needed = (lo - below[1]) >> found.step, -((below[0] - hi) >> found.step)
        high = columns.high(found.above, found.beyond, needed)
        assert high is not None
        upper = tensors.raised(high, found.step, below, (lo, hi), "upper")
        sums = [tensors.total((q, upper), "quotient") for q in found.low]
        return [tensors.clip(total, *limits, "cut") for total, limits in zip(sums, bounds, strict=True)]
    except Unprovable:
        return [_saturated(columns, q, found, *limits) for q, limits in zip(found.low, bounds, strict=True)]


def _saturated(columns: Columns, q: Expression, found: Quotients, lo: int, hi: int) -> Expression:
    """q0 + 2^k H clipped to [lo, hi], for bounds so near the ends of int32 that the sum might not fit.

    Split q0 = d + 2^k a with |d| < 2^k, and write H for H + a. Let L = 2^(31-k) - 1, G = clip(H, -L, L) and
    E = clip(H - G, -2, 2). Then y = 2^k G + clip(2^k E + d, 1 - 2^k, 2^k - 1) is 2^k H + d clipped to +-(2^31 - 1):
    for |H| <= L, E = 0 and y = 2^k H + d; for H = L + 1, y = 2^31 - 2^k + min(2^k + d, 2^k - 1); for H >= L + 2,
    2^k H + d >= 2^31, and 2^k E + d > 2^k - 1 gives y = 2^31 - 1. The proof for negative H is the same.
    """
    tensors, k = columns.tensors, found.step
    if k < 2:
        raise Unprovable("there are too few bits below H")
    limit, largest = (1 << k) - 1, (1 << (31 - k)) - 1
    carry = None
    if max(abs(q.lo), abs(q.hi)) > limit:
        q, carry = tensors.split(q, k)
    needed = max(-largest - 2, (lo - q.hi) >> k), min(largest + 2, -((q.lo - hi) >> k))
    if found.above:
        above = [part for part in (found.above[0], carry) if part]
        first = tensors.total(above, "high") if above else None
        high = columns.high((first, *found.above[1:]), found.beyond, needed)
    elif carry:
        constant = np.clip(found.beyond, needed[0] - carry.hi, needed[1] - carry.lo)
        high = tensors.plus(carry, constant, "high")
    else:
        high = columns.high((), found.beyond, needed)
    assert high is not None
    near = tensors.clip(high, -largest, largest, "near")
    far = tensors.clip(high.minus(near, "far"), -2, 2, "far")
    rest = tensors.total((tensors.up(far, k, "far"), q), "rest")
    total = tensors.total((tensors.up(near, k, "near"), tensors.clip(rest, -limit, limit, "rest")), "quotient")
    return tensors.clip(total, lo, hi, "cut")
