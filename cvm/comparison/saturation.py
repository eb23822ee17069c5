"""Sums of products in pairs that saturate at 16 bits: what x86 does with unsigned times signed bytes without VNNI."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.regions import Region

__all__ = ["lost"]

Array = npt.NDArray[Any]
_LEAST, _MOST = -(2**15), 2**15 - 1
_TERMS = 2**28
"""The most pairs of products of one tensor."""


def lost(region: Region, data: Array, weights: Array, shape: tuple[int, ...], zero: int) -> Array | None:
    """What sums of products lose, as the instruction ``vpmaddubsw`` saturates sums of two neighbouring products.

    ``data`` are unsigned codes of 8 bits with the zero point ``zero``, ``weights`` signed ones, in the layout of the
    graph. Products lie in the order of rows, columns and channels of a kernel. None for other operations than products
    of matrices and convolutions of images without groups. The result has ``shape``, and is added to exact sums.
    """
    name = region.operation.name
    if name == "conv":
        found = _unfolded(region, data, shape, weights.shape, zero)
        if found is None:
            return None
        rows, columns = found, np.transpose(weights, (2, 3, 1, 0)).reshape(-1, weights.shape[0])
    elif name == "linear" and weights.ndim == 2 and data.ndim == 2:
        rows, columns = data, weights.T
    elif name == "matmul" and weights.ndim == 2 and "transposeA" not in _turned(region):
        rows = data.reshape(-1, data.shape[-1])
        columns = weights.T if "transposeB" in _turned(region) else weights
    else:
        return None
    if rows.shape[1] != columns.shape[0] or rows.size * columns.shape[1] > _TERMS:
        return None
    made = _of_products(rows.astype(np.int32), columns.astype(np.int32))
    if name == "conv":
        return np.moveaxis(made.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    return made.reshape(shape)


def _unfolded(region: Region, data: Array, shape: tuple[int, ...], kernel: tuple[int, ...], zero: int) -> Array | None:
    """For each element of a convolution's result and all channels, the codes that its kernel covers, as a row."""
    attributes: Any = region.operation.attributes
    if data.ndim != 4 or len(kernel) != 4 or kernel[1] != data.shape[1]:
        return None
    strides, dilations = attributes.get("stride") or (1, 1), attributes.get("dilation") or (1, 1)
    before = _before(data.shape, shape, kernel, attributes.get("padding"), strides, dilations)
    if before is None:
        return None
    reach = [(kernel[2 + n] - 1) * dilations[n] + (shape[2 + n] - 1) * strides[n] + 1 for n in (0, 1)]
    after = [max(reach[n] - before[n] - data.shape[2 + n], 0) for n in (0, 1)]
    padded = np.pad(data, ((0, 0), (0, 0), *zip(before, after, strict=True)), constant_values=zero)
    parts = []
    for row in range(kernel[2]):
        for column in range(kernel[3]):
            first = row * dilations[0], column * dilations[1]
            ends = [first[n] + (shape[2 + n] - 1) * strides[n] + 1 for n in (0, 1)]
            part = padded[:, :, first[0] : ends[0] : strides[0], first[1] : ends[1] : strides[1]]
            parts.append(np.moveaxis(part, 1, -1).reshape(-1, data.shape[1]))
    return np.concatenate(parts, axis=1)


def _before(
    size: tuple[int, ...], shape: tuple[int, ...], kernel: tuple[int, ...], padding: Any, strides: Any, dilations: Any
) -> tuple[int, int] | None:
    """The padding before the first row and column. Without a list, both ends share it, the end takes the odd one."""
    if padding:
        return int(padding[0][0]), int(padding[1][0])
    need = [max((shape[n] - 1) * strides[n - 2] + (kernel[n] - 1) * dilations[n - 2] + 1 - size[n], 0) for n in (2, 3)]
    return need[0] // 2, need[1] // 2


def _turned(region: Region) -> set[str]:
    """The operands of a product of matrices that are transposed."""
    return {name for name, value in region.operation.attributes.items() if value is True}


def _of_products(rows: Array, columns: Array) -> Array:
    """The difference of saturated and exact sums, for a product of matrices."""
    found: Array = np.zeros((rows.shape[0], columns.shape[1]), np.int64)
    for first in range(0, rows.shape[1] - 1, 2):
        pair = rows[:, first, None] * columns[first] + rows[:, first + 1, None] * columns[first + 1]
        found += np.clip(pair, _LEAST, _MOST) - pair
    return found
