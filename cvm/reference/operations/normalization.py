"""Normalization operations: NNEF 1.0.1 section 4.9.4."""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.filters import box
from cvm.reference.operations.reduction import sum_reduce
from cvm.reference.registry import Array, Integers, aligned, operation

__all__: list[str] = []


@operation("4.9.4")
def local_response_normalization(
    input: Array,
    size: Integers,
    alpha: float = 1.0,
    beta: float = 0.5,
    bias: float = 1.0,
    accuracy: str = "default",
) -> Array:
    """``input / sigma ^ beta`` with ``sigma = bias + alpha * (mean of squares in a window)``.

    ``accuracy`` concerns programs alone.
    """
    sigma = bias + alpha * box(input * input, size, normalize=True)
    return input / np.float_power(sigma, beta)


@operation("4.9.4")
def local_mean_normalization(input: Array, size: Integers) -> Array:
    """``input - (mean in a window)``."""
    return input - box(input, size, normalize=True)


@operation("4.9.4")
def local_variance_normalization(input: Array, size: Integers, bias: float = 0.0, epsilon: float = 0.0) -> Array:
    """``input / max(sqrt(sigma) + bias, epsilon)`` with ``sigma = (mean of squares in a window)``."""
    sigma = box(input * input, size, normalize=True)
    return input / np.maximum(np.sqrt(sigma) + bias, epsilon)


@operation("4.9.4")
def local_contrast_normalization(input: Array, size: Integers, bias: float = 0.0, epsilon: float = 0.0) -> Array:
    """The result of `local_mean_normalization`, normalised by `local_variance_normalization`."""
    return local_variance_normalization(local_mean_normalization(input, size), size, bias, epsilon)


@operation("4.9.4")
def l1_normalization(input: Array, axes: Integers, bias: float = 0.0, epsilon: float = 0.0) -> Array:
    """``input / max(sigma + bias, epsilon)`` with ``sigma = sum_reduce(abs(input), axes)``."""
    return input / np.maximum(sum_reduce(np.abs(input), axes) + bias, epsilon)


@operation("4.9.4")
def l2_normalization(input: Array, axes: Integers, bias: float = 0.0, epsilon: float = 0.0) -> Array:
    """``input / max(sqrt(sigma) + bias, epsilon)`` with ``sigma = sum_reduce(sqr(input), axes)``."""
    return input / np.maximum(np.sqrt(sum_reduce(input * input, axes)) + bias, epsilon)


@operation("4.9.4")
def batch_normalization(
    input: Array, mean: Array, variance: Array, offset: Array, scale: Array, epsilon: float
) -> Array:
    """``offset + scale * (input - mean) / sqrt(variance + epsilon)``."""
    input, mean, variance, offset, scale = aligned(input, mean, variance, offset, scale)
    output: Array = offset + scale * (input - mean) / np.sqrt(variance + epsilon)
    return output


@operation("4.9.4")
def layer_normalization(input: Array, scale: Array, offset: Array, axes: Integers, epsilon: float) -> Array:
    """``offset + scale * (input - mean) / sqrt(variance + epsilon)``, with mean and variance of the elements along the
    axes.

    Source: ONNX LayerNormalization and InstanceNormalization, WebNN layerNormalization and instanceNormalization.
    """
    if not axes:
        input = input[..., np.newaxis]
    along = tuple(axes) or (input.ndim - 1,)
    distance = input - np.mean(input, axis=along, keepdims=True)
    variance = np.mean(distance * distance, axis=along, keepdims=True)
    normal = distance / np.sqrt(variance + epsilon)
    normal, scale, offset = aligned(normal if axes else normal[..., 0], scale, offset)
    output: Array = offset + scale * normal
    return output


@operation("4.9.4")
def rms_normalization(input: Array, scale: Array, offset: Array, axes: Integers, epsilon: float) -> Array:
    """``offset + scale * input / sqrt(mean(input^2) + epsilon)``, with the mean over the axes; without axes, of each
    element.

    Source: ONNX RMSNormalization.
    """
    square = input * input
    mean = np.mean(square, axis=tuple(axes), keepdims=True) if axes else square
    normal, scale, offset = aligned(input / np.sqrt(mean + epsilon), scale, offset)
    output: Array = offset + scale * normal
    return output
