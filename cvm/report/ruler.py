"""Rulers: the real numbers of codes, and the positions of real numbers among codes, for measuring in float64.

A ruler serves one tensor. It takes the elements in blocks: flat, row-major, beginning with element number ``start``.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.reference.values import decoded

__all__ = ["Floats", "Integers", "Ruler", "ruler"]

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[Any]

_TABLE = 2**17 + 1
"""The real numbers of all codes are tabulated if there are at most this many codes."""


class Ruler(Protocol):
    """The codes ``lo`` to ``hi`` of one tensor."""

    lo: int
    hi: int

    def values(self, codes: Integers, start: int) -> Floats:
        """The real numbers of a block of codes."""

    def positions(self, reals: Floats, start: int) -> Floats:
        """The positions of a block of real numbers, in codes, neither rounded nor clipped."""


def ruler(quantizer: Quantizer | None, shape: tuple[int, ...], interval: tuple[int, int]) -> Ruler:
    """The ruler of a tensor. Without a quantiser, integers in ``interval`` stand for themselves."""
    match quantizer:
        case None:
            return _Plain(*interval)
        case LogarithmicQuantizer():
            return _Logarithmic(quantizer)
        case LinearQuantizer(axis=None):
            return _Uniform(quantizer)
    return _PerChannel(quantizer, shape)


class _Plain:
    """The ruler of a tensor without a quantiser: each integer stands for itself."""

    def __init__(self, lo: int, hi: int) -> None:
        self.lo, self.hi = lo, hi

    def values(self, codes: Integers, start: int) -> Floats:
        return codes.astype(np.float64)

    def positions(self, reals: Floats, start: int) -> Floats:
        return reals


class _Tabulated:
    """The numbers of all codes of a quantiser for the whole tensor, each the nearest float64."""

    def __init__(self, quantizer: Quantizer) -> None:
        self.lo, self.hi = quantizer.lo, quantizer.hi
        self._quantizer = quantizer
        few = self.hi - self.lo < _TABLE
        self._table = decoded(np.arange(self.lo, self.hi + 1), quantizer) if few else None

    def values(self, codes: Integers, start: int) -> Floats:
        if self._table is None:
            return decoded(codes, self._quantizer)
        found: Floats = self._table[codes - self.lo]
        return found


class _Uniform(_Tabulated):
    def __init__(self, quantizer: LinearQuantizer) -> None:
        super().__init__(quantizer)
        self._scale, self._offset = float(quantizer.scale[0]), float(quantizer.offset[0])

    def positions(self, reals: Floats, start: int) -> Floats:
        return (reals - self._offset) / self._scale


class _Logarithmic(_Tabulated):
    """The ruler of a logarithmic quantiser. Below the least power of two, positions fall to the position of zero."""

    def __init__(self, quantizer: LogarithmicQuantizer) -> None:
        super().__init__(quantizer)
        self._shift = float(quantizer.hi - quantizer.top)

    def positions(self, reals: Floats, start: int) -> Floats:
        return np.sign(reals) * np.maximum(np.log2(np.abs(reals)) + self._shift, 0.0)


class _PerChannel:
    def __init__(self, quantizer: LinearQuantizer, shape: tuple[int, ...]) -> None:
        assert quantizer.axis is not None
        self.lo, self.hi = quantizer.lo, quantizer.hi
        self._scale = np.array([float(scale) for scale in quantizer.scale])
        self._offset = np.array([float(offset) for offset in quantizer.offset])
        self._inner = math.prod(shape[quantizer.axis + 1 :])

    def values(self, codes: Integers, start: int) -> Floats:
        channels = self._channels(codes.size, start)
        found: Floats = self._offset[channels] + self._scale[channels] * codes
        return found

    def positions(self, reals: Floats, start: int) -> Floats:
        channels = self._channels(reals.size, start)
        found: Floats = (reals - self._offset[channels]) / self._scale[channels]
        return found

    def _channels(self, size: int, start: int) -> npt.NDArray[np.int64]:
        """The channel of each element of a block."""
        return np.arange(start, start + size) // self._inner % len(self._scale)
