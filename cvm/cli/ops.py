"""``cvm ops``: show the catalogue of ops."""

from __future__ import annotations

from collections.abc import Mapping
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
    nnef: Annotated[
        bool, typer.Option("--nnef", help="The operations of NNEF instead: exact, bounded or refused, and how.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List the ops, or show the declaration of one: inputs, attributes and constraints."""
    if nnef:
        return _show_nnef(name, as_json)
    from cvm.ops.catalogue import catalogue

    entries = catalogue()
    if name is None:
        document = {"ops": entries}
        return show(document, lambda console: _render_list(console, entries), as_json)
    found = _named(name, entries, "op")
    return show({"ops": [found]}, lambda console: _render_one(console, found), as_json)


def _named(name: str, entries: list[dict[str, Any]], what: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            return entry
    from cvm.ops.catalogue import meant

    hint = meant(name, [entry["name"] for entry in entries])
    raise Invalid("ops.unknown", f"there is no {what} {name!r}{hint}")


def _show_nnef(name: str | None, as_json: bool) -> int:
    from cvm.lowering import REFUSALS
    from cvm.operations import nnef_operations

    entries = nnef_operations()
    if name is None:
        document = {"operations": entries, "refusals": dict(REFUSALS)}
        return show(document, lambda console: _render_operations(console, entries, REFUSALS), as_json)
    found = _named(name, entries, "NNEF operation")
    return show({"operations": [found]}, lambda console: _render_operation(console, found), as_json)


def _render_operations(console: Console, entries: list[dict[str, Any]], refusals: Mapping[str, str]) -> None:
    titles = ("operation", "section", "claim", "how", "refused if", "why not exact")
    rows = ((e["name"], e["section"], e["claim"], e["how"], "; ".join(e["refused_if"]), e["reason"]) for e in entries)
    table(console, titles, rows)
    say(console, "")
    table(console, ("any operation", "is refused if"), refusals.items())


def _render_operation(console: Console, entry: dict[str, Any]) -> None:
    rows = [("section", entry["section"]), ("dialect", entry["dialect"]), ("claim", entry["claim"])]
    rows += [(title, entry[key]) for title, key in (("how", "how"), ("why not exact", "reason")) if entry[key]]
    rows += [("refused if", condition) for condition in entry["refused_if"]]
    table(console, (entry["name"], ""), rows)


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
        "cvm ops --nnef",
        "cvm ops --nnef softmax",
    ),
)
