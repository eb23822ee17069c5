"""Linear resizes in the graph, and the weights that engines use for them.

The graph has a linear resize as two interpolations, each of them a sum of two gathered tensors times weights, which are
exact fractions. Engines compute the weights in float32, from the coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphOperation, QuantizedGraph
from cvm.records import dataclass

__all__ = ["Interpolation", "interpolations"]

Array = npt.NDArray[Any]
F = np.float32


@dataclass(frozen=True, eq=False, slots=True)
class Interpolation:
    """A tensor that is interpolated along one axis: between two neighbours for each index."""

    source: str
    axis: int
    lower: Array
    upper: Array
    """The indices of both neighbours."""
    coordinates: tuple[Fraction, ...]
    """Where between them the index lies."""

    def weights(self, halves: bool) -> tuple[Array, Array]:
        """The float32 weights of the lower and the upper neighbour.

        ``halves``: a coordinate is computed as that of a pixel's centre, less one half.
        """
        if halves:
            places = np.array([F(F(float(item + Fraction(1, 2))) - F(0.5)) for item in self.coordinates], F)
        else:
            places = np.array([F(float(item)) for item in self.coordinates], F)
        same = self.lower == self.upper
        sides = (np.abs(places - ends.astype(F)) for ends in (self.upper, self.lower))
        lower, upper = (np.where(same, F(0.5), side) for side in sides)
        return lower, upper


def interpolations(
    graph: QuantizedGraph, makers: Mapping[str, GraphOperation], name: str
) -> tuple[Interpolation, Interpolation] | None:
    """The interpolations along rows and columns of which a tensor is the result; None if it is no linear resize."""
    columns = _interpolation(graph, makers, name)
    rows = None if columns is None else _interpolation(graph, makers, columns.source)
    if rows is None or columns is None or (rows.axis, columns.axis) != (2, 3):
        return None
    return rows, columns


def _interpolation(graph: QuantizedGraph, makers: Mapping[str, GraphOperation], name: str) -> Interpolation | None:
    operation = makers.get(name)
    if operation is None or operation.name != "add":
        return None
    sides = [_weighted(graph, makers, operation.inputs[key]) for key in ("x", "y")]
    if sides[0] is None or sides[1] is None or sides[0][:2] != sides[1][:2]:
        return None
    (source, axis, lower, shares), (_, _, upper, rest) = sides[0], sides[1]
    coordinates = tuple(
        int(a) * share + int(b) * other for a, b, share, other in zip(lower, upper, shares, rest, strict=True)
    )
    return Interpolation(source, axis, lower, upper, coordinates)


def _weighted(
    graph: QuantizedGraph, makers: Mapping[str, GraphOperation], name: Any
) -> tuple[str, int, Array, list[Fraction]] | None:
    """A gathered tensor times weights along its axis: the tensor, the axis, the indices and the weights."""
    factor, weights = Fraction(1), None
    operation = makers.get(name) if isinstance(name, str) else None
    while operation is not None and operation.name == "mul":
        other = operation.inputs["y"]
        if isinstance(other, Fraction):
            factor *= other
        elif isinstance(other, str) and (data := graph.tensors[other].data) is not None:
            weights = data.values
        operation = makers.get(str(operation.inputs["x"]))
    if operation is None or operation.name != "gather" or weights is None:
        return None
    indices, axis = graph.tensors[str(operation.inputs["indices"])].data, operation.attributes["axis"]
    if indices is None or not isinstance(axis, int) or indices.values.size != weights.size:
        return None
    shares = [int(item) * factor for item in np.ravel(weights)]
    return str(operation.inputs["input"]), axis, np.ravel(indices.values), shares
