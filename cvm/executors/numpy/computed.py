"""Ops of op-set 2 but for `normalize`: products of matrices through BLAS under a recorded proof, quotients, slices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cvm.blocks import boxes
from cvm.bounds import require_fits
from cvm.executors.numpy.blocks import BLOCK_ELEMENTS, aligned, parameter, part
from cvm.executors.numpy.contraction import choose, magnitudes
from cvm.executors.numpy.step import Array, PlannedNode, plans, single
from cvm.executors.numpy.wide import WideSum, wide_quotients
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
            np.copyto(Y[index], method.as_integers(sums), casting="same_kind")
        return Y

    return single(run, method.note)


@plans("quotient")
def plan_quotient(call: Call) -> PlannedNode:
    """clip(round(N / D), lo, hi): in 64 bits where these are proven to hold 2 |N| + D and 2 D, else in limbs."""
    a, shape, count = call.attributes, call.shapes[0], (len(call.shapes) - 2) // 2
    factors = [parameter(call, position) for position in range(count, len(call.shapes))]
    parts = [x.magnitude() * m.magnitude() for x, m in zip(call.ranges[:count], call.ranges[count:-2], strict=True)]
    N = sum(parts[: a.terms]) + call.ranges[-2].magnitude()
    D = sum(parts[a.terms :]) + call.ranges[-1].magnitude()
    bound = max(2 * N + D, 2 * D)
    narrow = bound < 2**63
    quotients = (
        _narrow_quotients(factors, a.terms, a.rounding, bound)
        if narrow
        else _limbed_quotients(factors, a.terms, a.rounding, a.lo, a.hi)
    )

    def run(*tensors: Array) -> Array:
        operands = [aligned(x, len(shape)) for x in tensors]
        Y = np.empty(shape, np.int32)
        for box in boxes(shape, BLOCK_ELEMENTS):
            np.copyto(Y[box], np.clip(quotients(operands, box), a.lo, a.hi), casting="same_kind")
        return Y

    width = "int64" if narrow else "limbs"
    return single(run, f"{width}, {a.terms} over {count - a.terms} terms, {a.rounding}", reads=tuple(range(count)))


_Quotients = Callable[[list[Array], tuple[slice, ...]], Array]
"""Rounded quotients of a box, from the tensors x and y in the rank of the result."""


def _narrow_quotients(factors: list[Array], terms: int, rounding: str, bound: int) -> _Quotients:
    """Quotients in 64 bits; ``bound`` bounds 2 |N| + D and 2 D."""
    require_fits(bound, 63, "the sums of a quotient")

    def run(operands: list[Array], box: tuple[slice, ...]) -> Array:
        *products, N, D = (part(aligned(m, len(box)), box).astype(np.int64) for m in factors)
        for index, (x, m) in enumerate(zip(operands, products, strict=True)):
            term = part(x, box) * m
            N, D = (N + term, D) if index < terms else (N, D + term)
        if rounding == "half_up":
            return np.asarray((2 * N + D) // (2 * D))
        if rounding == "toward_zero":
            return np.asarray(np.sign(N) * (np.abs(N) // D))
        floor = N // D
        twice = 2 * (N - floor * D)
        return np.asarray(floor + ((twice > D) | ((twice == D) & (floor % 2 == 1))))

    return run


def _limbed_quotients(factors: list[Array], terms: int, rounding: str, lo: int, hi: int) -> _Quotients:
    """Quotients of sums of up to 100 bits."""
    *of_tensors, c, e = factors
    N, D = WideSum.of(of_tensors[:terms], c), WideSum.of(of_tensors[terms:], e)

    def run(operands: list[Array], box: tuple[slice, ...]) -> Array:
        return wide_quotients(N.limbs(operands[:terms], box), D.limbs(operands[terms:], box), rounding, lo, hi)

    return run


@plans("update_slice")
def plan_update_slice(call: Call) -> PlannedNode:
    """A copy of X, of which a slice along axis is U."""
    axis = call.attributes.axis % len(call.shapes[0])
    count = call.shapes[1][axis]
    last = call.shapes[0][axis] - count

    def run(X: Array, U: Array, I: Array) -> Array:  # noqa: E741 - the declaration's name
        start = min(max(int(I[0]), 0), last)
        Y = X.copy()
        Y[(slice(None),) * axis + (slice(start, start + count),)] = U
        return Y

    return single(run, "int32")
