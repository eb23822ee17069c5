"""``cvm export``: write a program as C, or as a model of another runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.foreign import costs
from cvm.cli.options import BitOrder, Json, Model, NoOptimize, one_of
from cvm.cli.output import say, show, working, write_file
from cvm.writing import make_folder

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND"]

FORMATS = ("c", "cvm-runtime")

_Name = Annotated[
    str,
    typer.Option("--name", metavar="NAME", help="Format c: what the names of files, types and functions begin with."),
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Format c: call a hook with every tensor, each of which is stored for it.")
]

_Dot = Annotated[
    bool,
    typer.Option("--dot", help="Format c: multiply bytes by the processor's instructions; the results are the same."),
]


def command(
    program: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to write the files to.")],
    form: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), parser=one_of(*FORMATS), help="The format of the files."),
    ],
    name: _Name = "model",
    trace: _Trace = False,
    dot: _Dot = False,
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Write a program as C99, or as a model of another runtime, that gives exactly the program's outputs.

    c: NAME.h and NAME.c need no library and no heap, use no floats, and give the same bytes on every machine with a
    C compiler. cvm-runtime: model.json and model.params are for that library; interface.json says what the codes stand
    for. Every op obeys the library's rules, and avoids what its backends compute differently. A program that the
    library cannot express (several inputs, state, integers or tensors beyond its limits) is refused with the reason.
    """
    from cvm.cli.models import open_program

    if form != "c" and (trace or dot or name != "model"):
        raise Usage("--name, --trace and --dot are for --format c")
    verified = open_program(program, no_optimize, bit_order)
    with working("exporting"):
        files, facts, render = _as_c(verified, name, trace, dot) if form == "c" else _as_cvm_runtime(verified)
    make_folder(output, parents=True)
    for file, data in files.items():
        write_file(output / file, data)
    document = {
        "format": form,
        "digest": verified.program.digest,
        "gas": verified.gas,
        "nodes": len(verified.program.nodes),
        **facts,
        "files": [{"path": str(output / file), "bytes": len(data)} for file, data in files.items()],
    }

    def rendered(console: Console) -> None:
        render(console, document)
        say(console, f"digest  {document['digest']}")
        for item in document["files"]:
            say(console, f"wrote   {item['path']} ({item['bytes']} bytes)")

    return show(document, rendered, as_json)


_Result: TypeAlias = "tuple[Mapping[str, bytes], dict[str, Any], Callable[[Console, dict[str, Any]], None]]"
"""Files, facts for the document, and a function that prints these facts."""


def _as_c(verified: VerifiedProgram, name: str, trace: bool, dot: bool) -> _Result:
    from cvm.export.c import exported

    made = exported(verified, name, trace, dot)
    sizes = {"arena": made.arena_bytes, "state": made.state_bytes, "constants": made.constant_bytes}
    return made.files, {"c": {"name": name, "traced": trace, "dots": dot, "bytes": sizes}}, _render_c


def _render_c(console: Console, document: dict[str, Any]) -> None:
    sizes = document["c"]["bytes"]
    say(console, f"memory  {sizes['arena']} bytes for a run, {sizes['state']} bytes of state")
    say(console, f"flash   {sizes['constants']} bytes of constants, and the code")


def _as_cvm_runtime(verified: VerifiedProgram) -> _Result:
    from cvm.export.cvm_runtime import saved
    from cvm.frontends.cvm_runtime import described

    files = saved(verified.program)
    return files.content, {"cvm_runtime": described(files.model)}, _render_cvm_runtime


def _render_cvm_runtime(console: Console, document: dict[str, Any]) -> None:
    there = document["cvm_runtime"]
    say(console, f"{document['nodes']} nodes become {there['nodes']}, {there['parameters']} parameters")
    say(console, f"gas     {document['gas']}")
    say(console, f"there   {costs(there)}")
    taken, given = there["input"], there["output"]
    say(console, f"input   {taken['bytes']} bytes, {taken['bytes_per_element']} per element")
    say(console, f"output  {given['bytes']} bytes, {given['bytes_per_element']} per element")


COMMAND = Command(
    command,
    (
        "cvm export model.cvm --format c -o exported/",
        "cvm export model.cvm --format cvm-runtime -o exported/",
    ),
)
