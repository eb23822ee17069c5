"""Up and down-sampling (4.3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from .convolution import box, debox
from .tensors import Items, Tensor, TensorLike, exact, from_numbers, require, tensor
from .windows import BORDERS, bordered


def _leading(factor: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """[1,1] + factor and [(0,0)] * dims."""
    require(all(f > 0 for f in factor), "the items in factor are strictly positive")
    return [1, 1, *factor], [(0, 0)] * (len(factor) + 2)


def _divisible(x: Tensor, factor: Sequence[int]) -> None:
    require(all(extent % f == 0 for extent, f in zip(x.shape[2:], factor, strict=True)), "factors divide the extents")


def nearest_downsample(input: TensorLike, factor: Sequence[int]) -> Tensor:
    strides, padding = _leading(factor)
    _divisible(tensor(input), factor)
    return box(input, [1] * len(strides), padding=padding, stride=strides)


def area_downsample(input: TensorLike, factor: Sequence[int]) -> Tensor:
    strides, padding = _leading(factor)
    _divisible(tensor(input), factor)
    return box(input, strides, padding=padding, stride=strides, normalize=True)


def nearest_upsample(input: TensorLike, factor: Sequence[int]) -> Tensor:
    strides, padding = _leading(factor)
    return debox(input, strides, padding=padding, stride=strides)


def coordinates(outputs: int, step: Fraction, start: Fraction, end: Fraction, method: str) -> list[Fraction]:
    """The input coordinate of each of `outputs` positions over an interval from `start`, `end` being its last item.

    step is input items per output item, 1 / f. 'aligned' maps the last output to the last item; a single output takes
    the first one (the formula divides 0 by 0).
    """
    if method == "aligned":
        step = (end - start) / (outputs - 1) if outputs > 1 else Fraction(0)
        return [start + i * step for i in range(outputs)]
    require(method in {"symmetric", "asymmetric"}, "method is symmetric, asymmetric or aligned")
    shift = (step - 1) / 2 if method == "symmetric" else Fraction(0)  # (i - (f - 1) / 2) / f = i / f + (1 / f - 1) / 2
    return [start + i * step + shift for i in range(outputs)]


def interpolation(positions: Sequence[Fraction], extent: int, border: str) -> Items:
    """The matrix (outputs, extent) of the weights 1 - u of item j = floor(position) and u of item j + 1."""
    matrix = np.full((len(positions), extent), Fraction(0), dtype=object)
    for i, position in enumerate(positions):
        j = position.__floor__()
        u = position - j
        for neighbour, weight in ((j, 1 - u), (j + 1, u)):
            if weight:
                (mapped,), (inside,) = bordered(np.array([neighbour]), extent, border)
                require(bool(inside) or border == "constant", "a reflection stays within the input")
                if inside:
                    matrix[i, mapped] += weight
    return matrix


def apply_along(x: Tensor, axis: int, matrix: Items) -> Tensor:
    """x with dimension `axis` multiplied by the matrix."""
    weights = from_numbers(matrix)
    moved = np.moveaxis(np.tensordot(weights.items, x.items, axes=([1], [axis])), 0, axis)
    return Tensor(exact(moved), x.denominator * weights.denominator)


def multilinear_upsample(
    input: TensorLike, factor: Sequence[int], method: str = "symmetric", border: str = "replicate"
) -> Tensor:
    """Linear interpolation along one spatial dimension after another."""
    x = tensor(input)
    require(border in BORDERS, "border is constant, replicate, reflect or reflect-even")
    _leading(factor)
    require(len(factor) == x.rank - 2, "factor has an item per spatial dimension")
    for axis, f in enumerate(factor, start=2):
        extent = x.shape[axis]
        positions = coordinates(extent * f, Fraction(1, f), Fraction(0), Fraction(extent - 1), method)
        x = apply_along(x, axis, interpolation(positions, extent, border))
    return x
