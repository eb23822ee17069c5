"""Stored contents as codes: a model with a quantization file stores codes in place of floats."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.graph import GraphTensor, QuantizedGraph, TensorData, verify
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.calibration.levels import power_exponents
from cvm.quantization.exact import code, quantize
from cvm.reference.values import stored

__all__ = ["with_codes"]

Codes: TypeAlias = npt.NDArray[np.int64]


def with_codes(graph: QuantizedGraph) -> QuantizedGraph:
    """The graph with the contents of its quantised variables rounded once, to codes of their quantisers.

    Powers of two are stored as floats: tensor files have no code of a logarithmic quantiser for zero.
    """
    tensors = {name: _coded(tensor) for name, tensor in graph.tensors.items()}
    return verify(replace(graph, tensors=MappingProxyType(tensors)), "the storage of codes")


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
        codes = _recoded(data.values.astype(np.int64), data.quantizer, quantizer)
    kind = "u" if quantizer.lo == 0 else "i"
    largest = max(-quantizer.lo - 1, quantizer.hi)
    width = next(bits // 8 for bits in (8, 16, 32, 64) if largest < 2 ** (bits - (kind == "i")))
    return TensorData(codes.astype(f"{kind}{width}"), quantizer)


def _recoded(codes: Codes, old: Quantizer, new: LinearQuantizer) -> Codes:
    """Codes of one quantiser as codes of another; each distinct code is rounded once, from its exact number."""
    old_axis = None if isinstance(old, LogarithmicQuantizer) else old.axis
    channels = [_channels(codes, axis).ravel() for axis in (old_axis, new.axis)]
    cases, indices = np.unique(np.stack([codes.ravel(), *channels]), axis=1, return_inverse=True)
    found = [code(_number(old, item, i), new, j) for item, i, j in cases.T.tolist()]
    return np.array(found, np.int64)[indices.ravel()].reshape(codes.shape)


def _channels(codes: Codes, axis: int | None) -> Codes:
    """The index of each element along an axis; 0 where there is no axis."""
    return np.zeros(codes.shape, np.int64) if axis is None else np.indices(codes.shape)[axis]


def _number(quantizer: Quantizer, item: int, channel: int) -> Fraction:
    if isinstance(quantizer, LogarithmicQuantizer):
        return quantizer.value(item)
    return quantizer.offset[channel] + quantizer.scale[channel] * item


def _powers(tensor: GraphTensor, quantizer: LogarithmicQuantizer) -> TensorData:
    assert tensor.data is not None
    items = stored(tensor.data, tensor).astype(np.float64)
    exponents = np.clip(power_exponents(items), quantizer.top - quantizer.hi + 1, quantizer.top)
    powers = np.sign(items) * np.exp2(exponents.astype(np.float64))
    narrow = powers.astype(np.float32)
    return TensorData(narrow if np.array_equal(narrow, powers) else powers)
