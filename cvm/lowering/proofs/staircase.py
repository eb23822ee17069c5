"""Codes of functions of sums, found among exact thresholds.

A code is monotone in the sum L = sum_i P_i * X_i with integers P_i; it changes where L reaches a threshold. If L is one
value of the program that has few integers, a table maps it to codes. Otherwise the thresholds that L reaches are
counted: for each bit of the count, from the highest one, the threshold in the middle is looked up and compared with L
(`cvm.lowering.proofs.decide`). Only the ranges of these sums need a proof. A *class* is a distinct combination of
coefficients among the channels and positions. Each class has its own thresholds.

A threshold is the least integer L at which the function reaches a step of the quantiser (`cvm.quantization.steps`). If
the function contains roots, the threshold is found by comparing squares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import gcd, lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Unsupported
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import LinearForm, Shape, SurdForm
from cvm.lowering.proofs.decide import Summand, TooWide, at_least_zero, count_reached, table_digits
from cvm.quantization import LinearQuantizer, Quantizer
from cvm.quantization.exact import code as exact_code
from cvm.quantization.rationals import Rationals
from cvm.quantization.steps import Step, step
from cvm.quantization.surds import least_integer
from cvm.records import dataclass

__all__ = ["STAIRCASE_BITS", "Branch", "Branches", "Reached", "staircase_codes", "sum_reached", "surd_reached"]

Array = npt.NDArray[Any]

STAIRCASE_BITS = 16
"""The most bits of linear codes, since the tables hold a threshold for each code."""
_MOST_THRESHOLDS = 2**20
"""The most thresholds of all classes together."""
_MOST_ENTRIES = 2**16
"""The most entries of a table of codes. Otherwise the thresholds are searched, by a few ops per bit of the count."""

Reached = Callable[[Step, Fraction, Sequence[Fraction]], "int | None"]
"""Maps a step, a unit u and the constants of a class to the least integer L for which the function of L * u reaches the
step; None if every L reaches it."""

AllReached = Callable[[LinearQuantizer, int, Fraction, Sequence[Fraction]], "Sequence[int | None]"]
"""The same as `Reached`, for the steps of a channel to all codes but the least at once."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The sums ``lo`` .. ``hi``, on which a function does not decrease or, if it ``falls``, does not increase.

    ``reached`` is a function of the sum or, if the function falls, of the negated sum.
    """

    lo: int
    hi: int
    reached: Reached
    falls: bool = False
    all_reached: AllReached | None = None


Branches = Callable[[int, int, Fraction, Sequence[Fraction]], Sequence[Branch]]
"""Maps lo, hi, a unit and the constants of a class to the branches of the function on lo .. hi, in ascending order."""


def sum_reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int:
    """`Reached` for the number L * u + c itself, where ``constants`` is (c,)."""
    (constant,) = constants
    return least_integer(-constant / unit, [(step.sign, step.square / unit**2)], step.strict)


def surd_reached(step: Step, unit: Fraction, constants: Sequence[Fraction]) -> int:
    """`Reached` for offset + (L * u + origin) / sqrt(radicand), with the constants origin, offset and radicand.

    The step is reached if L * u + origin >= (step - offset) * sqrt(radicand).
    """
    origin, offset, radicand = constants
    scale = radicand / unit**2
    sign = (offset < 0) - (offset > 0)
    surds = [(step.sign, step.square * scale), (sign, offset * offset * scale)]
    return least_integer(-origin / unit, surds, step.strict)


@dataclass(frozen=True, slots=True)
class _Stairs:
    """One class: L = sum factors * values has the code ``codes[n]`` if it has reached n of the thresholds."""

    factors: tuple[int, ...]
    thresholds: tuple[int, ...]
    codes: tuple[int, ...]
    beyond: int
    """An integer that L never reaches."""


def staircase_codes(
    lowering: Emission,
    form: LinearForm | SurdForm,
    quantizer: Quantizer,
    reached: Reached | None = None,
    branches: Branches | None = None,
) -> tuple[Value, str]:
    """Emit the codes of a sum, or of a function of it, for the owner; returns the value and a note for its claim.

    ``reached`` describes a function that does not decrease, ``branches`` a function that rises and falls. A pending
    clamp of ``form`` applies to the result of the function. Raises `Unsupported`: ``lowering.bits`` for linear codes of
    more than 16 bits, ``lowering.rounding`` for rounding toward zero, ``lowering.unprovable`` if the sums are too wide
    to compare, or if there are too many thresholds to store.
    """
    if isinstance(quantizer, LinearQuantizer):
        bits = (quantizer.hi - quantizer.lo).bit_length()
        if bits > STAIRCASE_BITS:
            name = lowering.owner
            message = (
                f"the codes of {name!r} have {bits} bits, too many thresholds: at most {STAIRCASE_BITS} are lowered"
            )
            raise Unsupported("lowering.bits", message, lowering.location)
        if quantizer.rounding == "toward_zero":
            raise Unsupported("lowering.rounding", f"rounding {quantizer.rounding} is not lowered", lowering.location)
    if isinstance(form, SurdForm):
        factors: list[Rationals] = [term.factor for term in form.terms]
        constants: list[Rationals] = [form.origin, form.offset, form.radicand]
        reached = reached or surd_reached
    else:
        factors, constants = [term.factor for term in form.terms], [form.constant]
        reached = reached or sum_reached
    found = reached
    branches = branches or (lambda lo, hi, unit, constants: [Branch(lo, hi, found)])
    values = [term.value for term in form.terms]
    bounds = [value.range.hull() for value in values]
    keys, where = _classes([*factors, *constants], quantizer, len(form.shape))
    stairs = []
    for *coefficients, channel in keys:
        split = len(factors)
        row = _stairs(coefficients[:split], bounds, coefficients[split:], quantizer, int(channel), branches)
        stairs.append(_clamped(row, (form.lower, form.upper), quantizer, int(channel)))
        if not _tabulated(form.shape, values, len(keys)):
            _require_room(lowering, row, len(keys))
    try:
        value = _emitted(lowering, form.shape, values, stairs, where)
    except TooWide:
        message = f"no exact form of the codes of {lowering.owner!r} fits 64 bits: quantise the operands of this tensor"
        raise Unsupported("lowering.unprovable", message, lowering.location) from None
    most = max(len(row.thresholds) for row in stairs)
    return value, f"{most} thresholds, {len(stairs)} class{'es' if len(stairs) > 1 else ''}"


def _classes(
    parts: Sequence[Rationals], quantizer: Quantizer, rank: int
) -> tuple[list[tuple[Fraction, ...]], npt.NDArray[np.int64]]:
    """The classes, and an array with the index of the class at each position.

    A class is a tuple of the coefficients and the channel of the quantiser.
    """
    extents = [1] * rank
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis is not None:
        extents[quantizer.axis] = len(quantizer.scale)
    channels = Rationals(np.arange(int(np.prod(extents))).astype(object).reshape(extents))
    columns = [*parts, channels]
    whole = np.broadcast_shapes((1,) * rank, *(part.shape for part in columns))
    lists = [part.broadcast(whole).fractions() for part in columns]
    index: dict[tuple[Fraction, ...], int] = {}
    where = np.array([index.setdefault(key, len(index)) for key in zip(*lists, strict=True)], np.int64)
    return list(index), where.reshape(whole)


def _stairs(
    factors: Sequence[Fraction],
    bounds: Sequence[tuple[int, int]],
    constants: Sequence[Fraction],
    quantizer: Quantizer,
    channel: int,
    branches: Branches,
) -> _Stairs:
    """The stairs of one class: its thresholds within the bounds of L, ascending, and the codes between them."""
    common = lcm(*(factor.denominator for factor in factors))
    whole = [int(factor * common) for factor in factors]
    divisor = gcd(*whole) or 1
    unit = Fraction(divisor, common)
    whole = [factor // divisor for factor in whole]
    ends = [sorted((p * lo, p * hi)) for p, (lo, hi) in zip(whole, bounds, strict=True)]
    lo, hi = sum(end[0] for end in ends), sum(end[1] for end in ends)

    thresholds: list[int] = []
    codes: list[int] = []
    for branch in branches(lo, hi, unit, constants):
        found, levels = _climb(branch, quantizer, channel, constants, unit)
        if codes and codes[-1] == levels[0]:
            levels = levels[1:]
        elif codes:
            found = [branch.lo, *found]
        thresholds += found
        codes += levels
    return _Stairs(tuple(whole), tuple(thresholds), tuple(codes), hi + 1)


def _climb(
    branch: Branch, quantizer: Quantizer, channel: int, constants: Sequence[Fraction], unit: Fraction
) -> tuple[list[int], list[int]]:
    """The thresholds of one branch, in ascending order, and the codes before, between and after them."""
    lo, hi = (-branch.hi, -branch.lo) if branch.falls else (branch.lo, branch.hi)

    def clipped(found: int | None) -> int:
        return lo if found is None else min(max(found, lo), hi + 1)

    if branch.all_reached is not None and isinstance(quantizer, LinearQuantizer):
        every = branch.all_reached(quantizer, channel, unit, constants)
        thresholds, codes = _distinct([clipped(found) for found in every], lo, hi, quantizer.lo)
    else:
        thresholds, codes = _searched_codes(
            lambda code: clipped(branch.reached(step(quantizer, code, channel), unit, constants)), lo, hi, quantizer
        )
    if branch.falls:
        return [1 - at for at in thresholds[::-1]], codes[::-1]
    return thresholds, codes


def _distinct(least: Sequence[int], lo: int, hi: int, lowest: int) -> tuple[list[int], list[int]]:
    """The distinct thresholds, and the codes between them. Code ``lowest`` + 1 + i begins at ``least[i]``, in ascending
    order.
    """
    thresholds: list[int] = []
    codes = [lowest]
    for code, at in enumerate(least, lowest + 1):
        if at > hi:
            break
        if at <= lo or (thresholds and thresholds[-1] == at):
            codes[-1] = code
        else:
            thresholds.append(at)
            codes.append(code)
    return thresholds, codes


def _searched_codes(
    begins: Callable[[int], int], lo: int, hi: int, quantizer: Quantizer
) -> tuple[list[int], list[int]]:
    """The thresholds and codes, found by a search that calls ``begins`` for few codes only.

    ``begins`` returns the integer at which a code begins.
    """
    least = cache(begins)
    every = quantizer.lo, quantizer.hi
    code, last = _code_at(lo, least, every), _code_at(hi, least, every)
    thresholds: list[int] = []
    codes = [code]
    while code < last:
        at = least(code + 1)
        # Several codes may begin at one integer. Look for a code that begins later, twice as far ahead each time.
        reach = 1
        while code + 2 * reach <= last and least(code + 2 * reach) <= at:
            reach *= 2
        code = _code_at(at, least, (code + reach, min(code + 2 * reach - 1, last)))
        thresholds.append(at)
        codes.append(code)
    return thresholds, codes


def _code_at(total: int, least: Callable[[int], int], among: tuple[int, int]) -> int:
    """The code at the sum ``total``, found by bisection among the codes from ``among[0]`` to ``among[1]``."""
    low, high = among
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if least(middle) <= total else (low, middle - 1)
    return low


def _clamped(
    row: _Stairs, clamps: tuple[Fraction | None, Fraction | None], quantizer: Quantizer, channel: int
) -> _Stairs:
    """The stairs with their codes clipped to the codes of the bounds. That is right because a quantiser is monotone."""
    codes = list(row.codes)
    for bound, choose in zip(clamps, (max, min), strict=True):
        if bound is not None:
            end = exact_code(bound, quantizer, channel)
            codes = [choose(code, end) for code in codes]
    return replace(row, codes=tuple(codes))


# Emission


def _emitted(
    lowering: Emission, shape: Shape, values: Sequence[Value], stairs: Sequence[_Stairs], where: Array
) -> Value:
    if all(len(set(row.codes)) == 1 for row in stairs):
        codes = np.array([row.codes[0] for row in stairs], np.int64)[where]
        return lowering.tensor_constant(np.broadcast_to(codes, shape), "")
    if _tabulated(shape, values, len(stairs)):
        return _looked_up(values[0], values[0].range.hull(), stairs, where)
    return _searched(lowering, shape, values, stairs, where)


def _tabulated(shape: Shape, values: Sequence[Value], classes: int) -> bool:
    """Whether the codes are looked up in a table, and not searched for among the thresholds."""
    if len(values) != 1 or values[0].shape != shape:
        return False
    lo, hi = values[0].range.hull()
    return (hi - lo + 1) * classes <= _MOST_ENTRIES


def _require_room(lowering: Emission, row: _Stairs, classes: int) -> None:
    """Refuse a class with so many thresholds that a table cannot hold as many for every class."""
    if 2 ** len(row.thresholds).bit_length() * classes <= _MOST_THRESHOLDS:
        return
    message = (
        f"the codes of {lowering.owner!r} begin at {len(row.thresholds)} thresholds for each of {classes} classes of "
        f"channels, more than {_MOST_THRESHOLDS} together: give it a quantiser of fewer bits, the channels one scale, "
        "or the sum a quantiser of its own"
    )
    raise Unsupported("lowering.unprovable", message, lowering.location)


def _looked_up(value: Value, span: tuple[int, int], stairs: Sequence[_Stairs], where: Array) -> Value:
    (lo, hi), lowering = span, value.emission
    table = [row.codes[bisect_right(row.thresholds, row.factors[0] * x)] for row in stairs for x in range(lo, hi + 1)]
    start = where * (hi - lo + 1) - lo
    if start.any():
        value = value.plus(lowering.tensor_constant(start, "start"), label="index")
    return lowering.emit("cvm_lut", lowering.tensor_constant(np.array(table), "table"), value, label="")


def _searched(
    lowering: Emission, shape: Shape, values: Sequence[Value], stairs: Sequence[_Stairs], where: Array
) -> Value:
    """Emit the number of thresholds that are reached, in [0, steps], and then the code for that number."""
    steps = max(len(row.thresholds) for row in stairs)
    run = 2 ** steps.bit_length()
    assert run * len(stairs) <= _MOST_THRESHOLDS, "a table must hold the thresholds of all classes"
    # Entry c * run + k of the table is threshold k of class c. Entries after the last threshold are never reached.
    entries: list[int] = []
    for row in stairs:
        entries += [0, *row.thresholds, *[row.beyond] * (run - 1 - len(row.thresholds))]
    start = lowering.tensor_constant(where * run, "start") if len(stairs) > 1 else None

    def indexed(count: Value) -> Value:
        return count if start is None else count.plus(start, label="index")

    factors = [np.array([row.factors[i] for row in stairs], dtype=object)[where] for i in range(len(values))]
    summands = [Summand(value, factor) for value, factor in zip(values, factors, strict=True) if factor.any()]
    nothing = np.zeros((1,) * len(shape), dtype=object)

    def reached(trial: Value) -> Value:
        digits = table_digits(lowering, entries, indexed(trial), len(shape))
        return at_least_zero(lowering, shape, [*summands, *digits], nothing, "reached")

    count = count_reached(lowering, shape, steps, reached, "count", most=steps)
    lowest = stairs[0].codes[0]
    if all(row.codes == tuple(range(lowest, lowest + len(row.codes))) for row in stairs):
        if lowest == 0:
            return count
        least = lowering.tensor_constant(np.full((1,) * len(shape), lowest, np.int64), "lo")
        return count.plus(least, label="")
    codes = [row.codes[min(k, len(row.codes) - 1)] for row in stairs for k in range(run)]
    return lowering.emit("cvm_lut", lowering.tensor_constant(np.array(codes), "codes"), indexed(count), label="")
