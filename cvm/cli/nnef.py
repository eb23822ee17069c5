"""``cvm nnef``: NNEF documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.options import Json
from cvm.cli.output import say, show

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["GROUP"]

_INVALID = 3


def check(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH..", help="Models: folders, archives (.tgz) or documents (.nnef).")
    ],
    as_json: Json = False,
) -> int:
    """Say of each model whether it is valid, and which rule of NNEF 1.0.1 it breaks otherwise.

    The exit code is 3 if one is not valid. A folder without any .dat file is a bare document; with one, all are needed.
    """
    from cvm.frontends import nnef

    results = [nnef.check(path).to_json() for path in paths]
    code = 0 if all(result["valid"] for result in results) else _INVALID
    return show({"results": results}, lambda console: _render(console, results), as_json, code)


def _render(console: Console, results: list[dict[str, Any]]) -> None:
    for result in results:
        path = result["path"]
        if result["valid"]:
            say(console, f"valid    {path}: {len(result['shapes'])} tensors")
        else:
            section = f", section {result['section']}" if result["section"] else ""
            say(console, f"invalid  {result['message']} ({result['class']}{section})")


def flatten(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A model: a folder, an archive or a document.")],
    as_json: Json = False,
) -> int:
    """Print a document flat: one operation per line, fragments expanded, every argument concrete."""
    from cvm.frontends import nnef

    text = nnef.flatten(path)
    return show({"text": text}, lambda console: print(text, end="", file=console.file), as_json)


GROUP = Group(
    "Validate and print NNEF documents.",
    {
        "check": Command(
            check,
            (
                "cvm nnef check model/",
                "cvm nnef check *.nnef --json",
            ),
        ),
        "flatten": Command(flatten, ("cvm nnef flatten model/graph.nnef",)),
    },
)
