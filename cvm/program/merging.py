"""Several programs side by side in one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cvm.program.model import Input, Node, Output, State, Value
from cvm.program.program import Program

__all__ = ["merged"]


def merged(programs: Sequence[Program]) -> Program:
    """One program made of several: every name begins with ``p`` and the number of its program."""
    parts = [_renamed(program, f"p{number}.") for number, program in enumerate(programs)]
    return Program(
        inputs=tuple(one for part in parts for one in part.inputs),
        outputs=tuple(one for part in parts for one in part.outputs),
        constants=tuple(one for part in parts for one in part.constants),
        state=tuple(one for part in parts for one in part.state),
        nodes=tuple(one for part in parts for one in part.nodes),
        op_set=max((part.op_set for part in parts), default=1),
    )


def _renamed(program: Program, prefix: str) -> Program:
    def named(value: Value) -> Value:
        return replace(value, name=prefix + value.name)

    return replace(
        program,
        inputs=tuple(Input(named(one.value), one.quantizer) for one in program.inputs),
        outputs=tuple(Output(prefix + one.name, prefix + one.value, one.quantizer) for one in program.outputs),
        constants=tuple(replace(one, name=prefix + one.name) for one in program.constants),
        state=tuple(State(named(one.value), prefix + one.initial, prefix + one.update) for one in program.state),
        nodes=tuple(
            Node(node.op, tuple(prefix + name for name in node.inputs), tuple(map(named, node.outputs)),
                 node.attributes)
            for node in program.nodes
        ),
    )  # fmt: skip
