"""The last pass over a lowered program removes all that no output needs, and names values after their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cvm.ops import op_set
from cvm.program import Program
from cvm.program.model import Constant, Exactness, Input, Node, Output, State, Value

__all__ = ["finished"]


def finished(program: Program, values: Mapping[str, str]) -> Program:
    """The program without dead nodes and constants. Values get the names of the tensors whose codes they hold.

    ``values`` gives the value that holds the codes of each quantised tensor of the graph. A value that holds several
    tensors gets the name of the first one. Inputs keep their names.
    """
    nodes, constants = _live(program)
    taken = {item.value.name for item in program.inputs} | {item.value.name for item in program.state}
    names: dict[str, str] = {name: name for name in taken}
    written = [constant.name for constant in constants] + [value.name for node in nodes for value in node.outputs]
    live = set(written)
    for tensor, value in values.items():
        if value in live and value not in names and tensor not in taken:
            names[value] = tensor
            taken.add(tensor)
    for name in written:
        if name not in names:
            names[name] = _fresh(name, taken)
            taken.add(names[name])

    def renamed(value: Value) -> Value:
        return replace(value, name=names[value.name])

    return Program(
        inputs=tuple(Input(renamed(item.value), item.quantizer) for item in program.inputs),
        outputs=tuple(Output(item.name, names[item.value], item.quantizer) for item in program.outputs),
        constants=tuple(replace(constant, name=names[constant.name]) for constant in constants),
        state=tuple(State(renamed(s.value), names[s.initial], names[s.update]) for s in program.state),
        nodes=tuple(
            Node(
                node.op,
                tuple(names[name] for name in node.inputs),
                tuple(renamed(value) for value in node.outputs),
                node.attributes,
            )
            for node in nodes
        ),
        op_set=op_set(node.op for node in nodes),
        limits=program.limits,
        provenance=replace(
            program.provenance, exactness=tuple(_named(item, names) for item in program.provenance.exactness)
        ),
    )


def _live(program: Program) -> tuple[list[Node], list[Constant]]:
    """The nodes and constants that an output or a state needs."""
    needed = {output.value for output in program.outputs} | {s.update for s in program.state}
    needed |= {s.initial for s in program.state}
    nodes = []
    for node in reversed(program.nodes):
        if any(value.name in needed for value in node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    return nodes[::-1], [constant for constant in program.constants if constant.name in needed]


def _fresh(name: str, taken: set[str]) -> str:
    """``name``, or the first of ``name_1``, ``name_2``, .. that is not taken."""
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _named(item: Exactness, names: Mapping[str, str]) -> Exactness:
    """The report on a tensor with the new name of its value, which is empty if no output needs the value."""
    return replace(item, value=names.get(item.value, ""))
