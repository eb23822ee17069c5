"""Matrix products, products along axes, running sums, and weighted sums of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from cvm.frontends.common.decompositions.arithmetic import magnitude
from cvm.frontends.common.emission import Emission
from cvm.limits import require

__all__ = [
    "MOST_FACTORS",
    "Taps",
    "columns",
    "gemm",
    "log_of_exponentials",
    "magnitudes_or_squares",
    "normalised",
    "product",
    "resampled",
    "restored",
    "rows",
    "running_sum",
]

_MOST_PAIRS = 2**26
"""The most elements of the triangle of ones by which a running sum multiplies."""

MOST_FACTORS = 64
"""The most factors of one product; each factor is an operation."""

Taps = Sequence[Sequence[tuple[int, Fraction]]]
"""For each output index, the input indices that it reads, with their weights."""


def gemm(
    graph: Emission,
    a: str,
    b: str,
    transposes: tuple[bool, bool],
    alpha: Fraction,
    beta: Fraction,
    c: Callable[[], str] | None,
) -> str:
    """The sum alpha * A * B + beta * C of matrices; ``c`` returns C, of rank 2, and is called only if C is needed."""
    name = graph.emit("matmul", a, b, transposeA=transposes[0], transposeB=transposes[1])
    if alpha != 1:
        name = graph.emit("mul", name, alpha)
    if c is None:
        return name
    added = c()
    if beta != 1:
        added = graph.emit("mul", added, beta)
    return graph.emit("add", name, added)


def magnitudes_or_squares(graph: Emission, x: str, data_type: str, squares: bool) -> str:
    """|x| or x^2 of each element: the terms of reduceL1, and of reduceL2 and reduceSumSquare."""
    return graph.emit("mul", x, x) if squares else magnitude(graph, x, data_type)


def log_of_exponentials(graph: Emission, name: str, axes: Sequence[int]) -> str:
    """ln(sum e^x) over axes as m + ln(sum e^(x - m)) with the maximum m; calibration quantises each intermediate
    result.
    """
    most = graph.emit("max_reduce", name, axes=tuple(axes))
    below = graph.left_open(graph.emit("sub", name, most))
    total = graph.emit("sum_reduce", graph.left_open(graph.emit("exp", below)), axes=tuple(axes))
    return graph.emit("add", graph.left_open(graph.emit("log", graph.left_open(total))), most)


def normalised(graph: Emission, inputs: Mapping[str, str], epsilon: Fraction) -> str:
    """(input - mean) * scale / sqrt(variance + epsilon) + offset, with computed parameters."""
    spread = graph.emit("add", inputs["variance"], epsilon)
    factor = graph.left_open(graph.emit("rsqrt", graph.left_open(spread)))
    factor = graph.left_open(graph.emit("mul", factor, inputs["scale"]))
    centred = graph.left_open(graph.emit("sub", inputs["input"], inputs["mean"]))
    return graph.emit("add", graph.emit("mul", centred, factor), inputs["offset"])


# Axes moved to the end


def rows(graph: Emission, name: str, axes: Sequence[int]) -> str:
    """A tensor as a matrix: one row per index of the other axes, one column per index of ``axes``."""
    shape = graph.shape(name)
    count = math.prod(shape[axis] for axis in axes)
    name = graph.transposed(name, _order(len(shape), axes))
    return graph.reshape(name, (math.prod(shape) // count, count))


def restored(graph: Emission, name: str, shape: Sequence[int], axis: int) -> str:
    """Undo `rows` for one axis: reshape the rows to the shape of the original tensor, with the axis where it was."""
    order = _order(len(shape), (axis,))
    name = graph.reshape(name, [shape[i] for i in order])
    return graph.transposed(name, [int(i) for i in np.argsort(order)])


def _order(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    return (*(axis for axis in range(rank) if axis not in axes), *axes)


def columns(graph: Emission, name: str) -> list[str]:
    """The columns of a matrix, each as a tensor of one column."""
    count = graph.shape(name)[1]
    return graph.emit_many("split", name, axis=1, ratios=(1,) * count)


def product(graph: Emission, name: str, axes: Sequence[int], shape: Sequence[int], data_type: str) -> str:
    """The product over axes, one factor after another, reshaped to ``shape``."""
    first, *others = columns(graph, rows(graph, name, axes))
    for factor in others:
        first = graph.left_open(graph.emit("mul", first, factor))
    return graph.result(graph.reshape(first, shape), data_type)


def running_sum(graph: Emission, name: str, axis: int, exclusive: bool, reverse: bool, data_type: str) -> str:
    """The sum of the elements up to each index of an axis: a product with a triangle of ones."""
    shape = graph.shape(name)
    n = shape[axis]
    require("elements", n * n, _MOST_PAIRS, "pairs of items of a running sum")
    name = rows(graph, name, (axis,))
    ones = np.ones((n, n), np.int8)
    triangle = np.tril(ones, -int(exclusive)) if reverse else np.triu(ones, int(exclusive))
    name = graph.emit("matmul", name, graph.constant(triangle, (n, n)), transposeA=False, transposeB=False)
    return graph.result(restored(graph, name, shape, axis), data_type)


# Neighbours


def resampled(graph: Emission, name: str, taps: Taps, axis: int, skip_ones: bool) -> str:
    """For each output index along an axis, the sum over its taps of input element times weight.

    With ``skip_ones``, no multiplication is emitted for a tap whose weights are all 1.
    """
    total: str | None = None
    for tap in zip(*taps, strict=True):
        part = graph.taken(name, np.array([index for index, _ in tap], np.int64), axis)
        weights = [weight for _, weight in tap]
        if not skip_ones or any(weight != 1 for weight in weights):
            part = _weighted(graph, part, weights, axis)
        total = part if total is None else graph.emit("add", total, part)
    assert total is not None
    return total


def _weighted(graph: Emission, name: str, weights: Sequence[Fraction], axis: int) -> str:
    """Multiply by one weight per index of an axis. The weights are stored as integers over one common denominator."""
    denominator = math.lcm(*(weight.denominator for weight in weights))
    items = np.array([int(weight * denominator) for weight in weights], dtype=object)
    if max(abs(item) for item in items) < 2**62:
        items = items.astype(np.int64)
    along = [len(weights) if i == axis else 1 for i in range(len(graph.shape(name)))]
    weighted = graph.emit("mul", name, graph.constant(items, along))
    return graph.emit("mul", weighted, Fraction(1, denominator))
