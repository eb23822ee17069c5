"""The formulas of the document written out once more, item by item, on `Fraction`: a check of the evaluator.

Nothing is shared with the evaluator, not even the way to a code: a code is the number of rounding thresholds
min + (k - 1/2) * (max - min) / r, k = 1..r, that are not above the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[Any]
"""An object array of `Fraction`."""
Range = tuple[Fraction, Fraction, int]
"""min, max, bits of a linear_quantize."""
Pads = Sequence[tuple[int, int]]


def thresholds(quantiser: Range) -> list[Fraction]:
    low, high, bits = quantiser
    levels = 2**bits - 1
    return [low + (Fraction(k) - Fraction(1, 2)) * (high - low) / levels for k in range(1, levels + 1)]


def code(reaches: Callable[[Fraction], bool], quantiser: Range) -> int:
    """The code of the number of which `reaches` tells whether it is at least a threshold."""
    return sum(reaches(threshold) for threshold in thresholds(quantiser))


def codes(x: Reals, quantiser: Range) -> npt.NDArray[np.int64]:
    def code_of(item: Fraction) -> int:
        return code(lambda threshold: item >= threshold, quantiser)

    return np.array([code_of(item) for item in x.flat], dtype=np.int64).reshape(x.shape)


def decoded(codes: npt.NDArray[np.int64], quantiser: Range) -> Reals:
    low, high, bits = quantiser
    return np.array([low + Fraction(int(q), 2**bits - 1) * (high - low) for q in codes.flat], dtype=object).reshape(
        codes.shape
    )


def pads(extent: int, f: int, s: int, d: int) -> tuple[int, int]:
    """Automatic padding of 4.3."""
    x = (extent + s - 1) // s
    t = (x - 1) * s + (f - 1) * d + 1 - extent
    return (t // 2, t - t // 2)


def extent_of(extent: int, f: int, s: int, d: int, pad: tuple[int, int]) -> int:
    return (pad[0] + extent + pad[1] - (f - 1) * d - 1) // s + 1


def conv2d(
    x: Reals, w: Reals, bias: Reals, padding: Pads, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Reals:
    """The double sum of 4.3.1 with its groups, one output item at a time."""
    batch, channels, height, width = x.shape
    filters, per_group, fh, fw = w.shape
    groups = groups or channels
    (p1, q1), (p2, q2) = padding
    h = extent_of(height, fh, stride[0], dilation[0], (p1, q1))
    v = extent_of(width, fw, stride[1], dilation[1], (p2, q2))
    y = np.empty((batch, filters, h, v), dtype=object)
    for b, k2, i1, i2 in product(range(batch), range(filters), range(h), range(v)):
        group = k2 // (filters // groups)
        total = Fraction(0)
        for k1, j1, j2 in product(range(per_group), range(fh), range(fw)):
            a1, a2 = i1 * stride[0] + j1 * dilation[0] - p1, i2 * stride[1] + j2 * dilation[1] - p2
            if 0 <= a1 < height and 0 <= a2 < width:
                total += x[b, group * per_group + k1, a1, a2] * w[k2, k1, j1, j2]
        y[b, k2, i1, i2] = total + bias[0, k2]
    return y


def pool2d(
    x: Reals,
    size: Sequence[int],
    border: str,
    padding: Pads,
    stride: Sequence[int],
    dilation: Sequence[int],
    reduce: Callable[[list[Fraction]], Fraction],
) -> Reals:
    """`reduce` over the items of each spatial window: zeros included if the border is 'constant'."""
    batch, channels, height, width = x.shape
    h = extent_of(height, size[0], stride[0], dilation[0], padding[0])
    v = extent_of(width, size[1], stride[1], dilation[1], padding[1])
    y = np.empty((batch, channels, h, v), dtype=object)
    for b, k, i1, i2 in product(range(batch), range(channels), range(h), range(v)):
        items = []
        for j1, j2 in product(range(size[0]), range(size[1])):
            a1, a2 = (
                i1 * stride[0] + j1 * dilation[0] - padding[0][0],
                i2 * stride[1] + j2 * dilation[1] - padding[1][0],
            )
            if 0 <= a1 < height and 0 <= a2 < width:
                items.append(x[b, k, a1, a2])
            elif border == "constant":
                items.append(Fraction(0))
        y[b, k, i1, i2] = reduce(items)
    return y


def mean(items: list[Fraction]) -> Fraction:
    return sum(items, Fraction(0)) / len(items)


def largest(items: list[Fraction]) -> Fraction:
    return max(items)


def batch_normalization_code(
    x: Fraction, mean: Fraction, variance: Fraction, offset: Fraction, scale: Fraction, quantiser: Range
) -> int:
    """The code of offset + scale * (x - mean) / sqrt(variance), every threshold compared by signs and squares."""
    b = scale * (x - mean)

    def reaches(threshold: Fraction) -> bool:
        d = threshold - offset  # b / sqrt(variance) >= d ?
        if b >= 0:
            return d <= 0 or b * b >= d * d * variance
        return d < 0 and b * b <= d * d * variance

    return code(reaches, quantiser)
