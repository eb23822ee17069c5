"""Operations that the current Khronos tools add to NNEF 1.0.1, each under the section that it would stand in.

Their additions to operations of 1.0.1 (the stride of `slice`, the axes of `reshape`, the alpha of `elu`) stand with
those operations, and trigonometric functions and reductions with the others of their kind.
"""

from __future__ import annotations

import math

import numpy as np

from cvm.errors import Invalid
from cvm.reference.operations.activations import erf, sigmoid
from cvm.reference.operations.elementwise import round_half_up
from cvm.reference.operations.quantization import quantized
from cvm.reference.operations.windows import extended_along
from cvm.reference.registry import Array, Integers, Padding, aligned, operation, unary

__all__: list[str] = []


@operation("4.9.1")
def gelu(x: Array, approximate: str = "sigmoid") -> Array:
    """``y = x * sigmoid(1.702 * x)``, the definition in the standard library of the Khronos tools.

    ``approximate`` chooses another one, as in ONNX: "none" is ``x * (1 + erf(x / sqrt(2))) / 2``, "tanh" is
    ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``.
    """
    if approximate == "none":
        return x * (1.0 + erf(x / math.sqrt(2.0))) / 2.0
    if approximate == "tanh":
        return x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))) / 2.0
    return x * sigmoid(1.702 * x)


unary("4.9.1", {"silu": lambda x: x * sigmoid(x)})


@operation("4.9.1")
def selu(x: Array, alpha: float = 1.67326319, **constants: float) -> Array:
    """``y = lambda * alpha * (e^x - 1)`` where x < 0, else ``lambda * x``."""
    factor = constants.get("lambda", 1.05070102)
    return factor * np.where(x < 0.0, alpha * np.expm1(np.minimum(x, 0.0)), x)


@operation("4.9.1")
def softabs(x: Array, epsilon: float) -> Array:
    """``y = sqrt(x^2 + epsilon)``."""
    return np.sqrt(x * x + epsilon)


@operation("4.5")
def pad(input: Array, padding: Padding, border: str = "constant", value: float = 0.0) -> Array:
    """The input extended by its border; a constant border has the given value."""
    for axis, (before, after) in enumerate(padding):
        input = extended_along(input, axis, -before, input.shape[axis] + after - 1, border, value)
    return input


@operation("4.5")
def tile(input: Array, repeats: Integers) -> Array:
    """The tensor repeated along each dimension."""
    return np.tile(input, tuple(repeats))


@operation("4.5")
def gather(input: Array, indices: Array, axis: int = 0) -> Array:
    """The elements at the given indices of the axis; the axes of the indices replace the axis.

    Indices that are computed as real numbers, as ONNX models do, are rounded half up.
    """
    indices = indices if indices.dtype == np.int64 else round_half_up(indices).astype(np.int64)
    outside = (indices < 0) | (indices >= input.shape[axis])
    if outside.any():
        raise Invalid(
            "reference.index", f"index {indices[outside][0]} is outside of an axis of extent {input.shape[axis]}"
        )
    result: Array = np.take(input, indices, axis)
    return result


@operation("4.5")
def update_slice(input: Array, update: Array, start: Array, axis: int) -> Array:
    """The input with a slice along the axis replaced by the update, which begins at the start, clipped so that it
    fits.
    """
    count = update.shape[axis]
    first = min(max(int(start.item()), 0), input.shape[axis] - count)
    result = input.copy()
    result[(slice(None),) * axis + (slice(first, first + count),)] = update
    return result


@operation("4.5")
def cast(input: Array) -> Array:
    """The same elements; the evaluator converts them to the data type of the result."""
    return input


@operation("4.9.5")
def min_max_linear_quantize(x: Array, min: Array, max: Array, bits: int, signed: bool, symmetric: bool) -> Array:
    """`linear_quantize` with one step fewer where the codes are signed and symmetric."""
    x, min, max = aligned(x, min, max)
    return quantized(x, min, max, 2**bits - 1 - (signed and symmetric))


@operation("4.9.5")
def zero_point_linear_quantize(
    x: Array, zero_point: Array, scale: Array, bits: int, signed: bool, symmetric: bool
) -> Array:
    """``y = (q - z) * scale`` with ``q = clamp(round(x / scale) + z, lo, hi)``."""
    x, zero_point, scale = aligned(x, zero_point, scale)
    hi = 2.0 ** (bits - 1) - 1.0 if signed else 2.0**bits - 1.0
    lo = (-hi if symmetric else -hi - 1.0) if signed else 0.0
    q: Array = np.clip(round_half_up(x / scale) + zero_point, lo, hi)
    return (q - zero_point) * scale
