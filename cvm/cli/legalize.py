"""``cvm legalize``: write a program in the document's ops alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.options import BitOrder, Json, Model, NoOptimize
from cvm.cli.output import say, show, table, working, write_file

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.program.verifier import VerifiedProgram

__all__ = ["COMMAND"]


def command(
    program: Model,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT.cvm", help="The program file to write."),
    ] = None,
    bit_order: BitOrder = "lsb",
    no_optimize: NoOptimize = False,
    as_json: Json = False,
) -> int:
    """Rewrite the extension ops of a program into ops of the operator mathematics, exactly.

    Every value keeps its name and its codes, so the result runs wherever the document's ops
    run. It is another program, with another digest.
    """
    from cvm.cli.models import open_program
    from cvm.passes.legalize import legalize
    from cvm.program.verifier import verify

    before = open_program(program, no_optimize, bit_order)
    with working("legalising"):
        after = verify(legalize(before.program))
    document = _report(before, after)
    if output is not None:
        data = after.program.to_bytes()
        write_file(output, data)
        document["file"] = {"path": str(output), "bytes": len(data)}
    return show(document, lambda console: _render(console, document), as_json)


def _report(before: VerifiedProgram, after: VerifiedProgram) -> dict[str, Any]:
    from cvm.ops.extension import terms
    from cvm.passes.legalize import expansions

    return {
        "expansions": [
            {
                "op": item.node.op,
                "value": item.node.outputs[0].name,
                "terms": terms(len(item.node.inputs)) if item.node.op == "requantize" else None,
                "rounding": item.node.attributes.get("rounding"),
                "nodes": len(item.nodes),
                "gas_before": item.gas_before,
                "gas_after": item.gas_after,
            }
            for item in expansions(before, after)
        ],
        "before": _totals(before),
        "after": _totals(after),
    }


def _totals(verified: VerifiedProgram) -> dict[str, Any]:
    program = verified.program
    return {
        "digest": program.digest,
        "nodes": len(program.nodes),
        "gas": verified.gas,
        "constant_bytes": sum(len(constant.data) for constant in program.constants),
    }


def _render(console: Console, document: dict[str, Any]) -> None:
    before, after = document["before"], document["after"]
    headings = ("op", "value", "terms>", "rounding", "nodes>", "gas before>", "gas after>")
    rows = (
        [item[key] if item[key] is not None else "" for key in ("op", "value", "terms", "rounding")]
        + [item["nodes"], item["gas_before"], item["gas_after"]]
        for item in document["expansions"]
    )
    table(console, headings, rows)
    say(console)
    say(
        console, f"{len(document['expansions'])} extension ops rewritten: {before['nodes']} nodes, now {after['nodes']}"
    )
    say(console, f"{before['constant_bytes']} bytes of constants, now {after['constant_bytes']}")
    say(console, f"gas     {before['gas']}, now {after['gas']}")
    say(console, f"digest  {before['digest']}")
    say(console, f"now     {after['digest']}")
    if "file" in document:
        say(console, f"wrote   {document['file']['path']} ({document['file']['bytes']} bytes)")


COMMAND = Command(command, ("cvm legalize model.cvm -o strict.cvm", "cvm legalize model/ --json"))
