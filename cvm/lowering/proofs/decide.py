"""Exact comparisons of sums with coefficients of any size, and codes found by such comparisons.

A ``requantize`` adds in 64 bits. To compare sum_i P_i * X_i + R with zero for integers P_i of any size, write the
coefficients in balanced digits of base 2^b, P_i = sum_j d_ij * 2^(b*j). From the lowest column up,

    carry_j = floor((sum_i d_ij * X_i + r_j + carry_(j-1)) / 2^b),

Since nested floors compose, the sum is at least 0 if and only if the last column plus its carry is. Each column is one
``requantize`` whose multipliers are digits. Nothing is approximated; only the ranges need a proof.

The code of a number is the count of the thresholds that it reaches. `count_reached` finds this count bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.limits import INT32_MAX
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import Shape
from cvm.records import dataclass

__all__ = [
    "Summand",
    "TooWide",
    "at_least_zero",
    "count_reached",
    "digit_tables",
    "digits_of_sum",
    "fixed_sum",
    "looked_up",
    "narrowed",
    "table_digits",
]

Array = npt.NDArray[Any]

_BITS = (62, 28, 24, 20, 16, 12)
"""The widths b of a digit that are tried, in this order. With the first one, there is a single column, and the digits
are the coefficients.
"""
_TABLE_DIGIT = 27
_MOST_TERMS = 6
"""A ``requantize`` adds up to eight values. One is the carry, and one may be zeros that give the result its shape."""


class TooWide(Exception):
    """For every base, a column of the sum does not fit 64 bits, or a carry does not fit 32 bits."""


@dataclass(frozen=True, eq=False, slots=True)
class Summand:
    """``coefficients`` times a value of the program. They are integers of any size and broadcast with the value."""

    value: Value
    coefficients: Array


def at_least_zero(
    lowering: Emission,
    shape: Shape,
    summands: Sequence[Summand],
    constant: Array,
    label: str,
    arranged: Callable[[Array], Array] = lambda items: items,
) -> Value:
    """Emit a value of ``shape`` that is 1 where the sum of the summands and ``constant`` is at least 0, else 0.

    If arrays of coefficients hold one item for each class of positions, ``arranged`` makes arrays of 64-bit integers
    that broadcast from them. Raises `TooWide`.
    """
    for bits in _BITS:
        columns = _columns(summands, constant, bits)
        if _fits(summands, columns, bits):
            break
    else:
        raise TooWide
    carry: tuple[Value, ...] = ()
    spare = np.zeros((1,) * len(shape), dtype=object)
    for number, (digits, rest) in enumerate(columns):
        last = number == len(columns) - 1
        terms = [(item.value, arranged(digit)) for item, digit in zip(summands, digits, strict=True) if digit.any()]
        terms += [(value, spare + 1) for value in carry]
        while len(terms) > _MOST_TERMS:
            terms = [*_gathered(lowering, shape, terms[:_MOST_TERMS], bits, label), *terms[_MOST_TERMS:]]
        shift, lo, hi = (0, 0, 1) if last else (bits, -INT32_MAX, INT32_MAX)
        # half_up adds 2^(s-1), so 2^(s-1) is subtracted to get a floor. [C >= 0] is clip(C + 1, 0, 1).
        offset = arranged(rest + 1 if last else rest - 2 ** (bits - 1))
        carry = (fixed_sum(lowering, shape, terms, offset, shift, (lo, hi), label),)
    return carry[0]


def digits_of_sum(
    lowering: Emission, shape: Shape, summands: Sequence[Summand], bits: int, label: str
) -> list[tuple[Value, int]]:
    """Emit the digits of a sum of integers: values of ``shape``, lowest first, each with its weight, a power of 2^bits.

    All but the last lie in [0, 2^bits - 1], and the last has a magnitude below 2^bits. Raises `TooWide`.
    """
    one = np.ones((1,) * len(shape), dtype=object)
    columns = [digits for digits, _ in _columns(summands, one * 0, bits)]
    found: list[tuple[Value, int]] = []
    carry: list[tuple[Value, Array]] = []
    while True:
        digits = columns[len(found)] if len(found) < len(columns) else []
        terms = [(item.value, digit) for item, digit in zip(summands, digits, strict=False) if digit.any()] + carry
        most = sum(int(abs(digit).max()) * value.range.magnitude() for value, digit in terms)
        if most + 2 ** (bits + 1) * (1 + len(terms) // _MOST_TERMS) > min(INT32_MAX * 2**bits, 2**62):
            raise TooWide
        while len(terms) > _MOST_TERMS:
            terms = [*_gathered(lowering, shape, terms[:_MOST_TERMS], bits, label), *terms[_MOST_TERMS:]]
        weight = 2 ** (bits * len(found))
        if most < 2**bits and len(found) + 1 >= len(columns):
            return [*found, (fixed_sum(lowering, shape, terms, one * 0, 0, (-most, most), label), weight)]
        high = fixed_sum(lowering, shape, terms, one * -(2 ** (bits - 1)), bits, (-INT32_MAX, INT32_MAX), label)
        low = fixed_sum(lowering, shape, [*terms, (high, one * -(2**bits))], one * 0, 0, (0, 2**bits - 1), label)
        found.append((low, weight))
        carry = [(high, one)]


def _gathered(
    lowering: Emission, shape: Shape, terms: Sequence[tuple[Value, Array]], bits: int, label: str
) -> list[tuple[Value, Array]]:
    """Emit a sum of terms as two terms 2^bits * h + l, where h = floor(sum / 2^bits) and 0 <= l < 2^bits."""
    one = np.ones((1,) * len(shape), dtype=object)
    high = fixed_sum(lowering, shape, terms, one * -(2 ** (bits - 1)), bits, (-INT32_MAX, INT32_MAX), label)
    low = fixed_sum(lowering, shape, [*terms, (high, one * -(2**bits))], one * 0, 0, (0, 2**bits - 1), label)
    return [(high, one * 2**bits), (low, one)]


def _columns(summands: Sequence[Summand], constant: Array, bits: int) -> list[tuple[list[Array], Array]]:
    """For each power of 2^bits, lowest first: the digits of all coefficients, and the digits of the constant."""
    columns = []
    rest = [*(item.coefficients.astype(object) for item in summands), constant.astype(object)]
    while True:
        digits, above = [], []
        for items in rest:
            low = (items + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
            digits.append(low)
            above.append((items - low) // 2**bits)
        if not any(items.any() for items in above):
            # There are no digits above this column.
            columns.append((rest[:-1], rest[-1]))
            return columns
        columns.append((digits[:-1], digits[-1]))
        rest = above


def _fits(summands: Sequence[Summand], columns: list[tuple[list[Array], Array]], bits: int) -> bool:
    """Whether the sums of all columns fit int64, with room for the rounding addend, and all carries fit int32."""
    carry = 0
    for digits, rest in columns:
        # Gathering terms (`_gathered`) rounds each group to a multiple of 2^bits.
        most = carry + int(abs(rest).max()) + 1 + 2 ** (bits + 1) * (len(digits) // _MOST_TERMS)
        for item, digit in zip(summands, digits, strict=True):
            most += int(abs(digit).max()) * item.value.range.magnitude()
        if most + 2**bits > 2**63 - 1:
            return False
        carry = most // 2**bits + 1
        if carry > INT32_MAX:
            return False
    return True


def fixed_sum(
    lowering: Emission,
    shape: Shape,
    terms: Sequence[tuple[Value, Array]],
    offset: Array,
    shift: int,
    bounds: tuple[int, int],
    label: str,
    rounding: str = "half_up",
) -> Value:
    """Emit clip(round((sum of terms + offset) / 2^shift), bounds) as one ``requantize`` of ``shape``.

    A term is a value and its multipliers, which broadcast with it.
    """
    with lowering.part(label):
        ordered = sorted(terms, key=lambda term: term[0].shape != shape)
        if not ordered or ordered[0][0].shape != shape:
            zeros = lowering.tensor_constant(np.zeros(shape, np.int64), "zeros")
            ordered.insert(0, (zeros, np.zeros((1,) * len(shape), dtype=object)))
        columns = [*(digit for _, digit in ordered), offset, np.full((1,) * len(shape), shift, dtype=object)]
        labels = [*(f"m{i + 1}" for i in range(len(ordered))), "c", "s"]
        parameters = [lowering.parameter(narrowed(column), name) for column, name in zip(columns, labels, strict=True)]
        values = [value for value, _ in ordered]
        limits = {"lo": bounds[0], "hi": bounds[1]}
        return lowering.emit("requantize", *values, *parameters, label="", rounding=rounding, **limits)


def table_digits(
    lowering: Emission, thresholds: Sequence[int], index: Value, rank: int, label: str = ""
) -> list[Summand]:
    """Emit -thresholds[index] as summands. The thresholds, of any size, are stored as tables of their digits."""
    return looked_up(lowering, digit_tables(lowering, thresholds, label), index, rank, label)


def digit_tables(lowering: Emission, thresholds: Sequence[int], label: str) -> list[tuple[Value, int]]:
    """Emit tables of the balanced digits of integers of any size, each with the weight of its digit."""
    items = np.array(thresholds, dtype=object)
    found: list[tuple[Value, int]] = []
    with lowering.part(label):
        while items.any() or not found:
            low = (items + 2 ** (_TABLE_DIGIT - 1)) % 2**_TABLE_DIGIT - 2 ** (_TABLE_DIGIT - 1)
            found.append((lowering.tensor_constant(low, f"thresholds{len(found)}"), 2 ** (_TABLE_DIGIT * len(found))))
            items = (items - low) // 2**_TABLE_DIGIT
    return found


def looked_up(
    lowering: Emission, tables: Sequence[tuple[Value, int]], index: Value, rank: int, label: str
) -> list[Summand]:
    """Emit the negated integers at ``index`` as summands; ``tables`` hold their digits."""
    found = []
    with lowering.part(label):
        for number, (table, weight) in enumerate(tables):
            digit = lowering.emit("cvm_lut", table, index, label=f"digit{number}")
            found.append(Summand(digit, np.full((1,) * rank, -weight, dtype=object)))
    return found


def narrowed(items: Array) -> Array:
    """The items with extent 1 along every axis on which they do not vary."""
    for axis in range(items.ndim):
        first = np.take(items, [0], axis)
        if (items == first).all():
            items = first
    return items


def count_reached(
    lowering: Emission, shape: Shape, steps: int, reached: Callable[[Value], Value], label: str, most: int | None = None
) -> Value:
    """Emit, for each element, the greatest k in [0, steps] such that step k is reached, or 0 if no step is reached.

    A number that reaches a step must reach all steps below it. ``reached`` maps a value that holds one k in [1, 2^bits
    - 1] per element to a value that is 1 where step k is reached, else 0. It must give 0 for k > steps, unless the
    count is clipped to ``most`` = steps.
    """
    found: Value | None = None
    one = np.ones((1,) * len(shape), dtype=object)
    for bit in range(steps.bit_length() - 1, -1, -1):
        with lowering.part(label):
            if found is None:
                trial = lowering.tensor_constant(np.full(shape, 2**bit, np.int64), "trial")
            else:
                trial = found.plus(lowering.tensor_constant(one * 2**bit, "step"), label="trial")
        weights = [(reached(trial), one * 2**bit)]
        if found is not None:
            weights.append((found, one))
        limit = 2 ** steps.bit_length() - 2**bit
        found = fixed_sum(lowering, shape, weights, one * 0, 0, (0, limit), label)
    if found is None:
        raise AssertionError("there must be at least one step")
    if most is not None and most < 2 ** steps.bit_length() - 1:
        found = found.clip(0, most, label=label)
    return found
