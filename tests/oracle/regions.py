"""Region-of-interest operations (4.6).

Silent points. A cell starts at the RoI's own corner, y0 + i * s (the text's "c + i * s" has no y0). A RoI to be pooled
lies in the feature map and is not empty (what would be cropped otherwise is not defined). A coordinate to be resampled
may lie anywhere; neighbours outside of the feature map are clamped to its edge, the default border of upsampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product

import numpy as np

from .elementwise import round
from .pooling import avg_pool, max_pool
from .reductions import max_reduce, mean_reduce
from .resampling import apply_along, coordinates, interpolation
from .shapes import concat
from .tensors import Tensor, TensorLike, require, tensor


def _regions(
    x: Tensor, rois: TensorLike, batch_index: TensorLike, size: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """For every RoI, the batch item (1, C, ...) it refers to and its coordinates (starts, then ends)."""
    boxes, batches = tensor(rois), tensor(batch_index)
    spatial = x.rank - 2
    require(boxes.rank == 2 and boxes.shape[1] == 2 * spatial, "rois has shape (N, 2 * M)")
    require(batches.shape == (boxes.shape[0], 1), "batch_index has shape (N, 1)")
    require(len(size) == spatial and all(extent > 0 for extent in size), "output_size has positive items")
    chosen = batches.integers()[:, 0]
    require(bool(((chosen >= 0) & (chosen < x.shape[0])).all()), "batch_index refers to batch items")
    for batch, box in zip(chosen, boxes.items, strict=True):
        yield x.map(x.items[batch : batch + 1]), boxes.map(box)


def _pool(
    input: TensorLike,
    rois: TensorLike,
    batch_index: TensorLike,
    output_size: Sequence[int],
    reduce: Callable[[Tensor, list[int]], Tensor],
) -> Tensor:
    x = tensor(input)
    spatial = list(range(2, x.rank))
    pooled = []
    for item, box in _regions(x, rois, batch_index, output_size):
        corners = round(box).integers().tolist()
        starts, ends = corners[: len(spatial)], corners[len(spatial) :]
        inside = all(0 <= a < b <= extent for a, b, extent in zip(starts, ends, x.shape[2:], strict=True))
        require(inside, "a rounded RoI is not empty and lies in the feature map")
        cells = []
        for cell in product(*(range(extent) for extent in output_size)):
            part = item.items
            for axis, a, b, p, i in zip(spatial, starts, ends, output_size, cell, strict=True):
                first = a + i * ((b - a) // p)
                part = np.take(part, range(first, first - (a - b) // p), axis=axis)
            cells.append(reduce(item.map(part), spatial))
        joined = concat(cells, axis=2)
        pooled.append(joined.map(joined.items.reshape(1, x.shape[1], *output_size)))
    return concat(pooled, axis=0)


def avg_roi_pool(input: TensorLike, rois: TensorLike, batch_index: TensorLike, output_size: Sequence[int]) -> Tensor:
    """4.6.1: cells of extent ceil(r / p) at strides floor(r / p)."""
    return _pool(input, rois, batch_index, output_size, mean_reduce)


def max_roi_pool(input: TensorLike, rois: TensorLike, batch_index: TensorLike, output_size: Sequence[int]) -> Tensor:
    """4.6.1: cells of extent ceil(r / p) at strides floor(r / p)."""
    return _pool(input, rois, batch_index, output_size, max_reduce)


def roi_resample(
    input: TensorLike,
    rois: TensorLike,
    batch_index: TensorLike,
    output_size: Sequence[int],
    method: str = "symmetric",
) -> Tensor:
    """4.6.2: multilinear interpolation with the (rational) factor f = output extent / RoI extent, from the RoI's start.

    As for upsampling of an input that begins at y0 with extent r = y1 - y0: 'aligned' maps the last output to y1 - 1.
    """
    x = tensor(input)
    resampled = []
    for item, box in _regions(x, rois, batch_index, output_size):
        require(box.is_rational, "the coordinates of RoIs are rational")
        numbers = [Fraction(item) for item in box.numbers()]
        starts, ends = numbers[: x.rank - 2], numbers[x.rank - 2 :]
        part = item
        for axis, (start, end, outputs) in enumerate(zip(starts, ends, output_size, strict=True), start=2):
            positions = coordinates(outputs, (end - start) / outputs, start, end - 1, method)
            part = apply_along(part, axis, interpolation(positions, x.shape[axis], "replicate"))
        resampled.append(part)
    return concat(resampled, axis=0)


def _aligned(
    pool: Callable[..., Tensor],
    input: TensorLike,
    rois: TensorLike,
    batch_index: TensorLike,
    output_size: Sequence[int],
    sampling_rate: Sequence[int],
    resize_method: str,
) -> Tensor:
    """The document's compound, with [1,1] before sampling_rate: pooling wants an item per dimension."""
    size = [extent * rate for extent, rate in zip(output_size, sampling_rate, strict=True)]
    resized = roi_resample(input, rois, batch_index, size, resize_method)
    return pool(resized, size=[1, 1, *sampling_rate], stride=[1, 1, *sampling_rate])


def avg_roi_align(
    input: TensorLike,
    rois: TensorLike,
    batch_index: TensorLike,
    output_size: Sequence[int],
    sampling_rate: Sequence[int],
    resize_method: str = "symmetric",
) -> Tensor:
    """4.6.2."""
    return _aligned(avg_pool, input, rois, batch_index, output_size, sampling_rate, resize_method)


def max_roi_align(
    input: TensorLike,
    rois: TensorLike,
    batch_index: TensorLike,
    output_size: Sequence[int],
    sampling_rate: Sequence[int],
    resize_method: str = "symmetric",
) -> Tensor:
    """4.6.2."""
    return _aligned(max_pool, input, rois, batch_index, output_size, sampling_rate, resize_method)
