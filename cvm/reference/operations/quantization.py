"""Quantization operations: NNEF 1.0.1 section 4.9.5."""

from __future__ import annotations

import numpy as np

from cvm.reference.operations.elementwise import round_half_up
from cvm.reference.registry import Array, aligned, operation

__all__ = ["logarithmically_quantized", "number_of_steps", "quantized", "steps_of"]


def quantized(x: Array, minimum: Array, maximum: Array, r: int) -> Array:
    """``q / r * (max - min) + min`` with ``q = round((clamp(x, min, max) - min) / (max - min) * r)``.

    Where min = max, the result is min.
    """
    return number_of_steps(steps_of(x, minimum, maximum, r), minimum, maximum, r)


def steps_of(x: Array, minimum: Array, maximum: Array, r: int) -> Array:
    """The q of `quantized`."""
    span: Array = maximum - minimum
    steps: Array = np.minimum(x, maximum, dtype=np.float64)
    steps = np.maximum(steps, minimum)
    steps -= minimum
    steps /= np.where(span == 0.0, 1.0, span)
    steps *= r
    return round_half_up(steps)


def number_of_steps(q: Array, minimum: Array, maximum: Array, r: int) -> Array:
    """The result of `quantized` for q."""
    number: Array = q / r
    number *= maximum - minimum
    number += minimum
    return number


def logarithmically_quantized(x: Array, top: Array, r: int) -> Array:
    """``sign(x) * 2^q`` with ``q = round(clamp(log2(abs(x)), top - r, top))``; zeros stay zero, since sign(0) = 0."""
    q = round_half_up(np.maximum(np.minimum(np.log2(np.abs(x)), top), top - r))
    return np.where(x == 0.0, 0.0, np.sign(x) * np.exp2(q))


@operation("4.9.5")
def linear_quantize(x: Array, min: Array, max: Array, bits: int) -> Array:
    """The nearest of 2^bits evenly spaced values from min to max, which may be tensors (7.2)."""
    x, min, max = aligned(x, min, max)
    return quantized(x, min, max, 2**bits - 1)


@operation("4.9.5")
def logarithmic_quantize(x: Array, max: Array, bits: int) -> Array:
    """The nearest, by exponent, of 2^bits powers of two up to ``2^ceil(log2(max))``, with the sign of x."""
    x, max = aligned(x, max)
    return logarithmically_quantized(x, np.ceil(np.log2(max)), 2**bits - 1)
