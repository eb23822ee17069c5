"""The operations that make and that read each tensor of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cvm.graph.model import GraphOperation, Operand, QuantizedGraph

__all__ = ["REARRANGING", "computed_from_inputs", "makers", "names_in", "readers"]

REARRANGING = frozenset(("copy", "gather", "reshape", "slice", "squeeze", "tile", "transpose", "unsqueeze"))
"""Operations whose result consists of elements of their first operand, in any order and any number of times each."""


def names_in(operand: Operand) -> Iterator[str]:
    """The names of the tensors in an operand."""
    if isinstance(operand, str):
        yield operand
    elif isinstance(operand, tuple):
        for item in operand:
            yield from names_in(item)


def makers(operations: Iterable[GraphOperation]) -> dict[str, GraphOperation]:
    """The operation that computes each tensor, by the name of the tensor."""
    return {name: operation for operation in operations for name in operation.outputs}


def readers(operations: Iterable[GraphOperation]) -> dict[str, list[tuple[GraphOperation, str]]]:
    """The operations that read each tensor, in order, each with the name of the parameter through which it reads it."""
    found: dict[str, list[tuple[GraphOperation, str]]] = {}
    for operation in operations:
        for parameter, operand in operation.inputs.items():
            for name in names_in(operand):
                found.setdefault(name, []).append((operation, parameter))
    return found


def computed_from_inputs(graph: QuantizedGraph) -> frozenset[str]:
    """The tensors that depend on an input or on state."""
    updated = {operation.inputs["variable"] for operation in graph.operations if operation.name == "update"}
    found = {tensor.name for tensor in graph.tensors.values() if tensor.kind == "external" or tensor.name in updated}
    for operation in graph.operations:
        if any(name in found for operand in operation.inputs.values() for name in names_in(operand)):
            found.update(operation.outputs)
    return frozenset(found)
