"""The check that a graph is what `cvm.graph.model` promises: a table of rules, applied in one walk after every stage.

A graph that breaks a rule shows a defect of the stage that made it: a front end, or a pass over graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cvm.errors import CvmError, Invalid, Location
from cvm.graph.declaration import Declaration, declarations
from cvm.graph.model import Attribute, GraphOperation, GraphTensor, Operand, QuantizedGraph
from cvm.graph.shapes import Shape, ShapeCall, infer_shapes
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["RULES", "Rule", "Walk", "broken", "shapes_of_results", "verify"]


@dataclass(slots=True)
class Walk:
    """The arguments of a rule: the graph, one operation, its declaration, and the tensors that exist before it."""

    graph: QuantizedGraph
    operation: GraphOperation
    declared: Declaration
    known: set[str]

    def names(self) -> Iterator[str]:
        """The tensors that the operation reads."""
        pending = list(self.operation.inputs.values())
        while pending:
            operand = pending.pop()
            if isinstance(operand, tuple):
                pending.extend(operand)
            elif isinstance(operand, str):
                yield operand


@dataclass(frozen=True, slots=True)
class Rule:
    """A labelled rule; a rule may rely on the earlier ones."""

    label: str
    text: str
    holds: Callable[[Walk], bool]


def _arrays(walk: Walk) -> bool:
    operands = walk.operation.inputs
    return all(isinstance(operands[item.name], tuple) == item.many for item in walk.declared.inputs)


def _single(walk: Walk) -> bool:
    outputs = walk.operation.outputs
    made = all(name in walk.graph.tensors and walk.graph.tensors[name].kind == "computed" for name in outputs)
    return made and len(set(outputs)) == len(outputs) and not walk.known.intersection(outputs)


def shapes_of_results(
    op: str, inputs: Mapping[str, Operand], attributes: Mapping[str, Attribute], tensors: Mapping[str, GraphTensor]
) -> list[Shape]:
    """The shapes that the rule of an operation infers, arrays of results flattened. Raises the errors of that rule."""

    def shape(operand: Operand) -> Any:
        if isinstance(operand, tuple):
            return [shape(item) for item in operand]
        return tensors[operand].shape if isinstance(operand, str) else ()

    shapes = {name: shape(operand) for name, operand in inputs.items()}
    found: list[Shape] = []
    for result in infer_shapes(ShapeCall(op, shapes, attributes, wide_bias=True)):
        found += result if isinstance(result, list) else [result]
    return found


def _shapes(walk: Walk) -> bool:
    operation, tensors = walk.operation, walk.graph.tensors
    inferred = shapes_of_results(operation.name, operation.inputs, operation.attributes, tensors)
    found = [tensors[name].shape for name in operation.outputs]
    if len(found) != len(inferred):
        return False
    # Front ends that represent a number as a tensor of one element have no rank 0.
    return all(one == other or {one, other} == {(), (1,)} for one, other in zip(inferred, found, strict=True))


def _dtypes(walk: Walk) -> bool:
    """A result declared logical is logical, one declared a number is not; integers may stand for real numbers."""
    if any(item.many or "?" in item.type for item in walk.declared.results):
        return True
    found = [walk.graph.tensors[name].dtype == "logical" for name in walk.operation.outputs]
    return found == ["logical" in item.type for item in walk.declared.results]


def _scales_fit(tensor: GraphTensor) -> bool:
    quantizer = tensor.quantizer
    if not isinstance(quantizer, LinearQuantizer) or quantizer.axis is None:
        return True
    return quantizer.axis < len(tensor.shape) and len(quantizer.scale) in (1, tensor.shape[quantizer.axis])


_SCALES = "a quantiser per channel has one scale for each index of an axis of the tensor"

RULES = (
    Rule(
        "inputs",
        "the inputs are those of the declaration",
        lambda walk: set(walk.operation.inputs) == {item.name for item in walk.declared.inputs},
    ),
    Rule(
        "attributes",
        "the attributes are those of the declaration, defaults included",
        lambda walk: set(walk.operation.attributes) == {item.name for item in walk.declared.attributes},
    ),
    Rule(
        "types",
        "attributes are exact values of the declared types",
        lambda walk: all(item.admits(walk.operation.attributes[item.name]) for item in walk.declared.attributes),
    ),
    Rule("arrays", "arrays of tensors are where they are declared", _arrays),
    Rule("order", "operands are computed or introduced before", lambda walk: walk.known.issuperset(walk.names())),
    Rule("single", "each result is a computed tensor of the graph that nothing else computes", _single),
    Rule("shapes", "the results have the shapes that the shape rule infers", _shapes),
    Rule("dtypes", "the results have the declared data types", _dtypes),
    Rule(
        "quantizers",
        _SCALES,
        lambda walk: all(_scales_fit(walk.graph.tensors[name]) for name in walk.operation.outputs),
    ),
)
"""The rules that every operation must keep, in the order in which they are checked."""


def verify(graph: QuantizedGraph, stage: str) -> QuantizedGraph:
    """Return the graph itself after one walk over its operations; ``stage`` names the stage that made it, for messages.

    Raises `Invalid` with code ``graph.<label>`` for the first rule that is broken, ``graph.operation`` for an operation
    that is not declared, ``graph.boundary`` for an input or output that is not a tensor of the graph.
    """
    known = {name for name, tensor in graph.tensors.items() if tensor.kind != "computed"}
    if any(name not in known or graph.tensors[name].kind != "external" for name in graph.inputs):
        raise Invalid("graph.boundary", f"{stage}: an input of the graph is not an external tensor")
    for name in known:
        if not _scales_fit(graph.tensors[name]):
            raise Invalid(
                "graph.quantizers", f"{stage} made a tensor that breaks the rule: {_SCALES}", Location(tensor=name)
            )
    for operation in graph.operations:
        declared = declarations().get(operation.name)
        if declared is None:
            raise broken(stage, operation.name, operation.outputs, "operation", "no operation of a graph has this name")
        walk = Walk(graph, operation, declared, known)
        for rule in RULES:
            try:
                holds, detail = rule.holds(walk), ""
            except CvmError as error:
                holds, detail = False, f": {error.message}"
            if not holds:
                raise broken(stage, operation.name, operation.outputs, rule.label, rule.text + detail)
        known.update(operation.outputs)
    if not known.issuperset(graph.outputs):
        raise Invalid("graph.boundary", f"{stage}: an output of the graph is not a tensor of it")
    return graph


def broken(stage: str, op: str, outputs: Sequence[str], label: str, text: str) -> Invalid:
    """The error of a stage that made, or would make, an operation that breaks a rule."""
    location = Location(op=op, tensor=outputs[0] if outputs else None)
    return Invalid(f"graph.{label}", f"{stage} made an operation {op} that breaks the rule: {text}", location)
