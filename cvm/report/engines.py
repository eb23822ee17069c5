"""The document of ``cvm compare`` or ``cvm explain`` as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cvm.report.html import rendered

__all__ = ["page"]

_ROWS = 2000
"""The most rows of a table."""


def page(found: Mapping[str, Any]) -> str:
    """The page, as text to be written in UTF-8. ``found`` is the document of `cvm.comparison.documents`."""
    engines = found["engines"]
    names = [item["tensor"] for item in engines[0]["tensors"]]
    own = [{item["tensor"]: item["own"]["differ"] for item in engine["tensors"]} for engine in engines]
    return rendered(
        "engines.html.j2",
        doc=found,
        side=[
            (name, [each.get(name) for each in own])
            for name in names
            if any(each.get(name) not in (0, None) for each in own)
        ][:_ROWS],
        differing=[_differing(engine)[:_ROWS] for engine in engines],
        explained=all("explanations" in engine for engine in engines),
        most=_ROWS,
    )


def _differing(engine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tensors with differences, each with its explanation if there is one."""
    explanations = {item["tensor"]: item for item in engine.get("explanations", [])}
    return [
        {**item, "order": order, "explanation": explanations.get(item["tensor"])}
        for order, item in enumerate(engine["tensors"])
        if item["own"]["differ"] or item["total"]["differ"]
    ]
