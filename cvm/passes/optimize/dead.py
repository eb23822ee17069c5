"""Removal of dead code: of nodes and constants that no output, no state and no tensor of the document needs."""

from __future__ import annotations

from dataclasses import replace

from cvm.ops import op_set
from cvm.passes.optimize.facts import PERMUTATIONS
from cvm.program import Program
from cvm.program.model import Exactness

__all__ = ["dead_code"]


def dead_code(program: Program) -> Program:
    """The program without the nodes and constants that nothing needs; the program itself if all are needed.

    Needed are outputs, states, and the tensors of the document that the exactness report names, except those that only
    have the elements of another value in another order; and all values that a needed node reads. No element of a kept
    value depends on a removed node. The report on a removed tensor names no value.
    """
    needed = {output.value for output in program.outputs}
    needed |= {name for state in program.state for name in (state.initial, state.update)}
    tensors = {item.value for item in program.provenance.exactness}
    nodes = []
    for node in reversed(program.nodes):
        stays = set() if node.op in PERMUTATIONS else tensors
        if any(value.name in needed or value.name in stays for value in node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    constants = tuple(constant for constant in program.constants if constant.name in needed)
    if len(nodes) == len(program.nodes) and len(constants) == len(program.constants):
        return program
    result = replace(
        program, nodes=tuple(reversed(nodes)), constants=constants, op_set=op_set(node.op for node in nodes)
    )
    present = set(result.value_names())
    exactness = tuple(_present(item, present) for item in program.provenance.exactness)
    return replace(result, provenance=replace(program.provenance, exactness=exactness))


def _present(item: Exactness, present: set[str]) -> Exactness:
    return item if item.value in present else replace(item, value="")
