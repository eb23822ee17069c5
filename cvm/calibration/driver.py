"""Quantisers from histograms: every tensor of a plan gets a quantiser for the numbers that were observed."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from weakref import ref

import numpy as np
import numpy.typing as npt

from cvm.calibration.codes import with_codes
from cvm.calibration.correction import Corrected
from cvm.calibration.equalization import Rescaled
from cvm.calibration.observing import histogram_of
from cvm.calibration.planning import Bias, Filter, Group, Parameter, Plan
from cvm.calibration.settings import Settings
from cvm.frontends.nnef.container import QUANTIZATION
from cvm.frontends.nnef.quantizer_text import algorithm_text
from cvm.frontends.nnef.writer import checked_texts, save
from cvm.graph import QuantizedGraph, verify
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.calibration import (
    Histogram,
    Levels,
    Method,
    affine,
    choose,
    decimal_above,
    multiples_of,
    power_above,
    powers,
    short_above,
    symmetric,
)
from cvm.quantization.exact import round_fraction
from cvm.records import dataclass
from cvm.reference.values import stored

__all__ = ["CalibratedTensor", "Calibration", "Calibrator", "Role", "bare"]

Role = Literal["activation", "filter", "bias", "parameter"]
Range: TypeAlias = tuple[float, float]
Floats: TypeAlias = npt.NDArray[np.float64]

_PARAMETER_BITS = 16
"""The bits of stored tensors that are not filters: they become exact constants, where more bits cost nothing."""

_MOST_CODES = {True: INT32_MAX, False: 2**30 - 1}
"""The greatest code of a bias on either side of zero: signed codes have 32 bits, those of ``linear_quantize`` 31."""


@dataclass(frozen=True, slots=True)
class CalibratedTensor:
    """The quantiser of one tensor, with the extremes of the numbers for which it was chosen.

    ``clipped`` is the share of these numbers outside of the range.
    """

    name: str
    role: Role
    quantizer: Quantizer
    min: float
    max: float
    clipped: float

    @property
    def text(self) -> str:
        """The quantiser in the syntax of graph.quant."""
        return algorithm_text(self.quantizer) or ""


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Calibration:
    """A graph whose tensors carry the chosen quantisers, with a record for each of them."""

    graph: QuantizedGraph
    tensors: tuple[CalibratedTensor, ...]
    rescaled: tuple[Rescaled, ...] = ()
    """The channels that were rescaled before ranges were taken (`Settings.equalize`)."""
    corrected: tuple[Corrected, ...] = ()
    """The channels whose means were corrected (`Settings.correct_bias`)."""

    def __repr__(self) -> str:
        return f"Calibration({len(self.tensors)} tensors of {self.graph.name!r})"

    @property
    def quantizers(self) -> Mapping[str, Quantizer]:
        """The quantisers by tensor."""
        return MappingProxyType({item.name: item.quantizer for item in self.tensors})

    @property
    def text(self) -> str:
        """The text of the quantization file, after reading it back and comparing it.

        Raises `Unsupported` where the file would apply a list of scales to another axis.
        """
        return checked_texts(self.graph).get(QUANTIZATION, "")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole model, with the contents of variables as codes. Raises the errors of
        `cvm.frontends.nnef.save`.
        """
        save(with_codes(self.graph), path)


def bare(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph in real numbers alone; stored codes, and inputs given as codes, keep their meaning."""
    tensors = {
        name: tensor if tensor.kind == "external" else replace(tensor, quantizer=None)
        for name, tensor in graph.tensors.items()
    }
    return verify(replace(graph, tensors=MappingProxyType(tensors)), "the calibration")


Entry: TypeAlias = tuple[Quantizer, Range, float]
FilterKey: TypeAlias = tuple[tuple[int, ...], int | None, int, tuple[object, ...]]
FilterCache: TypeAlias = dict[FilterKey, tuple[list[ref[npt.NDArray[Any]]], Entry]]
"""The quantisers of filters that were measured, by the arrays of their contents: other graphs have some of the same."""


class Calibrator:
    """Computes the quantisers of a plan from histograms; ``widths`` gives the bits of single tensors.

    What is measured of filters is kept in ``filters``, and taken from there.
    Groups with a tensor in ``roomy`` get ranges that are four times as wide as the observed ones.
    """

    def __init__(
        self,
        graph: QuantizedGraph,
        what: Plan,
        settings: Settings,
        histograms: Mapping[str, Histogram],
        widths: Mapping[str, int] = MappingProxyType({}),
        roomy: Collection[str] = (),
        filters: FilterCache | None = None,
    ) -> None:
        self._graph = graph
        self._filters = {} if filters is None else filters
        self._widths = widths
        self._roomy = roomy
        self._plan = what
        self._settings = settings
        self._histograms = histograms
        self._found: dict[str, CalibratedTensor] = {}

    def calibration(self) -> Calibration:
        """The graph with the quantisers. Raises the `Invalid` of the graph verifier."""
        for group in self._plan.groups:
            self._group(group)
        for weights in self._plan.filters:
            self._filter(weights)
        for bias in self._plan.biases:
            self._bias(bias)
        for parameter in self._plan.parameters:
            self._parameter(parameter)
        found = self._found
        tensors = {
            name: replace(tensor, quantizer=found[name].quantizer) if name in found else tensor
            for name, tensor in self._graph.tensors.items()
        }
        graph = verify(replace(self._graph, tensors=MappingProxyType(tensors)), "the calibration")
        return Calibration(graph, tuple(found[name] for name in tensors if name in found))

    def _enter(self, names: Iterable[str], role: Role, quantizer: Quantizer, extremes: Range, clipped: float) -> None:
        for name in names:
            self._found[name] = CalibratedTensor(name, role, quantizer, *extremes, clipped)

    def _group(self, group: Group) -> None:
        settings = self._settings
        bits = min((self._widths[name] for name in group.tensors if name in self._widths), default=settings.bits)
        found, ranges, clipped = list(group.known), list(group.known), 0.0
        if group.observed:
            histogram = reduce(add, (self._histograms[name] for name in group.observed))
            chosen = choose(
                histogram,
                Levels("affine", bits),
                settings.range_method,
                percentile=settings.percentile,
                with_zero=group.with_zero,
            )
            clipped = histogram.share_outside(*chosen)
            found.append((histogram.min, histogram.max))
            ranges.append(_widened(*chosen) if any(name in self._roomy for name in group.tensors) else chosen)
        rounded = power_above if group.coordinates else short_above if group.normalised else decimal_above
        low, high = _hull(ranges)
        if group.state and low < 0 < high:
            # The first state, zero, has the code 0 then, and products read it without an offset.
            quantizer = symmetric([max(-low, high)], bits, signed=True)
        else:
            quantizer = affine(low, high, bits, signed=settings.signed, rounded=rounded, nonzero=group.nonzero)
        self._enter(group.tensors, "activation", quantizer, _hull(found), clipped)

    def _numbers(self, name: str) -> npt.NDArray[Any]:
        """The real numbers of a stored tensor: floats as they are stored, without a copy."""
        tensor = self._graph.tensors[name]
        data = tensor.data
        assert data is not None
        if tensor.dtype == "scalar" and data.quantizer is None and data.values.dtype.kind == "f":
            return data.values
        return stored(data, tensor)

    def _items(self, name: str) -> Floats:
        return self._numbers(name).astype(np.float64)

    def _filter(self, weights: Filter) -> None:
        settings, name = self._settings, weights.tensors[0]
        bits = self._widths.get(name, settings.filter_bits)
        data = [self._graph.tensors[other].data for other in weights.tensors]
        values = [item.values for item in data if item is not None]
        key: FilterKey = (tuple(map(id, values)), weights.axis, bits, settings.filter_choices)
        known = self._filters.get(key)
        if known is None or any(ref() is not array for ref, array in zip(known[0], values, strict=True)):
            known = self._filters[key] = [ref(array) for array in values], self._measured(weights, bits)
        self._enter(weights.tensors, "filter", *known[1])

    def _measured(self, weights: Filter, bits: int) -> Entry:
        """The quantiser of a filter, its extremes, and the share of its numbers that is clipped."""
        settings = self._settings
        items = [self._numbers(name) for name in weights.tensors]
        axis = weights.axis if settings.per_channel and items[0].shape[weights.axis or 0] > 1 else None
        levels = replace(settings.filter_levels, bits=bits)
        method = settings.filter_method or settings.range_method
        found = _extremes_of(items, axis) if method == "minmax" else None
        if found is None:
            channels = [items] if axis is None else ([part] for part in np.moveaxis(items[0], axis, 0))
            found = [_magnitude(part, levels, method, settings.percentile, weights.tensors[0]) for part in channels]
        magnitudes = [magnitude for magnitude, _, _ in found]
        quantizer: Quantizer
        if settings.form == "logarithmic":
            quantizer = powers(magnitudes[0], bits)
        else:
            signed = settings.signed or axis is not None
            quantizer = symmetric(magnitudes, bits, signed=signed, axis=axis)
        clipped = sum(outside for _, _, outside in found) / sum(item.size for item in items)
        return quantizer, _hull([extremes for _, extremes, _ in found]), clipped

    def _bias(self, bias: Bias) -> None:
        """Give a bias the scale of the accumulator, doubled until its codes fit."""
        scales = self._accumulator_scales(bias)
        if scales is None:
            self._parameter(Parameter(bias.tensors, nonzero=False))
            return
        (items,) = (self._items(name) for name in bias.tensors[:1])
        axis = bias.axis if len(scales) > 1 else None
        signed = self._settings.signed or axis is not None
        parts = [items] if axis is None else np.moveaxis(items, axis, 0)
        magnitudes = [Fraction(float(np.abs(part).max())) for part in parts]
        fitting = [_fitting(*pair, _MOST_CODES[signed]) for pair in zip(scales, magnitudes, strict=True)]
        codes = max(round_fraction(m / scale, "half_up") for m, scale in zip(magnitudes, fitting, strict=True))
        bits = 32 if signed else max(2, codes.bit_length() + 1)
        quantizer = multiples_of(fitting, bits, signed=signed, axis=axis)
        self._enter(bias.tensors, "bias", quantizer, _extremes([histogram_of(items, bias.tensors[0])]), 0.0)

    def _accumulator_scales(self, bias: Bias) -> list[Fraction] | None:
        """The scale of the accumulator that a bias is added to; one per channel where the filter has several; None if
        unknown.
        """
        data, weights = self._found.get(bias.input), self._found.get(bias.filter)
        shape = self._graph.tensors[bias.tensors[0]].shape
        if data is None or weights is None or len(bias.tensors) > 1 or not isinstance(data.quantizer, LinearQuantizer):
            return None
        (step,) = data.quantizer.scale
        if isinstance(weights.quantizer, LogarithmicQuantizer):
            return [step * weights.quantizer.value(1)]
        scales = [step * scale for scale in weights.quantizer.scale]
        if len(scales) == 1 or (bias.axis is not None and shape[bias.axis] == len(scales)):
            return scales
        return None

    def _parameter(self, parameter: Parameter) -> None:
        names = parameter.tensors
        items = np.concatenate([self._items(name).ravel() for name in names])
        extremes = _extremes([histogram_of(items, names[0])])
        quantizer = affine(*extremes, _PARAMETER_BITS, signed=self._settings.signed, nonzero=parameter.nonzero)
        self._enter(names, "parameter", quantizer, extremes, 0.0)


_Measured: TypeAlias = tuple[float, Range, float]
"""The magnitude that the quantiser of a filter, or of one of its channels, reaches; the extremes of its numbers; and
how many of them are clipped."""


def _extremes_of(parts: list[npt.NDArray[Any]], axis: int | None) -> list[_Measured] | None:
    """What is measured of a filter whose ranges are its extremes; None if an item is NaN or infinite."""
    if axis is None:
        lows, highs = [float(min(part.min() for part in parts))], [float(max(part.max() for part in parts))]
    else:
        others = tuple(other for other in range(parts[0].ndim) if other != axis)
        lows, highs = (np.asarray(end, np.float64).tolist() for end in (parts[0].min(others), parts[0].max(others)))
    if not np.isfinite([*lows, *highs]).all():
        return None
    return [(max(-low, high), (low, high), 0.0) for low, high in zip(lows, highs, strict=True)]


def _magnitude(
    parts: list[npt.NDArray[Any]], levels: Levels, method: Method, percentile: float, name: str
) -> _Measured:
    """What is measured of a filter, or of one of its channels, that is given in parts."""
    histogram = reduce(add, (histogram_of(part, name) for part in parts))
    low, high = choose(histogram, levels, method, percentile=percentile)
    magnitude = max(-low, high)
    outside = histogram.share_outside(-magnitude, magnitude) * histogram.count
    return magnitude, (histogram.min, histogram.max), outside


def _fitting(scale: Fraction, magnitude: Fraction, most: int) -> Fraction:
    """The scale, doubled until scale * most reaches the magnitude."""
    while scale * most < magnitude:
        scale *= 2
    return scale


def _widened(low: float, high: float) -> Range:
    """The range widened to four times its width about its middle, within float64; an end at 0 stays, as of functions >=
    0.
    """
    room = min(1.5 * (high - low), sys.float_info.max / 4)
    return (low if low == 0.0 else low - room, high if high == 0.0 else high + room)


def _extremes(histograms: list[Histogram]) -> Range:
    return _hull([(item.min, item.max) for item in histograms])


def _hull(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)
