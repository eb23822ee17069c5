"""The formulas of the document written out once more, item by item, on `Fraction`: a check of the evaluator.

Nothing is shared with the evaluator, not even the way to a code: a code is the number of rounding thresholds
min + (k - 1/2) * (max - min) / r, k = 1..r, that are not above the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[Any]
"""An object array of `Fraction`."""
Range = tuple[Fraction, Fraction, int]
"""min, max, bits of a linear_quantize."""
Index = tuple[int, ...]


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


@dataclass(frozen=True)
class Window:
    """The common parameters of 4.3, an item per dimension that is windowed; paddings already known."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    border: str = "constant"

    def outputs(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The down-scaled extents of an up-scaled shape."""
        parts = zip(shape, self.size, self.stride, self.dilation, self.padding, strict=True)
        return tuple(extent_of(*part) for part in parts)

    def under(self, output: Index, kernel: Index) -> Index:
        """i * s + j * d - p."""
        parts = zip(output, kernel, self.stride, self.dilation, self.padding, strict=True)
        return tuple(i * s + j * d - p for i, j, s, d, (p, _) in parts)

    def over(self, output: Index, kernel: Index) -> Index | None:
        """(i + p - j * d) / s where that is an integer in all dimensions."""
        parts = zip(output, kernel, self.stride, self.dilation, self.padding, strict=True)
        quotients = [Fraction(i + p - j * d, s) for i, j, s, d, (p, _) in parts]
        return tuple(int(q) for q in quotients) if all(q.denominator == 1 for q in quotients) else None

    @property
    def volume(self) -> int:
        """The number of kernel indices."""
        return prod(self.size)

    def kernels(self) -> list[Index]:
        """All kernel indices, row-major."""
        return list(product(*map(range, self.size)))


def extended(x: Reals, index: Index, border: str) -> Fraction | None:
    """The item of the input extended by its border (4.3); nothing where the border is ignored."""
    mapped = []
    for i, z in zip(index, x.shape, strict=True):
        if border == "replicate":
            i = 0 if i < 0 else i if i < z else z - 1
        elif border == "reflect":
            i = -i if i < 0 else i if i < z else z - 1 - (i - z + 1)
        elif border == "reflect-even":
            i = -i - 1 if i < 0 else i if i < z else z - 1 - (i - z)
        elif not 0 <= i < z:
            return Fraction(0) if border == "constant" else None
        if not 0 <= i < z:
            raise ValueError("the reflection leaves the input")
        mapped.append(i)
    item: Fraction = x[tuple(mapped)]
    return item


def each_output(shape: Sequence[int], formula: Callable[[Index], Any]) -> Reals:
    """An array whose items a formula gives."""
    y = np.empty(tuple(shape), dtype=object)
    for index in product(*map(range, shape)):
        y[index] = formula(index)
    return y


def conv(x: Reals, w: Reals, window: Window, groups: int) -> Reals:
    """The sums of 4.3.1 with groups, one output item at a time."""
    groups = groups or x.shape[1]
    per_group = w.shape[1]

    def item(index: Index) -> Fraction:
        b, k2, *position = index
        first = k2 // (w.shape[0] // groups) * per_group
        return sum(
            (
                (extended(x[b, first + k1], window.under(tuple(position), j), window.border) or 0) * w[(k2, k1, *j)]
                for k1 in range(per_group)
                for j in window.kernels()
            ),
            Fraction(0),
        )

    return each_output((x.shape[0], w.shape[0], *window.outputs(x.shape[2:])), item)


def deconv(x: Reals, w: Reals, window: Window, groups: int, extents: Sequence[int]) -> Reals:
    """The second formula of 4.3.1: filter (c, C / groups, *f), output channels C."""
    inputs_per_group, outputs_per_group = w.shape[0] // groups, w.shape[1]

    def item(index: Index) -> Fraction:
        b, k1, *position = index
        group, own = divmod(k1, outputs_per_group)
        total = Fraction(0)
        for k2 in range(group * inputs_per_group, (group + 1) * inputs_per_group):
            for j in window.kernels():
                source = window.over(tuple(position), j)
                if source is not None:
                    total += (extended(x[b, k2], source, window.border) or 0) * w[(k2, own, *j)]
        return total

    return each_output((x.shape[0], outputs_per_group * groups, *extents), item)


def scattered(x: Reals, w: Reals, window: Window, extents: Sequence[int]) -> Reals:
    """Deconvolution of one group as the transpose of convolution: every input item is spread by the filter."""
    y = each_output((x.shape[0], w.shape[1], *extents), lambda _: Fraction(0))
    for b, k2, *position in product(*map(range, x.shape)):
        for k1, *j in product(*map(range, w.shape[1:])):
            target = window.under(tuple(position), tuple(j))
            if all(0 <= t < extent for t, extent in zip(target, extents, strict=True)):
                y[(b, k1, *target)] += x[(b, k2, *position)] * w[(k2, k1, *j)]
    return y


def pool(x: Reals, window: Window, reduce: Callable[[list[Fraction]], Any]) -> Reals:
    """`reduce` over the items of each window, in row-major order."""

    def item(index: Index) -> Any:
        found = [extended(x, window.under(index, j), window.border) for j in window.kernels()]
        return reduce([x for x in found if x is not None])

    return each_output(window.outputs(x.shape), item)


def argmax_pool(x: Reals, window: Window) -> Reals:
    """The first kernel index of the largest item that is not ignored."""

    def item(index: Index) -> int:
        found = [extended(x, window.under(index, j), window.border) for j in window.kernels()]
        return found.index(max(x for x in found if x is not None))

    return each_output(window.outputs(x.shape), item)


def sample(x: Reals, chosen: Reals, window: Window) -> Reals:
    """The items that indices name."""
    return each_output(
        chosen.shape, lambda index: extended(x, window.under(index, window.kernels()[chosen[index]]), window.border)
    )


def desample(x: Reals, chosen: Reals, window: Window, extents: Sequence[int]) -> Reals:
    """Every item is added where its index says."""
    y = each_output(extents, lambda _: Fraction(0))
    for index in product(*map(range, x.shape)):
        target = window.under(index, window.kernels()[chosen[index]])
        if all(0 <= t < extent for t, extent in zip(target, extents, strict=True)):
            y[target] += x[index]
    return y


def debox(x: Reals, window: Window, extents: Sequence[int], reduce: Callable[[list[Fraction]], Fraction]) -> Reals:
    """The second formula of 4.3.2, with any way to join the items."""

    def items(index: Index) -> list[Fraction]:
        sources = [window.over(index, j) for j in window.kernels()]
        found = [extended(x, source, window.border) for source in sources if source is not None]
        return [item for item in found if item is not None]

    return each_output(extents, lambda index: reduce(items(index)))


def linear_upsample(x: Reals, f: int, method: str, border: str) -> Reals:
    """One dimension of 4.3.4, literally."""
    (extent,) = x.shape

    def item(index: Index) -> Fraction:
        i = Fraction(index[0])
        if method == "aligned":
            position = i / Fraction(extent * f - 1, extent - 1) if extent > 1 else Fraction(0)
        else:
            position = (i - (Fraction(f - 1, 2) if method == "symmetric" else 0)) / f
        j = position.numerator // position.denominator
        u = position - j
        left = extended(x, (j,), border) if u != 1 else Fraction(0)
        right = extended(x, (j + 1,), border) if u else Fraction(0)
        assert left is not None
        assert right is not None
        return (1 - u) * left + u * right

    return each_output((extent * f,), item)


def mean(items: list[Fraction]) -> Fraction:
    """Of nothing there is no mean, as there is no maximum."""
    if not items:
        raise ValueError("a window without any item")
    return sum(items, Fraction(0)) / len(items)


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
