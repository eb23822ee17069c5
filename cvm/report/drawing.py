"""The drawing of a network: a box for every operation, coloured by the worst SQNR of its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cvm.drawing import GAP, HEIGHT, LANE, LETTERS, WIDTH, path_data, shortened
from cvm.drawing.layout import lay_out
from cvm.records import dataclass
from cvm.report.network import Network, NetworkNode

__all__ = ["BANDS", "Band", "Box", "Figure", "band_of", "draw"]

_MOST = 2_000
"""A network with more boxes than this is not drawn."""


@dataclass(frozen=True, slots=True)
class Band:
    """A class of SQNR: its name in the style sheet, its text, and its least decibels."""

    name: str
    text: str
    least: float


BANDS = (
    Band("equal", "equal", math.inf),
    Band("b40", "40 dB and more", 40.0),
    Band("b30", "30 to 40 dB", 30.0),
    Band("b20", "20 to 30 dB", 20.0),
    Band("b10", "10 to 20 dB", 10.0),
    Band("b0", "below 10 dB", -math.inf),
)
UNKNOWN = Band("none", "not materialised", math.nan)


def band_of(sqnr: float | None) -> Band:
    """The band of a ratio; an undefined ratio has the lowest band."""
    if sqnr is None:
        return BANDS[-1]
    return next(band for band in BANDS if sqnr >= band.least)


@dataclass(frozen=True, slots=True)
class Box:
    """One operation, input or state."""

    x: float
    y: float
    kind: str
    name: str
    """The name of the worst tensor of the box, and how many others there are."""
    title: str
    """The text of the tooltip: all measures."""
    sqnr: str
    band: Band
    target: int
    """The number of the tensor to whose row the box links."""
    output: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing, ready to be written as SVG."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    paths: tuple[str, ...]
    """The lines as path data."""


def draw(
    network: Network,
    sqnr: Mapping[str, float | None],
    text: Mapping[str, str],
    numbers: Mapping[str, int],
    outputs: Sequence[str],
) -> Figure | None:
    """Draw a network. ``sqnr`` and ``text`` hold the ratios of the measured tensors, ``numbers`` those of all tensors.

    None if the network is too large to be read.
    """
    if len(network.nodes) > _MOST:
        return None
    drawing = lay_out(len(network.nodes), network.edges, width=WIDTH, height=HEIGHT, gap=GAP, lane=LANE)
    if drawing is None:
        return None
    boxes = tuple(
        _box(node, corner, sqnr, text, numbers, outputs)
        for node, corner in zip(network.nodes, drawing.corners, strict=True)
    )
    return Figure(drawing.width, drawing.height, boxes, tuple(map(path_data, drawing.lines)))


def _box(
    node: NetworkNode,
    corner: tuple[float, float],
    sqnr: Mapping[str, float | None],
    text: Mapping[str, str],
    numbers: Mapping[str, int],
    outputs: Sequence[str],
) -> Box:
    measured = [name for name in node.tensors if name in sqnr]
    worst = min(measured, key=lambda name: _badness(sqnr[name]), default=node.tensors[0])
    more = f" +{len(node.tensors) - 1}" if len(node.tensors) > 1 else ""
    lines = (f"{name}: {text.get(name, UNKNOWN.text)}" for name in node.tensors[:LETTERS])
    return Box(
        *corner,
        kind=shortened(node.kind),
        name=shortened(worst, LETTERS - len(more)) + more,
        title="\n".join([node.kind, *lines]),
        sqnr=text.get(worst, "–"),
        band=band_of(sqnr[worst]) if worst in sqnr else UNKNOWN,
        target=numbers[worst],
        output=any(name in outputs for name in node.tensors),
    )


def _badness(sqnr: float | None) -> float:
    return -math.inf if sqnr is None else sqnr
