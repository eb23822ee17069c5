"""Real arrays to codes and back, exactly.

A float item is the rational number that it is. The code of a real number is decided in float64 only where the decision
is not close; every other item is decided with integers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.quantization.quantizer import LinearQuantizer, Rounding
from cvm.quantization.rationals import Rationals

__all__ = ["dequantize", "quantize", "quantize_rationals", "round_fraction"]

_MARGIN = 2.0**-10
"""Items nearer than this to a rounding threshold, in codes, are decided exactly. The float64 estimate of an item that
is within the code range is wrong by less than 2^-20 codes as long as |offset| / scale and the codes stay below 2^31."""
_SAFE = 2**31


def round_fraction(value: Fraction, rounding: Rounding) -> int:
    """``value`` as an integer: floor(x + 1/2), nearest with ties to even, or truncated."""
    if rounding == "half_up":
        return (2 * value.numerator + value.denominator) // (2 * value.denominator)
    if rounding == "half_even":
        return round(value)
    return abs(value.numerator) // value.denominator * (1 if value >= 0 else -1)


def code(x: Fraction, quantizer: LinearQuantizer, index: int) -> int:
    """The code of one real number under the scale and offset number ``index``."""
    steps = round_fraction((x - quantizer.offset[index]) / quantizer.scale[index], quantizer.rounding)
    return min(max(steps, quantizer.lo), quantizer.hi)


def quantize(
    values: npt.NDArray[Any], quantizer: LinearQuantizer, location: Location | None = None
) -> npt.NDArray[np.int64]:
    """The codes of an array of real numbers (any float, integer or boolean dtype), rounded once, exactly.

    Raises `Invalid` (``quantization.nan``) where an item is not a real number, and (``quantization.axis``) where a
    per-channel quantiser does not fit the array.
    """
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Invalid("quantization.nan", "an item is NaN or infinite: not a real number", location)
    if quantizer.axis is None:
        return _quantize_uniform(values, quantizer, 0)
    axis = quantizer.axis
    if axis >= values.ndim or values.shape[axis] != len(quantizer.scale):
        raise Invalid(
            "quantization.axis",
            f"a quantiser of {len(quantizer.scale)} channels along axis {axis} does not fit the shape {values.shape}",
            location,
        )
    # Parts of extent 1, which stay arrays: items of a vector are none.
    parts = [_quantize_uniform(part, quantizer, i) for i, part in enumerate(np.split(values, values.shape[axis], axis))]
    return np.concatenate(parts, axis)


def _quantize_uniform(values: npt.NDArray[Any], quantizer: LinearQuantizer, index: int) -> npt.NDArray[np.int64]:
    scale, offset = quantizer.scale[index], quantizer.offset[index]
    lo, hi = quantizer.lo, quantizer.hi
    if max(abs(lo), abs(hi)) >= _SAFE or abs(offset) >= _SAFE * scale or scale < Fraction(1, 2**900):
        codes = np.array([code(_fraction(x), quantizer, index) for x in values.ravel()], dtype=np.int64)
        return codes.reshape(values.shape)
    bounded = np.clip(values.astype(np.float64), float(offset + (lo - 2) * scale), float(offset + (hi + 2) * scale))
    steps = (bounded - float(offset)) / float(scale)
    # Truncation has its thresholds at the integers, the other two roundings half-way between them.
    estimate = steps if quantizer.rounding == "toward_zero" else steps + 0.5
    nearest = np.rint(estimate)
    close = np.abs(estimate - nearest) < _MARGIN
    rounded = np.trunc(estimate) if quantizer.rounding == "toward_zero" else np.floor(estimate)
    codes = np.clip(rounded, lo, hi).astype(np.int64)
    codes[close] = [code(_fraction(x), quantizer, index) for x in values[close]]
    return codes


def _fraction(item: Any) -> Fraction:
    return Fraction(item.item())


def quantize_rationals(values: Rationals, quantizer: LinearQuantizer) -> npt.NDArray[np.int64]:
    """The codes of an array of exact rationals at full extent."""
    axis = quantizer.axis
    indices = np.zeros(values.shape, np.int64) if axis is None else np.indices(values.shape)[axis]
    if axis is not None and values.shape[axis] != len(quantizer.scale):
        raise ValueError(f"{len(quantizer.scale)} channels along axis {axis} of the shape {values.shape}")
    pairs = zip(values.fractions(), indices.ravel().tolist(), strict=True)
    codes = [code(value, quantizer, index) for value, index in pairs]
    return np.array(codes, dtype=np.int64).reshape(values.shape)


def dequantize(codes: npt.NDArray[Any], quantizer: LinearQuantizer) -> npt.NDArray[np.float64]:
    """The real numbers that codes stand for, each the float64 nearest to the exact rational."""
    real = np.empty(codes.shape, np.float64)
    axis = quantizer.axis
    for i, (scale, offset) in enumerate(zip(quantizer.scale, quantizer.offset, strict=True)):
        part = codes if axis is None else np.take(codes, i, axis)
        distinct, inverse = np.unique(part, return_inverse=True)
        table = np.array([float(offset + scale * int(item)) for item in distinct], dtype=np.float64)
        where = (slice(None),) * (axis or 0) + (() if axis is None else (i,))
        real[where] = table[inverse].reshape(part.shape)
    return real
