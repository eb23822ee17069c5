"""The graph of a model, cut at the tensors that an engine shows, so that each operator is judged by itself.

The cut graph has a further input for every tensor that the engine shows, and its operators read these inputs. Given the
engine's codes there, the graph computes what each operator of the engine should have made of its own operands. Where
the engine has other codes, this operator is not exact; errors of the operators before it do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cvm.errors import Location, Unsupported
from cvm.frontends.common.places import Place
from cvm.graph import GraphOperation, GraphTensor, Operand, QuantizedGraph, names_in

__all__ = ["exposed", "made", "seen", "severed"]


def seen(number: int) -> str:
    """The input of the severed graph that takes the engine's codes of a place."""
    return f"seen.{number}"


def made(number: int) -> str:
    """The output with the exact codes of a place."""
    return f"made.{number}"


def exposed(graph: QuantizedGraph, places: Sequence[Place]) -> QuantizedGraph:
    """The graph with the codes of all places as its outputs. Raises `Unsupported` for a graph with state."""
    return _with_outputs(graph, graph.inputs, graph.tensors, graph.operations, places)


def severed(graph: QuantizedGraph, places: Sequence[Place]) -> QuantizedGraph:
    """A graph that computes each place by itself: its operators read the engine's codes, not those of other operators.

    Inputs are those of ``graph`` and `seen` of each place that an operator reads; outputs are `made` of each place.
    Raises `Unsupported` for a graph with state.
    """
    twins: dict[str, str] = {}
    tensors = dict(graph.tensors)
    for number, place in enumerate(places):
        if place.tensor in twins:
            continue
        twins[place.tensor] = seen(number)
        tensor = graph.tensors[place.tensor]
        tensors[seen(number)] = replace(tensor, name=seen(number), kind="external", quantizer=place.quantizer)
    operations = [
        replace(operation, inputs={key: _renamed(operand, twins) for key, operand in operation.inputs.items()})
        for operation in graph.operations
    ]
    return _with_outputs(graph, [*graph.inputs, *twins.values()], tensors, operations, places)


def _renamed(operand: Operand, names: dict[str, str]) -> Operand:
    if isinstance(operand, tuple):
        return tuple(_renamed(item, names) for item in operand)
    return names.get(operand, operand) if isinstance(operand, str) else operand


def _with_outputs(
    graph: QuantizedGraph,
    inputs: Sequence[str],
    tensors: Mapping[str, GraphTensor],
    operations: Iterable[GraphOperation],
    places: Sequence[Place],
) -> QuantizedGraph:
    """The graph with one output for each place, without what these do not need."""
    known = dict(tensors)
    if any(operation.name == "update" for operation in graph.operations):
        message = "models with state are not compared: give the model without its state, or its state as an input"
        raise Unsupported("compare.state", message)
    copies = []
    for number, place in enumerate(places):
        tensor = known[place.tensor]
        known[made(number)] = GraphTensor(
            made(number), tensor.shape, "computed", quantizer=place.quantizer, location=Location(tensor=place.name)
        )
        copies.append(GraphOperation("copy", {"x": place.tensor}, {}, (made(number),), Location(tensor=place.name)))
    outputs = tuple(made(number) for number in range(len(places)))
    needed = set(outputs)
    kept: list[GraphOperation] = []
    for operation in reversed([*operations, *copies]):
        if needed.intersection(operation.outputs):
            kept.append(operation)
            needed.update(name for operand in operation.inputs.values() for name in names_in(operand))
            needed.update(operation.outputs)
    return QuantizedGraph(
        graph.name,
        tuple(name for name in inputs if name in needed),
        outputs,
        {name: tensor for name, tensor in known.items() if name in needed},
        tuple(reversed(kept)),
    )
