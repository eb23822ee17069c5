"""Region-of-interest operations: NNEF 1.0.1 section 4.6.

A region is a row (start of each spatial dimension.., end of each..), in coordinates of the feature map.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.reference.operations.elementwise import round_half_up
from cvm.reference.operations.pooling import avg_pool, max_pool
from cvm.reference.operations.resampling import interpolated
from cvm.reference.operations.windows import Sliding
from cvm.reference.registry import Array, Integers, operation

__all__: list[str] = []


def _regions(input: Array, rois: Array, batch_index: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Each region: the feature map (C, H, W..) of its batch item, its starts and its ends."""
    if not np.isfinite(rois).all():
        raise Invalid("reference.rois", "a coordinate of a region is not a real number")
    batch = batch_index.reshape(-1)
    outside = (batch < 0) | (batch >= input.shape[0])
    if outside.any():
        raise Invalid(
            "reference.batch-index", f"batch index {batch[outside][0]} is outside of a batch of {input.shape[0]}"
        )
    for row, item in zip(rois, batch, strict=True):
        starts, ends = np.split(row, 2)
        yield input[item], starts, ends


def _cells(start: int, end: int, count: int, extent: int) -> list[slice]:
    """The slices of the cells of a region along one dimension, clipped to the feature map.

    Cell i has extent ceil(r / p) and starts at y0 + i * floor(r / p): the document prints c_H where y0 is meant.
    """
    length = end - start
    size, step = -(-length // count), length // count
    cells = []
    for i in range(count):
        first, last = start + i * step, start + i * step + size
        cells.append(slice(min(max(first, 0), extent), min(max(last, 0), extent)))
    return cells


def _pooled(pool: Callable[..., Array], input: Array, rois: Array, batch_index: Array, output_size: Integers) -> Array:
    """The function ``pool`` applied to the elements of the feature map in each cell; 0 for a cell without elements."""
    output = np.zeros((rois.shape[0], input.shape[1], *output_size))
    spatial = tuple(range(1, len(output_size) + 1))
    corners = round_half_up(rois)
    for number, (item, starts, ends) in enumerate(_regions(input, corners, batch_index)):
        axes = [
            _cells(int(start), int(end), count, extent)
            for start, end, count, extent in zip(starts, ends, output_size, item.shape[1:], strict=True)
        ]
        for cell_index, cell_slices in zip(np.ndindex(*output_size), itertools.product(*axes), strict=True):
            cell = item[(slice(None), *cell_slices)]
            if cell.size:
                output[(number, slice(None), *cell_index)] = pool(cell, axis=spatial)
    return output


@operation("4.6.1")
def avg_roi_pool(input: Array, rois: Array, batch_index: Array, output_size: Integers) -> Array:
    """The mean of the items of each cell, after rounding the region to integer coordinates."""
    return _pooled(np.mean, input, rois, batch_index, output_size)


@operation("4.6.1")
def max_roi_pool(input: Array, rois: Array, batch_index: Array, output_size: Integers) -> Array:
    """The maximum of the items of each cell, after rounding the region to integer coordinates."""
    return _pooled(np.max, input, rois, batch_index, output_size)


def _sampled(start: float, end: float, count: int, method: str) -> npt.NDArray[np.float64]:
    """The coordinates of the samples of one dimension in the feature map: section 4.3.4 with f =
    count / (end - start).
    """
    i, length = np.arange(count), end - start
    match method:
        case "asymmetric":
            return start + i * length / count
        case "symmetric":
            return start + (i + 0.5) * length / count - 0.5
        case "aligned":
            return start + i * (length - 1.0) / max(count - 1, 1)
    raise Invalid("reference.method", f"there is no interpolation method {method!r}")


@operation("4.6.2")
def roi_resample(
    input: Array, rois: Array, batch_index: Array, output_size: Integers, method: str = "symmetric"
) -> Array:
    """Each region resampled by multilinear interpolation; positions are clamped to the feature map."""
    output = np.zeros((rois.shape[0], input.shape[1], *output_size))
    for number, (item, starts, ends) in enumerate(_regions(input, rois, batch_index)):
        for axis, (start, end, count) in enumerate(zip(starts, ends, output_size, strict=True), start=1):
            positions = np.clip(_sampled(float(start), float(end), count, method), 0, item.shape[axis] - 1)
            lower = np.floor(positions)
            item = interpolated(item, axis, lower.astype(np.int64), positions - lower, "replicate")
        output[number] = item
    return output


def _align(pool: Callable[..., Array]) -> Callable[..., Array]:
    """Regions resampled at a rate per dimension, then ``pool`` applied to the samples of each cell."""

    def apply(
        input: Array,
        rois: Array,
        batch_index: Array,
        output_size: Integers,
        sampling_rate: Integers,
        resize_method: str = "symmetric",
    ) -> Array:
        size = [extent * rate for extent, rate in zip(output_size, sampling_rate, strict=True)]
        cell = (1, 1, *sampling_rate)
        return pool(roi_resample(input, rois, batch_index, size, resize_method), cell, Sliding(stride=cell))

    return apply


operation("4.6.2", "avg_roi_align")(_align(avg_pool))
operation("4.6.2", "max_roi_align")(_align(max_pool))
