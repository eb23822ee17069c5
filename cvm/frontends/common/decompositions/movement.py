"""Operators that move elements: constant indices are resolved at compile time, computed indices by the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from cvm.frontends.common.data_types import unit
from cvm.frontends.common.emission import Emission

__all__ = [
    "Indices",
    "clipped_indices",
    "computed_indices",
    "element_numbers",
    "flattened",
    "gathered",
    "last_written",
    "part",
    "tiled",
    "triangle",
]

Indices = npt.NDArray[np.int64]


def element_numbers(shape: Sequence[int]) -> Indices:
    """For each element of a tensor of this shape, its index in row-major order."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def clipped_indices(at: npt.NDArray[np.generic], extent: int) -> Indices:
    """Constant indices as indices from the start: a negative index counts from the end, one out of range is clipped."""
    clipped = np.clip(at.astype(np.int64), -extent, extent - 1)
    return np.where(clipped < 0, clipped + extent, clipped)


def computed_indices(graph: Emission, name: str, extent: int, most: int) -> str:
    """The indices that `clipped_indices` gives, for computed indices; their quantiser ends at ``most`` >= ``extent`` -
    1.
    """
    quantizer = unit(-extent, most)
    clipped = graph.emit("clamp", name, Fraction(-extent), Fraction(extent - 1), quantizer=quantizer)
    negative = graph.emit("lt", clipped, Fraction(0))
    return graph.emit("add", clipped, graph.emit("mul", negative, Fraction(extent)))


def gathered(graph: Emission, name: str, indices: str | Indices, axis: int, most: int) -> str:
    """The slices of a tensor at constant or computed indices of an axis; ``most`` as for `computed_indices`."""
    extent = graph.shape(name)[axis]
    if isinstance(indices, str):
        return graph.emit("gather", name, computed_indices(graph, indices, extent, most), axis=axis)
    return graph.taken(name, clipped_indices(indices, extent).reshape(indices.shape or (1,)), axis)


def part(graph: Emission, name: str, axis: int, begin: int, end: int, drop: bool = False) -> str:
    """The elements from ``begin`` up to, but not including, ``end`` along an axis; a part of a constant is a constant.

    With ``drop``, the result does not have the axis; then ``end`` is ``begin`` + 1.
    """
    constant = graph.part_of_constant(name, axis, begin, end, drop)
    if constant is not None:
        return constant
    shape = graph.shape(name)
    if (begin, end) != (0, shape[axis]):
        name = graph.emit("slice", name, axes=(axis,), begin=(begin,), end=(end,), stride=(1,))
    return graph.reshape(name, shape[:axis] + shape[axis + 1 :]) if drop else name


def flattened(graph: Emission, name: str) -> str:
    """The elements of a tensor in row-major order, as a vector."""
    return graph.reshape(name, (math.prod(graph.shape(name)),))


def last_written(count: int, written: Indices) -> Indices:
    """For each of ``count`` elements, the index of its last update plus ``count``, or its own index where it has none.

    ``written`` holds, for each update in order, the index of the element that it writes.
    """
    found = np.arange(count)
    for number, element in enumerate(written.ravel().tolist()):
        found[element] = count + number
    return found


def tiled(graph: Emission, name: str, shape: Sequence[int]) -> str:
    """A tensor repeated along each axis up to ``shape``; the extents of the tensor divide those of ``shape``."""
    repeats = tuple(n // m for n, m in zip(tuple(shape) or (1,), graph.shape(name), strict=True))
    return graph.emit("tile", name, repeats=repeats)


def triangle(graph: Emission, name: str, upper: bool, diagonal: int) -> str:
    """Matrices with 0 on the other side of a diagonal, computed as a product with a constant of ones and zeros."""
    shape = graph.shape(name)
    diagonal = min(max(diagonal, -max(shape)), max(shape))
    mask = (np.triu if upper else np.tril)(np.ones(shape[-2:], np.int64), diagonal)
    return graph.emit("mul", name, graph.constant(mask, (1,) * (len(shape) - 2) + shape[-2:]))
