"""Tensors as functions from an index to an integer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

__all__ = ["Index", "Shape", "Stored", "Tensor", "elements", "flatten_index", "indices", "materialize", "stored"]

Shape: TypeAlias = tuple[int, ...]
Index: TypeAlias = tuple[int, ...]


class Tensor:
    """A tensor: its shape, and the rule that gives the element at an index.

    ``X[d]`` is the document's X[d_0, d_1, ..]. An index outside the shape raises IndexError: the formula that made it
    is wrong.
    """

    __slots__ = ("rule", "shape")

    def __init__(self, shape: Sequence[int], rule: Callable[[Index], int]) -> None:
        self.shape: Shape = tuple(shape)
        self.rule = rule

    def __getitem__(self, index: Index) -> int:
        if len(index) != len(self.shape) or not all(0 <= d < n for d, n in zip(index, self.shape, strict=True)):
            raise IndexError(f"index {index} is outside the shape {self.shape}")
        return self.rule(index)


def flatten_index(d: Index, n: Shape) -> int:
    """The number of the index d among all indices of the shape n, in row-major order.

    d_0 * prod_{i=1}^{N-1} n_i + d_1 * prod_{i=2}^{N-1} n_i + .. + d_{N-2} * n_{N-1} + d_{N-1}
    """
    N = len(n)
    return sum(d[j] * prod(n[j + 1 :]) for j in range(N))


class Stored(Tensor):
    """A tensor given by its elements in row-major order."""

    __slots__ = ("elements",)

    def __init__(self, shape: Sequence[int], elements: Sequence[int]) -> None:
        n = tuple(shape)
        if len(elements) != prod(n):
            raise ValueError(f"{len(elements)} elements for the shape {n}")
        super().__init__(n, lambda d: elements[flatten_index(d, n)])
        self.elements = elements

    def __getitem__(self, index: Index) -> int:
        # The same element as by the rule. Bounds and position take one pass, since FORMAL spends most of its time here.
        if len(index) != len(self.shape):
            raise IndexError(f"index {index} is outside the shape {self.shape}")
        position = 0
        for d, n in zip(index, self.shape):  # noqa: B905 - strict=True costs time, the lengths are equal
            if not 0 <= d < n:
                raise IndexError(f"index {index} is outside the shape {self.shape}")
            position = position * n + d
        return self.elements[position]


def indices(shape: Shape) -> Iterator[Index]:
    """All indices of a shape, in row-major order."""
    return product(*(range(n) for n in shape))


def stored(shape: Sequence[int], elements: Sequence[int]) -> Stored:
    """A tensor given by its elements in row-major order. Raises ValueError if their number does not fit the shape."""
    return Stored(shape, elements)


def elements(tensor: Tensor) -> list[int]:
    """The elements of a tensor in row-major order."""
    return [tensor[d] for d in indices(tensor.shape)]


def materialize(tensor: Tensor) -> Stored:
    """The same tensor with every element computed once."""
    return stored(tensor.shape, elements(tensor))
