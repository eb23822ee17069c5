"""The conversion between arrays of the builder's data types and the codes of a program, at its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.frontends.webnn.translation import Boundary, Translated
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import dequantize, quantize

__all__ = ["Border"]

_Array = npt.NDArray[Any]


class Border:
    """The inputs and outputs of a graph, which convert arrays."""

    def __init__(self, translated: Translated) -> None:
        self._translated = translated

    def feeds(self, arrays: Mapping[str, _Array]) -> dict[str, _Array]:
        """The codes of the program's inputs. Raises `Invalid` for values out of range."""
        return {item.value: self._codes(item, arrays[item.name]) for item in self._translated.inputs}

    def numbers(self, arrays: Mapping[str, _Array]) -> dict[str, _Array]:
        """The inputs of a graph that has no quantisers yet: codes as in `feeds`, but real numbers for calibrated
        inputs.
        """
        return {
            item.value: arrays[item.name].astype(np.float64).reshape(item.shape or (1,))
            if item.calibrated
            else self._codes(item, arrays[item.name])
            for item in self._translated.inputs
        }

    def results(self, codes: Mapping[str, _Array]) -> dict[str, _Array]:
        """The outputs in their data types, from the codes of the program's outputs."""
        return {item.name: self._given(item, codes[item.value]) for item in self._translated.outputs}

    def exact_results(self, codes: Mapping[str, _Array]) -> dict[str, npt.NDArray[np.float64]]:
        """The outputs as numbers: float64 for calibrated outputs, integers for all others."""
        return {item.name: self._real(item, codes[item.value]) for item in self._translated.outputs}

    def step(self, boundary: Boundary) -> float:
        """The distance of neighbouring numbers of an output of the graph, 1 for integers."""
        return float(self._quantizer(boundary).scale[0]) if boundary.calibrated else 1.0

    def _quantizer(self, boundary: Boundary) -> LinearQuantizer:
        quantizer = self._translated.graph.tensors[boundary.value].quantizer
        assert isinstance(quantizer, LinearQuantizer)
        return quantizer

    def _codes(self, boundary: Boundary, values: _Array) -> _Array:
        if boundary.calibrated:
            shaped = values.reshape(boundary.shape or (1,))
            codes = quantize(shaped, self._quantizer(boundary), Location(tensor=boundary.name))
        elif boundary.grid is not None:
            codes = boundary.grid.codes(values, boundary.name) - _shift(boundary)
            _require(boundary, codes, -INT32_MAX, INT32_MAX, "an integer beyond +-(2^31 - 1), the range of the machine")
        else:
            interval = boundary.interval
            assert interval is not None
            _require(boundary, values, *interval)
            # Every reader gives the same result for the nearest machine integer.
            codes = np.clip(values, max(interval[0], -INT32_MAX), min(interval[1], INT32_MAX))
        return codes.astype(np.int64).reshape(boundary.shape or (1,))

    def _given(self, boundary: Boundary, codes: _Array) -> _Array:
        shaped = codes.reshape(boundary.shape)
        if boundary.grid is not None:
            return boundary.grid.reals(shaped, boundary.data_type)
        if boundary.calibrated:
            return self._real(boundary, shaped).astype(boundary.data_type)
        return shaped.astype(boundary.data_type)

    def _real(self, boundary: Boundary, codes: _Array) -> npt.NDArray[np.float64]:
        if boundary.calibrated:
            return dequantize(codes, self._quantizer(boundary)).reshape(boundary.shape)
        return codes.astype(np.float64).reshape(boundary.shape)


def _require(boundary: Boundary, codes: _Array, lo: int, hi: int, why: str = "") -> None:
    least, most = int(codes.min()), int(codes.max())
    if least < lo or most > hi:
        why = why or f"{least if least < lo else most}, which is not in [{lo}, {hi}]"
        raise Invalid("webnn.input.range", f"input {boundary.name!r} holds {why}", Location(tensor=boundary.name))


def _shift(boundary: Boundary) -> int:
    """The difference between the integers of a quantizeLinear and the codes of the program's input."""
    assert boundary.grid is not None
    quantizer = boundary.grid.quantizer()
    if quantizer is None:
        return 0
    return int(boundary.grid.zero_point.flat[0]) + int(quantizer.offset[0] / Fraction(quantizer.scale[0]))
