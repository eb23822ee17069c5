"""``cvm export``: write a program as a model of another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.foreign import costs
from cvm.cli.options import BitOrder, Json, Model, NoOptimize, one_of
from cvm.cli.output import say, show, working, write_file
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]

FORMATS = ("cvm-runtime",)


def command(
    program: Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder to write the files to.")],
    form: Annotated[
        str,
        typer.Option("--format", metavar="|".join(FORMATS), parser=one_of(*FORMATS), help="The format of the files."),
    ],
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Write a program as a model of another runtime that gives exactly the program's outputs.

    cvm-runtime: model.json and model.params are for that library; interface.json says what the codes stand for. Every
    op obeys the library's rules, and avoids what its backends compute differently. A program that the library cannot
    express (several inputs, state, integers or tensors beyond its limits) is refused with the reason.
    """
    from cvm.cli.models import open_program
    from cvm.export.cvm_runtime import saved
    from cvm.frontends.cvm_runtime import described

    verified = open_program(program, no_optimize, bit_order)
    with working("exporting"):
        files = saved(verified.program)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot be made a folder: {error.strerror or error}"
        raise Invalid("output.unwritable", message, Location(str(output))) from None
    for name, data in files.content.items():
        write_file(output / name, data)
    document = {
        "format": form,
        "digest": verified.program.digest,
        "gas": verified.gas,
        "nodes": len(verified.program.nodes),
        "cvm_runtime": described(files.model),
        "files": [{"path": str(output / name), "bytes": len(data)} for name, data in files.content.items()],
    }
    return show(document, lambda console: _render(console, document), as_json)


def _render(console: Console, document: dict[str, Any]) -> None:
    there = document["cvm_runtime"]
    say(console, f"{document['nodes']} nodes become {there['nodes']}, {there['parameters']} parameters")
    say(console, f"gas     {document['gas']}")
    say(console, f"there   {costs(there)}")
    taken, given = there["input"], there["output"]
    say(console, f"input   {taken['bytes']} bytes, {taken['bytes_per_element']} per element")
    say(console, f"output  {given['bytes']} bytes, {given['bytes_per_element']} per element")
    say(console, f"digest  {document['digest']}")
    for item in document["files"]:
        say(console, f"wrote   {item['path']} ({item['bytes']} bytes)")


COMMAND = Command(command, ("cvm export model.cvm --format cvm-runtime -o exported/",))
