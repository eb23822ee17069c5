"""Networks as pictures: boxes and lines as SVG, which loads nothing and takes its colours from the page around it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol, TypeAlias

from cvm.drawing.layout import Line, lay_out
from cvm.records import dataclass

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
"""In pixels: the size of boxes, the space between boxes, and the space for lines that pass by."""
LETTERS = 20
"""The most letters of a line of text in a box."""


@dataclass(frozen=True, slots=True)
class Box:
    """An input, a state or an operation: two lines of text, and the text that a pointer over it shows."""

    kind: str
    name: str
    title: str


class Tensor(Protocol):
    """The parts of a tensor that a drawing needs."""

    @property
    def name(self) -> str:
        """The name of the tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""

    @property
    def lo(self) -> int:
        """The least integer that it may hold."""

    @property
    def hi(self) -> int:
        """The greatest integer that it may hold."""


class Declared(Protocol):
    """The parts of an input or a state that a drawing needs."""

    @property
    def value(self) -> Tensor:
        """The tensor of the input or state."""


class Operation(Protocol):
    """The parts of an operation that a drawing needs."""

    @property
    def op(self) -> str:
        """The name of the operation."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names that it reads."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors that it makes."""


class Network(Protocol):
    """The parts of a program that a drawing needs."""

    @property
    def inputs(self) -> Sequence[Declared]:
        """The inputs of the program."""

    @property
    def state(self) -> Sequence[Declared]:
        """The state of the program."""

    @property
    def nodes(self) -> Sequence[Operation]:
        """The operations of the program, in execution order."""


Step: TypeAlias = tuple[str, Sequence[str], Sequence[Tensor]]
"""An input, a state or an operation: its name, the names that it reads, and the tensors that it makes."""

ALONE = ":root{background:#fff;color:#222}@media(prefers-color-scheme:dark){:root{background:#1b1b1b;color:#ddd}}"
"""The style sheet of a picture in a file of its own, without a page around it."""


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in one line; if there are more than ``most``, the last ones are only counted."""
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
    """A network of at most ``most`` steps, with a style sheet. None for a network that is too large to be read."""
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

    None for more than ``most`` boxes, or for so many long lines that nobody could follow them.
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
