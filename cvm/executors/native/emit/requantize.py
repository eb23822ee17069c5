"""`requantize` in machine integers, in one of seven arithmetics. Proven bounds decide which of them are possible.

* ``narrow``: all intermediate numbers fit in 32 bits.
* ``words``: bytes in 16-bit lanes, see the module `words`.
* ``high``: all shifts are at least 32 (for smaller shifts, m and c are multiplied by a power of two). The products of
  the even and of the odd lanes are 64-bit vectors. A 32-bit shift of their upper halves gives the result, since
  floor(floor(v / 2^32) / 2^k) = floor(v / 2^(32 + k)).
* ``scaled``: as ``high``, where one shift must do for all channels. Each x is multiplied by a power of two first, so
  that the multipliers have 32 bits nevertheless.
* ``digits``: 32 bits and a multiplier of two digits, see the module `digits`.
* ``fused``: for sums of at most 23 bits, see the module `fused`.
* ``wide``: 64-bit lanes, for all other cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Requantization
from cvm.executors.native.emit.digits import ROOM
from cvm.executors.native.emit.fused import fused_product
from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector
from cvm.executors.native.exact import Exact, Operand, exact, stacked, where
from cvm.limits import INT32_MAX
from cvm.records import dataclass

__all__ = ["Parameter", "Terms", "biased", "clipped", "half", "requantized", "terms"]

Integers = npt.NDArray[np.int64]
LARGEST = 2**63 - 1


class Parameter(Protocol):
    """A parameter of a requantize at the current index."""

    def value(self) -> V:
        """One element for each lane: in i64 for m and c of ``high`` and ``wide``, else in i32."""

    def halves(self) -> tuple[V, V]:
        """The elements of the even lanes and those of the odd lanes, in i64."""


@dataclass(frozen=True, slots=True)
class Terms:
    """A rule and its parameters, which broadcast to the output: m_i (multipliers), c (offset) and s (shift).

    In ``scaled``, the multipliers are the factor and m. In ``digits``, multiplier and offset have both of their digits.
    """

    rule: Requantization
    multipliers: tuple[Integers, ...]
    offset: Integers
    shift: Integers


def terms(
    magnitudes: Sequence[int],
    multipliers: Sequence[Operand],
    offset: Operand,
    shift: Operand,
    rounding: str,
    lo: int,
    hi: int,
    plain: bool = False,
    level: bool = False,
) -> Terms:
    """Choose the arithmetic for operands |x_i| <= magnitudes[i]. With ``plain`` it is always ``wide``.

    With ``level``, all channels get one shift in ``high``, if the sums still fit.

    For half-up rounding, 2^(s-1) is added to c: floor(v / 2^s + 1/2) = (v + 2^(s-1)) >> s. The verifier has proven that
    the sum of all positive parts and the sum of all negative parts, with 2^(s-1), fit in int64.
    """
    count, c, s = len(multipliers), exact(offset), exact(shift)
    # The multiplier of an operand that is always zero may have any size, so it is replaced by zero.
    ms = [exact(m) if x else exact(m) * 0 for x, m in zip(magnitudes, multipliers, strict=True)]
    if rounding == "half_up":
        c = c + half(s)
        narrow = None if plain else _in_32_bits(magnitudes, ms, c, s, (lo, hi), level)
        if narrow is not None:
            return narrow
        raised = None if plain else _raised(magnitudes, ms, c, s)
        if raised is not None:
            if level:
                scaled = _scaled(magnitudes, *raised, (lo, hi)) if count == 1 else None
                if scaled is not None:
                    return scaled
                raised = _levelled(magnitudes, *raised) or raised
            short = all(m.magnitude < 2**31 for m in raised[0])
            return _terms(Requantization("high", count, rounding, lo, hi, short=short), *raised)
    short = all(m.magnitude < 2**31 for m in ms)
    return _terms(Requantization("wide", count, rounding, lo, hi, short=short), ms, c, s)


def _in_32_bits(
    magnitudes: Sequence[int], ms: Sequence[Exact], c: Exact, s: Exact, bounds: tuple[int, int], level: bool
) -> Terms | None:
    """The parameters in ``narrow`` arithmetic, as they are or as a search finds them; None if there are none."""
    bound = _bound(magnitudes, ms, c)
    if bound < 2**31 and s.hull[1] < 32:
        plain = _terms(Requantization("narrow", len(ms), "half_up", *bounds), ms, c, s)
        found = _in_one_shift(plain, magnitudes) if level else plain
        if found is not None:
            return found
    searched = _narrowed(magnitudes, ms, c, s, *bounds) if bound <= LARGEST else None
    return _in_one_shift(searched, magnitudes) if searched is not None and level else searched


def half(shift: Exact) -> Exact:
    """2^(s-1), or 0 where s is 0: added before a right shift by s, it makes the shift round half up."""
    return (exact(1) << shift) >> 1


def _terms(rule: Requantization, multipliers: Sequence[Exact], offset: Exact, shift: Exact) -> Terms:
    return Terms(rule, tuple(m.int64() for m in multipliers), offset.int64(), shift.int64())


def _bound(magnitudes: Sequence[int], multipliers: Sequence[Exact], offset: Exact) -> int:
    """A bound of the magnitude of sum m_i * x_i + c, and of every partial sum."""
    return sum(m.magnitude * x for m, x in zip(multipliers, magnitudes, strict=True)) + offset.magnitude


def _raised(
    magnitudes: Sequence[int], multipliers: Sequence[Exact], offset: Exact, shift: Exact
) -> tuple[list[Exact], Exact, Exact] | None:
    """The parameters of ``high``: m * 2^t, c * 2^t and s + t - 32 with t = max(0, 32 - s).

    None if a multiplier does not fit in 32 bits, or the sum in 64.
    """
    if shift.hull[1] > 63:
        return None
    lift = (-shift + 32).larger(0)
    raised, moved = [m << lift for m in multipliers], offset << lift
    if any(m.magnitude >= 2**31 for m in raised) or _bound(magnitudes, raised, moved) > LARGEST:
        return None
    return raised, moved, shift + lift - 32


def _levelled(
    magnitudes: Sequence[int], multipliers: Sequence[Exact], offset: Exact, shift: Exact, most: int = LARGEST
) -> tuple[list[Exact], Exact, Exact] | None:
    """The same parameters with the largest shift everywhere; None if a sum, or a multiplier, is beyond ``most``."""
    lift = -shift + shift.hull[1]
    raised, moved = [m << lift for m in multipliers], offset << lift
    if any(m.magnitude > most for m in raised) or _bound(magnitudes, raised, moved) > most:
        return None
    return raised, moved, shift + lift


def _scaled(
    magnitudes: Sequence[int], multipliers: Sequence[Exact], offset: Exact, shift: Exact, bounds: tuple[int, int]
) -> Terms | None:
    """The same requantization of x * 2^t, with the largest shift everywhere; None if all shifts are equal, or if a
    product may have too many bits.
    """
    lift = -shift + shift.hull[1]
    factor, moved = exact(1) << lift, offset << lift
    lifted = [factor.magnitude * x for x in magnitudes]
    if not lift.hull[1] or max(lifted) > INT32_MAX or _bound(lifted, multipliers, moved) > LARGEST:
        return None
    rule = Requantization("scaled", 1, "half_up", *bounds, short=True)
    return _terms(rule, [factor, *multipliers], moved, shift + lift)


def _in_one_shift(narrow: Terms, magnitudes: Sequence[int]) -> Terms | None:
    """A rule in 32 bits with one shift for all channels; None if there is none."""
    ms, c, s = [exact(m) for m in narrow.multipliers], exact(narrow.offset), exact(narrow.shift)
    found = _levelled(magnitudes, ms, c, s, INT32_MAX)
    return None if found is None else _terms(narrow.rule, *found)


TRIED = 2**20
"""All inputs of all channels are tried if they are at most this many, ``AT_ONCE`` at a time."""
AT_ONCE = 2**17
FAR = 2**62
BYTES = 7
"""Offsets leave room for a bias of results of up to 2 to this power, which `biased` may add later."""


def _narrowed(
    magnitudes: Sequence[int], multipliers: Sequence[Exact], c: Exact, s: Exact, lo: int, hi: int
) -> Terms | None:
    """Search for 32-bit parameters that give the same results for all inputs, or return None.

    The same number of low bits is dropped from m, c and s. The shorter multipliers move the thresholds between results
    a little. So for every channel c is chosen such that no input crosses a threshold, if there is such a c.
    """
    shape = np.broadcast_shapes(*(m.shape for m in multipliers), c.shape, s.shape)
    channels, inputs = math.prod(shape), math.prod(2 * x + 1 for x in magnitudes)
    if channels * inputs > TRIED or s.hull[0] < 1 or s.hull[1] > 55:
        return None
    flat = [array.broadcast(shape).reshape(-1, 1) for array in (*multipliers, c, s)]
    grid = np.indices([2 * x + 1 for x in magnitudes]).reshape(len(magnitudes), 1, -1)
    values = [exact(row) - x for row, x in zip(grid, magnitudes, strict=True)]
    found = []
    step = max(1, AT_ONCE // inputs)
    for first in range(0, channels, step):
        *ms, offset, shift = (array[first : first + step] for array in flat)
        narrow = _tried(values, magnitudes, ms, offset, shift, lo, hi)
        if narrow is None:
            return None
        found.append(narrow)
    *chosen, offset, shift = (stacked(parts).reshape(*shape) for parts in zip(*found, strict=True))
    return _terms(Requantization("narrow", len(magnitudes), "half_up", lo, hi), chosen, offset, shift)


def _tried(
    values: Sequence[Exact], magnitudes: Sequence[int], ms: Sequence[Exact], c: Exact, s: Exact, lo: int, hi: int
) -> tuple[Exact, ...] | None:
    """Multipliers, offset and shift in 32 bits for some channels, each of shape (channels, 1).

    None if one of the channels has no such parameters.
    """
    expected = (_products(ms, values) + c >> s).clip(lo, hi)
    size = _products([abs(m) for m in ms], magnitudes) + abs(c) + (exact(1) << s + BYTES)
    least_size = 2**31 - 2 * sum(magnitudes) - 2
    dropped = exact(np.zeros_like(s.int64()))
    while (over := (size >> dropped) >= least_size).any():
        dropped = dropped + over.astype(np.int64)
    shift = s - dropped
    if shift.hull[0] < 0 or shift.hull[1] > 31:
        return None
    chosen = [exact(np.zeros_like(s.int64())) for _ in (*ms, c)]
    left = np.ones(c.shape, dtype=bool)
    for more in itertools.product((0, 1), repeat=len(ms)):
        tried = [(m >> dropped) + one for m, one in zip(ms, more, strict=True)]
        products = _products(tried, values)
        least = where(expected > lo, (expected << shift) - products, -FAR).max(axis=1)
        most = where(expected < hi, ((expected + 1) << shift) - 1 - products, FAR).min(axis=1)
        offset = (c >> dropped).clip(least, least.larger(most))
        bound = _products([abs(m) for m in tried], magnitudes) + abs(offset)
        works = left & (least <= most) & (bound < 2**31)
        chosen = [where(works, array, old) for array, old in zip((*tried, offset), chosen, strict=True)]
        left &= ~works
        if not left.any():
            return (*chosen, shift)
    return None


def _products(multipliers: Sequence[Exact], values: Sequence[Operand]) -> Exact:
    """The sum of m_i * x_i."""
    total = exact(0)
    for m, x in zip(multipliers, values, strict=True):
        total = total + m * x
    return total


def biased(chosen: Terms, magnitudes: Sequence[int], bias: int) -> Terms | None:
    """The requantization whose results are larger by ``bias`` and not clipped.

    The bias is added to c: floor(v / 2^s) + b = floor((v + b * 2^s) / 2^s). None if the sum might not fit in the bits
    of its arithmetic, or if a result that is not clipped might not fit in 32 bits.
    """
    arithmetic, shift = chosen.rule.arithmetic, exact(chosen.shift)
    if arithmetic == "wide":
        return None
    offset = exact(chosen.offset)
    if arithmetic == "fused":
        moved, fits = offset + (bias << 32), True
    elif arithmetic == "digits":
        moved, fits = offset + (bias << int(chosen.shift[0]) + chosen.rule.bits), abs(bias) < ROOM
    else:
        shift = shift + (0 if arithmetic == "narrow" else 32)
        moved = offset + (exact(bias) << shift)
        most = INT32_MAX if arithmetic == "narrow" else LARGEST
        multipliers = [abs(exact(m)) for m in chosen.multipliers]
        if arithmetic == "scaled":
            multipliers = [multipliers[0] * multipliers[1]]
        size = _products(multipliers, magnitudes) + abs(moved)
        fits = shift.hull[1] <= 54 and size.hull[1] <= most
    if not fits or moved.magnitude > LARGEST:
        return None
    return replace(chosen, rule=replace(chosen.rule, clips=False), offset=moved.int64())


def requantized(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> V:
    """clip(round((sum of m_i * x_i + c) / 2^s), lo, hi); ``parameters`` are m_1 .. m_n, c and s."""
    count = lanes(xs[0].type)
    if rule.arithmetic == "narrow":
        *ms, total, s = (parameter.value() for parameter in parameters)
        for x, m in zip(xs, ms, strict=True):
            total = code.binary("add", code.binary("mul", x, m), total)
        return clipped(code, rule, code.binary("ashr", total, s))
    if rule.arithmetic == "digits":
        return clipped(code, rule, _digits(code, rule, xs[0], parameters))
    if rule.arithmetic == "scaled":
        factor, *parameters = parameters
        xs, rule = [code.binary("mul", xs[0], factor.value())], replace(rule, arithmetic="high")
    if count % 2:
        return _single(code, rule, xs, parameters)
    if rule.arithmetic == "fused":
        multiplier, addend, _ = parameters
        even, odd = fused_product(code, xs[0], rule.bits, multiplier.halves(), addend.halves())
        return clipped(code, rule, _upper_halves(code, even, odd))
    if rule.arithmetic == "high" and rule.short and code.widens:
        return clipped(code, rule, code.binary("ashr", _upper(code, xs, parameters), parameters[-1].value()))
    even, odd = _sums(code, rule, xs, parameters)
    if rule.arithmetic == "high":
        return clipped(code, rule, code.binary("ashr", _merged(code, even, odd, 1), parameters[-1].value()))
    shifts = parameters[-1].halves()
    even, odd = (
        clipped(code, rule, _rounded(code, v, s, rule.rounding)) for v, s in zip((even, odd), shifts, strict=True)
    )
    return _merged(code, even, odd, 0)


def clipped(code: Code, rule: Requantization, value: V) -> V:
    """The value clipped to the bounds of the rule, unless the store clips it."""
    return code.intrinsic("smin", code.intrinsic("smax", value, rule.lo), rule.hi) if rule.clips else value


def _single(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> V:
    """Write the requantization of one lane, in i64. Products of numbers of 32 bits are written as such."""
    *ms, c, s = (parameter.value() for parameter in parameters)
    total = code.cast("sext", c, 64)
    for x, m in zip(xs, ms, strict=True):
        short = code.cast("trunc", m, 32) if rule.short else m
        product = code.binary("mul", code.cast("sext", x, 64), code.cast("sext", short, 64))
        total = code.binary("add", product, total)
    if rule.arithmetic == "high":
        upper = code.cast("trunc", code.binary("lshr", total, 32), 32)
        return clipped(code, rule, code.binary("ashr", upper, s))
    return code.cast("trunc", clipped(code, rule, _rounded(code, total, code.cast("sext", s, 64), rule.rounding)), 32)


def _sums(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> tuple[V, V]:
    """Write the sums of the even and those of the odd lanes, in i64."""
    *ms, c, _ = parameters
    even, odd = c.halves()
    for x, m in zip(xs, ms, strict=True):
        if code.widens:
            m0, m1 = m.halves()
            even = code.binary("add", code.binary("mul", _every_other(code, x, 0), m0), even)
            odd = code.binary("add", code.binary("mul", _every_other(code, x, 1), m1), odd)
            continue
        pairs = code.bitcast(x, even.type)
        m0, m1 = (_lower(code, half) if rule.short else half for half in m.halves())
        even = code.binary("add", code.binary("mul", _lower(code, pairs), m0), even)
        odd = code.binary("add", code.binary("mul", code.binary("ashr", pairs, 32), m1), odd)
    return even, odd


def _every_other(code: Code, x: V, first: int) -> V:
    """Every other lane from the first one on, as a signed number of 64 bits."""
    return code.cast("sext", code.shuffle(x, x, range(first, lanes(x.type), 2)), 64)


def _digits(code: Code, rule: Requantization, x: V, parameters: Sequence[Parameter]) -> V:
    """(m x + c + ((n x + d) >> bits)) >> s, where no intermediate number has more than 32 bits."""
    m, n, c, d, s = (parameter.value() for parameter in parameters)
    lower = code.binary("ashr", code.binary("add", code.binary("mul", x, n), d), rule.bits)
    upper = code.binary("add", code.binary("mul", x, m), c)
    return code.binary("ashr", code.binary("add", upper, lower), s)


def _upper(code: Code, xs: Sequence[V], parameters: Sequence[Parameter]) -> V:
    """The upper halves of the 64-bit sums of all lanes: products of the first half of the lanes, and of the second
    half, take one instruction each.
    """
    *ms, c, _ = parameters
    count = lanes(xs[0].type)
    halves = (range(count // 2), range(count // 2, count))
    even, odd = c.halves()
    in_order = [lane + parity * (count // 2) for lane in range(count // 2) for parity in (0, 1)]
    sums = [code.shuffle(even, odd, [in_order[lane] for lane in half]) for half in halves]
    for x, m in zip(xs, ms, strict=True):
        factors = x, m.value()
        for number, half in enumerate(halves):
            wide = (code.cast("sext", code.shuffle(one, one, half), 64) for one in factors)
            sums[number] = code.binary("add", code.binary("mul", *wide), sums[number])
    first, second = (code.bitcast(total, vector(32, count)) for total in sums)
    return code.shuffle(first, second, range(1, 2 * count, 2))


def _lower(code: Code, wide: V) -> V:
    """The lower 32 bits of each lane as a signed number."""
    return code.binary("ashr", code.binary("shl", wide, 32), 32)


def _merged(code: Code, even: V, odd: V, half: int) -> V:
    """The lower (``half`` = 0) or upper (1) halves of two vectors of i64 as one vector of i32.

    Its even lanes come from ``even``, its odd lanes from ``odd``.
    """
    count = 2 * lanes(even.type)
    order = [index for lane in range(0, count, 2) for index in (lane + half, count + lane + half)]
    return code.shuffle(code.bitcast(even, vector(32, count)), code.bitcast(odd, vector(32, count)), order)


def _upper_halves(code: Code, even: V, odd: V) -> V:
    """`_merged` of the upper halves, by one instruction that moves lanes under a mask where there are such masks.

    Machines with multiply-adds of 52 bits have masks. Zen 5 executes such a move in any of four units, but a
    permutation of two vectors only in the two units that also multiply.
    """
    count = 2 * lanes(even.type)
    if count < 8:
        return _merged(code, even, odd, 1)
    type_ = vector(32, count)
    upper, others = code.bitcast(even, type_), code.bitcast(odd, type_)
    moved = code.shuffle(upper, upper, [lane | 1 for lane in range(count)])
    return code.select(code.even_lanes(count), moved, others)


def _rounded(code: Code, v: V, s: V, rounding: str) -> V:
    """round(v / 2^s). For half-up rounding, v already includes 2^(s-1).

    half_even is (v + 2^(s-1) - 1 + b) >> s, where b is bit s of v. toward_zero is (v + 2^s - 1) >> s for negative v,
    and v >> s for others. Where s = 0, the result is v.
    """
    one = typed(v.type, 1)
    if rounding == "half_even":
        some = code.intrinsic("smin", s, 1)
        odd = code.binary("and", code.binary("ashr", v, s), some)
        less = code.binary("sub", s, some)
        addend = code.binary("sub", code.binary("shl", one, less), 1)
        v = code.binary("add", code.binary("add", v, addend), odd)
    elif rounding == "toward_zero":
        rest = code.binary("sub", code.binary("shl", one, s), 1)
        v = code.binary("add", v, code.binary("and", code.binary("ashr", v, 63), rest))
    return code.binary("ashr", v, s)
