"""Operators that move elements: constant indices are resolved here, computed ones by the program."""

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
    """The number that each element of a tensor has in row-major order."""
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def clipped_indices(at: npt.NDArray[np.generic], extent: int) -> Indices:
    """Constant indices, counted from the start: those below 0 count from the end, those out of range are clipped."""
    clipped = np.clip(at.astype(np.int64), -extent, extent - 1)
    return np.where(clipped < 0, clipped + extent, clipped)


def computed_indices(graph: Emission, name: str, extent: int, most: int) -> str:
    """As `clipped_indices`, of computed indices; their quantiser ends at ``most``, at least ``extent`` - 1."""
    quantizer = unit(-extent, most)
    clipped = graph.emit("clamp", name, Fraction(-extent), Fraction(extent - 1), quantizer=quantizer)
    negative = graph.emit("lt", clipped, Fraction(0))
    return graph.emit("add", clipped, graph.emit("mul", negative, Fraction(extent)))


def gathered(graph: Emission, name: str, indices: str | Indices, axis: int, most: int) -> str:
    """The slices of a tensor at indices along an axis, computed or constant; ``most`` as for `computed_indices`."""
    extent = graph.shape(name)[axis]
    if isinstance(indices, str):
        return graph.emit("gather", name, computed_indices(graph, indices, extent, most), axis=axis)
    return graph.taken(name, clipped_indices(indices, extent).reshape(indices.shape or (1,)), axis)


def part(graph: Emission, name: str, axis: int, begin: int, end: int, drop: bool = False) -> str:
    """The elements of a tensor from ``begin`` up to, not including, ``end`` along an axis; of constants a constant.

    With ``drop`` the axis, along which one element is taken, is left out.
    """
    constant = graph.part_of_constant(name, axis, begin, end, drop)
    if constant is not None:
        return constant
    shape = graph.shape(name)
    if (begin, end) != (0, shape[axis]):
        name = graph.emit("slice", name, axes=(axis,), begin=(begin,), end=(end,), stride=(1,))
    return graph.reshape(name, shape[:axis] + shape[axis + 1 :]) if drop else name


def flattened(graph: Emission, name: str) -> str:
    """The elements of a tensor in row-major order, along one axis."""
    return graph.reshape(name, (math.prod(graph.shape(name)),))


def last_written(count: int, written: Indices) -> Indices:
    """Per element of ``count``: the last update that is written to it, counted from ``count`` on, or its own number.

    ``written`` has the number of the element that each update is written to, in order.
    """
    found = np.arange(count)
    for number, element in enumerate(written.ravel().tolist()):
        found[element] = count + number
    return found


def tiled(graph: Emission, name: str, shape: Sequence[int]) -> str:
    """A tensor repeated along each axis until it has a shape, which its extents divide."""
    repeats = tuple(n // m for n, m in zip(tuple(shape) or (1,), graph.shape(name), strict=True))
    return graph.emit("tile", name, repeats=repeats)


def triangle(graph: Emission, name: str, upper: bool, diagonal: int) -> str:
    """The elements of matrices on one side of a diagonal, 0 on the other: a product with ones and zeros."""
    shape = graph.shape(name)
    diagonal = min(max(diagonal, -max(shape)), max(shape))
    mask = (np.triu if upper else np.tril)(np.ones(shape[-2:], np.int64), diagonal)
    return graph.emit("mul", name, graph.constant(mask, (1,) * (len(shape) - 2) + shape[-2:]))
