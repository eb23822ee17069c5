"""The network of a model as a graph of operations, for drawing and for finding where noise enters.

Operations on constants alone are left out: they are computed when compiling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from cvm.graph import QuantizedGraph, computed_from_inputs, names_in
from cvm.records import dataclass

__all__ = ["Edge", "Network", "NetworkNode", "drops", "network"]

Edge = tuple[int, int]
"""The numbers of two nodes: the first computes what the second reads."""


@dataclass(frozen=True, slots=True)
class NetworkNode:
    """An input, a state, or an operation, with the tensors that it makes."""

    kind: str
    """The name of the operation; "input" or "state"."""
    tensors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in execution order, and the tensors between them."""

    nodes: tuple[NetworkNode, ...]
    edges: tuple[Edge, ...]


def network(graph: QuantizedGraph) -> Network:
    """The network that computes the outputs of a model from its inputs and state."""
    live = computed_from_inputs(graph)
    nodes = [
        NetworkNode("input" if tensor.kind == "external" else "state", (tensor.name,))
        for tensor in graph.tensors.values()
        if tensor.kind != "computed" and tensor.name in live
    ]
    makers = {name: number for number, node in enumerate(nodes) for name in node.tensors}
    edges: dict[Edge, None] = {}
    for operation in graph.operations:
        if not live.isdisjoint(operation.outputs):
            makers.update(dict.fromkeys(operation.outputs, len(nodes)))
            names = (name for operand in operation.inputs.values() for name in names_in(operand))
            edges.update(dict.fromkeys((makers[name], len(nodes)) for name in names if name in makers))
            nodes.append(NetworkNode(operation.name, operation.outputs))
    return Network(tuple(nodes), tuple(edge for edge in edges if edge[0] != edge[1]))


def drops(graph: QuantizedGraph, sqnr: Mapping[str, float | None]) -> dict[str, float | None]:
    """For each measured tensor, the decibels lost between the tensors that it is computed from and itself.

    The tensors that it is computed from are the nearest measured ones, through unmeasured ones; the lowest SQNR among
    them counts. None if there are none, or a ratio is not defined.
    """
    before = {
        name: ratio for name, ratio in sqnr.items() if graph.tensors[name].kind != "computed" and ratio is not None
    }
    lost: dict[str, float | None] = dict.fromkeys(sqnr)
    for operation in graph.operations:
        names = {name for operand in operation.inputs.values() for name in names_in(operand)}
        lowest = min((before[name] for name in names if name in before), default=None)
        for output in operation.outputs:
            own = sqnr.get(output)
            if own is not None and lowest is not None:
                lost[output] = _difference(lowest, own)
            kept = own if output in sqnr else lowest
            if kept is not None:
                before[output] = kept
    return lost


def _difference(before: float, after: float) -> float | None:
    if before == after:
        return 0.0 if before != -math.inf else None
    return before - after
