"""Fixed-point forms of requantisation, each with a proof that it is exact.

The exact code of a tensor is a staircase in its integer accumulators,

    code(x) = clamp(floor((sum_i P_i * x_i + R) / D), lo, hi)                    (`Row`; the 1/2 of rounding is in R)

and ``requantize`` computes clamp(floor((sum_i m_i * x_i + c) / 2^s), lo, hi). The two agree for all x within the proven
bounds if and only if they take each step k at the same accumulators. For given m and s, the offsets c for which that
holds form an interval, which is computed here in integers. A form is exact if the interval is not empty. There are
three ways to compute the interval:

* one accumulator (`_Single`): the step k lies at T_k = ceil((k*D - R) / P), so c must satisfy m*T_k + c >= k*2^s and
  m*(T_k - 1) + c < k*2^s. These conditions are necessary and sufficient.
* two accumulators (`_Double`), of which one has too many values to enumerate: the gap lemma below gives sufficient
  conditions.
* further accumulators, or a second one with few values: these are enumerated, and each of their values leaves one of
  the cases above.

Gap lemma. Let P > 0. Step k is first reached at A = T_k(S), where N = P*A + Q*S + R exceeds k*D by slack = (Q*S + R -
k*D) mod P; at T_k(S) - 1, N is less than k*D by P - slack. Let M = m_1*A + m_2*S + c and E = D*M - 2^s*N, which is
linear in (N, S). The form takes the step at the same accumulators if E >= -2^s * min slack for all k*D <= N < k*D + P,
and E < 2^s * (P - max slack) for all k*D - P <= N < k*D. No further condition is needed, because M grows with A. The
extremes of slack over all S come from `slacks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np

from cvm.quantization.rows import Bounds, LinearRow, Row, SurdRow
from cvm.quantization.slacks import Slacks
from cvm.quantization.thresholds import BLOCK, Staircase, Steps, blocks, size
from cvm.records import dataclass

__all__ = ["FixedPoint", "Unprovable", "decides_without", "fit", "fits_int64", "proves"]

WIDTHS = (31, 34, 37, 40, 43, 46, 49, 52, 55, 58, 61)
"""The widths of the largest multiplier, in bits, that are tried in this order. The first one that is exact is used."""

_ENUMERABLE = 512
"""The most combinations of values of further accumulators that are enumerated. Otherwise the gap lemma is used."""
_MOST_THRESHOLDS = {1: 2**21, 2: 2**18}
"""The most thresholds of one row over all enumerated values, for one and for two wide accumulators. A proof with more
would take minutes.
"""
_SAMPLED = 2**11
"""A row with several accumulators and more than 4 times as many steps is first proven for about this many of them. A
width that fails there is left at once.
"""
_KEPT_THRESHOLDS = 2**13
"""The proof of a row with several accumulators is kept for the next width if it has at most this many thresholds."""
_MAX_SHIFT = 62
"""The largest shift plus the bits of the codes, since k * 2^s must fit int64."""
_INT64_MAX = 2**63 - 1
_REMEMBERED = 128
"""The number of results that are remembered, by their rows."""
_MOST_REMEMBERED = 512
"""The result of a tensor is remembered if it has at most this many rows; more rows take memory and rarely recur."""


class Unprovable(Exception):
    """No fixed-point form within 64 bits could be proven exact."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """One row of a ``requantize``: clamp(floor((sum_i multipliers[i] * x_i + offset) / 2^shift), lo, hi)."""

    multipliers: tuple[int, ...]
    offset: int
    shift: int


class _Single:
    """Computes the offsets with which a form of a row with one accumulator of positive factor is exact."""

    def __init__(self, row: LinearRow | SurdRow, stride: int = 1) -> None:
        lo, hi = row.bounds[0]
        if isinstance(row, LinearRow) and hi - lo + 1 < len(row.steps()):
            self._by_values(row)
            return
        steps = _thinned(row.steps(), stride)
        k = np.array(steps, dtype=object)
        t = np.clip(row.thresholds(k), lo, hi + 1) if len(steps) else k
        # A threshold at or below lo only requires that lo has the code; one above hi, that hi does not have it.
        self.taken_k, self.taken_at = k[t <= hi], t[t <= hi]
        self.before_k, self.before_at = k[t > lo], t[t > lo] - 1

    def _by_values(self, row: LinearRow) -> None:
        """At every value x, code(x) is reached and code(x) + 1 is not; all other conditions follow."""
        x = np.array(range(row.bounds[0][0], row.bounds[0][1] + 1), dtype=object)
        code, steps = (row.factors[0] * x + row.constant) // row.denominator, row.steps()
        reached, missed = np.minimum(code, steps[-1]), np.maximum(code + 1, steps[0])
        self.taken_k, self.taken_at = reached[reached >= steps[0]], x[reached >= steps[0]]
        self.before_k, self.before_at = missed[missed <= steps[-1]], x[missed <= steps[-1]]

    def offsets(self, m: Sequence[int], shift: int) -> tuple[int | None, int | None]:
        """The least and the greatest exact offset for multipliers ``m`` and a shift; None if there is no such bound."""
        least = (self.taken_k * 2**shift - m[0] * self.taken_at).max() if self.taken_k.size else None
        greatest = (self.before_k * 2**shift - m[0] * self.before_at).min() - 1 if self.before_k.size else None
        return least, greatest


class _Double:
    """Computes, by the gap lemma, offsets with which a form of a row with two accumulators is exact.

    The factor of the first accumulator is positive.
    """

    def __init__(self, row: LinearRow, stride: int = 1) -> None:
        self.row = row
        p, q = row.factors
        lo, hi = row.bounds[1]
        self.k = np.array(_thinned(row.steps(), stride), dtype=object)
        progression = q * lo + row.constant, row.denominator, hi - lo + 1, p, q
        self.least_slacks = Slacks.least_of(self.k, *progression)
        self.greatest_slacks = Slacks.greatest_of(self.k, *progression)

    def offsets(self, m: Sequence[int], shift: int) -> tuple[int | None, int | None]:
        """The least and the greatest offset that the lemma admits for multipliers ``m`` and a shift."""
        row, k = self.row, self.k
        if not k.size:
            return None, None
        p, q = row.factors
        r, d, one = row.constant, row.denominator, 2**shift
        e_n, e_2 = d * m[0] - one * p, d * m[1] - one * q
        # p * E without the term of c is a linear function of N and S: e_n * (N - r) + e_s * S.
        e_s = e_2 * p - e_n * q
        by_s = [e_s * end for end in row.bounds[1]]
        at, above, below = (e_n * (k * d - r), e_n * (k * d + p - r), e_n * (k * d - p - r))
        least_e = np.minimum(at, above) + min(by_s)
        greatest_e = np.maximum(at, below) + max(by_s)
        least = -self.least_slacks.least_quotient(least_e - p * one * r, p * one, p * d)
        greatest = -self.greatest_slacks.greatest_quotient(greatest_e - p * one * (r + p), p * one, p * d) - 1
        return least, greatest


class _Singles:
    """The offsets of the forms of many rows with one accumulator of positive factor, which are computed together."""

    def __init__(self, rows: Sequence[LinearRow]) -> None:
        self._blocks = list(blocks(rows))

    def offsets(self, m: int, shift: int) -> Iterator[tuple[int | None, int | None]]:
        """As `_Single.offsets`, for each row."""
        for rows, steps in self._blocks:
            found = steps and steps.offsets([m] * len(rows), [shift] * len(rows))
            yield from found or (_Single(row).offsets([m], shift) for row in rows if isinstance(row, LinearRow))


def _thinned(steps: range, stride: int) -> list[int]:
    """Every stride-th step, and the last one."""
    found = list(steps[::stride])
    return found if not found or found[-1] == steps[-1] else [*found, steps[-1]]


class _Proof:
    """The proof of one row. All accumulators but one or two are enumerated. A case has their values.

    With a ``stride``, it is a proof for every stride-th step: what it excludes is excluded, and the rest is not proven.
    """

    def __init__(self, row: Row, stride: int = 1) -> None:
        self.row = row
        self.size = len(row.steps()) // stride
        """The number of thresholds."""
        self._values: list[tuple[int, ...]] = [()]
        self._together: _Singles | None = None
        self._cases: list[_Single | _Double] = []
        if isinstance(row, SurdRow):
            self.order = [0]
            self.sign = 1 if row.slope > 0 else -1
            self._cases = [_Single(row if self.sign > 0 else row.mirrored(), stride)]
        else:
            self.order = _order(row)
            self.sign = 1 if row.factors[self.order[0]] >= 0 else -1
            self._enumerate(row, stride)

    def _enumerate(self, row: LinearRow, stride: int) -> None:
        ordered = replace(
            row,
            factors=tuple(row.factors[i] for i in self.order),
            # The value of an accumulator with the factor 0 does not matter, so it is fixed to 0.
            bounds=tuple(row.bounds[i] if row.factors[i] else (0, 0) for i in self.order),
        )
        if self.sign < 0:
            ordered = ordered.mirrored()
        wide = _wide(ordered)
        if _enumerations(ordered.bounds[wide:]) > _ENUMERABLE:
            raise Unprovable("more than two wide accumulators")
        if _enumerations(ordered.bounds[wide:]) * len(ordered.steps()) > _MOST_THRESHOLDS[wide]:
            raise Unprovable("too many thresholds to prove")
        self._values = list(product(*(range(lo, hi + 1) for lo, hi in ordered.bounds[wide:])))
        self.size *= len(self._values)
        factors, bounds = ordered.factors[:wide], ordered.bounds[:wide]
        rows = []
        for values in self._values:
            moved = sum(p * value for p, value in zip(ordered.factors[wide:], values, strict=True))
            rows.append(LinearRow(factors, row.constant + moved, row.denominator, bounds, row.lo, row.hi))
        if wide == 1 and stride == 1 and factors[0] > 0:
            self._together = _Singles(rows)
        else:
            self._cases = [_Single(core, stride) if wide == 1 else _Double(core, stride) for core in rows]

    def fixed_point(self, width: int) -> FixedPoint | None:
        """The form with multipliers of ``width`` bits, if it is exact and its sum fits 64 bits."""
        m, shift = _multipliers(self.row, width)
        return _form(self.row, m, shift, *self.offsets(m, shift))

    def offsets(self, m: Sequence[int], shift: int) -> tuple[int | None, int | None]:
        """The interval of offsets that are exact in all cases. It is empty if the first one exceeds the second."""
        primary = [m[i] for i in self.order]
        primary[0] *= self.sign
        if primary[0] <= 0:
            return 1, 0
        lows, highs = [], []
        found = (
            (case.offsets(primary, shift) for case in self._cases)
            if self._together is None
            else self._together.offsets(primary[0], shift)
        )
        for values, (least, greatest) in zip(self._values, found, strict=True):
            moved = sum(mi * value for mi, value in zip(primary[len(primary) - len(values) :], values, strict=True))
            if least is not None:
                lows.append(least - moved)
            if greatest is not None:
                highs.append(greatest - moved)
        return max(lows, default=None), min(highs, default=None)


def _wide(row: LinearRow) -> int:
    """The number of accumulators that are not enumerated."""
    return 2 if _enumerations(row.bounds[1:]) > _ENUMERABLE else 1


class _Proving:
    """The proof of one row, made when it is first needed, and for many steps after a sample of them."""

    def __init__(self, row: Row) -> None:
        self._row = row
        stride = len(row.steps()) // _SAMPLED
        self._stride = stride if len(row.bounds) > 1 and stride > 4 else 1
        self._kept: dict[int, _Proof] = {}

    def _proof(self, stride: int) -> _Proof:
        """The proof for every stride-th step. Large ones are made again for each width, since few widths are tried."""
        found = self._kept.get(stride) or _Proof(self._row, stride)
        if found.size <= _KEPT_THRESHOLDS:
            self._kept[stride] = found
        return found

    def may_be_exact(self, width: int) -> bool:
        """Whether a sample of the steps, if one is taken, admits multipliers of ``width`` bits."""
        if self._stride == 1:
            return True
        least, greatest = self._proof(self._stride).offsets(*_multipliers(self._row, width))
        return least is None or greatest is None or least <= greatest

    def fixed_point(self, width: int) -> FixedPoint | None:
        """As `_Proof.fixed_point`."""
        return self._proof(1).fixed_point(width)


def _multipliers(row: Row, width: int) -> tuple[tuple[int, ...], int]:
    """The multipliers of a row, of at most ``width`` bits, and their shift."""
    codes = max(abs(row.lo), abs(row.hi)).bit_length()
    shift = max(0, min(_MAX_SHIFT - codes, width - row.scale_bits()))
    return tuple(row.multiplier(term, shift) for term in range(len(row.bounds))), shift


def _form(row: Row, m: tuple[int, ...], shift: int, least: int | None, greatest: int | None) -> FixedPoint | None:
    """The form with an offset in the middle of [least, greatest]; None if this is empty or the sum exceeds 64 bits."""
    if least is not None and greatest is not None:
        if least > greatest:
            return None
        offset = (least + greatest) // 2
    else:
        # One bound is missing, since there is no step on that side. The offset nearest to zero keeps the sum small.
        offset = max(0, least) if least is not None else min(0, greatest or 0)
    form = FixedPoint(m, int(offset), shift)
    return form if fits_int64(row, form) else None


class _Proofs:
    """The proofs of all rows of a tensor. Rows with one accumulator are proven together, the others one by one."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.count = len(rows)
        alone = [isinstance(row, LinearRow) and len(row.factors) == 1 and row.factors[0] != 0 for row in rows]
        self.others = [(i, _Proving(row)) for i, row in enumerate(rows) if not alone[i]]
        self.indices = [i for i in range(len(rows)) if alone[i]]
        self.rows = [rows[i] for i in self.indices]
        upward = [row if row.factors[0] > 0 else row.mirrored() for row in self.rows if isinstance(row, LinearRow)]
        self.upward = upward
        self.kept = list(blocks(upward)) if sum(map(size, upward)) <= BLOCK else None

    def _blocks(self) -> Iterator[tuple[Sequence[Staircase], Steps | None]]:
        """The conditions of the rows with one accumulator. Many are not kept, but computed again for each width."""
        return blocks(self.upward) if self.kept is None else iter(self.kept)

    def fixed_points(self, width: int) -> list[FixedPoint] | None:
        """The forms of all rows with multipliers of ``width`` bits, if all are exact."""
        forms: dict[int, FixedPoint] = {}
        if not all(proof.may_be_exact(width) for _, proof in self.others):
            return None
        for index, proof in self.others:
            form = proof.fixed_point(width)
            if form is None:
                return None
            forms[index] = form
        start = 0
        for upward, steps in self._blocks():
            rows = self.rows[start : start + len(upward)]
            wishes = [_multipliers(row, width) for row in rows]
            slopes = [abs(m[0]) for m, _ in wishes]
            offsets = steps and steps.offsets(slopes, [shift for _, shift in wishes])
            for i, (row, (m, shift)) in enumerate(zip(rows, wishes, strict=True)):
                # With a multiplier of 0 the code would never change, so the form is rejected.
                bounds = (offsets[i] if offsets else _Proof(row).offsets(m, shift)) if m[0] else (1, 0)
                form = _form(row, m, shift, *bounds)
                if form is None:
                    return None
                forms[self.indices[start + i]] = form
            start += len(upward)
        return [forms[i] for i in range(self.count)]


def _order(row: LinearRow) -> list[int]:
    """The order of the accumulators: first the two with the most values, of which the one with the larger factor comes
    first, then the others.
    """
    by_width = sorted(
        range(len(row.factors)), key=lambda i: row.bounds[i][0] - row.bounds[i][1] if row.factors[i] else 1
    )
    widest = sorted(by_width[:2], key=lambda i: -abs(row.factors[i]))
    return [*widest, *by_width[2:]]


def _enumerations(bounds: Sequence[Bounds]) -> int:
    return math.prod(hi - lo + 1 for lo, hi in bounds)


def fits_int64(row: Row, form: FixedPoint) -> bool:
    """Whether every partial sum of the form, in any order and with the rounding addend, fits int64."""
    parts = [sorted((m * lo, m * hi)) for m, (lo, hi) in zip(form.multipliers, row.bounds, strict=True)]
    addend = 2**form.shift >> 1
    offset = form.offset - addend
    highest = sum(max(part[1], 0) for part in parts) + max(offset, 0) + addend
    lowest = sum(min(part[0], 0) for part in parts) + min(offset, 0)
    return lowest >= -_INT64_MAX and highest <= _INT64_MAX and all(abs(m) < 2**62 for m in form.multipliers)


def _constant(row: Row) -> FixedPoint | None:
    """The form of a row whose code is the same for all values of its accumulators; None for other rows."""
    first, last = row.code_bounds()
    return FixedPoint((0,) * len(row.bounds), first, 0) if first == last else None


def _whole(row: Row) -> FixedPoint | None:
    """The form of a row with the denominator 1, which is the sum itself. None for other rows, or if it does not fit
    int64.
    """
    if isinstance(row, SurdRow) or row.denominator != 1:
        return None
    form = FixedPoint(row.factors, row.constant, 0)
    return form if fits_int64(row, form) else None


def proves(row: Row, form: FixedPoint) -> bool:
    """Whether ``form`` is proven to give the row's code for every value of the accumulators within their bounds."""
    constant = _constant(row)
    if constant is not None:
        return form == constant
    if form == _whole(row):
        return True
    least, greatest = _Proof(row).offsets(form.multipliers, form.shift)
    above = least is None or least <= form.offset
    below = greatest is None or form.offset <= greatest
    return above and below and fits_int64(row, form)


def fit(rows: Sequence[Row]) -> list[FixedPoint]:
    """Exact fixed-point forms of all rows of a tensor, with the narrowest multipliers that are exact for all of them.

    Raises `Unprovable` if no forms within 64 bits are exact. Equal tensors, such as those of all time steps of a
    recurrent network, are proven once.
    """
    rows = tuple(rows)
    found = _remembered_fit(rows) if len(rows) <= _MOST_REMEMBERED else _fit(rows)
    if isinstance(found, str):
        raise Unprovable(found)
    return list(found)


def _fit(rows: tuple[Row, ...]) -> tuple[FixedPoint, ...] | str:
    """The forms of `fit`, or the reason why there are none."""
    try:
        return tuple(_search(rows))
    except Unprovable as error:
        return str(error)


_remembered_fit = lru_cache(maxsize=_REMEMBERED)(_fit)


def _search(rows: Sequence[Row]) -> list[FixedPoint]:
    constants = [_constant(row) or _whole(row) for row in rows]
    searched = [row for row, form in zip(rows, constants, strict=True) if form is None]
    if any(isinstance(row, LinearRow) and len(row.steps()) > _MOST_THRESHOLDS[1] for row in searched):
        raise Unprovable(f"more than {_MOST_THRESHOLDS[1]} thresholds")
    proofs, tried = _Proofs(searched), None
    for width in WIDTHS:
        # The shift is limited, so that the widest multipliers are often the same ones.
        wishes = [_multipliers(row, width) for row in searched]
        if wishes == tried:
            continue
        forms, tried = proofs.fixed_points(width), wishes
        if forms is not None:
            varying = iter(forms)
            return [form or next(varying) for form in constants]
    raise Unprovable("no multiplier of up to 61 bits is exact")


@lru_cache(maxsize=_REMEMBERED)
def decides_without(row: LinearRow, term: int) -> bool:
    """Whether accumulator ``term`` of two never changes the code, so that any value of it may replace it.

    Each threshold T_k(S) of the other accumulator is monotone in S. If it is equal at both ends, it is constant.
    """
    if len(row.factors) != 2 or len(row.steps()) > _MOST_THRESHOLDS[2]:
        return False
    other = row if term == 1 else replace(row, factors=row.factors[::-1], bounds=row.bounds[::-1])
    if other.factors[0] == 0:
        return False
    if other.factors[0] < 0:
        other = other.mirrored()
    k = np.array(other.steps(), dtype=object)
    lo, hi = other.bounds[0]
    ends = [np.clip(other.fixed(1, value).thresholds(k), lo, hi + 1) for value in other.bounds[1]]
    return bool((ends[0] == ends[1]).all())
