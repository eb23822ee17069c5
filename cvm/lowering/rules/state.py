"""Variables that are updated (NNEF 1.0.1 section 4.8) become state of the program.

A variable is only read through its quantiser, so only its codes need to be stored. New codes are stored when a run has
ended. Every operation of a run reads the codes from the end of the previous run.
"""

from __future__ import annotations

from cvm.errors import Location, Unsupported
from cvm.graph import GraphTensor
from cvm.lowering.claims import SHARED_LABEL, exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import Known
from cvm.lowering.forms.logarithms import codes_of_known
from cvm.lowering.forms.unquantized import unquantized
from cvm.lowering.parts.operands import codes

__all__ = ["introduce_state", "updated_variables"]


def updated_variables(lowering: Lowering) -> frozenset[str]:
    """The names of the variables that an operation updates.

    Raises `Unsupported` if such a variable shares its data with another one, that is, if their labels are equal except
    for upper and lower case.
    """
    graph = lowering.graph
    updated = {operation.inputs["variable"] for operation in graph.operations if operation.name == "update"}
    names = frozenset(name for name in updated if isinstance(name, str))
    for name in sorted(names):
        label = graph.tensors[name].label
        for other in graph.tensors.values():
            if other.name != name and label and other.label and other.label.lower() == label.lower():
                message = f"the variables {name!r} and {other.name!r} share the data of one label, and one is updated"
                raise Unsupported("lowering.operation", message, _at(graph.tensors[name]))
    return names


def introduce_state(lowering: Lowering, tensor: GraphTensor) -> None:
    """Enter a variable as state, with its contents as the initial value."""
    quantizer = tensor.quantizer
    if quantizer is None:
        raise unquantized(
            "a variable that is updated needs a quantiser in graph.quant: the program keeps its codes",
            _at(tensor),
        )
    lowering.introduce(tensor)
    known: Known = lowering.known.pop(tensor.name)
    initial = lowering.builder.constant(codes_of_known(known, quantizer), name=f"{tensor.name}.initial")
    state = lowering.builder.state(tensor.name, initial, quantizer.lo, quantizer.hi)
    lowering.hold(tensor, Value(state, lowering))


def _at(tensor: GraphTensor) -> Location:
    at = tensor.location
    return Location(at.file, at.line, at.column, tensor.name)


@rule("update", claim=exact("the codes of the variable are state, committed after the run", SHARED_LABEL))
def update(lowering: Lowering) -> list[Result]:
    """The value becomes the content of the variable in the next cycle. The result is the value itself."""
    name = lowering.operation.inputs["variable"]
    assert isinstance(name, str)
    quantizer = lowering.graph.tensors[name].quantizer
    assert quantizer is not None
    lowering.builder.update(name, codes(lowering, "value", quantizer).name)
    return [lowering.operand("value")]
