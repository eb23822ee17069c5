"""Operators and methods for tensors of a program that is being built: ``x - zero``, ``x.reshape((1, 8))``.

Each builder of programs has its own class of tensors. It derives from `Operators` and defines in `apply` how an op is
applied; the methods for single ops come from here. All ops are those of the catalogue (`cvm.ops`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from cvm.program.model import Shape

__all__ = ["Operators"]


class Operators(ABC):
    """A tensor of a program, with methods for the ops whose first operand it is.

    Binary operators broadcast. ``label`` becomes the last part of the name of the result; by default it is the op.
    """

    __slots__ = ()

    @abstractmethod
    def apply(self, op: str, *others: Self, label: str | None = None, **attributes: Any) -> Self:
        """The result of an op on this tensor and ``others``."""

    def __add__(self, other: Self) -> Self:
        return self.plus(other)

    def __sub__(self, other: Self) -> Self:
        return self.minus(other)

    def __mul__(self, other: Self) -> Self:
        return self.times(other)

    def __neg__(self) -> Self:
        return self.negative()

    def __abs__(self) -> Self:
        return self.apply("abs")

    def plus(self, other: Self, label: str | None = None) -> Self:
        """The sum, element by element."""
        return self.apply("broadcast_add", other, label=label)

    def minus(self, other: Self, label: str | None = None) -> Self:
        """The difference, element by element."""
        return self.apply("broadcast_sub", other, label=label)

    def times(self, other: Self, label: str | None = None) -> Self:
        """The product, element by element."""
        return self.apply("broadcast_mul", other, label=label)

    def negative(self, label: str | None = None) -> Self:
        """The negative of each element."""
        return self.apply("negative", label=label)

    def maximum(self, other: Self, label: str | None = None) -> Self:
        """The larger of both, element by element."""
        return self.apply("broadcast_max", other, label=label)

    def greater(self, other: Self) -> Self:
        """1 where this tensor is greater than ``other``, else 0."""
        return self.apply("broadcast_greater", other)

    def clip(self, lo: int, hi: int, label: str | None = None) -> Self:
        """The elements clipped to [lo, hi]."""
        return self.apply("clip", label=label, a_min=lo, a_max=hi)

    def reshape(self, shape: Shape) -> Self:
        """The elements in ``shape``, in the same row-major order."""
        return self.apply("reshape", target_shape=shape)

    def transpose(self, axes: tuple[int, ...]) -> Self:
        """Axis i of the result is axis ``axes[i]``."""
        return self.apply("transpose", axes=axes)

    def repeat(self, axis: int, repeats: int) -> Self:
        """Every element repeated ``repeats`` times along ``axis``."""
        return self.apply("repeat", axis=axis, repeats=repeats)

    def sum(self, axes: tuple[int, ...], keepdims: bool = False) -> Self:
        """The sums over ``axes``, which are kept with extent 1 if ``keepdims``."""
        return self.apply("sum", axes=axes, keepdims=keepdims, exclude=False)

    def max(self, axes: tuple[int, ...], keepdims: bool = False) -> Self:
        """The maxima over ``axes``, which are kept with extent 1 if ``keepdims``."""
        return self.apply("max", axes=axes, keepdims=keepdims, exclude=False)

    def take(self, indices: Self, axis: int) -> Self:
        """The elements at ``indices`` along ``axis``, which the axes of ``indices`` replace."""
        return self.apply("take", indices, axis=axis)
