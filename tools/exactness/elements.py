"""Tensors whose elements are exact numbers, each computed when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.quantization import LogarithmicQuantizer, Quantizer
from tests.oracle.real import Number, Real, total

__all__ = ["Budget", "Coded", "Elements", "Index", "Kept", "TooCostly", "aligned", "dot", "literal"]

Index: TypeAlias = tuple[int, ...]


class TooCostly(ArithmeticError):
    """An element depends on more elements than the budget allows."""


class Budget:
    """How many elements may be read for one element that is checked."""

    def __init__(self, most: int) -> None:
        self.most = self.left = most

    def renew(self) -> None:
        """Begin with the next element."""
        self.left = self.most

    def spend(self) -> None:
        """Count one read. Raises `TooCostly` if there were too many."""
        self.left -= 1
        if self.left < 0:
            raise TooCostly(f"it depends on more than {self.most} elements")


class Elements:
    """A tensor given by the rule for its elements. Each element is computed once."""

    def __init__(self, shape: tuple[int, ...], rule: Callable[[Index], Number], budget: Budget) -> None:
        self.shape, self._rule, self._budget = shape, rule, budget
        self._known: dict[Index, Number] = {}

    def __getitem__(self, index: Index) -> Number:
        found = self._known.get(index)
        if found is None:
            self._budget.spend()
            found = self._known[index] = self._rule(index)
        return found


class Coded(Elements):
    """The numbers that codes stand for."""

    def __init__(self, codes: npt.NDArray[Any], quantizer: Quantizer | None, budget: Budget) -> None:
        super().__init__(codes.shape, self._decoded, budget)
        self._codes, self._quantizer = codes, quantizer
        self._axis = getattr(quantizer, "axis", None)
        self._numbers: dict[tuple[int, int], Fraction] = {}

    def __getitem__(self, index: Index) -> Number:
        self._budget.spend()
        return self._decoded(index)

    def _decoded(self, index: Index) -> Fraction:
        key = (int(self._codes[index]), 0 if self._axis is None else index[self._axis])
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self._number(*key)
        return found

    def _number(self, code: int, channel: int) -> Fraction:
        quantizer = self._quantizer
        if quantizer is None:
            return Fraction(code)
        if isinstance(quantizer, LogarithmicQuantizer):
            magnitude = Fraction(2) ** (quantizer.top - quantizer.hi + abs(code)) if code else Fraction(0)
            return magnitude if code > 0 else -magnitude
        return quantizer.offset[channel] + quantizer.scale[channel] * code


class Kept(Elements):
    """Stored numbers: integers, truth values, or floats, which are the rationals that they are."""

    def __init__(self, array: npt.NDArray[Any], budget: Budget) -> None:
        super().__init__(array.shape, self._number, budget)
        self._array = array

    def _number(self, index: Index) -> Fraction:
        item = self._array[index]
        if self._array.dtype.kind == "f":
            return Fraction(*np.float64(item).item().as_integer_ratio())
        return Fraction(int(item))


def literal(number: Fraction | bool | int, budget: Budget) -> Elements:
    """A number as a tensor of rank 0."""
    value = Fraction(number)
    return Elements((), lambda _: value, budget)


def aligned(x: Elements, index: Index) -> Number:
    """The element that is broadcast to ``index``: NNEF aligns axes from the first on, extents of 1 are repeated."""
    return x[tuple(0 if n == 1 else d for d, n in zip(index, x.shape, strict=False))]


def dot(pairs: Iterable[tuple[Number, Number]]) -> Number:
    """The sum of products. Rational products are added over their denominators, which are few."""
    sums: dict[int, int] = {}
    others: list[Number] = []
    for x, w in pairs:
        if isinstance(x, Real) or isinstance(w, Real):
            others.append(x * w)
        else:
            denominator = x.denominator * w.denominator
            sums[denominator] = sums.get(denominator, 0) + x.numerator * w.numerator
    return total([*(Fraction(n, d) for d, n in sums.items()), *others])
