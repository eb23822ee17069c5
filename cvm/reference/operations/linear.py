"""Matrix multiplication and linear operations: NNEF 1.0.1 sections 4.7 and 4.9.2."""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.filters import biased, conv, deconv
from cvm.reference.operations.windows import AS_DECLARED, Sliding, sliding_operation
from cvm.reference.registry import Array, Integers, operation

__all__: list[str] = []

_NO_BIAS = np.zeros(())


@operation("4.7")
def matmul(A: Array, B: Array, transposeA: bool = False, transposeB: bool = False) -> Array:
    """C = A' B' in the last two dimensions, the others broadcast as a batch."""
    left = np.swapaxes(A, -1, -2) if transposeA else A
    right = np.swapaxes(B, -1, -2) if transposeB else B
    product: Array = np.matmul(left, right)
    return product


@operation("4.9.2")
def linear(input: Array, filter: Array, bias: Array) -> Array:
    """``matmul(input, filter, transposeB = true) + bias``."""
    return biased(matmul(input, filter, transposeB=True), bias)


@sliding_operation("4.9.2")
def separable_conv(
    input: Array,
    plane_filter: Array,
    point_filter: Array,
    bias: Array,
    sliding: Sliding = AS_DECLARED,
    groups: int = 1,
) -> Array:
    """A depth-wise convolution with the plane filter, then a convolution with the point filter, plus bias."""
    filtered = conv(input, plane_filter, _NO_BIAS, sliding, groups=0)
    return conv(filtered, point_filter, bias, groups=groups)


@sliding_operation("4.9.2")
def separable_deconv(
    input: Array,
    plane_filter: Array,
    point_filter: Array,
    bias: Array,
    sliding: Sliding = AS_DECLARED,
    output_shape: Integers = (),
    groups: int = 1,
) -> Array:
    """A deconvolution with the point filter, then a depth-wise deconvolution with the plane filter, plus bias."""
    filtered = deconv(input, point_filter, _NO_BIAS, groups=groups)
    return deconv(filtered, plane_filter, bias, sliding, output_shape, groups=0)
