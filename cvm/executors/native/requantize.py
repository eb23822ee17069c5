"""`requantize` in machine integers, in one of four arithmetics chosen by proof.

* ``narrow``: everything fits in 32 bits.
* ``high``: all shifts are 32 or more (smaller ones are made so by scaling m and c). The products of the even and of the
  odd lanes are 64-bit vectors; their upper halves are the result, up to a 32-bit shift: floor(floor(v / 2^32) / 2^k) =
  floor(v / 2^(32 + k)).
* ``fused``: sums of at most 23 bits, see `fused`.
* ``wide``: 64-bit lanes, for everything else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from cvm.executors.native.fused import fused_product
from cvm.executors.native.ir import Code, V, lanes, typed, vector

__all__ = ["Parameter", "Requantization", "Terms", "biased", "requantized", "terms"]

Integers = npt.NDArray[np.int64]
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Requantization:
    """What is known of a requantization beforehand: arithmetic, number of terms, rounding and bounds.

    The operands are x_1 .. x_n and the parameters m_1 .. m_n, c and s; in ``high`` s counts from 32.
    ``fused`` has no s. Without ``cuts`` the result is not cut to [lo, hi], which is left to whoever stores it.
    """

    arithmetic: Literal["narrow", "high", "fused", "wide"]
    terms: int
    rounding: str
    lo: int
    hi: int
    cuts: bool = True
    short: bool = False
    """Whether all m have 32 bits: a 64-bit product of two such takes one instruction."""
    bits: int = 0
    """Of ``fused``: those of the sums, none of which is negative."""

    def cut(self, code: Code, value: V) -> V:
        """A result within the bounds, if that is asked for."""
        return code.intrinsic("smin", code.intrinsic("smax", value, self.lo), self.hi) if self.cuts else value


class Parameter(Protocol):
    """A parameter where the code stands."""

    def value(self) -> V:
        """Its elements, one for each lane: in i64 for m and c of ``high`` and ``wide``, else in i32."""

    def halves(self) -> tuple[V, V]:
        """Those of the even lanes and those of the odd lanes, in i64."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The parameters of a requantization as the code wants them: m_i, c and s, each broadcastable to the output."""

    rule: Requantization
    multipliers: tuple[Integers, ...]
    offset: Integers
    shift: Integers


def terms(
    magnitudes: Sequence[int],
    multipliers: Sequence[Integers],
    offset: Integers,
    shift: Integers,
    rounding: str,
    lo: int,
    hi: int,
) -> Terms:
    """Choose the arithmetic for |x_i| <= magnitudes[i].

    Half-up rounding joins c: floor(v / 2^s + 1/2) = (v + 2^(s-1)) >> s. The verifier has proven the sum of all positive
    and that of all negative parts, with 2^(s-1), within int64.
    """
    count = len(multipliers)
    # What multiplies nothing but zeros may be of any size, and is of none.
    multipliers = [m if x else np.zeros_like(m) for x, m in zip(magnitudes, multipliers, strict=True)]
    if rounding == "half_up":
        offset = offset + np.where(shift > 0, np.left_shift(1, np.maximum(shift - 1, 0)), 0)
    bound = _bound(magnitudes, multipliers, offset)
    if bound < 2**31 and int(shift.max()) < 32 and rounding == "half_up":
        rule = Requantization("narrow", count, rounding, lo, hi)
        return Terms(rule, tuple(multipliers), offset, shift)
    if rounding == "half_up" and bound <= LARGEST:
        narrow = _narrowed(magnitudes, multipliers, offset, shift, lo, hi)
        if narrow is not None:
            return narrow
    if rounding == "half_up":
        raised = _raised(magnitudes, multipliers, offset, shift)
        if raised is not None:
            rule = Requantization("high", count, rounding, lo, hi, short=True)
            return Terms(rule, *raised)
    short = all(int(np.abs(m).max()) < 2**31 for m in multipliers)
    return Terms(Requantization("wide", count, rounding, lo, hi, short=short), tuple(multipliers), offset, shift)


def _bound(magnitudes: Sequence[int], multipliers: Sequence[Integers], offset: Integers) -> int:
    """What the sum and every part of it cannot exceed in magnitude."""
    parts = [int(np.abs(m).max()) * x for m, x in zip(multipliers, magnitudes, strict=True)]
    return sum(parts) + int(np.abs(offset).max())


def _raised(
    magnitudes: Sequence[int], multipliers: Sequence[Integers], offset: Integers, shift: Integers
) -> tuple[tuple[Integers, ...], Integers, Integers] | None:
    """M * 2^t, c * 2^t and s + t - 32 with t = max(0, 32 - s), where m stays in 32 bits and the sum in 64."""
    if int(shift.max()) > 63:
        return None
    lift = np.maximum(32 - shift, 0)
    most = int(lift.max())
    if any(int(np.abs(m).max()) << most >= 2**62 for m in multipliers) or int(np.abs(offset).max()) << most > LARGEST:
        return None
    raised = tuple(np.left_shift(m, lift) for m in multipliers)
    moved = np.left_shift(offset, lift)
    if any(int(np.abs(m).max()) >= 2**31 for m in raised) or _bound(magnitudes, raised, moved) > LARGEST:
        return None
    return raised, moved, shift + lift - 32


TRIED = 2**20
"""Inputs, of all channels together, that are tried one by one: at most so many, and so many of them at once."""
AT_ONCE = 2**17
FAR = 2**62
BYTES = 7
"""Room is left for results that are moved by up to 2 to this power, as `biased` moves them."""


def _narrowed(
    magnitudes: Sequence[int], multipliers: Sequence[Integers], c: Integers, s: Integers, lo: int, hi: int
) -> Terms | None:
    """A 32-bit form with the same results for all inputs, found by trial: m, c and s are cut by the same power of two.

    Cutting the m moves the thresholds between results a little; c is then chosen such that none is crossed, if that can
    be, for every channel.
    """
    shape = np.broadcast_shapes(*(m.shape for m in multipliers), c.shape, s.shape)
    channels, inputs = math.prod(shape), math.prod(2 * x + 1 for x in magnitudes)
    if channels * inputs > TRIED or int(s.min()) < 1 or int(s.max()) > 55:
        return None
    flat = [np.broadcast_to(array, shape).reshape(-1, 1) for array in (*multipliers, c, s)]
    grid = np.indices([2 * x + 1 for x in magnitudes]).reshape(len(magnitudes), -1)
    values = grid - np.array(magnitudes).reshape(-1, 1)
    found = []
    step = max(1, AT_ONCE // inputs)
    for first in range(0, channels, step):
        *ms, offset, shift = (array[first : first + step] for array in flat)
        narrow = _tried(values, magnitudes, ms, offset, shift, lo, hi)
        if narrow is None:
            return None
        found.append(narrow)
    *chosen, offset, shift = (np.concatenate(parts).reshape(shape) for parts in zip(*found, strict=True))
    rule = Requantization("narrow", len(magnitudes), "half_up", lo, hi)
    return Terms(rule, tuple(chosen), offset, shift)


def _tried(
    values: Integers, magnitudes: Sequence[int], ms: Sequence[Integers], c: Integers, s: Integers, lo: int, hi: int
) -> tuple[Integers, ...] | None:
    """Multipliers, offset and shift in 32 bits for some channels, (channels, 1) each, if every channel has them."""
    expected = np.clip((sum(m * x for m, x in zip(ms, values, strict=True)) + c) >> s, lo, hi)
    size = sum(np.abs(m) * x for m, x in zip(ms, magnitudes, strict=True)) + np.abs(c) + np.left_shift(1, s + BYTES)
    cut = np.zeros_like(s)
    while (over := (size >> cut) >= 2**31 - 2 * sum(magnitudes) - 2).any():
        cut = cut + over
    shift = s - cut
    if (shift < 0).any() or (shift > 31).any():
        return None
    chosen = [np.zeros_like(c) for _ in (*ms, c)]
    open_ = np.ones_like(c, dtype=bool)
    for more in itertools.product((0, 1), repeat=len(ms)):
        tried = [(m >> cut) + one for m, one in zip(ms, more, strict=True)]
        products = sum(m * x for m, x in zip(tried, values, strict=True))
        least = np.where(expected > lo, (expected << shift) - products, -FAR).max(axis=1, keepdims=True)
        most = np.where(expected < hi, ((expected + 1) << shift) - 1 - products, FAR).min(axis=1, keepdims=True)
        offset = np.clip(c >> cut, least, np.maximum(least, most))
        bound = sum(np.abs(m) * x for m, x in zip(tried, magnitudes, strict=True)) + np.abs(offset)
        works = open_ & (least <= most) & (bound < 2**31)
        for place, array in enumerate((*tried, offset)):
            chosen[place] = np.where(works, array, chosen[place])
        open_ &= ~works
        if not open_.any():
            return (*chosen, shift)
    return None


def biased(chosen: Terms, magnitudes: Sequence[int], bias: int) -> Terms | None:
    """The same plus ``bias`` and without its cut: floor(v / 2^s) + b = floor((v + b * 2^s) / 2^s).

    None where the sum could leave its arithmetic, or where what is not cut could leave 32 bits.
    """
    if chosen.rule.arithmetic == "wide":
        return None
    if chosen.rule.arithmetic == "fused":
        moved = chosen.offset + np.left_shift(np.int64(bias), 32)
        return Terms(replace(chosen.rule, cuts=False), chosen.multipliers, moved, chosen.shift)
    high = chosen.rule.arithmetic == "high"
    offset = chosen.offset + np.left_shift(np.int64(bias), np.minimum(chosen.shift + (32 if high else 0), 54))
    if int(chosen.shift.max()) + (32 if high else 0) > 54:
        return None
    if high:
        fits = _bound(magnitudes, chosen.multipliers, offset) <= LARGEST
    else:
        parts = (np.abs(m) * x for m, x in zip(chosen.multipliers, magnitudes, strict=True))
        fits = int(sum(parts, np.abs(offset)).max()) < 2**31
    if not fits:
        return None
    return Terms(replace(chosen.rule, cuts=False), chosen.multipliers, offset, chosen.shift)


def requantized(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> V:
    """clip(round((sum of m_i * x_i + c) / 2^s), lo, hi); ``parameters`` are m_1 .. m_n, c and s."""
    count = lanes(xs[0].type)
    if rule.arithmetic == "narrow":
        *ms, total, s = (parameter.value() for parameter in parameters)
        for x, m in zip(xs, ms, strict=True):
            total = code.binary("add", code.binary("mul", x, m), total)
        return rule.cut(code, code.binary("ashr", total, s))
    if count % 2:
        return _single(code, rule, xs, parameters)
    if rule.arithmetic == "fused":
        multiplier, addend, _ = parameters
        even, odd = fused_product(code, xs[0], rule.bits, multiplier.halves(), addend.halves())
        return rule.cut(code, _merged(code, even, odd, 1))
    even, odd = _sums(code, rule, xs, parameters)
    if rule.arithmetic == "high":
        return rule.cut(code, code.binary("ashr", _merged(code, even, odd, 1), parameters[-1].value()))
    shifts = parameters[-1].halves()
    even, odd = (rule.cut(code, _rounded(code, v, s, rule.rounding)) for v, s in zip((even, odd), shifts, strict=True))
    return _merged(code, even, odd, 0)


def _single(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> V:
    """One lane, in i64."""
    *ms, total, s = (code.cast("sext", parameter.value(), 64) for parameter in parameters)
    for x, m in zip(xs, ms, strict=True):
        total = code.binary("add", code.binary("mul", code.cast("sext", x, 64), m), total)
    if rule.arithmetic == "high":
        s = code.binary("add", s, 32)
    return code.cast("trunc", rule.cut(code, _rounded(code, total, s, rule.rounding)), 32)


def _sums(code: Code, rule: Requantization, xs: Sequence[V], parameters: Sequence[Parameter]) -> tuple[V, V]:
    """The sums of the even and of the odd lanes, in i64."""
    *ms, c, _ = parameters
    even, odd = c.halves()
    for x, m in zip(xs, ms, strict=True):
        pairs = code.bitcast(x, even.type)
        m0, m1 = (_lower(code, half) if rule.short else half for half in m.halves())
        even = code.binary("add", code.binary("mul", _lower(code, pairs), m0), even)
        odd = code.binary("add", code.binary("mul", code.binary("ashr", pairs, 32), m1), odd)
    return even, odd


def _lower(code: Code, wide: V) -> V:
    """The lower 32 bits as a signed number."""
    return code.binary("ashr", code.binary("shl", wide, 32), 32)


def _merged(code: Code, even: V, odd: V, half: int) -> V:
    """Every second lane: the lower (0) or upper (1) halves of two vectors of i64, in turn."""
    count = 2 * lanes(even.type)
    order = [place for lane in range(0, count, 2) for place in (lane + half, count + lane + half)]
    return code.shuffle(code.bitcast(even, vector(32, count)), code.bitcast(odd, vector(32, count)), order)


def _rounded(code: Code, v: V, s: V, rounding: str) -> V:
    """round(v / 2^s); half-up has its half in v already.

    half_even: (v + 2^(s-1) - 1 + b) >> s, b being bit s of v; toward_zero: v + 2^s - 1 for negative v; v where s = 0.
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
