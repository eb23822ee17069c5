"""``cvm conformance``: what an engine does to each quantised operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.compare import Engines
from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Json
from cvm.cli.output import say, show, table, working, write_file

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]

_Ops = Annotated[
    list[str],
    typer.Option("--op", metavar="NAME", help="Only this operator, such as Conv or CONV_2D. May be repeated."),
]
_Page = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="PAGE", help="Write the statement as a page in Markdown.")
]


def command(
    engine: Engines = [],  # noqa: B006  (Typer makes a list of its own from it)
    ops: _Ops = [],  # noqa: B006
    output: _Page = None,
    as_json: Json = False,
) -> int:
    """State what an engine does to each quantised operator of ONNX and TFLite.

    The cases are models of one operator with hard numbers: ties, saturation, extreme scales, zero points at both ends,
    padding, wide sums. The engine runs each; its codes are exact, within one, or wrong, and a rounding model is named
    that gives those that differ. What the engine refuses is listed with its message. Exit code 1 if a code differs. An
    engine runs in a process of its own; the extra `engines` installs them.
    """
    from cvm.comparison import setting
    from cvm.conformance import markdown, statement

    if not engine:
        raise Usage(
            "say which engine runs the cases: --engine onnxruntime, openvino, litert, tflite-reference, command:.."
        )
    settings = [setting(text) for text in engine]
    with working("running cases"):
        found = statement(settings, ops)
    if output is not None:
        write_file(output, ("# What engines do to quantised operators\n\n" + markdown(found)).encode())
    exact = not any(each["counts"][verdict] for each in found["engines"] for verdict in ("within one", "wrong"))
    return show(found, lambda console: _render(console, found), as_json, 0 if exact else 1)


def _render(console: Console, found: dict[str, Any]) -> None:
    for engine in found["engines"]:
        say(console, f"{engine['setting']}  {engine['package']}")
        rows = [row for row in engine["cases"] if row["verdict"] != "exact"]
        if rows:
            headings = ("operator", "types", "attributes", "numbers", "verdict", "differ>", "by at most>", "rule")
            table(console, headings, [_row(row) for row in rows])
        counts = ", ".join(f"{count} {verdict}" for verdict, count in engine["counts"].items() if count)
        say(console, f"{len(engine['cases'])} cases: {counts}")
        say(console)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    words = (f"{row['op']} ({row['form']})", row["types"], row["attributes"], row["numbers"], row["verdict"])
    if "differ" not in row:
        return (*words, "", "", row.get("message", "")[:60])
    return (*words, row["differ"], row["farthest"], row["rule"] or "none")


COMMAND = Command(
    command,
    (
        "cvm conformance --engine onnxruntime --op Conv --op QLinearConv",
        "cvm conformance --engine litert --engine tflite-reference -o conformance.md --json",
    ),
)
