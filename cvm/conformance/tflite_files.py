"""Layers written as files of TFLite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cvm.conformance.cases import Array, Layer

__all__ = ["tflite_model"]


def tflite_model(layer: Layer, options: str) -> tuple[bytes, dict[str, Array]]:
    """The file of a layer, and the codes of its inputs. ``options`` is the class of the operator's options."""
    from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written

    tensors, inputs, given = [], [], {}
    for number, item in enumerate(layer.inputs):
        zeros = [item.zero] * len(item.scales)
        values = item.values if item.stored else None
        tensors.append(Tensor(item.values.shape, item.data_type, item.scales, zeros, item.axis, values, f"x{number}"))
        if not item.stored:
            inputs.append(number)
            given[f"x{number}"] = item.values.astype(item.data_type)
    result = len(tensors)
    tensors.append(Tensor(layer.shape, layer.data_type, (layer.scale,), (layer.zero,), name="y"))
    attributes: Mapping[str, Any] = layer.attributes
    operator = Operator(layer.op, tuple(range(result)), (result,), options, attributes)
    return written(Graph(tensors, (operator,), inputs, (result,))), given
