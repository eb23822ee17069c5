"""Arrays of exact rationals.

Scales, offsets and coefficients of a network are rationals that differ per channel or per position. A `Rationals` keeps
one denominator for the whole array, so that adding and multiplying whole tensors is integer arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Rationals"]


@dataclass(frozen=True, eq=False, slots=True)
class Rationals:
    """``numerators / denominator``: an object array of Python integers over one positive integer."""

    numerators: npt.NDArray[np.object_]
    denominator: int = 1

    def __post_init__(self) -> None:
        if self.numerators.dtype != object:  # integers of 64 bits would wrap
            raise TypeError(f"numerators are Python integers, found {self.numerators.dtype}")

    @staticmethod
    def of(values: Iterable[Fraction], shape: Sequence[int]) -> Rationals:
        """The given rationals, row-major, as an array of ``shape``."""
        items = list(values)
        denominator = math.lcm(*(item.denominator for item in items))
        numerators = [item.numerator * (denominator // item.denominator) for item in items]
        return Rationals(np.array(numerators, dtype=object).reshape(tuple(shape)), denominator)

    @staticmethod
    def of_floats(values: npt.NDArray[np.floating[Any]]) -> Rationals:
        """The rationals that finite floats of at most 64 bits are, over the least common denominator."""
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
        """An array of one rational, with extent 1 along all ``rank`` axes; it broadcasts to any tensor of that rank."""
        return Rationals.of([Fraction(value)], (1,) * rank)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents: those of the tensor, or 1 where the rational is the same along the axis."""
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
        """The numerators over ``denominator``, which must be a multiple of the array's own."""
        return np.asarray(self.numerators * (denominator // self.denominator))

    def __add__(self, other: Rationals) -> Rationals:
        common = math.lcm(self.denominator, other.denominator)
        return Rationals(self.over(common) + other.over(common), common)

    def __sub__(self, other: Rationals) -> Rationals:
        return self + (-other)

    def __neg__(self) -> Rationals:
        return Rationals(-self.numerators, self.denominator)

    def __mul__(self, other: Rationals) -> Rationals:
        return Rationals(self.numerators * other.numerators, self.denominator * other.denominator).reduced()

    def __truediv__(self, other: Rationals) -> Rationals:
        inverse = Rationals.of([1 / item for item in other.fractions()], other.shape)
        return self * inverse

    def reduced(self) -> Rationals:
        """The same rationals over the least denominator."""
        factor = math.gcd(self.denominator, *self.numerators.ravel().tolist())
        return self if factor == 1 else Rationals(self.numerators // factor, self.denominator // factor)

    def moved(self, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Rationals:
        """The array after ``move``, a movement of items, is applied to the numerators."""
        return Rationals(move(self.numerators), self.denominator)

    def with_trailing_axes(self, count: int) -> Rationals:
        """The same rationals with ``count`` trailing axes of extent 1 added."""
        return self.moved(lambda items: items.reshape(items.shape + (1,) * count))

    def broadcast(self, shape: Sequence[int]) -> Rationals:
        """The array broadcast to ``shape``."""
        return self.moved(lambda items: np.broadcast_to(items, tuple(shape)))

    def equals(self, other: Rationals) -> bool:
        """Whether both are the same rational at every index."""
        return bool((self.numerators * other.denominator == other.numerators * self.denominator).all())

    def is_zero(self) -> bool:
        """Whether every item is zero."""
        return not self.numerators.any()
