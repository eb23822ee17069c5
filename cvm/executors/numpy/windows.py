"""Where the windows of a convolution or a pool lie: geometry, and the columns of a matrix product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cvm.bounds import require_fits
from cvm.executors.numpy.contraction import magnitudes
from cvm.executors.numpy.step import Array
from cvm.ops.declaration import Call
from cvm.ops.ranges import Exact, Shape
from cvm.records import dataclass

__all__ = ["Geometry", "window"]


def window(extent: int, start: int, stop: int, stride: int, offset: int) -> tuple[slice, slice]:
    """The outputs p in [start, stop) that read inside the image, and the elements that they read, as two slices.

    Output p reads inside if 0 <= p * stride + offset < extent. The first slice counts from ``start``. Both slices are
    empty if no output reads inside.
    """
    first = max(start, -(offset // stride))
    last = min(stop, (extent - 1 - offset) // stride + 1) - 1
    if last < first:
        return slice(0, 0), slice(0, 0)
    return slice(first - start, last + 1 - start), slice(first * stride + offset, last * stride + offset + 1, stride)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shapes and strides of one conv2d; ``Y`` is the shape (N, OC, P, Q) of its output."""

    X: Shape
    W: Shape
    Y: Shape
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @staticmethod
    def of(call: Call) -> Geometry:
        """The geometry of a call."""
        (X, W), a = call.shapes[:2], call.attributes
        P, Q = (
            (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1
            for n, k, pad, stride, dilation in zip(X[2:], W[2:], a.padding, a.stride, a.dilation, strict=True)
        )
        return Geometry(X, W, (X[0], W[0], P, Q), a.stride, a.padding, a.dilation, a.groups)

    @property
    def reduction(self) -> int:
        """The number of products in one sum: IC * KH * KW."""
        return self.W[1] * self.W[2] * self.W[3]

    def terms(self, call: Call) -> tuple[Array, npt.NDArray[np.int64] | None]:
        """What bounds the products of every output channel: numbers (OC, IC * KH * KW), of either sign, and factors
        (IC * KH * KW,) for all channels. Without factors, the numbers are the bounds |w| * max|x| themselves.
        """
        require_fits(call.ranges[0].magnitude() * call.ranges[1].magnitude(), 63, "a product of a conv2d")
        x = np.maximum(-call.ranges[0].lo, call.ranges[0].hi).max(axis=(0, 2, 3), keepdims=True).astype(np.int64)
        weights = call.ranges[1]
        if isinstance(weights, Exact) and weights.shape == self.W and (self.groups == 1 or x.size == 1):
            factors = np.broadcast_to(x, (1, *self.W[1:])).reshape(-1)
            return weights.values.reshape(self.W[0], self.reduction), factors
        per_group = np.broadcast_to(x, (1, self.X[1], 1, 1)).reshape(self.groups, 1, self.W[1], 1)
        w = magnitudes(weights, self.W).reshape(self.groups, -1, self.W[1], self.W[2] * self.W[3])
        terms: Array = w * per_group
        return terms.reshape(self.W[0], self.reduction), None

    def columns(self, X: Array, box: Sequence[slice], dtype: type[np.generic]) -> Array:
        """The elements that the outputs (n, p, q) in ``box`` read, as an array (n, group, IC * KH * KW, p * q).

        Elements outside X are 0.
        """
        n, p, q = box
        _, _, KH, KW = self.W
        taps = np.empty((n.stop - n.start, self.X[1], KH, KW, p.stop - p.start, q.stop - q.start), dtype)
        for ki in range(KH):
            rows, read_rows = window(
                self.X[2], p.start, p.stop, self.stride[0], ki * self.dilation[0] - self.padding[0]
            )
            for kj in range(KW):
                put, read_columns = window(
                    self.X[3], q.start, q.stop, self.stride[1], kj * self.dilation[1] - self.padding[1]
                )
                tap, read = taps[:, :, ki, kj], X[n, :, read_rows, read_columns]
                if read.shape != tap.shape:
                    tap[...] = 0
                tap[:, :, rows, put] = read
        return taps.reshape(taps.shape[0], self.groups, self.reduction, -1)
