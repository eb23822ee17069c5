"""The part of a program that some of its outputs need, and a program that returns all its values."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cvm.ops import op_set
from cvm.program import Output, Program

__all__ = ["pruned", "with_all_outputs"]


def pruned(program: Program, outputs: Collection[str]) -> Program:
    """The program with only the outputs of these names, and the nodes, constants, state and inputs that they need."""
    kept = tuple(output for output in program.outputs if output.name in outputs)
    needed = {output.value for output in kept}
    states = {one.value.name: one for one in program.state}
    while True:
        for node in reversed(program.nodes):
            if any(value.name in needed for value in node.outputs):
                needed.update(node.inputs)
        more = {name for one in states.values() if one.value.name in needed for name in (one.update, one.initial)}
        if more <= needed:
            break
        needed |= more
    nodes = tuple(node for node in program.nodes if any(value.name in needed for value in node.outputs))
    return replace(
        program,
        op_set=op_set(node.op for node in nodes),
        inputs=tuple(one for one in program.inputs if one.value.name in needed),
        outputs=kept,
        constants=tuple(one for one in program.constants if one.name in needed),
        state=tuple(one for one in program.state if one.value.name in needed),
        nodes=nodes,
    )


def with_all_outputs(program: Program) -> Program:
    """The program with every result of a node as an output, as if all tensors were captured."""
    known = {output.value for output in program.outputs}
    values = [value.name for node in program.nodes for value in node.outputs if value.name not in known]
    more = tuple(Output(f"captured {number}", name) for number, name in enumerate(values))
    return replace(program, outputs=(*program.outputs, *more))
