"""Many real numbers at once, enclosed by float64: a function of one real number is applied to all of them.

`Many` is a `Real` whose enclosure is a pair of arrays (`cvm.quantization.float_enclosures`). If a function compares a
number with a rational, the comparison must have the same result for all numbers; if it has not, `enclosed` runs the
function again for the numbers of each result. Numbers that floats do not decide - ties, special points, numbers beyond
their range - stay unknown here. They are decided one by one, by reals with as many digits as necessary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from fractions import Fraction
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cvm.quantization.enclosures import Arithmetic, Interval, fractions
from cvm.quantization.exact import quantize
from cvm.quantization.float_enclosures import FLOATS, FloatInterval, Floats, between
from cvm.quantization.quantizer import LinearQuantizer, Quantizer
from cvm.quantization.reals import OnlyExact, Real, Undecided, Undefined, code
from cvm.records import dataclass

__all__ = ["Many", "Numbers", "codes_of", "enclosed", "integers", "interval_of", "many_rationals", "points", "taken"]

_MOST_RUNS = 64
"""The most runs of a function. If there are more different sequences of comparison results, numbers stay unknown."""
_DIGITS = 40
"""The digits with which a number that is the same for all items is enclosed."""


class _Divided(Exception):
    """A comparison has different results: -1 or 1 for each number, 0 if it is not decided."""

    def __init__(self, answers: npt.NDArray[np.int8]) -> None:
        self.answers = answers


@dataclass(frozen=True, slots=True, eq=False)
class Many(Real):
    """Numbers between ``low`` and ``high``, arrays of one shape; NaN where nothing is known."""

    low: Floats = field(kw_only=True)
    high: Floats = field(kw_only=True)

    def bounds(self, arithmetic: Arithmetic) -> Interval | None:
        """Raises `OnlyExact`: code that needs digits needs a single number."""
        raise OnlyExact

    def applied(self, function: Callable[..., Any], operands: Sequence[Real]) -> Real:
        """The function applied to all numbers."""
        low, high = function(FLOATS, *map(_floats, operands))
        return Many(low=low, high=high)

    def floored(self) -> Real:
        """The floors of all numbers whose floors are known."""
        low, high = np.floor(self.low), np.floor(self.high)
        return Many(low=np.where(low == high, low, np.nan), high=np.where(low == high, high, np.nan))

    def compare(self, bound: Fraction) -> int:
        """The same as for one number, if all decided comparisons have the same result. Raises `_Divided` otherwise."""
        low, high = between(bound, bound)
        answers = np.where(self.low > high, np.int8(1), np.where(self.high < low, np.int8(-1), np.int8(0)))
        first = int(answers.flat[0])
        if first == 0 or (answers != first).any():
            raise _Divided(answers)
        return first


def _floats(x: Real) -> FloatInterval:
    if isinstance(x, Many):
        return x.low, x.high
    if x.exact is not None:
        return FLOATS.rational(x.exact)
    found = x.bounds(Arithmetic.of(_DIGITS))
    ends = None if found is None else fractions(found)
    return between(*ends) if ends is not None else (np.array(np.nan), np.array(np.nan))


def _unknown(count: int) -> FloatInterval:
    return np.full(count, np.nan), np.full(count, np.nan)


class Numbers(Sequence[Real]):
    """Numbers with enclosures. The exact number of an index is made at the first access."""

    def __init__(self, interval: FloatInterval, make: Callable[[int], Real]) -> None:
        """``interval`` encloses all numbers. Numbers of which nothing is known are made at once, in their order."""
        self.interval = interval
        self._make = make
        self._made: dict[int, Real] = {int(i): make(int(i)) for i in np.flatnonzero(~_finite(interval))}

    def __len__(self) -> int:
        return self.interval[0].size

    @overload
    def __getitem__(self, index: int) -> Real: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Real, ...]: ...
    def __getitem__(self, index: int | slice) -> Real | tuple[Real, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if index not in self._made:
            self._made[index] = self._make(index)
        return self._made[index]


def _finite(interval: FloatInterval) -> npt.NDArray[np.bool_]:
    return np.isfinite(interval[0]) & np.isfinite(interval[1])


def interval_of(numbers: Sequence[Real]) -> FloatInterval:
    """Enclosures of numbers. For numbers that are not rational, only enclosures that exist already are used."""
    if isinstance(numbers, Numbers):
        return numbers.interval
    return many_rationals([number.exact for number in numbers])


def many_rationals(items: Sequence[Fraction | None]) -> FloatInterval:
    """Enclosures of rationals. An item None is unknown."""
    low, high = _unknown(len(items))
    for i, item in enumerate(items):
        if item is not None:
            low[i], high[i] = between(item, item)
    return low, high


def taken(interval: FloatInterval, at: npt.NDArray[np.intp]) -> Real:
    """The enclosed numbers at an array of indices."""
    return Many(low=interval[0][at], high=interval[1][at])


def integers(items: npt.NDArray[np.int64]) -> Real:
    """Integers of at most 53 bits as numbers."""
    return points(items.astype(np.float64))


def points(items: Floats) -> Real:
    """The rational values of floats as numbers."""
    return Many(low=items, high=items)


def enclosed(count: int, function: Callable[[npt.NDArray[np.intp]], Real]) -> FloatInterval:
    """Enclosures of ``count`` numbers. ``function`` maps an array of indices to a `Many`, or to one number for all.

    If the function raises for some numbers, all numbers with the same comparison results are unknown.
    """
    low, high = _unknown(count)
    groups = [np.arange(count)]
    with np.errstate(all="ignore"):
        for _ in range(_MOST_RUNS):
            if not groups:
                break
            group = groups.pop()
            try:
                result = function(group)
                if not result.infinite:
                    low[group], high[group] = _floats(result)
            except _Divided as division:
                parts = (group[division.answers == side] for side in (-1, 1))
                groups += [part for part in parts if part.size]
            except (OnlyExact, Undecided, Undefined):
                continue
    return low, high


def codes_of(numbers: Sequence[Real], quantizer: Quantizer, index: int = 0) -> npt.NDArray[np.int64]:
    """The codes of numbers under the scale with index ``index``. Raises `Undecided` and `Undefined` as `code` does.

    A quantiser is monotone. If both ends of an enclosure, which are rationals, have the same code, the number has it.
    """
    found = np.zeros(len(numbers), np.int64)
    left = np.arange(len(numbers))
    if isinstance(numbers, Numbers):
        known = np.flatnonzero(_finite(numbers.interval))
        alone = quantizer
        if isinstance(quantizer, LinearQuantizer):
            alone = replace(quantizer, scale=(quantizer.scale[index],), offset=(quantizer.offset[index],), axis=None)
        codes = [quantize(end[known], alone) for end in numbers.interval]
        same = codes[0] == codes[1]
        found[known[same]] = codes[0][same]
        left = np.setdiff1d(left, known[same], assume_unique=True)
    for i in left.tolist():
        found[i] = code(numbers[i], quantizer, index)
    return found
