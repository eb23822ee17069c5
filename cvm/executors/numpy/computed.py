"""Ops of op-set 2: products of computed matrices through BLAS under a recorded proof."""

from __future__ import annotations

import math

import numpy as np

from cvm.bounds import require_fits
from cvm.executors.numpy.contraction import choose, magnitudes
from cvm.executors.numpy.step import Array, PlannedNode, plans, single
from cvm.ops.declaration import Call

__all__: list[str] = []


@plans("matmul")
def plan_matmul(call: Call) -> PlannedNode:
    """The product of each pair of matrices, one of B with all those of A that it serves."""
    (A, B), a = call.shapes, call.attributes
    rank = len(A)
    require_fits(call.ranges[0].magnitude() * call.ranges[1].magnitude(), 63, "a product of a matmul")
    along = (rank - 2 if a.transpose_a else rank - 1, rank - 1 if a.transpose_b else rank - 2)
    x, w = (
        magnitudes(bounds, shape).max(axis=tuple(k for k in range(rank) if k != axis))
        for bounds, shape, axis in zip(call.ranges, call.shapes, along, strict=True)
    )
    *batch, M, N = (*A[:-2], A[-1] if a.transpose_a else A[-2], B[-2] if a.transpose_b else B[-1])
    method = choose((w * x)[None], M * N * math.prod(batch))
    shared = [n // m for n, m in zip(A[:-2], B[:-2], strict=True)]

    def run(X: Array, W: Array) -> Array:
        X, W = X.swapaxes(-1, -2) if a.transpose_a else X, W if a.transpose_b else W.swapaxes(-1, -2)
        Y = np.empty((*batch, M, N), np.int32)
        for index in np.ndindex(*batch):
            column = W[tuple(i // n for i, n in zip(index, shared, strict=True))]
            x, w = X[index].astype(method.dtype), method.split(column)
            sums = method.contract((x[:, k], part.T) for part, k in zip(w, method.runs, strict=True))
            np.copyto(Y[index], sums, casting="same_kind")
        return Y

    return single(run, method.note)
