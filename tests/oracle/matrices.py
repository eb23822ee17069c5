"""Matrix multiplication (4.7) and linear (4.9.2)."""

from __future__ import annotations

import numpy as np

from .elementwise import add
from .products import matrix_product
from .tensors import Tensor, TensorLike, require, tensor


def matmul(A: TensorLike, B: TensorLike, transposeA: bool = False, transposeB: bool = False) -> Tensor:
    """The product of the last two dimensions, the others broadcast as a batch."""
    a, b = tensor(A), tensor(B)
    require(a.rank == b.rank >= 2, "A and B have one rank, at least 2")
    left = np.swapaxes(a.items, -1, -2) if transposeA else a.items
    right = np.swapaxes(b.items, -1, -2) if transposeB else b.items
    require(left.shape[-1] == right.shape[-2], "the inner extents are equal")
    return Tensor(matrix_product(left, right), a.denominator * b.denominator)


def linear(input: TensorLike, filter: TensorLike, bias: TensorLike = 0) -> Tensor:
    """matmul(input, filter, transposeB = true) + bias."""
    return add(matmul(input, filter, transposeB=True), bias)
