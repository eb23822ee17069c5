"""The files of a program that is exported as a model of cvm-runtime."""

from __future__ import annotations

import json
from typing import Any

from cvm.export.cvm_runtime.exporter import Exported, exported
from cvm.frontends.cvm_runtime import Model, read_model, read_parameters
from cvm.frontends.cvm_runtime.compat import require_defined
from cvm.frontends.cvm_runtime.graph import DATA
from cvm.frontends.cvm_runtime.importer import check_parameters
from cvm.frontends.cvm_runtime.parameters import write_parameters
from cvm.program import Program
from cvm.quantization.document import quantizer_document
from cvm.records import dataclass

__all__ = ["Files", "saved"]


@dataclass(frozen=True, eq=False, slots=True)
class Files:
    """A program as a model: the exported model, and the bytes of the files by name."""

    model: Model
    content: dict[str, bytes]


def saved(program: Program) -> Files:
    """The files of a program as a model of the library.

    ``model.json`` and ``model.params`` are files of the library; ``interface.json`` states the meaning of the codes of
    input and outputs. The files are read again, as any model, before they are returned. Raises what `exported` raises.
    """
    made = exported(program)
    text, parameters = made.text.encode("utf-8"), write_parameters(made.arrays)
    model = read_model(text, "cvm-1")
    check_parameters(model.graph, read_parameters(parameters))
    require_defined(model.inferred)
    interface = json.dumps(_interface(program, made, model), indent=1).encode("utf-8") + b"\n"
    return Files(model, {"model.json": text, "model.params": parameters, "interface.json": interface})


def _interface(program: Program, exported: Exported, model: Model) -> dict[str, Any]:
    """The meaning of the codes of an exported model, which the files of the library do not state."""
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
