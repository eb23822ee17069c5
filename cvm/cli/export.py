"""``cvm export``: write a program as C, as WebAssembly, or as a model of another runtime."""

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

FORMATS = ("c", "wasm", "object", "cvm-runtime")

_Name = Annotated[
    str,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Formats c, wasm, object: what the names of files, types and functions begin with.",
    ),
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Formats c and wasm: also give every tensor, each of which is stored for it.")
]

_Target = Annotated[
    str | None,
    typer.Option("--target", metavar="TRIPLE", help="Format object: the target, such as aarch64-linux-gnu."),
]
_MachineName = Annotated[
    str | None,
    typer.Option("--machine", metavar="NAME", help="Format object: the machine, such as avx2; by default generic."),
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
    target: _Target = None,
    machine: _MachineName = None,
    dot: _Dot = False,
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Write a program as C99, WebAssembly, machine code or a model of another runtime, with exactly its outputs.

    c: NAME.h and NAME.c need no library and no heap, use no floats, and give the same bytes on every machine with a
    C compiler. wasm: a package of npm for browsers, Node and Deno: NAME.wasm, which imports nothing, and index.js,
    which loads it. object: NAME.o (or NAME.obj) and NAME.h have the native executor's code for a target; a run asks the
    processor for the features of the machine first. cvm-runtime: model.json and model.params are for that library;
    interface.json says what the codes stand for. Every op obeys the library's rules. A program that the library cannot
    express (several inputs, state, integers or tensors beyond its limits) is refused with the reason.
    """
    from cvm.cli.models import open_program

    _require_fitting(form, name, trace, dot, (target, machine))
    verified = open_program(program, no_optimize, bit_order)
    with working("exporting"):
        files, facts, render = _written(form, verified, name, (trace, dot), target, machine)
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


def _require_fitting(form: str, name: str, trace: bool, dot: bool, code: tuple[str | None, str | None]) -> None:
    """Refuse options of other formats; ``code`` are target and machine."""
    target, machine = code
    if dot and form != "c":
        raise Usage("--dot is for --format c")
    if form == "cvm-runtime" and name != "model":
        raise Usage("--name is for --format c, wasm and object")
    if trace and form not in ("c", "wasm"):
        raise Usage("--trace is for --format c and --format wasm")
    if (form == "object") != (target is not None) or (machine is not None and form != "object"):
        raise Usage("--format object needs --target, and only it has --target and --machine")


_Result: TypeAlias = "tuple[Mapping[str, bytes], dict[str, Any], Callable[[Console, dict[str, Any]], None]]"
"""Files, facts for the document, and a function that prints these facts."""


def _written(
    form: str,
    verified: VerifiedProgram,
    name: str,
    flags: tuple[bool, bool],
    target: str | None,
    machine: str | None,
) -> _Result:
    trace, dot = flags
    if target is not None:
        return _as_object(verified, target, machine or "generic", name)
    if form == "cvm-runtime":
        return _as_cvm_runtime(verified)
    return _as_c(verified, name, trace, dot) if form == "c" else _as_wasm(verified, name, trace)


def _as_wasm(verified: VerifiedProgram, name: str, trace: bool) -> _Result:
    from cvm.export.wasm import exported

    made = exported(verified, name, trace)
    sizes = {"module": len(made.module.code), "memory": made.module.memory_bytes, "arena": made.module.arena_bytes}
    return made.files, {"wasm": {"name": name, "traced": trace, "bytes": sizes}}, _render_wasm


def _render_wasm(console: Console, document: dict[str, Any]) -> None:
    sizes = document["wasm"]["bytes"]
    say(console, f"memory  {sizes['memory']} bytes, of which a run works in {sizes['arena']}")


def _as_object(verified: VerifiedProgram, target: str, machine: str, name: str) -> _Result:
    from cvm.export.object import exported

    made = exported(verified, target, machine, name)
    sizes = {"memory": made.memory_bytes, "constants": made.constant_bytes}
    return made.files, {"object": {"name": name, "target": target, "machine": machine, "bytes": sizes}}, _render_object


def _render_object(console: Console, document: dict[str, Any]) -> None:
    there = document["object"]
    say(console, f"target  {there['target']}, machine {there['machine']}")
    say(console, f"memory  {there['bytes']['memory']} bytes for a run")


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
        "cvm export model.cvm --format wasm -o exported/",
        "cvm export model.cvm --format object --target aarch64-linux-gnu --machine neon_dot -o exported/",
        "cvm export model.cvm --format cvm-runtime -o exported/",
    ),
)
