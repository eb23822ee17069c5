"""Depthwise convolutions as matrix products of shifted planes, in floats that are proven to be exact.

Each channel has one filter. The padded map of a channel is split by the strides into planes, so that a tap reads
neighbouring elements of one plane for neighbouring outputs. A plane lies in memory row after row, with rows so long
that a tap reads the whole plane at one distance: the columns of the product are copies of long vectors. What the
outputs behind the end of a row hold is not used.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvm.executors.numpy.codes import FLOAT_ELEMENTS
from cvm.executors.numpy.step import Array
from cvm.executors.numpy.windows import Geometry, window
from cvm.records import dataclass

__all__ = ["Depthwise"]

MOST_TAPS = 49
BLOCK_ELEMENTS = 2**18
"""Elements of the columns of a product."""


@dataclass(frozen=True, slots=True)
class Depthwise:
    """A convolution with one filter per channel: ``weights`` (C, taps), and for each tap its plane and its distance.

    ``rows`` and ``width`` are the extents of a plane, ``planes`` the first row and column of each in the padded map.
    """

    geometry: Geometry
    weights: Array
    taps: tuple[tuple[int, int], ...]
    planes: tuple[tuple[int, int], ...]
    rows: int
    width: int

    @staticmethod
    def of(geometry: Geometry, weights: Array) -> Depthwise | None:
        """The planes of a convolution with constant weights (OC, 1, KH, KW) in floats; None for another one."""
        OC, IC, KH, KW = geometry.W
        if not geometry.groups == OC == geometry.X[1] or IC != 1 or KH * KW > MOST_TAPS:
            return None
        (SH, SW), (DH, DW), (_, _, P, Q) = geometry.stride, geometry.dilation, geometry.Y
        places = [(i * DH, j * DW) for i in range(KH) for j in range(KW)]
        rows, width = P + (KH - 1) * DH // SH, Q + (KW - 1) * DW // SW
        planes = tuple(sorted({(i % SH, j % SW) for i, j in places}))
        taps = tuple((planes.index((i % SH, j % SW)), i // SH * width + j // SW) for i, j in places)
        return Depthwise(geometry, np.ascontiguousarray(weights.reshape(OC, -1)), taps, planes, rows, width)

    def each(self, X: Array, use: Callable[[int, slice, Array], None]) -> None:
        """Call ``use(image, channels, sums)`` with the sums (channels, P, width), which it may overwrite, by blocks."""
        N, C, _, _ = self.geometry.X
        _, _, P, Q = self.geometry.Y
        size, length = self.rows * self.width, (P - 1) * self.width + Q
        most = max(1, min(C, BLOCK_ELEMENTS // (length * len(self.taps))))
        group = max(most, min(C, FLOAT_ELEMENTS // (P * self.width)) // most * most)
        dtype = self.weights.dtype
        buffer, columns = (
            np.zeros((len(self.planes), most, size), dtype),
            np.empty((most, len(self.taps), length), dtype),
        )
        sums = np.zeros((group, 1, P * self.width), dtype)
        for image in range(N):
            for first in range(0, C, group):
                end = min(first + group, C)
                for start in range(first, end, most):
                    channels = slice(start, min(start + most, end))
                    count = channels.stop - start
                    self._fill(X[image, channels], buffer)
                    for number, (plane, distance) in enumerate(self.taps):
                        columns[:count, number] = buffer[plane, :count, distance : distance + length]
                    target = sums[start - first : channels.stop - first, :, :length]
                    np.matmul(self.weights[channels, None], columns[:count], out=target)
                use(image, slice(first, end), sums[: end - first].reshape(end - first, P, self.width))

    def _fill(self, maps: Array, buffer: Array) -> None:
        """Copy maps (C, H, W) into their planes; what lies outside the maps stays 0."""
        _, _, H, W = self.geometry.X
        (SH, SW), (PH, PW) = self.geometry.stride, self.geometry.padding
        for plane, (first, left) in zip(buffer, self.planes, strict=True):
            put_rows, rows = window(H, 0, self.rows, SH, first - PH)
            put_columns, columns = window(W, 0, self.width, SW, left - PW)
            shaped = plane[: len(maps)].reshape(len(maps), self.rows, self.width)
            shaped[:, put_rows, put_columns] = maps[:, rows, columns]
