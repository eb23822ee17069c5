"""A model whose constants lie in files beside it, as one file: for whoever writes a model of ONNX anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cvm.errors import LimitExceeded
from cvm.frontends.onnx.tensors import embed
from cvm.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

__all__ = ["embedded"]

_LARGEST = 2**31 - 1
"""Bytes of a file of ONNX: messages of its encoding have no more."""


def embedded(data: bytes, folder: str, limits: Limits = DEFAULT) -> bytes:
    """The file of a model that was read, given as bytes, with all constants in it.

    Those in other files are read within ``folder`` alone. Raises as `cvm.frontends.onnx.loads` for constants that it
    would not read, and `LimitExceeded` (``limit.onnx_bytes``) for a model that one file of ONNX does not hold.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    size = len(data)
    for tensor in _tensors(model.graph):
        size += embed(tensor, folder, limits, f"the constant {tensor.name!r}")
        if size > _LARGEST:
            raise LimitExceeded("limit.onnx_bytes", f"a file of ONNX has at most {_LARGEST} bytes: write a program")
    for function in model.functions:
        for tensor in _of_nodes(function.node):
            size += embed(tensor, folder, limits, f"the constant {tensor.name!r}")
    found: bytes = model.SerializeToString() if size > len(data) else data
    return found


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """The constants in attributes, and in the graphs that are attributes."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for graph in attribute.graphs:
                yield from _tensors(graph)
