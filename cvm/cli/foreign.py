"""Models of cvm-runtime, printed for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvm.cli.output import say, table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["costs", "render_model"]


def costs(document: dict[str, Any]) -> str:
    """The costs that cvm-runtime charges, as one line."""
    gas = document["gas"] if document["gas"] is not None else f"refused ({document['gas_refusal']['message']})"
    return f"cvm-runtime: gas {gas}, storage {document['storage_bytes']} bytes"


def render_model(console: Console, document: dict[str, Any]) -> None:
    """Print a model of cvm-runtime for people: its inputs, outputs and costs in that library."""
    rows = (
        (item["op"] or "", item["node"], item["shape"], item["precision"], item["storage_id"])
        for item in document["entries"]
    )
    table(console, ("op", "node", "shape", "precision>", "storage>"), rows)
    taken, given = document["input"], document["output"]
    say(console)
    post = f", {document['postprocess']}" if document["postprocess"] else ""
    say(console, f"{document['format']} {document['format_version']}{post}")
    say(console, f"{document['nodes']} nodes; {document['parameters']} parameters")
    low, high = taken["clamped_to"]
    say(
        console, f"input   {taken['bytes']} bytes, {taken['bytes_per_element']} per element, clamped to [{low}, {high}]"
    )
    say(console, f"output  {given['bytes']} bytes, {given['bytes_per_element']} per element")
    say(console, costs(document))
