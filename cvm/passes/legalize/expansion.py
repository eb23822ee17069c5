"""The nodes by which `legalize` has replaced each extension op of a program."""

from __future__ import annotations

from cvm import ops
from cvm.ops import REGISTRY
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Expansion", "expansions"]


@dataclass(frozen=True, slots=True)
class Expansion:
    """An extension op, and the nodes that compute its result in a legalised program.

    A node that several extension ops share belongs to the first of them.
    """

    node: Node
    nodes: tuple[Node, ...]
    gas_before: int
    gas_after: int


def expansions(before: VerifiedProgram, after: VerifiedProgram) -> tuple[Expansion, ...]:
    """The expansions of all extension ops of a program, in order. ``after`` is the program that `legalize` returned."""
    kept = {value.name for node in before.program.nodes for value in node.outputs}
    parts: dict[str, list[int]] = {}
    waiting: list[int] = []
    for index, node in enumerate(after.program.nodes):
        waiting.append(index)
        if node.outputs[0].name in kept:
            parts[node.outputs[0].name] = waiting
            waiting = []
    found = []
    for node, call in zip(before.program.nodes, before.calls, strict=True):
        if REGISTRY[node.op].extension:
            indices = parts[node.outputs[0].name]
            nodes = tuple(after.program.nodes[index] for index in indices)
            gas = sum(ops.get(after.program.nodes[index].op).gas(after.calls[index]) for index in indices)
            found.append(Expansion(node, nodes, ops.get(node.op).gas(call), gas))
    return tuple(found)
