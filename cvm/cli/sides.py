"""What a party of a dispute has: the run that a program and inputs determine, or the file of a trace or of tensors."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from cvm.cli.failures import Usage
from cvm.errors import Invalid
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.arrays import Array
    from cvm.audit.dispute import Evidence, OpenProgram
    from cvm.audit.trace import Trace
    from cvm.inputs import Layout

__all__ = ["ProgramOfRun", "RunNumber", "Side", "StateBefore", "evidence_of", "open_side", "read_side"]

ProgramOfRun: TypeAlias = Annotated[
    Path, typer.Option("--program", metavar="PROGRAM", help="The program, or a model to compile on the way.")
]
StateBefore: TypeAlias = Annotated[
    Path | None,
    typer.Option("--state", metavar="FILE", help="The state before the run, if not the initial one."),
]
RunNumber: TypeAlias = Annotated[
    int, typer.Option("--run", min=0, metavar="N", help="Which run of the inputs; the first one is 0.")
]


@dataclass(frozen=True)
class Side:
    """What one side has: of how many runs, and the evidence or the trace of each."""

    runs: int
    read: Callable[[int], Evidence | Trace]


def read_side(
    path: Path, program: OpenProgram | None, run: int, cycles: bool, begin: Evidence | None = None
) -> Evidence | Trace:
    """The evidence or the trace of one side, read from its file, which may hold the tensors of several runs."""
    return open_side(path, program, cycles, begin).read(run)


def open_side(path: Path, program: OpenProgram | None, cycles: bool, begin: Evidence | None = None) -> Side:
    """What is in the file of one side. ``begin`` has the inputs and the state of the run where the file does not."""
    from cvm.audit.dispute import evidence_from
    from cvm.audit.trace_file import read_trace
    from cvm.cli.feeds import read_archive

    if not (path.is_file() and zipfile.is_zipfile(path)):
        trace = read_trace(path)
        return Side(1, lambda _: trace)
    if program is None:
        raise Usage(f"{path} holds tensors: expected --program PROGRAM, which says what they are")
    names = [item.value.name for item in program.program.inputs] + [item.value.name for item in program.program.state]
    known = {} if begin is None else {name: begin.values[name] for name in names}
    opened = program
    try:
        arrays = read_archive(path)
        layout = _layout(opened, arrays, cycles)
    except Invalid as error:
        raise error.at(file=str(path)) from None

    def read(run: int) -> Evidence:
        # A file of one run needs no number: it holds the run with that number of the command's inputs.
        number = run if layout.runs > 1 or begin is None else 0
        try:
            return evidence_from(opened, arrays, known, run=number, layout=layout)
        except Invalid as error:
            raise error.at(file=str(path)) from None

    return Side(layout.runs, read)


def _layout(program: OpenProgram, arrays: Mapping[str, Array], cycles: bool) -> Layout:
    """How a file holds its runs, judged by the inputs in it; one run if it holds none, or they fit no layout."""
    from cvm.inputs import Intake, Layout, arrange

    names = [item.value.name for item in program.program.inputs]
    if not names or not all(name in arrays for name in names):
        return Layout()
    try:
        return arrange(program.program, {name: arrays[name] for name in names}, cycles, Intake(codes=True))[0]
    except Invalid:
        return Layout()


def evidence_of(
    program: Path, inputs: list[str], state: Path | None, run: int, cycles: bool, codes: bool, executor: str | None
) -> Evidence:
    """The evidence of the run that the program and the inputs determine."""
    from cvm.audit.dispute import computed
    from cvm.cli.feeds import read_archive, read_inputs
    from cvm.cli.models import open_program

    verified = open_program(program)
    arrays = read_inputs(inputs, verified.program.inputs, codes=codes)
    before = None if state is None else read_archive(state)
    return computed(verified, arrays, cycles=cycles, codes=True, run=run, state=before, executor=executor)
