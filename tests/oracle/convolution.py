"""Convolution and deconvolution (4.3.1), separable ones (4.9.2), box and debox (4.3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

import numpy as np

from .elementwise import add
from .products import grouped_product, narrowed
from .tensors import Tensor, TensorLike, exact, require, tensor
from .windows import BORDERS, Axis, Padding, taps, window


def _correlation(x: Tensor, w: Tensor, axes: list[Axis], border: str, groups: int) -> Tensor:
    """The sum over kernel indices and channels; w is (output channels, input channels per group, *kernel)."""
    flat = w.items.reshape(*w.shape[:2], -1)
    found = narrowed(flat, x.items)
    weights, factors, items, factor = found or (flat, None, x.items, 1)
    total = np.zeros((x.shape[0], w.shape[0], *(axis.output for axis in axes[2:])), dtype=items.dtype)
    for kernel, (under, _, _) in enumerate(taps(items, axes, border)):
        total = total + grouped_product(under, weights[:, :, kernel], groups)
    sums = exact(total.astype(object))
    if factors is not None:
        sums = exact(sums * (factors * factor).reshape(1, -1, *[1] * (sums.ndim - 2)))
    return Tensor(sums, x.denominator * w.denominator)


def _biased(sums: Tensor, bias: TensorLike) -> Tensor:
    b = tensor(bias)
    singular = (1,) * b.rank
    require(b.shape in {singular, (1, sums.shape[1], *singular[2:])}, "bias is singular but for its channels")
    return add(sums, b)


def _checked(x: Tensor, w: Tensor, border: str) -> None:
    require(border in BORDERS, "border is constant, replicate, reflect or reflect-even")
    require(x.rank == w.rank >= 2, "the ranks of filter and input are equal")


def conv(
    input: TensorLike,
    filter: TensorLike,
    bias: TensorLike = 0,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    """Correlation over the spatial dimensions of the extended input, plus bias; groups = 0 is depth-wise."""
    x, w = tensor(input), tensor(filter)
    _checked(x, w, border)
    groups = groups or x.shape[1]
    require(w.shape[0] % groups == 0 and w.shape[1] * groups == x.shape[1], "groups divide filters and channels")
    axes = [Axis(1, 0, 1, 1, extent) for extent in x.shape[:2]]
    axes += window(x.shape[2:], w.shape[2:], padding, stride, dilation)
    return _biased(_correlation(x, w, axes, border, groups), bias)


def deconv(
    input: TensorLike,
    filter: TensorLike,
    bias: TensorLike = 0,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    """The reverse of conv: filter is (c, C / groups, *f) for an input of c and an output of C channels.

    That is what the formulas say; the sentence that C is the batch extent of the filter holds for conv only. groups = 0
    stands for C groups: C is output_shape[1], or without output_shape the number of input channels.
    """
    x, w = tensor(input), tensor(filter)
    _checked(x, w, border)
    require(len(output_shape) in {0, x.rank}, "the length of output_shape is the rank of input or 0")
    groups = groups or (output_shape[1] if output_shape else x.shape[1])
    require(w.shape[0] == x.shape[1] and w.shape[0] % groups == 0, "groups divide filters, one per input channel")
    channels = w.shape[1] * groups
    require(not output_shape or list(output_shape[:2]) == [x.shape[0], channels], "output_shape fits input and filter")
    axes = [Axis(1, 0, 1, 1, extent) for extent in x.shape[:2]]
    axes += window(x.shape[2:], w.shape[2:], padding, stride, dilation, output_shape[2:], reverse=True)
    parts = w.items.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    transposed = w.map(np.swapaxes(parts, 1, 2).reshape(channels, w.shape[0] // groups, *w.shape[2:]))
    return _biased(_correlation(x, transposed, axes, border, groups), bias)


def separable_conv(
    input: TensorLike,
    plane_filter: TensorLike,
    point_filter: TensorLike,
    bias: TensorLike = 0,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    """4.9.2."""
    filtered = conv(input, plane_filter, 0, border, padding, stride, dilation, groups=0)
    return conv(filtered, point_filter, bias, groups=groups)


def separable_deconv(
    input: TensorLike,
    plane_filter: TensorLike,
    point_filter: TensorLike,
    bias: TensorLike = 0,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    """4.9.2."""
    filtered = deconv(input, point_filter, groups=groups)
    return deconv(filtered, plane_filter, bias, border, padding, stride, dilation, output_shape, groups=0)


def box_filter(x: Tensor, axes: list[Axis], size: Sequence[int], border: str, normalize: bool) -> Tensor:
    """Sums of windows; normalised by the kernel volume, or by the number of items summed if the border is ignored.

    (The text divides by the volume always, which contradicts 'the border values are not considered'.)
    """
    outputs = [axis.output for axis in axes]
    total, counts = np.zeros(outputs, dtype=object), np.zeros(outputs, dtype=np.int64)
    for items, _, inside in taps(x.items, axes, border):
        total, counts = total + items, counts + inside
    if not normalize:
        return x.map(total)
    if border != "ignore":
        return Tensor(exact(total), x.denominator * prod(size))
    require(bool((counts > 0).all()), "every window has an item that is not ignored")
    common = lcm(*(int(count) for count in np.unique(counts)))
    return Tensor(exact(total * (common // counts.astype(object))), x.denominator * common)


def box(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    normalize: bool = False,
) -> Tensor:
    """4.3.2."""
    x = tensor(input)
    return box_filter(x, window(x.shape, size, padding, stride, dilation), size, border, normalize)


def debox(
    input: TensorLike,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    normalize: bool = False,
) -> Tensor:
    """4.3.2."""
    x = tensor(input)
    require(len(output_shape) in {0, x.rank}, "the length of output_shape is the rank of input or 0")
    axes = window(x.shape, size, padding, stride, dilation, output_shape, reverse=True)
    return box_filter(x, axes, size, border, normalize)
