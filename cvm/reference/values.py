"""Real values of stored tensors, inputs and literals, and pseudo-quantisation: NNEF 1.0.1 sections 4.9.5 and 7.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.bounds import narrowest
from cvm.errors import Invalid, Location
from cvm.graph import Attribute, GraphTensor, Operand, TensorData
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.exact import dequantize, nearest_float
from cvm.records import dataclass
from cvm.reference.operations.elementwise import round_half_up
from cvm.reference.operations.quantization import logarithmically_quantized, number_of_steps, steps_of
from cvm.reference.registry import Array, along

__all__ = ["Compact", "Values", "clipped", "converted", "external", "plain", "pseudo_quantized", "stored"]

_BLOCK = 2**16
"""Items that are rounded at a time."""

_TYPES = {"scalar": np.float64, "integer": np.int64, "logical": np.bool_}


def converted(x: Array, dtype: Literal["scalar", "integer", "logical"]) -> Array:
    """The elements in the data type of a tensor; scalars become integers by truncation, as the
    Khronos tools cast them.
    """
    return np.asarray(x).astype(_TYPES[dtype], copy=False)


def plain(value: Attribute) -> Any:
    """An attribute with floats instead of rationals."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return nearest_float(value) if isinstance(value, Fraction) else value


def literal(value: Fraction | bool) -> Array:
    """A literal operand as a tensor of rank 0."""
    return np.array(value if isinstance(value, bool) else nearest_float(value))


def operand(value: Operand, values: Values) -> Any:
    """The array of an operand, or the arrays of an array of operands."""
    match value:
        case str():
            return values[value]
        case tuple():
            return tuple(operand(item, values) for item in value)
    return literal(value)


def stored(data: TensorData, tensor: GraphTensor) -> Array:
    """The contents of a variable or constant as real numbers: codes are decoded, other elements are
    taken as they are.
    """
    values = data.values if data.quantizer is None else decoded(data.values, data.quantizer)
    return converted(values, tensor.dtype)


def external(found: Array, tensor: GraphTensor) -> Array:
    """An input as the caller gives it: integers are codes where the external has a quantiser, floats are real numbers.

    Raises `Invalid` with code ``input.<rule>``: type, real, code.
    """
    where = Location(tensor=tensor.name)
    kinds = {"scalar": "iuf", "integer": "iu", "logical": "b"}[tensor.dtype]
    if found.dtype.kind not in kinds or found.dtype.itemsize > 8:
        message = f"expected items for a tensor of type {tensor.dtype}, found an array of dtype {found.dtype}"
        raise Invalid("input.type", message, where)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise Invalid("input.real", "expected real numbers, found NaN or an infinity", where)
    quantizer = tensor.quantizer
    if found.dtype.kind == "f" or quantizer is None:
        return converted(found, tensor.dtype)
    if int(found.min()) < quantizer.lo or int(found.max()) > quantizer.hi:
        message = f"expected codes in [{quantizer.lo}, {quantizer.hi}], found {found.min()} to {found.max()}"
        raise Invalid("input.code", message, where)
    return decoded(found, quantizer)


def decoded(codes: Array, quantizer: Quantizer) -> Array:
    """The real numbers that codes stand for, each the nearest float64 (per channel, see below).

    For a quantiser per channel, exact values would need a table per channel, millions of fractions for a large network;
    there the result is ``offset + scale * code``, computed in float64.
    """
    if isinstance(quantizer, LinearQuantizer):
        if quantizer.per_tensor:
            return dequantize(codes, quantizer)
        offset, scale = _parameters(quantizer, codes.ndim)
        real: Array = offset + scale * codes
        return real
    exponents = np.abs(codes.astype(np.int64)) + (quantizer.top - quantizer.hi)
    return np.sign(codes) * np.exp2(exponents.astype(np.float64))


def pseudo_quantized(x: Array, quantizer: Quantizer) -> Array:
    """The values of a quantiser nearest to ``x``, in float64; infinities are clamped, NaN stays.

    Linear codes that begin at 0: the formula of `linear_quantize`, from min = offset to max = offset + scale * hi.
    Other linear codes (with a zero point): code = clamp(round((x - offset) / scale), lo, hi), value = offset + scale *
    code.
    """
    with np.errstate(all="ignore"):
        if isinstance(quantizer, LogarithmicQuantizer):
            return logarithmically_quantized(x, np.array(float(quantizer.top)), 2**quantizer.bits - 1)
        return _linearly_quantized(x, quantizer)


def clipped(x: Array, quantizer: Quantizer) -> Array:
    """The real numbers, clipped to the range of the quantiser and not rounded."""
    if isinstance(quantizer, LogarithmicQuantizer):
        greatest = float(quantizer.value(quantizer.hi))
        return np.clip(x, -greatest, greatest)
    offset, scale = _parameters(quantizer, x.ndim)
    return np.clip(x, offset + scale * quantizer.lo, offset + scale * quantizer.hi)


def _parameters(quantizer: LinearQuantizer, rank: int) -> tuple[Array, Array]:
    """Offset and scale as arrays that broadcast to a tensor of ``rank``."""
    axis = quantizer.axis or 0
    offset, scale = map(float, quantizer.offset), map(float, quantizer.scale)
    return along(list(offset), axis, rank), along(list(scale), axis, rank)


def _linearly_quantized(x: Array, quantizer: LinearQuantizer) -> Array:
    """As `pseudo_quantized`, block by block: large tensors are rounded in the processor's cache."""

    def rounded(part: Array, at: _Parameters) -> Array:
        return _number(_code(part, at, quantizer), at, quantizer)

    return _by_rows(x, quantizer, rounded, np.float64)


_Parameters: TypeAlias = tuple[Array, Array, Array]
"""The offset, the scale and the number of the greatest code, as arrays that broadcast to some rows of a tensor."""


def _by_rows(
    x: Array, quantizer: LinearQuantizer, function: Callable[[Array, _Parameters], Array], dtype: npt.DTypeLike
) -> Array:
    """A function of the items and of the quantiser, for a few rows at a time."""
    offset, scale = _parameters(quantizer, x.ndim)
    greatest = _greatest(quantizer, x.ndim) if _begins_at_zero(quantizer) else offset  # read only there
    if not x.ndim or len(offset) not in (1, len(x)):
        return function(x, (offset, scale, greatest)).astype(dtype, copy=False)
    result = np.empty(np.broadcast_shapes(x.shape, offset.shape), dtype)
    rows = max(1, _BLOCK * len(x) // max(x.size, 1))
    for start in range(0, len(x), rows):
        block = slice(start, start + rows)
        parts = [part[block] if len(part) > 1 else part for part in (offset, scale, greatest)]
        result[block] = function(x[block], (parts[0], parts[1], parts[2]))
    return result


def _greatest(quantizer: LinearQuantizer, rank: int) -> Array:
    """The number of the greatest code, as an array that broadcasts to a tensor of ``rank``."""
    pairs = zip(quantizer.offset, quantizer.scale, strict=True)
    return along([nearest_float(offset + scale * quantizer.hi) for offset, scale in pairs], quantizer.axis or 0, rank)


def _code(x: Array, parameters: _Parameters, quantizer: LinearQuantizer) -> Array:
    """The codes of numbers, in float64, in an array of their own."""
    offset, scale, greatest = parameters
    if _begins_at_zero(quantizer):
        return steps_of(x, offset, greatest, r=quantizer.hi)
    steps: Array = x - offset
    steps /= scale
    match quantizer.rounding:
        case "half_up":
            codes = round_half_up(steps)
        case "half_even":
            codes = np.rint(steps)
        case "toward_zero":
            codes = np.trunc(steps)
    return np.clip(codes, quantizer.lo, quantizer.hi)


def _number(codes: Array, parameters: _Parameters, quantizer: LinearQuantizer) -> Array:
    """The numbers of codes that are given in float64; they take the place of the codes."""
    offset, scale, greatest = parameters
    if _begins_at_zero(quantizer):
        return number_of_steps(codes, offset, greatest, r=quantizer.hi)
    codes *= scale
    codes += offset
    return codes


def _begins_at_zero(quantizer: LinearQuantizer) -> bool:
    """Whether the formula of `linear_quantize` applies."""
    return quantizer.lo == 0 and quantizer.rounding == "half_up"


_NARROW = (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Compact:
    """Real numbers in the few bytes in which they are stored: as they are, or as codes that a quantiser rounded to."""

    items: Array
    quantizer: LinearQuantizer | None = None

    @staticmethod
    def rounded(x: Array, quantizer: LinearQuantizer) -> Compact:
        """The finite numbers ``x``, rounded as `pseudo_quantized` rounds them."""
        dtype = narrowest(quantizer.lo, quantizer.hi, _NARROW)
        with np.errstate(all="ignore"):
            codes = _by_rows(x, quantizer, lambda part, at: _code(part, at, quantizer), dtype)
        return Compact(codes, quantizer)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.items.shape

    def part(self, axis: int, along: slice) -> Compact:
        """The numbers at some indices of an axis."""
        items, quantizer = self.items[(slice(None),) * axis + (along,)], self.quantizer
        if quantizer is not None and quantizer.axis == axis:
            scale, offset = quantizer.scale[along], quantizer.offset[along]
            quantizer = replace(quantizer, scale=scale, offset=offset, axis=axis if len(scale) > 1 else None)
        return Compact(items, quantizer)

    def real(self) -> Array:
        """The numbers in float64."""
        quantizer = self.quantizer
        if quantizer is None:
            return self.items.astype(np.float64)

        def number(codes: Array, at: _Parameters) -> Array:
            return _number(codes.astype(np.float64), at, quantizer)

        return _by_rows(self.items, quantizer, number, np.float64)


Values: TypeAlias = dict[str, Array | Compact]
"""The tensors that are known at a time, by name."""
