"""A model of cvm-runtime, and a program as one, as plain data for documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvm.errors import LimitExceeded
from cvm.frontends.cvm_runtime.graph import DATA
from cvm.quantization.document import quantizer_document

if TYPE_CHECKING:
    from cvm.frontends.cvm_runtime import Model
    from cvm.frontends.cvm_runtime.export import Exported
    from cvm.program import Program

__all__ = ["described", "described_interface"]


def described(model: Model) -> dict[str, Any]:
    """What a model is, takes, gives and costs there. ``gas`` is None where the library refuses to say it."""
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
                "output": place,
                "shape": list(graph.shapes[node.first + place]),
                "precision": model.inferred.precisions[node.first + place],
                "storage_id": graph.storage[node.first + place],
            }
            for node in graph.nodes
            for place in range(node.outputs)
        ],
    }


def described_interface(program: Program, exported: Exported, model: Model) -> dict[str, Any]:
    """What the codes of an exported model stand for, which its own files do not say."""
    (item,) = program.inputs
    return {
        "program": program.digest,
        "input": {
            "name": exported.input,
            "variable": DATA,
            "shape": list(item.value.shape),
            "codes": [item.value.lo, item.value.hi],
            "bytes_per_element": model.interface.input_size,
            "quantizer": quantizer_document(item.quantizer),
        },
        "outputs": [
            {
                "name": output.name,
                "shape": list(shape),
                "bytes_per_element": model.interface.output_size,
                "quantizer": quantizer_document(output.quantizer),
            }
            for output, shape in zip(program.outputs, model.interface.outputs, strict=True)
        ],
    }
