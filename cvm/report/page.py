"""The report as one HTML page that loads nothing: it contains its styles, script, drawing and plots.

The same comparison gives the same bytes.
"""

from __future__ import annotations

from typing import Any

from cvm.drawing import HEIGHT, WIDTH
from cvm.report.comparison import Comparison
from cvm.report.document import document
from cvm.report.drawing import BANDS, Figure, band_of, draw
from cvm.report.html import rendered
from cvm.report.network import network
from cvm.report.plots import histogram, profile

__all__ = ["page"]

_CARDS = 200
"""How many histograms are drawn, those of the worst tensors."""
_ROWS = 500
"""The most rows in a list of changed runs."""


def page(comparison: Comparison) -> str:
    """The page, as text to be written in UTF-8."""
    found = document(comparison)
    shown = found["tensors"][:_CARDS]
    cards = [(item, histogram(item["histogram"], f"h{item['number']}", _label(item))) for item in shown]
    figure = _figure(comparison, found)
    return rendered(
        "page.html.j2",
        doc=found,
        runs=found["samples"] * (found["cycles"] or 1),
        outputs=[item for name in found["outputs"] for item in found["tensors"] if item["tensor"] == name],
        steepest=_steepest(found["tensors"]),
        exact=sum(item["exact"] is True for item in found["tensors"]),
        profile=_profile(comparison),
        figure=figure,
        drawn={box.target for box in figure.boxes} if figure is not None else set(),
        width=WIDTH,
        height=HEIGHT,
        bands=BANDS,
        band=lambda ratio: band_of(_ratio(ratio)).name,
        cards=cards,
        plots={item["number"] for item in shown},
        most=_ROWS,
    )


def _ratio(value: float | str | None) -> float | None:
    """Decibels, from the form of the document."""
    return None if value is None else float(value)


def _text(value: float | str | None) -> str:
    """Decibels in a box."""
    ratio = _ratio(value)
    if ratio is None:
        return "undefined"
    return "equal" if value == "inf" else f"{ratio:.1f}".replace("-", "−").replace("inf", "∞")


def _label(item: dict[str, Any]) -> str:
    """The alternative text of a histogram."""
    least, greatest = item["codes"]
    return f"Histogram of {item['tensor']}: {item['elements']} elements, codes {least} to {greatest}"


def _steepest(tensors: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The tensor with the greatest drop that is a number."""
    dropping = [item for item in tensors if isinstance(item["drop_db"], float) and item["drop_db"] > 0]
    return max(dropping, key=lambda item: item["drop_db"], default=None)


def _profile(comparison: Comparison) -> str | None:
    points = [(item.number, item.pair.tensor.name, item.measures.sqnr) for item in comparison.tensors]
    label = f"SQNR of {len(points)} tensors in execution order"
    return profile(points, "profile", label) if points else None


def _figure(comparison: Comparison, found: dict[str, Any]) -> Figure | None:
    tensors = {item["tensor"]: item for item in found["tensors"]}
    return draw(
        network(comparison.graph),
        {name: _ratio(item["sqnr_db"]) for name, item in tensors.items()},
        {name: _text(item["sqnr_db"]) for name, item in tensors.items()},
        {name: number for number, name in enumerate(comparison.graph.tensors)},
        comparison.graph.outputs,
    )
