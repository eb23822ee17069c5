"""Scales and zero points: the grid of real numbers that integers stand for, and exact conversion of float arrays.

An integer q stands for (q - zero point) * scale; a number x gets clamp(round_half_even(x / scale) + zero point). A
float scale counts as the exact rational of its value.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.frontends.common.data_types import bounds
from cvm.frontends.common.grids import Grid as CommonGrid
from cvm.frontends.webnn.errors import NotSupportedError
from cvm.frontends.webnn.operand import Shape, WebnnNode
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import quantize

__all__ = ["Grid", "grid_of"]


class Grid(CommonGrid):
    """A grid that also converts arrays of floats on the host."""

    __slots__ = ()

    def spread(self, items: npt.NDArray[Any], shape: Shape) -> npt.NDArray[Any]:
        """Scales or zero points, repeated to the full shape of the tensor."""
        items = items.reshape((1,) * (len(shape) - items.ndim) + items.shape)
        for axis, extent in enumerate(shape):
            items = np.repeat(items, extent // items.shape[axis], axis)
        return items

    def codes(self, values: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
        """The integers of an array of floats, exactly. Raises `Invalid` for NaN and infinities."""
        if not np.isfinite(values).all():
            raise Invalid("webnn.input.nan", "an item is NaN or infinite: not a real number", Location(tensor=name))
        lo, hi = bounds(self.data_type)
        scales, zeros = (self.spread(items, values.shape) for items in (self.scale, self.zero_point))
        found = np.empty(values.shape, np.int64)
        for scale in np.unique(scales):
            where = scales == scale
            size = LinearQuantizer(
                (abs(Fraction(scale.item())),), (Fraction(0),), -(2**40), 2**40, rounding="half_even"
            )
            found[where] = quantize(values[where], size) * (1 if scale > 0 else -1)
        clamped: npt.NDArray[np.int64] = np.clip(found + zeros, lo, hi)
        return clamped

    def reals(self, codes: npt.NDArray[Any], data_type: str) -> npt.NDArray[Any]:
        """The floats nearest to the numbers that integers stand for."""
        scales, zeros = (self.spread(items, codes.shape) for items in (self.scale, self.zero_point))
        # A difference of at most 29 bits times a float32 scale of 24 bits is exact in float64, so it is rounded once,
        # to the data type. The products of larger differences would be rounded twice: they are computed as rationals.
        differences = codes.astype(np.int64) - zeros
        if int(abs(differences).max(initial=0)) < 2**29:
            return np.asarray((differences.astype(np.float64) * scales.astype(np.float64)).astype(data_type))
        exact = [
            nearest(int(d) * Fraction(s.item()), data_type)
            for d, s in zip(differences.ravel(), scales.ravel(), strict=True)
        ]
        return np.array(exact, data_type).reshape(codes.shape)


def nearest(number: Fraction, data_type: str) -> Any:
    """The float of a data type that is nearest to a rational, ties to even."""
    kind = np.dtype(data_type).type
    guess = kind(float(number))
    if not np.isfinite(guess):
        return guess
    around = [np.nextafter(guess, kind(-np.inf)), guess, np.nextafter(guess, kind(np.inf))]
    finite = [item for item in around if np.isfinite(item)]

    def rank(item: Any) -> tuple[Fraction, int]:
        bits = int(np.asarray(item).view(np.dtype(f"u{np.dtype(data_type).itemsize}")))
        return abs(Fraction(item.item()) - number), bits % 2

    return min(finite, key=rank)


def grid_of(node: WebnnNode) -> Grid:
    """The grid of a quantizeLinear or dequantizeLinear. Raises `NotSupportedError` where scale or zero point is
    computed.
    """
    integers = node.outputs[0] if node.op == "quantizeLinear" else node.operands["input"]
    parts: list[npt.NDArray[Any]] = []
    for name in ("scale", "zeroPoint"):
        operand = node.operands.get(name)
        if operand is None:
            parts.append(np.zeros(parts[0].shape, np.int64))
            continue
        if operand.values is None:
            prefix = f"[{node.label}] " if node.label else ""
            message = (
                f"{prefix}{node.op}: {name} {operand.name!r} must be a constant: an integer program has fixed scales"
            )
            raise NotSupportedError(f"webnn.{node.op}.scale", message, Location(tensor=operand.name, op=node.op))
        parts.append(operand.values)
    scale = parts[0].astype(np.float32) if parts[0].dtype == np.float16 else parts[0]
    return Grid(scale, parts[1].astype(np.int64), integers.data_type)
