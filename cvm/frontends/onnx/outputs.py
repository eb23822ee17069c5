"""A copy of a model of ONNX with further outputs, so that an engine shows tensors that it would not keep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["dequantised_from", "operators_behind", "with_outputs", "with_real_outputs"]


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

    graph = onnx.load(os.fspath(path)).graph
    stored = {item.name: item for item in graph.initializer}
    outputs = {value.name for value in graph.output}
    found = {}
    for node in graph.node:
        if node.op_type != "DequantizeLinear" or node.output[0] not in outputs:
            continue
        grid = _grid(stored, node.input[1:])
        if grid is not None:
            found[node.output[0]] = node.input[0], *grid
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


def with_real_outputs(
    path: str | os.PathLike[str], names: Sequence[str]
) -> tuple[bytes, Mapping[str, tuple[str, float, int]]]:
    """The model with those of ``names`` as further outputs, dequantised: for engines that give no integers.

    The result of the DequantizeLinear that reads a tensor is taken, or of one that is added. Returns the file and, for
    each output that holds a tensor, the tensor's name with its scale and zero point. A tensor with several scales, or
    with scales that the file does not hold, is left out. ``path`` is a file that the reader accepted.
    """
    import onnx
    from onnx import helper

    model = onnx.load(os.fspath(path))
    stored = {item.name: item for item in model.graph.initializer}
    quantisers = {name: numbers for node in model.graph.node for name, numbers in _quantised(node)}
    readers = {
        node.input[0]: node
        for node in reversed(model.graph.node)
        if node.op_type == "DequantizeLinear" and not node.domain
    }
    given = {value.name for value in model.graph.output}
    found: dict[str, tuple[str, float, int]] = {}
    for name in names:
        numbers = quantisers.get(name, [])
        grid = _grid(stored, numbers)
        if grid is None:
            continue
        reader = readers.get(name)
        if reader is None or list(reader.input[1:]) != list(numbers):
            reader = helper.make_node("DequantizeLinear", [name, *numbers], [f"{name}.dequantised"])
            model.graph.node.append(reader)
        if reader.output[0] not in given:
            model.graph.output.append(onnx.ValueInfoProto(name=reader.output[0]))
        found[reader.output[0]] = name, *grid
    return model.SerializeToString(), found


_RESULTS = {"QuantizeLinear": (1, 2), "QLinearConv": (6, 7), "QLinearMatMul": (6, 7)}
"""Operators whose result is quantised: which operands are its scale and its zero point."""


def _quantised(node: Any) -> list[tuple[str, list[str]]]:
    """The result of a node that quantises, with the names of its scale and zero point."""
    places = _RESULTS.get(node.op_type)
    if places is None:
        return []
    return [(node.output[0], [node.input[at] for at in places if at < len(node.input)])]


def _grid(stored: Mapping[str, Any], names: Sequence[str]) -> tuple[float, int] | None:
    """The scale and the zero point that constants of these names hold; the zero point is 0 if it has no name.

    None if a constant is not stored or has several items.
    """
    from onnx import numpy_helper

    scale, zero = (*names, "", "")[:2]
    if any(name not in stored for name in (scale, *filter(None, [zero]))):
        return None
    items = [numpy_helper.to_array(stored[name]) for name in (scale, zero) if name]
    if any(array.size != 1 for array in items):
        return None
    return float(items[0].item()), int(items[1].item()) if zero else 0
