"""Stored float tensors of a graph whose contents calibration may change, because only one operation reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.blocks import finite
from cvm.calibration.roles import Uses, moved_operands
from cvm.graph import GraphTensor, Operand, QuantizedGraph, TensorData

__all__ = ["Floats", "contents", "in_type_of", "owned", "stored_floats", "with_contents"]

Floats: TypeAlias = npt.NDArray[np.float64]

_REARRANGING = frozenset(("copy", "reshape", "squeeze", "unsqueeze"))
"""Operations that keep all elements in their order."""


def owned(uses: Uses, operand: Operand) -> str | None:
    """The stored float tensor whose elements, in this order, make up an operand; None where another operation reads it.

    Also None for a tensor with codes or a quantiser of its own, a variable that `update` writes, a variable that shares
    its label with another one, and an output.
    """
    if not isinstance(operand, str) or not uses.fixed(operand):
        return None
    name = operand
    while uses.only_reader(name) is not None:
        maker = uses.made_by.get(name)
        if maker is None:
            return name if _holds_floats(uses.graph, uses.graph.tensors[name]) else None
        if maker.name not in _REARRANGING:
            return None
        (name,) = moved_operands(maker)
    return None


def _holds_floats(graph: QuantizedGraph, tensor: GraphTensor) -> bool:
    data = tensor.data
    if tensor.quantizer is not None or data is None or data.quantizer is not None or data.values.dtype.kind != "f":
        return False
    if tensor.dtype != "scalar" or not finite(data.values):
        return False
    labels = [item.label.lower() for item in graph.tensors.values() if item.label is not None]
    return tensor.label is None or labels.count(tensor.label.lower()) == 1


def stored_floats(graph: QuantizedGraph, name: str) -> npt.NDArray[Any]:
    """The numbers of a tensor that `owned` found, in the floating-point type in which they are stored."""
    data = graph.tensors[name].data
    assert data is not None
    return data.values


def contents(graph: QuantizedGraph, name: str) -> Floats:
    """The numbers of a tensor that `owned` found, in float64."""
    return stored_floats(graph, name).astype(np.float64)


def in_type_of(graph: QuantizedGraph, name: str, values: Floats) -> npt.NDArray[Any]:
    """Numbers in the floating-point type of the tensor, each rounded to it."""
    data = graph.tensors[name].data
    assert data is not None
    with np.errstate(all="ignore"):
        return values.astype(data.values.dtype)


def with_contents(graph: QuantizedGraph, changed: Mapping[str, npt.NDArray[Any]]) -> QuantizedGraph:
    """The graph with other contents in some stored tensors, not verified: that takes long, and callers change many."""
    tensors = dict(graph.tensors)
    for name, values in changed.items():
        tensors[name] = replace(tensors[name], data=TensorData(values))
    return replace(graph, tensors=MappingProxyType(tensors))
