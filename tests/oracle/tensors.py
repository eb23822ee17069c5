"""Tensors of exact real numbers: items over one common denominator.

Items are Python integers wherever the tensor is rational, which makes data movement, sums and products fast and
exact; an irrational item is a `real.Real`. Logical tensors hold 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from .real import Number, Real, floor_of

Items = npt.NDArray[Any]
"""An object array of exact numbers, which have no width (numpy's types cannot say what an object array holds)."""
Flags = npt.NDArray[np.bool_]


def exact(items: Any) -> Items:
    """An object array (numpy's 0-dimensional arithmetic returns bare items: wrap them again)."""
    return np.asarray(items, dtype=object)


def flags(items: Any) -> Flags:
    """Comparisons of object arrays as an array of bool."""
    return np.asarray(items, dtype=bool)


@dataclass(frozen=True, eq=False)
class Tensor:
    """The tensor items / denominator, denominator > 0; items are `int`, or `Fraction` and `Real` where irrational."""

    items: Items
    denominator: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.items.shape

    @property
    def rank(self) -> int:
        return self.items.ndim

    @property
    def is_rational(self) -> bool:
        """No item is a `Real`."""
        return not any(isinstance(item, Real) for item in self.items.flat)

    def floors(self, scale: Fraction, offset: Fraction) -> tuple[Items, Flags]:
        """floor(scale * x + offset) of every item x, and whether scale * x + offset is an integer.

        By integer division where x is rational: scale * n/d + offset = (n * sn * od + on * d * sd) / (d * sd * od).
        """
        if not self.is_rational:
            factor = scale / self.denominator
            found: Any = np.frompyfunc(lambda item: floor_of(item, factor, offset), 1, 2)(self.items)
            return exact(found[0]), flags(found[1])
        divisor = self.denominator * scale.denominator * offset.denominator
        start = offset.numerator * self.denominator * scale.denominator
        dividends = exact(self.items * (scale.numerator * offset.denominator) + start)
        return exact(dividends // divisor), flags(dividends % divisor == 0)

    def item(self, *index: int) -> Number:
        """One item as a number."""
        item = self.items[index]
        return item * Fraction(1, self.denominator)  # type: ignore[no-any-return]

    def numbers(self) -> Items:
        """All items as numbers."""
        return exact(self.items * Fraction(1, self.denominator))

    def integers(self) -> npt.NDArray[np.int64]:
        """The items of a tensor of integers, for use as indices."""
        if not self.is_rational or not bool(np.all(self.items % self.denominator == 0)):
            raise ValueError("not satisfied: the items are integers")
        return np.asarray(self.items // self.denominator, dtype=np.int64)

    def scaled(self, factor: Fraction) -> Tensor:
        """Every item times `factor`."""
        return Tensor(exact(self.items * factor.numerator), self.denominator * factor.denominator)

    def map(self, items: Any) -> Tensor:
        """Other items over the same denominator."""
        return Tensor(exact(items), self.denominator)


TensorLike = Tensor | Fraction | int | bool
"""A tensor argument: literals become constant tensors (3.3.1)."""


def tensor(x: TensorLike) -> Tensor:
    """A tensor argument as a tensor; literals have rank 0."""
    if isinstance(x, Tensor):
        return x
    if not isinstance(x, int | Fraction):
        raise TypeError(f"{type(x).__name__} is no tensor")
    value = Fraction(x)
    return Tensor(exact(value.numerator), value.denominator)


def from_numbers(items: npt.NDArray[Any]) -> Tensor:
    """An array of numbers brought to the least common denominator of its rational items."""
    rational = [item for item in items.flat if not isinstance(item, Real)]
    denominator = lcm(*(item.denominator for item in rational))
    whole = [
        item * denominator if isinstance(item, Real) else item.numerator * (denominator // item.denominator)
        for item in items.flat
    ]
    array = np.empty(len(whole), dtype=object)
    array[:] = whole
    return Tensor(array.reshape(items.shape), denominator)


def from_array(array: npt.NDArray[Any]) -> Tensor:
    """Floats as the dyadic rationals that they are (NaN and infinities have no ratio and raise), integers, logicals."""
    if array.dtype.kind == "f":
        ratios = np.empty(array.size, dtype=object)
        ratios[:] = [Fraction(*item.as_integer_ratio()) for item in array.flat]
        return from_numbers(ratios.reshape(array.shape))
    if array.dtype.kind not in "iub":
        raise TypeError(f"{array.dtype} holds no numbers")
    return Tensor(array.astype(np.int64 if array.dtype.kind == "b" else array.dtype).astype(object))


def from_codes(codes: npt.NDArray[Any], lowest: Fraction, step: Fraction) -> Tensor:
    """The values lowest + code * step of a quantised tensor."""
    denominator = lcm(lowest.denominator, step.denominator)
    start = lowest.numerator * (denominator // lowest.denominator)
    stride = step.numerator * (denominator // step.denominator)
    return Tensor(exact(start + codes.astype(object) * stride), denominator)


def aligned(tensors: Sequence[Tensor]) -> tuple[list[Items], int]:
    """The items of all tensors over their least common denominator, and that denominator."""
    denominator = lcm(*(tensor.denominator for tensor in tensors))
    return [exact(tensor.items * (denominator // tensor.denominator)) for tensor in tensors], denominator


def common_rank(*tensors: TensorLike) -> list[Tensor]:
    """Shapes extended by trailing singletons, so that numpy's broadcasting aligns them at dimension 0 (4.2.2)."""
    all_tensors = [tensor(x) for x in tensors]
    rank = max(x.rank for x in all_tensors)
    return [x.map(x.items.reshape(x.shape + (1,) * (rank - x.rank))) for x in all_tensors]


def aligned_items(*tensors: TensorLike) -> tuple[list[Items], int]:
    """Broadcastable items over one denominator."""
    return aligned(common_rank(*tensors))


def each(function: Callable[..., Number], *tensors: TensorLike) -> Tensor:
    """`function` of corresponding items; equal rational arguments are computed once."""
    known: dict[tuple[Any, ...], Number] = {}

    def remembered(*arguments: Any) -> Number:
        if any(isinstance(argument, Real) for argument in arguments):
            return function(*arguments)
        if arguments not in known:
            known[arguments] = function(*arguments)
        return known[arguments]

    parts = [x.numbers() for x in common_rank(*tensors)]
    result: Any = np.frompyfunc(remembered, len(parts), 1)(*parts)
    return from_numbers(exact(result))


def require(condition: bool, sentence: str) -> None:
    """Argument validity, stated as the document states it."""
    if not condition:
        raise ValueError(f"not satisfied: {sentence}")


def unique_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """axes of 4.4: unique, not negative, less than the rank."""
    require(len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes), "axes are unique and in range")
    return tuple(axes)
