"""NN ops: contractions by BLAS, each with the proof that it is exact; pooling by maxima along one axis at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cvm.bounds import require_fits
from cvm.executors.numpy.blocks import blocks
from cvm.executors.numpy.contraction import Contraction, choose, magnitudes
from cvm.executors.numpy.step import Array, PlannedNode, known, plans, single
from cvm.ops.declaration import Call
from cvm.ops.ranges import Exact, Range, Shape

__all__: list[str] = []

BLOCK_BYTES = 4 * 2**20
"""The bytes of the temporary arrays of a contraction, unless one output position alone needs more."""

_HELD = 2**17
"""Constant weights of more items than this are kept as stored, and converted in every run: in another type they would
take four to eight times the memory.
"""


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

    def terms(self, call: Call) -> Array:
        """The bounds |w| * max|x| of all products of every output channel, as an array (OC, IC * KH * KW)."""
        require_fits(call.ranges[0].magnitude() * call.ranges[1].magnitude(), 63, "a product of a conv2d")
        x = np.maximum(-call.ranges[0].lo, call.ranges[0].hi).max(axis=(0, 2, 3), keepdims=True).astype(np.int64)
        per_group = np.broadcast_to(x, (1, self.X[1], 1, 1)).reshape(self.groups, 1, self.W[1], 1)
        w = magnitudes(call.ranges[1], self.W).reshape(self.groups, -1, self.W[1], self.W[2] * self.W[3])
        terms: Array = w * per_group
        return terms.reshape(self.W[0], self.reduction)

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


@plans("conv2d")
def plan_conv2d(call: Call) -> PlannedNode:
    """For each group, the matrix product of W (OPG, IC KH KW) and columns (IC KH KW, positions), in blocks."""
    geometry = Geometry.of(call)
    N, OC, P, Q = geometry.Y
    method = choose(geometry.terms(call), N * P * Q)
    constant = _constant(call.ranges[1], geometry.W)
    prepared = None if constant is None or constant.size > _HELD else _grouped(method, geometry, constant)
    stored = constant if prepared is None else None
    biased = len(call.shapes) == 3
    per_position = np.dtype(method.dtype).itemsize * (geometry.groups * geometry.reduction + 3 * OC)
    limit = max(1, BLOCK_BYTES // per_position)

    def run(X: Array, *others: Array) -> Array:
        weights = prepared or _grouped(method, geometry, others[0] if stored is None else stored)
        bias = others[-1].reshape(OC, 1, 1) if biased else None
        Y = np.empty(geometry.Y, np.int32)
        for box in blocks((N, P, Q), limit):
            target = Y[box[0], :, box[1], box[2]]
            _store(target, _sums(method, weights, geometry.columns(X, box, method.dtype)).reshape(target.shape), bias)
        return Y

    return single(run, method.note, _reads(call, constant is not None))


@plans("dense")
def plan_dense(call: Call) -> PlannedNode:
    """The matrix product X W^T, in blocks of rows."""
    (M, K), (N, _) = call.shapes[:2]
    require_fits(call.ranges[0].magnitude() * call.ranges[1].magnitude(), 63, "a product of a dense")
    x = magnitudes(call.ranges[0], (M, K)).max(axis=0)
    method = choose(magnitudes(call.ranges[1], (N, K)) * x, M)
    constant = _constant(call.ranges[1], (N, K))
    prepared = None if constant is None or constant.size > _HELD else method.split(constant)
    stored = constant if prepared is None else None
    biased = len(call.shapes) == 3
    limit = max(1, BLOCK_BYTES // (np.dtype(method.dtype).itemsize * (K + 3 * N)))

    def run(X: Array, *others: Array) -> Array:
        weights = prepared or method.split(others[0] if stored is None else stored)
        bias = others[-1] if biased else None
        Y = np.empty((M, N), np.int32)
        for (rows,) in blocks((M,), limit):
            x = X[rows].astype(method.dtype)
            sums = method.contract((x[:, k], w.T) for w, k in zip(weights, method.runs, strict=True))
            _store(Y[rows], sums, bias)
        return Y

    return single(run, method.note, _reads(call, constant is not None))


def _sums(method: Contraction, weights: Sequence[Array], columns: Array) -> Array:
    return method.contract((w, columns[:, :, k]) for w, k in zip(weights, method.runs, strict=True))


def _grouped(method: Contraction, geometry: Geometry, W: Array) -> list[Array]:
    return method.split(W.reshape(geometry.groups, -1, geometry.reduction))


def _constant(bounds: Range, shape: Shape) -> Array | None:
    """The elements of constant weights, of any integer type; None for weights that are not constant."""
    return bounds.values if isinstance(bounds, Exact) and bounds.shape == shape else known(bounds, shape)


def _reads(call: Call, constant: bool) -> tuple[int, ...]:
    return tuple(position for position in range(len(call.shapes)) if not (constant and position == 1))


def _store(Y: Array, sums: Array, bias: Array | None) -> None:
    """Y = sums + bias. If the sums are int32 they have not wrapped, and sums + bias is proven to be an int32; otherwise
    the addition is in int64.
    """
    if bias is None:
        np.copyto(Y, sums, casting="same_kind")
    else:
        np.add(sums, bias, out=Y, casting="same_kind")


@plans("relu")
def plan_relu(call: Call) -> PlannedNode:
    """max(0, X), or X itself if it is proven not to be negative."""
    if call.ranges[0].hull()[0] >= 0:
        return single(lambda X: X, "identity: the input is never negative")
    return single(lambda X: np.maximum(X, 0), "int32")


@plans("max_pool2d")
def plan_max_pool2d(call: Call) -> PlannedNode:
    """Maxima along one axis, then along the other: the maximum over a rectangle is the maximum of its rows' maxima."""
    a = call.attributes
    (PH, PW), (SH, SW), (PSH, PSW) = a.padding, a.strides, a.pool_size
    N, C, H, W = call.shapes[0]
    P = _pooled(H + 2 * PH - PSH, SH, a.ceil_mode)
    Q = _pooled(W + 2 * PW - PSW, SW, a.ceil_mode)

    def run(X: Array) -> Array:
        rows = np.full((N, C, H, Q), _INT32_MIN, np.int32)
        for target, read in _windows(W, Q, SW, PW, PSW):
            np.maximum(rows[..., target], X[..., read], out=rows[..., target])
        Y = np.full((N, C, P, Q), _INT32_MIN, np.int32)
        for target, read in _windows(H, P, SH, PH, PSH):
            np.maximum(Y[:, :, target], rows[:, :, read], out=Y[:, :, target])
        return Y

    return single(run, "int32, separable")


_INT32_MIN = -(2**31)
"""The element of the document's padding. It is below all elements, and every window holds one, so it is never a
maximum.
"""


def _pooled(room: int, stride: int, ceil_mode: bool) -> int:
    return (-(-room // stride) if ceil_mode else room // stride) + 1


def _windows(extent: int, outputs: int, stride: int, padding: int, pool: int) -> Iterator[tuple[slice, slice]]:
    return (window(extent, 0, outputs, stride, k - padding) for k in range(pool))


@plans("upsampling")
def plan_upsampling(call: Call) -> PlannedNode:
    """Every element repeated ``scale`` times along both axes of its plane."""
    N, C, H, W = call.shapes[0]
    scale = call.attributes.scale

    def run(X: Array) -> Array:
        return np.broadcast_to(X[:, :, :, None, :, None], (N, C, H, scale, W, scale)).reshape(
            N, C, H * scale, W * scale
        )

    return single(run, "copy")
