"""Stored contents as codes: what is written beside a quantization file in place of floats."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from cvm.frontends.nnef.reference.values import stored
from cvm.graph import GraphTensor, QuantizedGraph, TensorData
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.calibration.levels import power_exponents
from cvm.quantization.exact import quantize, quantize_rationals
from cvm.quantization.rationals import Rationals

__all__ = ["with_codes"]


def with_codes(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph with the contents of its quantised variables rounded once: codes of the quantiser of each.

    Powers of two, for which tensor files have no codes of a zero, are stored as the floats that they are.
    """
    tensors = {name: _coded(tensor) for name, tensor in graph.tensors.items()}
    return replace(graph, tensors=MappingProxyType(tensors))


def _coded(tensor: GraphTensor) -> GraphTensor:
    match tensor:
        case GraphTensor(kind="variable", data=TensorData() as data, quantizer=LinearQuantizer() as quantizer):
            return replace(tensor, data=_codes(data, quantizer))
        case GraphTensor(kind="variable", data=TensorData(), quantizer=LogarithmicQuantizer() as quantizer):
            return replace(tensor, data=_powers(tensor, quantizer))
    return tensor


def _codes(data: TensorData, quantizer: LinearQuantizer) -> TensorData:
    if data.quantizer is None:
        codes = quantize(data.values, quantizer)
    else:
        codes = quantize_rationals(_rationals(data), quantizer)
    kind = "u" if quantizer.lo == 0 else "i"
    widths = (bits // 8 for bits in (8, 16, 32) if quantizer.hi < 2 ** (bits - (kind == "i")))
    return TensorData(codes.astype(f"{kind}{next(widths)}"), quantizer)


def _rationals(data: TensorData) -> Rationals:
    """The exact numbers that codes stand for."""
    quantizer = data.quantizer
    if isinstance(quantizer, LogarithmicQuantizer):
        return Rationals.of((quantizer.value(int(code)) for code in data.values.ravel()), data.values.shape)
    assert quantizer is not None
    axis = quantizer.axis
    channels = np.zeros(data.values.shape, np.int64) if axis is None else np.indices(data.values.shape)[axis]
    pairs = zip(data.values.ravel().tolist(), channels.ravel().tolist(), strict=True)
    numbers = (Fraction(quantizer.offset[i] + quantizer.scale[i] * int(code)) for code, i in pairs)
    return Rationals.of(numbers, data.values.shape)


def _powers(tensor: GraphTensor, quantizer: LogarithmicQuantizer) -> TensorData:
    assert tensor.data is not None
    items = stored(tensor.data, tensor).astype(np.float64)
    exponents = np.clip(power_exponents(items), quantizer.top - quantizer.hi + 1, quantizer.top)
    powers = np.sign(items) * np.exp2(exponents.astype(np.float64))
    narrow = powers.astype(np.float32)
    return TensorData(narrow if np.array_equal(narrow, powers) else powers)
