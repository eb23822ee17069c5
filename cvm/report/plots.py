"""Plots by matplotlib, as SVG for a page: texts stay texts, and colours are those of the page's style.

The same data give the same bytes: there is no date, no salt, and no setting of the user.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from cvm.report.drawing import BANDS, band_of

__all__ = ["Profile", "histogram", "profile"]

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_REFERENCE = re.compile(r"#([^)\s]+)")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_TAIL = re.compile(r"(\.\d\d)\d+")
_DRAWN = 96
"""The most bins that a histogram is drawn with."""
_SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_FLOOR = 0.5
"""Where the logarithmic scale of counts begins."""

_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--rule)",
    "#040404": "var(--float)",
    "#050505": "var(--program)",
    **{f"#06060{index}": f"var(--{band.name})" for index, band in enumerate(BANDS)},
}
"""Colours that stand for variables of the style sheet, light or dark."""
_INK, _FAINT, _RULE, _FLOAT, _PROGRAM, *_BAND = _COLOURS
_BAND_COLOURS = dict(zip((band.name for band in BANDS), _BAND, strict=True))

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cvm",
    "font.family": "sans-serif",
    "font.size": 8,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "figure.facecolor": "none",
}

Profile = Sequence[tuple[int, str, float | None]]
"""For each tensor in order: its number, its name, its SQNR."""


@contextmanager
def _figure(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure with our own settings, in inches of 72 pixels."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(width, height), dpi=72)
        FigureCanvasSVG(figure)
        yield figure, figure.add_subplot()


def _svg(figure: Figure, prefix: str, label: str) -> str:
    """The figure as an SVG element; ``prefix`` makes its identifiers unique on the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in [root, *root.iter(f"{_SVG}defs")]:
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):  # a style would apply to the whole page
                parent.remove(child)
    own = _referenced(root)
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib = {key.removeprefix(_XLINK): value for key, value in _kept(element, own, prefix)}
    viewbox = root.attrib["viewBox"]
    width, height = viewbox.split()[2:]
    root.attrib = {"viewBox": viewbox, "width": width, "height": height, "role": "img", "aria-label": label}
    return ElementTree.tostring(root, "unicode")


def _referenced(root: ElementTree.Element) -> frozenset[str]:
    """The identifiers that a figure both defines and refers to."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    named = {element.attrib.get("id") for element in root.iter()}
    return frozenset(name for value in values for name in _REFERENCE.findall(value) if name in named)


def _kept(element: ElementTree.Element, own: frozenset[str], prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes of an element, with unique identifiers and the colours of the style sheet."""
    for key, value in element.attrib.items():
        if key == "id":
            if value in own:
                yield key, f"{prefix}-{value}"
            continue
        if key == "target":
            continue
        if key == "d":
            yield key, _TAIL.sub(r"\1", value).replace("  ", " ").strip()
            continue
        moved = _REFERENCE.sub(lambda found: f"#{prefix}-{found[1]}" if found[1] in own else found[0], value)
        yield key, _COLOUR.sub(lambda found: _COLOURS.get(found[0], found[0]), moved)


def histogram(found: dict[str, Any], prefix: str, label: str) -> str:
    """Counts of the float model and of the program over the codes, on a logarithmic scale.

    ``found`` is a histogram of the document. If there are many bins, neighbouring ones are drawn as one.
    """
    bins, width, first = len(found["float"]), found["width"], found["first"]
    together = -(-bins // _DRAWN) or 1
    edges = first + width * np.minimum(np.arange(-(-bins // together) + 1) * together, bins) - 0.5
    counts = [_summed(found[key], together) for key in ("float", "program")]
    with _figure(3.9, 1.5) as (figure, axes):
        figure.subplots_adjust(left=0.14, right=0.98, top=0.96, bottom=0.18)
        axes.set_yscale("log")
        axes.stairs(counts[0], edges, baseline=_FLOOR, fill=True, color=_FLOAT, alpha=0.45, linewidth=0)
        axes.stairs(counts[1], edges, baseline=None, color=_PROGRAM, linewidth=1.0)
        axes.set_ylim(_FLOOR, 2 * max(*counts[0], *counts[1], 1))
        axes.set_xlim(edges[0], edges[-1])
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda count, _: _power(count))
        axes.tick_params(length=2)
        return _svg(figure, prefix, label)


def _power(count: float) -> str:
    """A power of ten as text: 1, 10, 10², 10³, .."""
    exponent = round(math.log10(count))
    return str(10**exponent) if exponent < 2 else "10" + "".join(_SUPERSCRIPTS[int(digit)] for digit in str(exponent))


def _summed(counts: Sequence[int], together: int) -> list[int]:
    return [sum(counts[start : start + together]) for start in range(0, len(counts), together)] or [0]


def profile(tensors: Profile, prefix: str, label: str) -> str:
    """The SQNR of every tensor in execution order; each point leads to the row of its tensor."""
    ratios = [ratio for _, _, ratio in tensors if ratio is not None and math.isfinite(ratio)]
    low, high = (min(ratios), max(ratios)) if ratios else (0.0, 60.0)
    margin = max(2.0, 0.06 * (high - low))
    heights = [min(max(_bounded(ratio), low - margin), high + margin) for _, _, ratio in tensors]
    with _figure(12.4, 2.6) as (figure, axes):
        figure.subplots_adjust(left=0.045, right=0.995, top=0.97, bottom=0.15)
        axes.plot(range(len(heights)), heights, color=_RULE, linewidth=0.8, zorder=1)
        for marker, chosen in (("o", True), ("^", False)):
            indices = [index for index, item in enumerate(tensors) if (_bounded(item[2]) < math.inf) == chosen]
            points = axes.scatter(
                indices,
                [heights[index] for index in indices],
                s=22,
                marker=marker,
                c=[_BAND_COLOURS[band_of(tensors[index][2]).name] for index in indices],
                edgecolors=_INK,
                linewidths=0.4,
                zorder=2,
            )
            points.set_urls([f"#t{tensors[index][0]}" for index in indices])
        axes.set_ylim(low - 1.5 * margin, high + 1.5 * margin)
        axes.set_xlim(-0.5, len(tensors) - 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(20, integer=True))
        axes.grid(axis="y", color=_RULE, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.set_ylabel("SQNR in dB")
        axes.set_xlabel("measured tensors in execution order")
        axes.tick_params(length=2)
        return _svg(figure, prefix, label)


def _bounded(ratio: float | None) -> float:
    """The value to draw; an undefined ratio is drawn lowest."""
    return -math.inf if ratio is None else ratio
