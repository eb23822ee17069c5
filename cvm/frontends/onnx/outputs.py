"""A copy of a model of ONNX with further outputs, so that an engine shows tensors that it would not keep."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["dequantised_from", "operators_behind", "with_outputs"]


def with_outputs(path: str | os.PathLike[str], names: Sequence[str]) -> tuple[bytes, list[str]]:
    """The model with those of ``names`` that its nodes compute as further outputs, and the names of all outputs.

    ``path`` is a file that the reader accepted.
    """
    import onnx

    model = onnx.load(os.fspath(path))
    outputs = [value.name for value in model.graph.output]
    made = {name for node in model.graph.node for name in node.output}
    added = [name for name in names if name in made and name not in outputs]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in added)
    return model.SerializeToString(), outputs + added


def dequantised_from(path: str | os.PathLike[str]) -> dict[str, tuple[str, float, int]]:
    """For each output that a DequantizeLinear gives: the name of the codes that this reads, their scale and zero point.

    Only those with one stored scale for all codes. ``path`` is a file that the reader accepted.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(os.fspath(path)).graph
    stored = {item.name: item for item in graph.initializer}
    outputs = {value.name for value in graph.output}
    found = {}
    for node in graph.node:
        if node.op_type != "DequantizeLinear" or node.output[0] not in outputs:
            continue
        numbers = [numpy_helper.to_array(stored[name]) for name in node.input[1:] if name in stored]
        if len(numbers) == len(node.input) - 1 and all(array.size == 1 for array in numbers):
            scale, zero = float(numbers[0].reshape(-1)[0]), [int(array.reshape(-1)[0]) for array in numbers[1:]]
            found[node.output[0]] = node.input[0], scale, zero[0] if zero else 0
    return found


def operators_behind(path: str | os.PathLike[str]) -> dict[str, str]:
    """For each computed tensor of a model: the kind of its operator; behind a QuantizeLinear, of what this reads."""
    import onnx

    graph = onnx.load(os.fspath(path), load_external_data=False).graph
    makers = {name: node for node in graph.node for name in node.output}
    return {
        name: (makers.get(node.input[0], node) if node.op_type == "QuantizeLinear" else node).op_type
        for name, node in makers.items()
    }
