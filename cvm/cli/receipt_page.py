"""``cvm receipt page``: a receipt as one HTML file that runs the program again in the reader's browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cvm.cli.options import Codes, Cycles, Inputs, Json
from cvm.cli.output import say, show, working, write_file
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]

LABELS = 2**20
"""The most bytes of a file of labels."""


def command(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT", help="A receipt file.")],
    program: Annotated[Path, typer.Option("--program", metavar="PROGRAM", help="The program, or a model.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The HTML file to write.")],
    inputs: Inputs = [],  # noqa: B006  (Typer makes a list of its own from it)
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="The state before the first run, if not the initial one."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="The names of the classes: one a line, from class 0 on."),
    ] = None,
    cycles: Cycles = False,
    codes: Codes = False,
    as_json: Json = False,
) -> int:
    """Write a page that shows what a receipt claims, and verifies it in the reader's browser.

    The page holds receipt, program, inputs and the program as WebAssembly. It loads nothing, so it works from a file
    and without a network. It says REPRODUCED, or where the runs diverged from the claim, and takes other receipts and
    inputs. Nothing is verified while the page is made: `cvm receipt verify` does that here.
    """
    from cvm.audit.verify import codes_of_state
    from cvm.cli.feeds import read_archive, read_inputs, read_receipt
    from cvm.cli.models import open_program
    from cvm.inputs import Intake, arrange
    from cvm.receipt_page import page

    found, verified = read_receipt(receipt), open_program(program)
    given = read_inputs(inputs, verified.program.inputs, codes=codes)
    samples = arrange(verified.program, given, cycles, Intake(True))[1]
    begin = None if state is None else codes_of_state(verified, read_archive(state))
    names = [] if labels is None else _labels(labels)
    with working("exporting"):
        content = page(found, verified, samples, begin, names)
    write_file(output, content)
    document = {"receipt": found.id, "program": verified.program.digest, "path": str(output), "bytes": len(content)}

    def render(console: Console) -> None:
        say(console, f"receipt   {document['receipt']}")
        say(console, f"program   {document['program']}")
        say(console, f"wrote     {document['path']} ({document['bytes']} bytes)")

    return show(document, render, as_json)


def _labels(path: Path) -> list[str]:
    """The lines of a file. Raises `CvmError`."""
    from cvm.program.reading import read_bytes

    try:
        return read_bytes(path, LABELS, "page").decode("utf-8", "replace").splitlines()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("page.unreadable", message, Location(str(path))) from None
