"""Arrays of exact rationals.

Scales, offsets and coefficients of a network are rationals that differ per channel or per position. A `Rationals` keeps
one denominator for the whole array, so that adding and multiplying whole tensors is integer arithmetic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["Rationals", "condensed", "core"]


@dataclass(frozen=True, eq=False, slots=True)
class Rationals:
    """``numerators / denominator``: an object array of Python integers over one positive integer.

    If an array takes no memory along an axis because its items are equal there (``numpy.broadcast_to``), results do not
    either.
    """

    numerators: npt.NDArray[np.object_]
    denominator: int = 1

    def __post_init__(self) -> None:
        if self.numerators.dtype != object:  # integers of 64 bits would wrap
            raise TypeError(f"numerators are Python integers, found {self.numerators.dtype}")

    @staticmethod
    def of(values: Iterable[Fraction], shape: Sequence[int]) -> Rationals:
        """The given rationals, in row-major order, as an array of ``shape``."""
        items = list(values)
        denominator = math.lcm(*(item.denominator for item in items))
        numerators = [item.numerator * (denominator // item.denominator) for item in items]
        return Rationals(np.array(numerators, dtype=object).reshape(tuple(shape)), denominator)

    @staticmethod
    def of_floats(values: npt.NDArray[np.floating[Any]]) -> Rationals:
        """The rational values of finite floats of at most 64 bits, over the least common denominator."""
        fractions, exponents = np.frexp(values.astype(np.float64))
        integers = np.ldexp(fractions, 53).astype(np.int64)  # exact: a float64 has 53 significant bits
        lowest_bits = integers & -integers
        zeros = np.frexp(np.maximum(lowest_bits, 1).astype(np.float64))[1].astype(np.int64) - 1  # trailing zero bits
        powers = np.where(integers == 0, 0, exponents.astype(np.int64) - 53 + zeros)  # odd * 2^power, within +-1100
        least = min(int(powers.min(initial=0)), 0)
        odd = (integers >> zeros).astype(object)
        return Rationals(np.asarray(odd << (powers - least).astype(object), dtype=object), 1 << -least)

    @staticmethod
    def scalar(value: Fraction | int, rank: int) -> Rationals:
        """An array of one rational, with extent 1 along all ``rank`` axes. It broadcasts to any tensor of that rank."""
        return Rationals.of([Fraction(value)], (1,) * rank)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents: along each axis the tensor's, or 1 if the rationals are equal along it."""
        return self.numerators.shape

    @property
    def uniform(self) -> bool:
        """Whether the array holds a single rational."""
        return self.numerators.size == 1

    def item(self) -> Fraction:
        """The rational of a uniform array."""
        return Fraction(self.numerators.item(), self.denominator)

    def fractions(self) -> list[Fraction]:
        """All items, row-major."""
        return [Fraction(numerator, self.denominator) for numerator in self.numerators.ravel().tolist()]

    def over(self, denominator: int) -> npt.NDArray[Any]:
        """The numerators for ``denominator``, which must be a multiple of the array's denominator."""
        return _along(lambda items: items * (denominator // self.denominator), self.numerators)

    def __add__(self, other: Rationals) -> Rationals:
        common = math.lcm(self.denominator, other.denominator)
        return Rationals(_along(operator.add, self.over(common), other.over(common)), common)

    def __sub__(self, other: Rationals) -> Rationals:
        return self + (-other)

    def __neg__(self) -> Rationals:
        return Rationals(_along(operator.neg, self.numerators), self.denominator)

    def __mul__(self, other: Rationals) -> Rationals:
        numerators = _along(operator.mul, self.numerators, other.numerators)
        return Rationals(numerators, self.denominator * other.denominator).reduced()

    def __truediv__(self, other: Rationals) -> Rationals:
        divisors = Rationals(core(other.numerators), other.denominator)
        inverse = Rationals.of([1 / item for item in divisors.fractions()], divisors.shape)
        return self * inverse.broadcast(other.shape)

    def reduced(self) -> Rationals:
        """The same rationals over the least denominator."""
        factor = math.gcd(self.denominator, *core(self.numerators).ravel().tolist())
        if factor == 1:
            return self
        return Rationals(_along(lambda items: items // factor, self.numerators), self.denominator // factor)

    def moved(self, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Rationals:
        """The array with ``move``, which only moves items, applied to the numerators."""
        return Rationals(move(self.numerators), self.denominator)

    def selected(self, shape: Sequence[int], move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Rationals:
        """The array in the full shape ``shape`` after ``move``, which selects and rearranges items, and makes none.

        Indices are moved instead of items, so that an array takes no memory along axes along which it does not vary.
        """
        items = core(self.broadcast(shape).numerators)
        indices = np.broadcast_to(np.arange(items.size).reshape(items.shape), tuple(shape))
        at = condensed(move(indices))
        return Rationals(np.broadcast_to(items.ravel()[core(at)], at.shape), self.denominator)

    def with_trailing_axes(self, count: int) -> Rationals:
        """The same rationals with ``count`` trailing axes of extent 1 added."""
        return self.moved(lambda items: items.reshape(items.shape + (1,) * count))

    def broadcast(self, shape: Sequence[int]) -> Rationals:
        """The array broadcast to ``shape``."""
        return self.moved(lambda items: np.broadcast_to(items, tuple(shape)))

    def equals(self, other: Rationals) -> bool:
        """Whether both are the same rational at every index."""
        first, second = core(self.numerators), core(other.numerators)
        return bool((first * other.denominator == second * self.denominator).all())

    def is_zero(self) -> bool:
        """Whether every item is zero."""
        return not core(self.numerators).any()


def core(items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The items with extent 1 along the axes along which they take no memory."""
    return items[tuple(slice(None if stride else 1) for stride in items.strides)]


def condensed(items: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same items, in the same shape, without memory along the axes along which they do not vary."""
    found = items
    for axis in range(items.ndim):
        first = np.take(found, [0], axis)
        if found.shape[axis] > 1 and (found == first).all():
            found = first
    return np.broadcast_to(found, items.shape)


def _along(function: Callable[..., Any], *operands: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A function applied to each item of the operands, which broadcast. Items that `core` merges are computed once."""
    found = np.asarray(function(*map(core, operands)))
    return np.broadcast_to(found, np.broadcast_shapes(*(items.shape for items in operands)))
