"""``cvm ops``: the catalogue of ops."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.options import Json
from cvm.cli.output import say, show, table
from cvm.errors import Invalid

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One op; without it, all of them.")] = None,
    as_json: Json = False,
) -> int:
    """List the ops, or show all that is declared of one: inputs, attributes and constraints."""
    from cvm.ops.catalogue import catalogue

    entries = catalogue()
    if name is None:
        document = {"ops": entries}
        return show(document, lambda console: _render_list(console, entries), as_json)
    found = next((entry for entry in entries if entry["name"] == name), None)
    if found is None:
        close = difflib.get_close_matches(name, [entry["name"] for entry in entries], 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise Invalid("ops.unknown", f"there is no op {name!r}{hint}")
    return show({"ops": [found]}, lambda console: _render_one(console, found), as_json)


def _render_list(console: Console, entries: list[dict[str, Any]]) -> None:
    table(console, ("op", "family", "what it computes"), ((e["name"], e["family"], e["summary"]) for e in entries))


def _render_one(console: Console, entry: dict[str, Any]) -> None:
    say(console, f"{entry['name']} ({entry['family']}; {entry['source']})\n")
    say(console, entry["doc"] + "\n")
    rows = [("input", item["name"], f"{item['what']}{_marks(item)}") for item in entry["inputs"]]
    rows += [("output", item, "") for item in entry["outputs"]]
    rows += [("attribute", item["name"], _attribute(item)) for item in entry["attributes"]]
    rows += [("constraint", item["label"], item["text"]) for item in entry["constraints"]]
    table(console, ("", "", ""), rows)


def _marks(item: dict[str, Any]) -> str:
    marks = [mark for mark in ("optional", "many") if item[mark]]
    marks += ["int64 parameter"] if item["kind"] == "parameter" else []
    return f" ({', '.join(marks)})" if marks else ""


def _attribute(item: dict[str, Any]) -> str:
    default = "required" if item["required"] else f"default {item['default']}"
    return f"{item['what']} ({default})".strip()


COMMAND = Command(
    command,
    (
        "cvm ops",
        "cvm ops conv2d",
    ),
)
