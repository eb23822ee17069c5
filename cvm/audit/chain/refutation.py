"""Refutations: what shows that the record of a run contradicts the program, or the trace that it names itself."""

from __future__ import annotations

from typing import Any

from cvm.audit.dispute import OpenProgram
from cvm.audit.dispute.cursor import Cursor
from cvm.audit.receipt import Run
from cvm.audit.trace import Trace
from cvm.program.commitments import ProgramClaim, counted_root, records
from cvm.program.merkle import Tree
from cvm.records import dataclass

__all__ = ["Refutation", "read_run", "refutation"]


@dataclass(frozen=True, slots=True)
class Refutation:
    """The opening of ``RunOpening.Opening``, and whether it is about a state rather than an output."""

    state: bool
    opening: tuple[Any, ...]


def read_run(record: bytes) -> Run:
    """The run whose record is ``record``. Raises `Malformed` for bytes that are none."""
    cursor = Cursor(record)
    cursor.tag(b"cvm1:run\0")
    inputs, before, outputs, after = (cursor.roots() for _ in range(4))
    trace = cursor.root() if cursor.flag() else None
    cursor.end()
    return Run(inputs, before, outputs, after, trace)


def refutation(program: OpenProgram, trace: Trace, run: Run) -> Refutation | None:
    """What refutes ``run``, whose trace is ``trace``; None if the run is what its trace says."""
    model, roots = program.program, _roots(program, trace)
    outputs, updates = [item.value for item in model.outputs], [item.update for item in model.state]
    counts = (len(model.inputs), len(model.state), len(outputs), len(updates))
    if tuple(map(len, (run.inputs, run.before, run.outputs, run.after))) != counts:
        return Refutation(False, _opening(program, trace, False, None))
    for state, names, stated in ((False, outputs, run.outputs), (True, updates, run.after)):
        for number, (name, root) in enumerate(zip(names, stated, strict=True)):
            if roots[name] != root:
                return Refutation(state, _opening(program, trace, state, number))
    return None


def _roots(program: OpenProgram, trace: Trace) -> dict[str, bytes]:
    """The root of every value of a run, by name."""
    model = program.program
    found = {item.value.name: root for item, root in zip(model.inputs, trace.inputs, strict=True)}
    found |= {item.value.name: root for item, root in zip(model.state, trace.before, strict=True)}
    found |= {name: _constant_root(program, name) for name in program.constant_arrays}
    for node, roots in zip(model.nodes, trace.steps, strict=True):
        found |= {value.name: root for value, root in zip(node.outputs, roots, strict=True)}
    return found


def _constant_root(program: OpenProgram, name: str) -> bytes:
    index = program.names.index(name) - program.lists[2].count
    return bytes(records(program.program).constants[index][-32:])


def _opening(program: OpenProgram, trace: Trace, state: bool, number: int | None) -> tuple[Any, ...]:
    """The opening of one output or state; without a number, of the program alone."""
    model = program.program
    lists = tuple((item.count, item.root) for item in program.lists)
    preimage = ProgramClaim(model.op_set, model.limits, *(counted_root(*item) for item in lists)).preimage()
    if number is None:
        return (preimage, lists, 0, b"", (), 0, b"", (), b"", (), bytes(32))
    parts = records(model)
    named = parts.state if state else parts.outputs
    name = model.state[number].update if state else model.outputs[number].value
    tree = Tree.of(trace.records())
    shown = (preimage, lists, number, named[number], Tree.of(named).prove(number).path)
    return (*shown, *_source(program, trace, tree, name), tree.root)


def _source(program: OpenProgram, trace: Trace, log: Tree, name: str) -> tuple[Any, ...]:
    """Where a value comes from: op, record, its path, roots, their path."""
    if name in program.makers:
        op = program.makers[name]
        roots = trace.record(op)[14:]  # "cvm1:step"0 | u32(op) | roots
        return (op, program.record(op), program.nodes.prove(op).path, roots, log.prove(op).path)
    if name in program.constant_arrays:
        index = program.names.index(name) - program.lists[2].count
        return (0, records(program.program).constants[index], program.constants.prove(index).path, b"", ())
    return (0, b"", (), b"", ())
