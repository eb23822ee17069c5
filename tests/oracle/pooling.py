"""Index based sampling (4.3.3) and pooling (4.9.3)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from .convolution import box
from .elementwise import sqr, sqrt
from .tensors import Items, Tensor, TensorLike, exact, flags, require, tensor
from .windows import Axis, Padding, taps, window


def _maxima(x: Tensor, axes: list[Axis], border: str) -> tuple[Items, Items]:
    """The largest item of each window and its row-major index in the window, the first of equals.

    A constant border takes part with its zeros, an ignored one does not.
    """
    outputs = [axis.output for axis in axes]
    best, index, seen = np.zeros(outputs, dtype=object), np.zeros(outputs, dtype=object), np.zeros(outputs, dtype=bool)
    for kernel, (items, exist, inside) in enumerate(taps(x.items, axes, border)):
        counted = inside if border == "ignore" else exist
        better = counted & (~seen | flags(items > best))
        best, index = np.where(better, items, best), np.where(better, kernel, index)
        seen = seen | counted
    require(bool(seen.all()), "every window has an item that is not ignored")
    return exact(best), exact(index)


def argmax_pool(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Tensor:
    """4.3.3."""
    return max_pool_with_index(input, size, border, padding, stride, dilation)[1]


def max_pool_with_index(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """4.9.3; index is a tensor of integers (the declaration says logical)."""
    x = tensor(input)
    best, index = _maxima(x, window(x.shape, size, padding, stride, dilation), border)
    return x.map(best), Tensor(index)


def max_pool(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Tensor:
    """4.9.3."""
    return max_pool_with_index(input, size, border, padding, stride, dilation)[0]


def sample(
    input: TensorLike,
    index: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Tensor:
    """4.3.3. Border 'ignore' (not in the list, but max_pool_with_index uses it) admits indices of real items only."""
    x, chosen = tensor(input), tensor(index).integers()
    axes = window(x.shape, size, padding, stride, dilation)
    require(chosen.shape == tuple(axis.output for axis in axes), "index has the shape of output")
    require(bool(((chosen >= 0) & (chosen < prod(size))).all()), "indices are positions in the window")
    result = np.zeros(chosen.shape, dtype=object)
    for kernel, (items, _, inside) in enumerate(taps(x.items, axes, border)):
        here = chosen == kernel
        require(border != "ignore" or bool(inside[here].all()), "no index points to an ignored item")
        result = exact(np.where(here, items, result))
    return x.map(result)


def desample(
    input: TensorLike,
    index: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
) -> Tensor:
    """4.3.3: every item goes to the position its index names; items that meet are added."""
    x, chosen = tensor(input), tensor(index)
    require(border == "constant", "border is constant")
    require(chosen.shape == x.shape, "index has the shape of input")
    require(len(output_shape) in {0, x.rank}, "the length of output_shape is the rank of input or 0")
    axes = window(x.shape, size, padding, stride, dilation, output_shape, reverse=True)
    total = np.zeros([axis.output for axis in axes], dtype=object)
    under = zip(taps(x.items, axes, border), taps(exact(chosen.integers()), axes, border), strict=True)
    for kernel, ((items, _, inside), (indices, _, _)) in enumerate(under):
        total = total + np.where(inside & flags(indices == kernel), items, 0)
    return x.map(total)


def avg_pool(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Tensor:
    """4.9.3."""
    return box(input, size, border, padding, stride, dilation, normalize=True)


def rms_pool(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Tensor:
    """4.9.3."""
    return sqrt(avg_pool(sqr(input), size, border, padding, stride, dilation))
