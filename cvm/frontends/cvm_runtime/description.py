"""A model of cvm-runtime as plain data, for JSON documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvm.errors import LimitExceeded
from cvm.frontends.cvm_runtime.graph import DATA

if TYPE_CHECKING:
    from cvm.frontends.cvm_runtime import Model

__all__ = ["described"]


def described(model: Model) -> dict[str, Any]:
    """A summary of a model: its input, its outputs and its costs. ``gas`` is None where the library refuses to compute
    it.
    """
    graph, interface, metering = model.graph, model.interface, model.metering
    gas, refusal = None, None
    try:
        gas = metering.gas
    except LimitExceeded as error:
        refusal = error.to_json()
    return {
        "format": "cvm-runtime",
        "format_version": graph.version,
        "postprocess": graph.postprocess,
        "nodes": sum(node.operator is not None for node in graph.nodes),
        "parameters": len(graph.variables) - 1,
        "input": {
            "name": DATA,
            "shape": list(interface.shape),
            "precision": interface.precision,
            "bytes_per_element": interface.input_size,
            "bytes": interface.input_length,
            "clamped_to": [-interface.clamped, interface.clamped],
        },
        "output": {
            "shapes": list(map(list, interface.outputs)),
            "bytes_per_element": interface.output_size,
            "bytes": interface.output_length,
        },
        "gas": gas,
        "gas_refusal": refusal,
        "gas_of_ops": metering.ops,
        "gas_of_memory": metering.memory,
        "storage_bytes": metering.storage,
        "entries": [
            {
                "node": node.name,
                "op": None if node.operator is None else node.operator.name,
                "output": index,
                "shape": list(graph.shapes[node.first + index]),
                "precision": model.inferred.precisions[node.first + index],
                "storage_id": graph.storage[node.first + index],
            }
            for node in graph.nodes
            for index in range(node.outputs)
        ],
    }
