"""Convolution, deconvolution and box filters: NNEF 1.0.1 sections 4.3.1 and 4.3.2."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cvm.reference.operations.windows import (
    AS_DECLARED,
    Sliding,
    Window,
    coverage,
    down_windows,
    extended,
    extended_along,
    folded,
    require_coverage,
    sliding_operation,
    taps,
    up_windows,
)
from cvm.reference.registry import Array, Integers, aligned, along

__all__ = ["biased", "box", "conv", "deconv"]


def _kernels(filter: Array, groups: int) -> Array:
    """A filter (c, C / G, f..) as one matrix per tap and group: an array (taps, G, c / G, C / G)."""
    filters, channels = filter.shape[:2]
    matrices = filter.reshape(groups, filters // groups, channels, -1)
    return np.ascontiguousarray(np.moveaxis(matrices, -1, 0))


def _product(kernel: Array, items: Array) -> Array:
    """The product of (G, m, k) and (B, G, k, positions): an array (B, G, m, positions)."""
    return kernel * items if kernel.shape[-1] == 1 else np.matmul(kernel, items)


def biased(output: Array, bias: Array) -> Array:
    """``output + bias``, broadcast from axis 0 on."""
    left, right = aligned(output, bias)
    return left + right


@sliding_operation("4.3.1")
def conv(input: Array, filter: Array, bias: Array, sliding: Sliding = AS_DECLARED, groups: int = 1) -> Array:
    """``output[b,k2,i] = sum over k1 and j of input~[b, k1, i*s + j*d - p] * filter[k2,k1,j]``, plus bias.

    Input (B, C, X..), filter (c, C / groups, f..), output (B, c, x..); ``groups`` 0 is one group per input channel.
    """
    batch, channels = input.shape[:2]
    groups = groups or channels
    windows = down_windows(input.shape[2:], filter.shape[2:], sliding)
    reached = extended(input, windows, sliding.border)
    extents = [window.x for window in windows]
    total = np.zeros((batch, groups, filter.shape[0] // groups, math.prod(extents)))
    kernels = _kernels(filter, groups)
    together = max(1, _TOGETHER // (batch * (channels + filter.shape[0])))
    for outputs, elements, parts in _row_blocks(windows, together):
        sums, read = total[..., outputs], reached[:, :, elements]
        for kernel, tap in zip(kernels, taps(parts), strict=True):
            items = read[(slice(None), slice(None), *tap)]
            sums += _product(kernel, items.reshape(batch, groups, channels // groups, -1))
    return biased(total.reshape(batch, filter.shape[0], *extents), bias)


_TOGETHER = 2**17
"""The items and sums of a convolution that are computed together: in float64, they stay in the processor's cache."""


def _row_blocks(windows: Sequence[Window], most: int) -> Iterator[tuple[slice, slice, tuple[Window, ...]]]:
    """The windows in blocks of rows along the first of their axes, with at most ``most`` windows where a row has no
    more.

    Each block has the slice of the outputs, all windows in a row; the slice of the extended input that they read, along
    the first axis; and the windows within that. Every output is the same sum, in the same order, in any block.
    """
    first, *others = windows
    inner = math.prod(window.x for window in others)
    rows = max(1, most // inner)
    for start in range(0, first.x, rows):
        count = min(rows, first.x - start)
        begin = start * first.s
        end = begin + (count - 1) * first.s + (first.f - 1) * first.d + 1
        outputs = slice(start * inner, (start + count) * inner)
        yield outputs, slice(begin, end), (replace(first, x=count), *others)


def _reach(window: Window, extent: int, border: str) -> tuple[int, int]:
    """The first and last position of the extended input that a reverse operation reads."""
    if border in ("constant", "ignore"):
        return 0, extent - 1
    return -(((window.f - 1) * window.d - window.p) // window.s), (window.X - 1 + window.p) // window.s


def _landings(window: Window, first: int, last: int) -> list[tuple[slice, slice]]:
    """For each tap: the slice of elements (counted from ``first``) that it adds, and the slice of outputs it adds them
    to.

    Element t is added to output i = t*s + j*d - p, which is the i of the document with (i + p - j*d) mod s = 0.
    """
    result = []
    for j in range(window.f):
        offset = window.p - j * window.d
        begin, end = max(first, -(-offset // window.s)), min(last, (window.X - 1 + offset) // window.s)
        start = begin * window.s - offset
        count = max(end + 1 - begin, 0)
        stop = start + (count - 1) * window.s + 1 if count else start
        result.append((slice(begin - first, begin - first + count), slice(start, stop, window.s)))
    return result


def _reverse_taps(
    windows: Sequence[Window], reaches: Sequence[tuple[int, int]]
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each tap in row-major order: the slices of the extended input that it adds, and those of the output it adds
    to.
    """
    axes = [_landings(window, *reach) for window, reach in zip(windows, reaches, strict=True)]
    for pairs in itertools.product(*axes):
        yield tuple(items for items, _ in pairs), tuple(positions for _, positions in pairs)


@sliding_operation("4.3.1")
def deconv(
    input: Array,
    filter: Array,
    bias: Array,
    sliding: Sliding = AS_DECLARED,
    output_shape: Integers = (),
    groups: int = 1,
) -> Array:
    """``output[b,k1,i] = sum over k2 and j of input~[b, k2, (i + p - j*d) / s] * filter[k2,k1,j]``, plus bias.

    Only terms with (i + p - j*d) mod s = 0 count. Input (B, c, x..), filter (c, C / groups, f..), output (B, C, X..);
    ``groups`` 0 is one group per output channel, of which there are as many as input channels unless ``output_shape``
    says otherwise.
    """
    batch, channels = input.shape[:2]
    groups = groups or (output_shape[1] if output_shape else channels)
    windows = up_windows(input.shape[2:], filter.shape[2:], sliding, output_shape[2:])
    reaches = [_reach(window, extent, sliding.border) for window, extent in zip(windows, input.shape[2:], strict=True)]
    reached = input
    for axis, (first, last) in enumerate(reaches, start=2):
        reached = extended_along(reached, axis, first, last, sliding.border)
    reached = reached.reshape(batch, groups, channels // groups, *reached.shape[2:])
    total = np.zeros((batch, groups, filter.shape[1], *(window.X for window in windows)))
    kernels = _kernels(filter, groups).swapaxes(-1, -2)
    lead = (slice(None),) * 3
    for kernel, (items, positions) in zip(kernels, _reverse_taps(windows, reaches), strict=True):
        moved = reached[(*lead, *items)]
        if moved.size:
            product = _product(kernel, moved.reshape(batch, groups, channels // groups, -1))
            total[(*lead, *positions)] += product.reshape(*total.shape[:3], *moved.shape[3:])
    return biased(total.reshape(batch, -1, *total.shape[3:]), bias)


@sliding_operation("4.3.2")
def box(input: Array, size: Integers, sliding: Sliding = AS_DECLARED, normalize: bool = False) -> Array:
    """``output[i] = sum over j of input~[i*s + j*d - p]``; with ``normalize``, divided by the volume of the kernel.

    With border 'ignore' the divisor is the number of elements in the window that are not border.
    """
    windows = down_windows(input.shape, size, sliding)
    total = folded(input, windows, sliding.border, np.add)
    if not normalize:
        return total
    if sliding.border != "ignore":
        return total / math.prod(size)
    require_coverage(windows)
    return total / coverage(windows)


@sliding_operation("4.3.2")
def debox(
    input: Array,
    size: Integers,
    sliding: Sliding = AS_DECLARED,
    output_shape: Integers = (),
    normalize: bool = False,
) -> Array:
    """``output[i] = sum over j of input~[(i + p - j*d) / s]``; with ``normalize``, divided by the volume of the kernel.

    Only terms with (i + p - j*d) mod s = 0 count. With border 'ignore' the divisor is the number of terms that are not
    border; a sum without any term is 0.
    """
    windows = up_windows(input.shape, size, sliding, output_shape)
    total, terms = input, np.ones((1,) * input.ndim)
    for axis, (window, extent) in enumerate(zip(windows, input.shape, strict=True)):
        if not window.identity:
            total = _debox_along(total, axis, window, sliding.border)
            terms = terms * along(_debox_along(np.ones(extent), 0, window, "constant"), axis, input.ndim)
    if not normalize:
        return total
    return total / (np.maximum(terms, 1.0) if sliding.border == "ignore" else math.prod(size))


def _debox_along(x: Array, axis: int, window: Window, border: str) -> Array:
    first, last = _reach(window, x.shape[axis], border)
    reached = extended_along(x, axis, first, last, border)
    total = np.zeros((*x.shape[:axis], window.X, *x.shape[axis + 1 :]))
    lead = (slice(None),) * axis
    for items, positions in _landings(window, first, last):
        total[(*lead, positions)] += reached[(*lead, items)]
    return total
