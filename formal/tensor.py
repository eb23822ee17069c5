"""Tensors as functions from an index to an integer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

__all__ = ["Index", "Shape", "Tensor", "indices", "materialize", "stored"]

Shape: TypeAlias = tuple[int, ...]
Index: TypeAlias = tuple[int, ...]


class Tensor:
    """A tensor: its shape, and the rule that gives the element at an index.

    ``X[d]`` is the document's X[d_0, d_1, ..]. An index outside the range of the shape is an error of the formula that
    made it, never a value.
    """

    __slots__ = ("rule", "shape")

    def __init__(self, shape: Sequence[int], rule: Callable[[Index], int]) -> None:
        self.shape: Shape = tuple(shape)
        self.rule = rule

    def __getitem__(self, index: Index) -> int:
        if len(index) != len(self.shape) or not all(0 <= d < n for d, n in zip(index, self.shape, strict=True)):
            raise IndexError(f"index {index} is outside the shape {self.shape}")
        return self.rule(index)


def indices(shape: Shape) -> Iterator[Index]:
    """All indices of a shape, in row-major order."""
    return product(*(range(n) for n in shape))


def stored(shape: Sequence[int], elements: Sequence[int]) -> Tensor:
    """A tensor given by its elements in row-major order."""
    if len(elements) != prod(shape):
        raise ValueError(f"{len(elements)} elements for the shape {tuple(shape)}")
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Tensor(shape, lambda d: elements[sum(i * step for i, step in zip(d, steps, strict=True))])


def materialize(tensor: Tensor) -> Tensor:
    """The same tensor with every element computed once."""
    return stored(tensor.shape, [tensor[d] for d in indices(tensor.shape)])
