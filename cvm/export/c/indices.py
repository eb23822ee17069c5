"""Indices of elements as affine functions of loop counters, and nests of loops with as few counters as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cvm.export.c.storage import integer
from cvm.program.model import Shape
from cvm.records import dataclass

__all__ = ["Affine", "Index", "Nest", "counters", "flat", "joined", "row_major", "sliced"]


@dataclass(frozen=True, slots=True)
class Affine:
    """sum of factors[k] * counter k, plus ``start``."""

    factors: tuple[int, ...]
    start: int = 0

    def scaled(self, factor: int, start: int = 0) -> Affine:
        """The function times ``factor``, plus ``start``."""
        return Affine(tuple(factor * each for each in self.factors), factor * self.start + start)

    def plus(self, other: Affine) -> Affine:
        """The sum of both."""
        return Affine(tuple(a + b for a, b in zip(self.factors, other.factors, strict=True)), self.start + other.start)


Index = tuple[Affine, ...]
"""The index of an element: one affine function for each axis."""


def counters(shape: Shape) -> Index:
    """The index of the element that a nest of loops over ``shape`` is at."""
    rank = len(shape)
    return tuple(Affine(tuple(int(axis == other) for other in range(rank))) for axis in range(rank))


def flat(index: Index, shape: Shape) -> Affine:
    """The row-major position of an element in a tensor of ``shape``."""
    total = Affine((0,) * len(index[0].factors))
    for axis, extent in zip(index, shape, strict=True):
        total = total.scaled(extent).plus(axis)
    return total


def row_major(names: Sequence[str], extents: Sequence[int]) -> str:
    """The position of the element at these counters in a tensor of these extents, as C."""
    at = ""
    for name, extent in zip(names, extents, strict=True):
        at = f"({at}) * {extent} + {name}" if at else name
    return at or "0"


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops in C: each has a counter, its extent, and the axes whose counters it stands for."""

    names: tuple[str, ...]
    extents: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]

    def words(self, affine: Affine) -> str:
        """An affine function of the counters of the axes, as C."""
        terms = []
        for name, axes in zip(self.names, self.axes, strict=True):
            factor = affine.factors[axes[-1]]
            if factor:
                terms.append(name if factor == 1 else f"{factor} * {name}" if factor > 0 else f"{name} * {factor}")
        if affine.start or not terms:
            terms.append(integer(affine.start) if affine.start >= 0 else f"({integer(affine.start)})")
        return " + ".join(terms)


def joined(shape: Shape, accesses: Sequence[Affine]) -> Nest:
    """Loops over ``shape``, in which neighbouring axes are one loop where every access goes on evenly.

    Axes of extent 1 have no loop; their counters are 0 in every access.
    """
    groups: list[tuple[int, ...]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        if groups:
            last = groups[-1][-1]
            if all(access.factors[last] == extent * access.factors[axis] for access in accesses):
                groups[-1] = (*groups[-1], axis)
                continue
        groups.append((axis,))
    names = tuple(f"i{number}" for number in range(len(groups)))
    extents = []
    for group in groups:
        product = 1
        for axis in group:
            product *= shape[axis]
        extents.append(product)
    return Nest(names, tuple(extents), tuple(groups))


def sliced(shape: Shape, attributes: Any) -> tuple[list[int], list[int]]:
    """The first index and the step of the op `slice` along each axis (b_vec and s_arr of the document)."""
    begins, steps = [], []
    first, strides = attributes.begin, attributes.strides
    for axis, extent in enumerate(shape):
        step = strides[axis] if axis < len(strides) else 1
        begin = first[axis] if axis < len(first) else 0
        lo, hi = (-1, extent - 1) if step < 0 else (0, extent)
        begins.append(max(lo, min(begin + extent if begin < 0 else begin, hi)))
        steps.append(step)
    return begins, steps
