"""Exact conversion of real arrays to codes and back.

A float item stands for exactly its rational value. The code of an item is decided in float64 only if the item is not
near a rounding threshold; all other items are decided with integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.blocks import blocks, finite
from cvm.errors import Invalid, Location
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer, Quantizer, Rounding
from cvm.quantization.rationals import Rationals
from cvm.records import dataclass

__all__ = ["code", "dequantize", "nearest_float", "quantize", "quantize_rationals", "round_fraction"]

_MARGINS = ((2**17, 2.0**-28), (2**31, 2.0**-10))
"""Items within a distance of a rounding threshold, in codes, are decided exactly: if |offset| / scale and the codes are
below the first number of a pair, the second is that distance. Let m be the first number. The float64 of the offset is
wrong by less than m * 2^-53 codes; the difference, the scale, the quotient and its sum with 1/2 are wrong by less than
m * 2^-52 each. So the estimate of an item within the code range is wrong by less than m * 2^-49 codes."""
_SAFE = _MARGINS[-1][0]
_LEAST_SCALE, _MOST_SCALE = Fraction(1, 2**900), Fraction(2**900)
"""For scales between these, float64 neither overflows nor loses bits to subnormal numbers."""
_ROOT_OF_HALF = (math.isqrt(2 ** (2 * 53 - 1)) + 1) / 2**53
"""The least float64 that is not below sqrt(1/2). A mantissa, which is a float64, reaches it if and only if it reaches
sqrt(1/2)."""


def round_fraction(value: Fraction, rounding: Rounding) -> int:
    """``value`` rounded to an integer: floor(x + 1/2), nearest with ties to even, or truncated."""
    if rounding == "half_up":
        return (2 * value.numerator + value.denominator) // (2 * value.denominator)
    if rounding == "half_even":
        return round(value)
    return abs(value.numerator) // value.denominator * (1 if value >= 0 else -1)


def code(x: Fraction, quantizer: Quantizer, index: int = 0) -> int:
    """The code of one real number under the scale and offset with index ``index``."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return _power_code(x, quantizer)
    steps = round_fraction((x - quantizer.offset[index]) / quantizer.scale[index], quantizer.rounding)
    return min(max(steps, quantizer.lo), quantizer.hi)


def _power_code(x: Fraction, quantizer: LogarithmicQuantizer) -> int:
    """sign(x) times the index of the nearest exponent, counted from 1, by round(log2 x) >= k <=> x^2 >= 2^(2k-1).

    Rounding and clipping of the exponent commute, since rounding is monotone and keeps integers.
    """
    if x == 0:
        return 0
    square = x * x
    # 2^(n-1) < x^2 < 2^(n+1): round(log2 x) = floor((log2 x^2 + 1) / 2) is decided by one comparison.
    n = square.numerator.bit_length() - square.denominator.bit_length()
    doubled = n if square >= Fraction(2) ** n else n - 1
    exponent = (doubled + 1) // 2
    lowest = quantizer.top - quantizer.hi + 1
    index = min(max(exponent, lowest), quantizer.top) - lowest + 1
    return index if x > 0 else -index


def quantize(
    values: npt.NDArray[Any],
    quantizer: Quantizer,
    location: Location | None = None,
    dtype: npt.DTypeLike = np.int64,
) -> npt.NDArray[Any]:
    """The exact codes of an array of real numbers (any float, integer or boolean dtype), which are rounded once.

    The codes are of ``dtype``, which must hold all codes of the quantiser; beside them and the numbers, a bounded
    amount of memory is taken. Raises `Invalid` (``quantization.nan``) if an item is not a real number, and
    (``quantization.axis``) if a per-channel quantiser does not fit the array.
    """
    if values.dtype.kind == "f" and not finite(values):
        raise Invalid("quantization.nan", "an item is NaN or infinite: not a real number", location)
    if isinstance(quantizer, LogarithmicQuantizer):
        return _quantize_powers(values, quantizer).astype(dtype, copy=False)
    axis = quantizer.axis
    if axis is not None and (axis >= values.ndim or values.shape[axis] != len(quantizer.scale)):
        raise Invalid(
            "quantization.axis",
            f"a quantiser of {len(quantizer.scale)} channels along axis {axis} does not fit the shape {values.shape}",
            location,
        )
    codes = np.empty(values.shape, dtype)
    estimates = _Estimates.of(quantizer, values.ndim)
    for block in blocks(values.shape):
        channels = slice(None) if axis is None else block[axis]
        codes[block] = _quantize_block(values[block], quantizer, estimates, channels)
    return codes


@dataclass(frozen=True, eq=False, slots=True)
class _Estimates:
    """A quantiser in float64, as arrays that broadcast to its tensor.

    Codes between ``least`` and ``most`` are estimated by (x - offset) / scale, and decided exactly within ``margin`` of
    a threshold.
    """

    least: npt.NDArray[np.float64]
    most: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    margin: float

    @staticmethod
    def of(quantizer: LinearQuantizer, rank: int) -> _Estimates | None:
        """The estimates for tensors of a rank; None if the quantiser is beyond what float64 decides."""
        pairs = list(zip(quantizer.scale, quantizer.offset, strict=True))
        if not all(_LEAST_SCALE < scale < _MOST_SCALE for scale in quantizer.scale):
            return None
        steps = max(-(-abs(offset) // scale) for scale, offset in pairs)
        reach = max(abs(quantizer.lo), abs(quantizer.hi), steps) + 3  # items are clipped two codes beyond the ends
        margin = next((margin for most, margin in _MARGINS if reach < most), None)
        if margin is None:
            return None
        shape = [len(pairs) if axis == quantizer.axis else 1 for axis in range(rank)]
        least = [float(offset + (quantizer.lo - 2) * scale) for scale, offset in pairs]
        most = [float(offset + (quantizer.hi + 2) * scale) for scale, offset in pairs]
        offsets, scales = ([float(item) for item in items] for items in (quantizer.offset, quantizer.scale))
        arrays = [np.array(items).reshape(shape) for items in (least, most, offsets, scales)]
        return _Estimates(arrays[0], arrays[1], arrays[2], arrays[3], margin)

    def part(self, axis: int | None, channels: slice) -> _Estimates:
        """The estimates of some channels."""
        if axis is None:
            return self
        at = (slice(None),) * axis + (channels,)
        return _Estimates(self.least[at], self.most[at], self.offset[at], self.scale[at], self.margin)


def _quantize_block(
    values: npt.NDArray[Any], quantizer: LinearQuantizer, estimates: _Estimates | None, channels: slice
) -> npt.NDArray[np.int64]:
    """The codes of an array that has the channels with the indices ``channels`` along the axis of the quantiser."""
    first = channels.start or 0
    if estimates is None:
        every = np.ones(values.shape, np.bool_)
        return _decided(values, np.zeros(values.shape, np.int64), every, quantizer, first)
    found = estimates.part(quantizer.axis, channels)
    steps = np.clip(values.astype(np.float64), found.least, found.most)
    steps -= found.offset
    steps /= found.scale
    # The thresholds of truncation are the integers; those of the other two roundings lie half-way between them.
    estimate = steps if quantizer.rounding == "toward_zero" else steps + 0.5
    close = np.abs(estimate - np.rint(estimate)) < found.margin
    rounded = np.trunc(estimate) if quantizer.rounding == "toward_zero" else np.floor(estimate)
    codes = np.clip(rounded, quantizer.lo, quantizer.hi).astype(np.int64)
    return _decided(values, codes, close, quantizer, first) if close.any() else codes


def _decided(
    values: npt.NDArray[Any],
    codes: npt.NDArray[np.int64],
    where: npt.NDArray[np.bool_],
    quantizer: LinearQuantizer,
    first: int,
) -> npt.NDArray[np.int64]:
    """The codes, with those decided exactly that ``where`` selects; ``first`` is the index of the first channel."""
    known: dict[tuple[Any, int], int] = {}
    places = np.nonzero(where)
    found = []
    channels = [0] * len(places[0]) if quantizer.axis is None else (places[quantizer.axis] + first).tolist()
    for item, channel in zip(values[where].tolist(), channels, strict=True):
        if (item, channel) not in known:
            known[item, channel] = code(Fraction(item), quantizer, channel)
        found.append(known[item, channel])
    codes[where] = found
    return codes


def _quantize_powers(values: npt.NDArray[Any], quantizer: LogarithmicQuantizer) -> npt.NDArray[np.int64]:
    """The codes of powers. For |x| = m * 2^e with 1/2 <= m < 1, log2 |x| is rounded to e if m >= sqrt(1/2), else to
    e - 1.
    """
    if values.dtype.kind != "f":
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = np.array([_power_code(_fraction(x), quantizer) for x in distinct], dtype=np.int64)
        return codes[inverse].reshape(values.shape)
    mantissa, exponent = np.frexp(np.abs(values.astype(np.float64)))
    rounded = exponent.astype(np.int64) - (mantissa < _ROOT_OF_HALF)
    lowest = quantizer.top - quantizer.hi + 1
    indices = np.clip(rounded, lowest, quantizer.top) - lowest + 1
    signed: npt.NDArray[np.int64] = np.sign(values).astype(np.int64) * indices
    return signed


def _fraction(item: Any) -> Fraction:
    return Fraction(item.item())


def quantize_rationals(values: Rationals, quantizer: Quantizer) -> npt.NDArray[np.int64]:
    """The codes of an array of exact rationals in its full shape."""
    axis = quantizer.axis
    indices = np.zeros(values.shape, np.int64) if axis is None else np.indices(values.shape)[axis]
    channels = len(quantizer.scale) if isinstance(quantizer, LinearQuantizer) else 1
    if axis is not None and values.shape[axis] != channels:
        raise ValueError(f"{channels} channels along axis {axis} of the shape {values.shape}")
    pairs = zip(values.fractions(), indices.ravel().tolist(), strict=True)
    codes = [code(value, quantizer, index) for value, index in pairs]
    return np.array(codes, dtype=np.int64).reshape(values.shape)


def dequantize(codes: npt.NDArray[Any], quantizer: Quantizer) -> npt.NDArray[np.float64]:
    """The real numbers that codes stand for, each as the float64 nearest to the exact rational."""
    if isinstance(quantizer, LogarithmicQuantizer):
        return _nearest_floats(codes, quantizer.value)
    real = np.empty(codes.shape, np.float64)
    axis = quantizer.axis
    for i in range(len(quantizer.scale)):
        part = codes if axis is None else np.take(codes, i, axis)
        where = (slice(None),) * (axis or 0) + (() if axis is None else (i,))
        real[where] = _nearest_floats(part, partial(quantizer.value, index=i))
    return real


def _nearest_floats(codes: npt.NDArray[Any], number: Callable[[int], Fraction]) -> npt.NDArray[np.float64]:
    distinct, inverse = np.unique(codes, return_inverse=True)
    table = np.array([nearest_float(number(int(item))) for item in distinct], dtype=np.float64)
    return table[inverse].reshape(codes.shape)


def nearest_float(number: Fraction) -> float:
    """The float64 nearest to a rational number; infinite if rounding to nearest gives infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
