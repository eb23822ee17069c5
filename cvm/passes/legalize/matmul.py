"""``matmul`` in the document's ops: one grouped convolution, which has a group for every pair of matrices."""

from __future__ import annotations

import math

from cvm.passes.legalize.expressions import Expression

__all__ = ["matmul"]


def matmul(a: Expression, b: Expression, transpose_a: bool, transpose_b: bool) -> Expression:
    """The product of matrices in batches, as a convolution with the same number of multiply-adds.

    Matrix p of A becomes the map of group p: its K columns are the channels, its M rows are the pixels. The N columns
    of the matrix of B that it is multiplied by become N kernels of one tap. A matrix of B that belongs to several
    matrices of A is repeated first.
    """
    rank, batch = len(a.shape), a.shape[:-2]
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    for axis, extent in enumerate(batch):
        if b.shape[axis] < extent:
            b = b.apply("repeat", label="shared", axis=axis, repeats=extent // b.shape[axis])
    a = a if transpose_a else a.apply("transpose", label="columns", axes=swapped)
    b = b if transpose_b else b.apply("transpose", label="columns", axes=swapped)
    (K, M), N, count = a.shape[-2:], b.shape[-2], math.prod(batch)
    maps = a.apply("reshape", label="maps", target_shape=(1, count * K, M, 1))
    kernels = b.apply("reshape", label="kernels", target_shape=(count * N, K, 1, 1))
    geometry = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1)}
    products = maps.apply("conv2d", kernels, label="products", groups=count, **geometry)
    return products.apply("reshape", label="products", target_shape=(*batch, N, M)).transpose(swapped)
