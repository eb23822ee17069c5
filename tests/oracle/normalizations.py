"""Normalization operations (4.9.4), as the document writes them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from .convolution import box
from .elementwise import abs, add, div, max, mul, pow, rsqrt, sqr, sqrt, sub
from .reductions import sum_reduce
from .tensors import Tensor, TensorLike

HALF = Fraction(1, 2)


def local_response_normalization(
    input: TensorLike,
    size: Sequence[int],
    alpha: Fraction | int = 1,
    beta: Fraction | int = HALF,
    bias: Fraction | int = 1,
) -> Tensor:
    sigma = add(bias, mul(alpha, box(sqr(input), size, normalize=True)))
    return div(input, pow(sigma, beta))


def local_mean_normalization(input: TensorLike, size: Sequence[int]) -> Tensor:
    return sub(input, box(input, size, normalize=True))


def local_variance_normalization(
    input: TensorLike, size: Sequence[int], bias: Fraction | int = 0, epsilon: Fraction | int = 0
) -> Tensor:
    sigma = box(sqr(input), size, normalize=True)
    return div(input, max(add(sqrt(sigma), bias), epsilon))


def local_contrast_normalization(
    input: TensorLike, size: Sequence[int], bias: Fraction | int = 0, epsilon: Fraction | int = 0
) -> Tensor:
    return local_variance_normalization(local_mean_normalization(input, size), size, bias, epsilon)


def l1_normalization(
    input: TensorLike, axes: Sequence[int], bias: Fraction | int = 0, epsilon: Fraction | int = 0
) -> Tensor:
    sigma = sum_reduce(abs(input), axes)
    return div(input, max(add(sigma, bias), epsilon))


def l2_normalization(
    input: TensorLike, axes: Sequence[int], bias: Fraction | int = 0, epsilon: Fraction | int = 0
) -> Tensor:
    sigma = sum_reduce(sqr(input), axes)
    return div(input, max(add(sqrt(sigma), bias), epsilon))


def batch_normalization(
    input: TensorLike,
    mean: TensorLike,
    variance: TensorLike,
    offset: TensorLike,
    scale: TensorLike,
    epsilon: TensorLike,
) -> Tensor:
    return add(offset, mul(mul(scale, sub(input, mean)), rsqrt(add(variance, epsilon))))
