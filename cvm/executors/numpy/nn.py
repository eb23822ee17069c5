"""NN ops: contractions by BLAS, each with the proof that it is exact; pooling by maxima along one axis at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cvm.blocks import boxes
from cvm.bounds import require_fits
from cvm.executors.numpy.codes import FloatCodes
from cvm.executors.numpy.contraction import Contraction, choose, magnitudes
from cvm.executors.numpy.depthwise import Depthwise
from cvm.executors.numpy.step import Array, PlannedNode, known, plans, single
from cvm.executors.numpy.windows import Geometry, window
from cvm.ops.declaration import Call
from cvm.ops.ranges import Exact, Range, Shape

__all__: list[str] = []

BLOCK_BYTES = 4 * 2**20
"""The bytes of the temporary arrays of a contraction, unless one output position alone needs more."""

_PART = 2**22
"""The elements of a large matrix that are converted to floats at a time."""
_HELD = 2**17
"""Constant weights of more items than this are kept as stored, and converted in every run: in another type they would
take four to eight times the memory.
"""


@plans("conv2d")
def plan_conv2d(call: Call) -> PlannedNode:
    """For each group, the matrix product of W (OPG, IC KH KW) and columns (IC KH KW, positions), in blocks; or sums of
    shifted planes where every channel has a filter of its own.
    """
    geometry = Geometry.of(call)
    N, OC, P, Q = geometry.Y
    weights, x = geometry.terms(call)
    method = choose(weights, N * P * Q, x, x is not None and int(call.ranges[0].lo.min()) >= 0)
    constant = _constant(call.ranges[1], geometry.W)
    prepared = None if constant is None or constant.size > _HELD else _grouped(method, geometry, constant)
    stored = constant if prepared is None else None
    biased = len(call.shapes) == 3
    if prepared is not None and len(prepared) == 1 and not biased and np.issubdtype(method.dtype, np.floating):
        planes = Depthwise.of(geometry, prepared[0])
        if planes is not None:
            return _by_planes(planes, method.note)
    itemsize = np.dtype(method.dtype).itemsize
    limit = max(1, BLOCK_BYTES // (itemsize * (geometry.groups * geometry.reduction + 3 * OC)))

    def run(codes: FloatCodes | None, X: Array, *others: Array) -> Array:
        weights = prepared or _grouped(method, geometry, others[0] if stored is None else stored)
        bias = others[-1].reshape(OC, 1, 1) if biased else None
        Y = np.empty(geometry.Y, np.int32)
        for box in boxes((N, P, Q), limit):
            target = Y[box[0], :, box[1], box[2]]
            sums = _products(method, weights, geometry.columns(X, box, method.dtype)).reshape(target.shape)
            if codes is None:
                _store(target, method.as_integers(sums), bias)
            else:
                codes.within((box[0], slice(None), box[1], box[2])).write_all([sums], target)
        return Y

    def join(following: Call) -> PlannedNode | None:
        codes = None if biased else FloatCodes.of(following)
        return None if codes is None else single(partial(run, codes), method.note, reads)

    reads = _reads(call, constant is not None)
    return replace(single(partial(run, None), method.note, reads), join=join)


def _by_planes(planes: Depthwise, note: str) -> PlannedNode:
    """A depthwise convolution by products of shifted planes."""
    Q = planes.geometry.Y[3]

    def run(X: Array) -> Array:
        Y = np.empty(planes.geometry.Y, np.int32)

        def store(image: int, channels: slice, sums: Array) -> None:
            np.copyto(Y[image, channels], sums[:, :, :Q], casting="unsafe")

        planes.each(X, store)
        return Y

    def join(following: Call) -> PlannedNode | None:
        codes = FloatCodes.of(following)
        if codes is None or not codes.by_channel:
            return None
        return single(partial(joined, codes), note, (0,))

    def joined(codes: FloatCodes, X: Array) -> Array:
        Y = np.empty(planes.geometry.Y, np.int32)

        def store(image: int, channels: slice, sums: Array) -> None:
            wide = np.empty((1, *sums.shape), np.int32)
            codes.within((slice(image, image + 1), channels, slice(None), slice(None))).write_all([sums[None]], wide)
            np.copyto(Y[image, channels], wide[0, :, :, :Q])

        planes.each(X, store)
        return Y

    return replace(single(run, note, (0,)), join=join)


@plans("dense")
def plan_dense(call: Call) -> PlannedNode:
    """The matrix product X W^T, in blocks of rows."""
    (M, K), (N, _) = call.shapes[:2]
    require_fits(call.ranges[0].magnitude() * call.ranges[1].magnitude(), 63, "a product of a dense")
    x = magnitudes(call.ranges[0], (M, K)).max(axis=0)
    weights = call.ranges[1]
    if isinstance(weights, Exact):
        method = choose(weights.values, M, x, int(call.ranges[0].lo.min()) >= 0)
    else:
        method = choose(magnitudes(weights, (N, K)), M, x)
    constant = _constant(call.ranges[1], (N, K))
    prepared = None if constant is None or constant.size > _HELD else method.split(constant)
    stored = constant if prepared is None else None
    biased = len(call.shapes) == 3
    limit = max(1, BLOCK_BYTES // (np.dtype(method.dtype).itemsize * (K + 3 * N)))

    def run(codes: FloatCodes | None, X: Array, *others: Array) -> Array:
        held = others[0] if stored is None and prepared is None else stored
        bias = others[-1] if biased else None
        Y = np.empty((M, N), np.int32)
        for (columns,) in boxes((N,), N if held is None else max(1, _PART // K)):
            weights = prepared if held is None else method.split(held[columns])
            assert weights is not None
            for (rows,) in boxes((M,), limit):
                x, part = X[rows].astype(method.dtype), Y[rows, columns]
                sums = method.contract((x[:, k], w.T) for w, k in zip(weights, method.runs, strict=True))
                if codes is None:
                    _store(part, method.as_integers(sums), None if bias is None else bias[columns])
                else:
                    codes.within((rows, columns)).write_all([sums], part)
        return Y

    def join(following: Call) -> PlannedNode | None:
        codes = None if biased else FloatCodes.of(following)
        return None if codes is None else single(partial(run, codes), method.note, reads)

    reads = _reads(call, constant is not None)
    return replace(single(partial(run, None), method.note, reads), join=join)


def _products(method: Contraction, weights: Sequence[Array], columns: Array) -> Array:
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
