"""What can be written with a tensor of a program that is being made: ``x - zero``, ``x.reshape((1, 8))``.

Whoever makes programs has a class of its own for the tensors of it, and says in `Operators.apply` what applying an op
does there; the words for the single ops are these here. All ops are those of the catalogue (`cvm.ops`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from cvm.ops import Range
from cvm.program.model import Shape

__all__ = ["Operators"]


class Operators(ABC):
    """A tensor of a program, with the ops that take it first.

    Binary operators broadcast. ``label`` is the last part of the name that the result wishes for; by default the op.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """The extents."""

    @property
    @abstractmethod
    def range(self) -> Range:
        """The proven range of the items."""

    @abstractmethod
    def apply(self, op: str, *others: Self, label: str | None = None, **attributes: Any) -> Self:
        """The result of an op on this tensor and ``others``."""

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __add__(self, other: Self) -> Self:
        return self.apply("broadcast_add", other)

    def __sub__(self, other: Self) -> Self:
        return self.apply("broadcast_sub", other)

    def __mul__(self, other: Self) -> Self:
        return self.apply("broadcast_mul", other)

    def __neg__(self) -> Self:
        return self.apply("negative")

    def __abs__(self) -> Self:
        return self.apply("abs")

    def greater(self, other: Self) -> Self:
        """1 where this tensor is greater than ``other``, else 0."""
        return self.apply("broadcast_greater", other)

    def maximum(self, other: Self) -> Self:
        """The greater of both, item by item."""
        return self.apply("broadcast_max", other)

    def clip(self, lo: int, hi: int, label: str | None = None) -> Self:
        """The items, those beyond [lo, hi] as the nearer end."""
        return self.apply("clip", label=label, a_min=lo, a_max=hi)

    def reshape(self, shape: Shape) -> Self:
        """The items in the same order, in ``shape``."""
        return self.apply("reshape", target_shape=shape)

    def transpose(self, axes: tuple[int, ...]) -> Self:
        """Axis i of the result is axis ``axes[i]``."""
        return self.apply("transpose", axes=axes)

    def repeat(self, axis: int, repeats: int) -> Self:
        """Every item ``repeats`` times in a row along ``axis``."""
        return self.apply("repeat", axis=axis, repeats=repeats)

    def sum(self, axes: tuple[int, ...], keepdims: bool = False) -> Self:
        """The sums over ``axes``, which stay with extent 1 if ``keepdims``."""
        return self.apply("sum", axes=axes, keepdims=keepdims, exclude=False)

    def max(self, axes: tuple[int, ...], keepdims: bool = False) -> Self:
        """The greatest items over ``axes``, which stay with extent 1 if ``keepdims``."""
        return self.apply("max", axes=axes, keepdims=keepdims, exclude=False)

    def take(self, indices: Self, axis: int) -> Self:
        """The items at ``indices`` along ``axis``, which gives way to the axes of ``indices``."""
        return self.apply("take", indices, axis=axis)
