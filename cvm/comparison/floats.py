"""Rounding models for operations that an engine computes in float32, on dequantised operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.arithmetic import nearest_even
from cvm.comparison.interpolations import interpolations
from cvm.comparison.numbers import ROUNDED, F, Numbers, Stages
from cvm.comparison.regions import Coded

__all__ = [
    "BINARY",
    "at_tap",
    "average_of_reals",
    "binary_of_reals",
    "decoded",
    "four_neighbours",
    "in_codes",
    "product_of_codes",
    "window_sums",
]

Array = npt.NDArray[Any]
BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}
"""The functions of the operations with two operands."""


def decoded(numbers: Numbers, operand: Coded) -> Array:
    """An operand as DequantizeLinear gives it: the code less the zero point, times the scale, in float32."""
    return numbers.codes(operand).astype(F) * operand.scale.astype(F)


def in_codes(numbers: Numbers, real: Array, by: str = "division", late: bool = True) -> Stages:
    """The last stages of a model: a float32 result in steps of the scale, rounded half to even.

    ``by``: "division" by the scale or multiplication with its "reciprocal". ``late``: the zero point is added after
    rounding; otherwise in float32, before.
    """
    out = F(numbers.scale)
    steps = real / out if by == "division" else real * (F(1) / out)
    return _rounded(numbers, steps, late)


def _rounded(numbers: Numbers, steps: Array, late: bool) -> Stages:
    stages: Stages = [("result in float32, in steps of the scale", steps)]
    if late:
        return [*stages, (ROUNDED, numbers.clipped(nearest_even(steps)))]
    moved = steps + F(numbers.region.zero)
    codes = np.clip(nearest_even(moved), numbers.region.lo, numbers.region.hi)
    return [*stages, ("plus zero point in float32", moved), ("rounded half to even, clipped: the code", codes)]


def binary_of_reals(numbers: Numbers, by: str, late: bool) -> Stages:
    """A difference, product or quotient of two dequantised operands in float32."""
    operation = numbers.region.operation.name
    if any(item is None for item in numbers.region.operands) or operation not in ("sub", "mul", "div"):
        return []
    a, b = (decoded(numbers, item) for item in numbers.region.operands if item is not None)
    real = BINARY[operation](a, b)
    return [("result of the real operands in float32", real), *in_codes(numbers, real, by, late)]


def product_of_codes(numbers: Numbers) -> Stages:
    """The product of two codes times the ratio of scales; the zero point is added in float32."""
    a, b = numbers.region.operands
    if a is None or b is None:
        return []
    product = numbers.codes(a) * numbers.codes(b)
    ratio = a.scale.astype(F) * b.scale.astype(F) / F(numbers.scale)
    return [("product of codes", product), *_rounded(numbers, product.astype(F) * ratio, late=False)]


def average_of_reals(numbers: Numbers) -> Stages:
    """The average of a window of dequantised numbers, which are added row by row in float32."""
    region = numbers.region
    (operand,) = region.operands
    attributes: Any = region.operation.attributes
    if operand is None or numbers.result.ndim != 4 or tuple(attributes["size"][:2]) != (1, 1):
        return []
    real = decoded(numbers, operand)
    total, count = (window_sums(array, numbers.result.shape, attributes) for array in (real, np.ones_like(real)))
    if attributes["border"] != "ignore":
        count = np.full_like(count, attributes["size"][2] * attributes["size"][3])
    mean = total / count
    return [("sum of the window in float32", total), ("average", mean), *in_codes(numbers, mean)]


def window_sums(array: Array, shape: tuple[int, ...], attributes: Any) -> Array:
    """For each window of the image the float32 sum of its numbers, row by row; 0 outside of the image."""
    size, stride, dilation = (attributes[key][2:] for key in ("size", "stride", "dilation"))
    before = [ends[0] for ends in attributes["padding"][2:]]
    reach = [(shape[2 + n] - 1) * stride[n] + (size[n] - 1) * dilation[n] + 1 for n in (0, 1)]
    after = [max(reach[n] - before[n] - array.shape[2 + n], 0) for n in (0, 1)]
    padded = np.pad(array, ((0, 0), (0, 0), *zip(before, after, strict=True)))
    total: Array = np.zeros(shape, F)
    for tap in np.ndindex(*size):
        total = total + padded[at_tap(tap, shape[2:], stride, dilation)]
    return total


def at_tap(
    tap: Sequence[int], extents: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[slice, ...]:
    """The places of an image, behind samples and channels, that meet element ``tap`` of a kernel in all its positions.

    The kernel has ``extents`` positions along rows and columns, ``stride`` apart; its elements are ``dilation`` apart.
    """
    ends = zip(tap, extents, stride, dilation, strict=True)
    along = [slice(n * apart, n * apart + (count - 1) * step + 1, step) for n, count, step, apart in ends]
    return (slice(None), slice(None), *along)


def four_neighbours(numbers: Numbers, halves: bool) -> Stages:
    """A linear resize in float32: each of four neighbours times the product of its two weights, added one by one."""
    regions = numbers.regions
    found = interpolations(regions.graph, regions.makers, numbers.region.result)
    (operand,) = numbers.region.operands
    if found is None or operand is None:
        return []
    rows, columns = found
    real, across, down = decoded(numbers, operand), columns.weights(halves), rows.weights(halves)
    total: Array = np.array(F(0))
    for row, height in zip((rows.lower, rows.upper), down, strict=True):
        for column, width in zip((columns.lower, columns.upper), across, strict=True):
            neighbour = np.take(np.take(real, row, 2), column, 3)
            total = total + (width[None, :] * height[:, None]) * neighbour
    return [("weighted sum of four neighbours in float32", total), *in_codes(numbers, total)]
