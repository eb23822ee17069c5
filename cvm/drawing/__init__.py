"""Networks as pictures: boxes and lines as SVG, which loads nothing and is as light or dark as the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Protocol, TypeAlias

from cvm.drawing.layout import Line, lay_out

__all__ = [
    "ALONE",
    "GAP",
    "HEIGHT",
    "LANE",
    "LETTERS",
    "WIDTH",
    "Box",
    "Step",
    "Tensor",
    "listed",
    "network_html",
    "network_svg",
    "path_data",
    "shortened",
    "steps_of",
    "svg",
]

WIDTH, HEIGHT, GAP, LANE = 188, 38, 22, 10
"""Of boxes, between boxes, and of lines that pass by, in pixels."""
LETTERS = 20
"""Letters of a line of text that fit a box."""


@dataclass(frozen=True, slots=True)
class Box:
    """An input, a state or an operation: two lines of text, and what a pointer over it shows."""

    kind: str
    name: str
    title: str


class Tensor(Protocol):
    """A tensor as far as a drawing shows it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def lo(self) -> int:
        """The least integer that it may hold."""

    @property
    def hi(self) -> int:
        """The greatest."""


class Declared(Protocol):
    """An input or a state as far as a drawing shows it."""

    @property
    def value(self) -> Tensor:
        """Its tensor."""


class Operation(Protocol):
    """An operation as far as a drawing shows it."""

    @property
    def op(self) -> str:
        """How it is called."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names that it reads."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """What it gives."""


class Network(Protocol):
    """A program as far as a drawing shows it."""

    @property
    def inputs(self) -> Sequence[Declared]:
        """Its inputs."""

    @property
    def state(self) -> Sequence[Declared]:
        """Its state."""

    @property
    def nodes(self) -> Sequence[Operation]:
        """Its operations, in execution order."""


Step: TypeAlias = tuple[str, Sequence[str], Sequence[Tensor]]
"""An input, a state or an operation: how it is called, the names that it reads, and what it gives."""

ALONE = ":root{background:#fff;color:#222}@media(prefers-color-scheme:dark){:root{background:#1b1b1b;color:#ddd}}"
"""The style sheet of a picture in a file of its own, which no page around it colours."""


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in one line, of which the last ones are counted where there are many."""
    return ", ".join(names if len(names) <= most else [*names[:most], f"{len(names) - most} more"])


def steps_of(network: Network) -> list[Step]:
    """The steps of a program: its inputs, its state, its nodes."""
    given = [("input", item.value) for item in network.inputs] + [("state", item.value) for item in network.state]
    steps = [(node.op, node.inputs, node.outputs) for node in network.nodes]
    return [*((kind, (), (value,)) for kind, value in given), *steps]


def network_html(headline: str, steps: Sequence[Step], most: int = 400) -> str:
    """A network for notebooks, of ``most`` steps at most."""
    drawn = network_svg(steps, most) or f"<p>{len(steps)} steps are too many to draw</p>"
    return f'<div><p>{escape(headline)}</p><div style="overflow:auto;max-height:480px">{drawn}</div></div>'


def network_svg(steps: Sequence[Step], most: int = 2000, style: str = "") -> str | None:
    """A network, of ``most`` steps at most, with a style sheet. None for one that is too large to be looked at."""
    makers: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    boxes = []
    for number, (kind, reads, gives) in enumerate(steps):
        edges.update(dict.fromkeys((makers[name], number) for name in reads if name in makers))
        makers.update(dict.fromkeys((tensor.name for tensor in gives), number))
        title = "\n".join(f"{item.name} {list(item.shape)} in [{item.lo}, {item.hi}]" for item in gives)
        boxes.append(Box(kind, gives[0].name, title))
    return svg(boxes, list(edges), most, style)


def svg(boxes: Sequence[Box], edges: Sequence[tuple[int, int]], most: int, style: str = "") -> str | None:
    """The drawing of boxes and the edges between their numbers, each from a lower to a higher one.

    None for more than ``most`` boxes, or where so many lines are long that nobody could follow them.
    """
    if len(boxes) > most:
        return None
    drawing = lay_out(len(boxes), edges, width=WIDTH, height=HEIGHT, gap=GAP, lane=LANE)
    if drawing is None:
        return None
    lines = (f'<path d="{path_data(line)}" fill="none" stroke="currentColor"/>' for line in drawing.lines)
    drawn = (_box(box, *corner) for box, corner in zip(boxes, drawing.corners, strict=True))
    size = f'width="{drawing.width:g}" height="{drawing.height:g}"'
    font = 'font-family="sans-serif" font-size="11"'
    sheet = f"<style>{style}</style>" if style else ""
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>{sheet}{"".join(lines)}{"".join(drawn)}</svg>'


def _box(box: Box, x: float, y: float) -> str:
    frame = f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="none" stroke="currentColor"/>'
    texts = (
        f'<text x="{x + WIDTH / 2:g}" y="{y + below:g}" text-anchor="middle" fill="currentColor" {style}>'
        f"{escape(shortened(text))}</text>"
        for text, below, style in ((box.kind, 16, 'font-weight="bold"'), (box.name, 30, ""))
    )
    return f"<g><title>{escape(box.title)}</title>{frame}{''.join(texts)}</g>"


def shortened(text: str, letters: int = LETTERS) -> str:
    """The text, shortened to fit a box. The middle is left out, because names differ at their ends more often."""
    return (
        text if len(text) <= letters else f"{text[: letters // 2]}…{text[len(text) - (letters - letters // 2 - 1) :]}"
    )


def path_data(line: Line) -> str:
    """A line as path data of SVG: curves between layers, straight through them."""
    (x, y), *rest = line.points
    parts = [f"M{x:g} {y:g}"]
    for number, (to_x, to_y) in enumerate(rest):
        if number % 2:
            parts.append(f"V{to_y:g}")
        else:
            middle = (y + to_y) / 2
            parts.append(f"C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}")
        x, y = to_x, to_y
    return "".join(parts)
