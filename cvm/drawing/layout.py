"""Layered drawings of graphs: the positions of boxes and of the lines between them. Pure geometry.

Four steps, each deterministic. Layers follow from the longest path. An edge that crosses layers gets a waypoint in each
of them. Sweeps of barycentres find the order within layers. Isotonic regression finds the positions: as near to the
neighbours as the order allows, so that chains run straight.

Source: Sugiyama, Tagawa, Toda, Methods for Visual Understanding of Hierarchical System Structures, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cvm.records import dataclass

__all__ = ["Drawing", "Line", "Point", "lay_out"]

Point = tuple[float, float]

_SWEEPS = 12
_LIGHT = 1e-4
"""The weight of a waypoint relative to a box: less than 1, so that lines give way to boxes."""
_WAYPOINTS = 50_000
"""A graph with more crossings of layers than this is not drawn: nobody could read it."""


@dataclass(frozen=True, slots=True)
class Line:
    """An edge: from the middle of the lower side of one box, through points, to the upper side of another."""

    source: int
    target: int
    points: tuple[Point, ...]
    """The points where the edge enters and leaves each layer between, from top to bottom: two for every layer."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Upper left corners of the boxes by number, the edges, and the extents of the whole."""

    corners: tuple[Point, ...]
    lines: tuple[Line, ...]
    width: float
    height: float


def lay_out(
    count: int,
    edges: Sequence[tuple[int, int]],
    *,
    width: float,
    height: float,
    gap: float,
    lane: float,
) -> Drawing | None:
    """Lay out ``count`` boxes of one size, top to bottom; every edge runs from a lower to a higher number.

    ``gap`` is the space between layers and between boxes, ``lane`` the space for a line that passes a layer. None for a
    graph with so many long edges that its drawing would be unreadable.
    """
    assert all(0 <= source < target < count for source, target in edges)
    layers = _layers(count, edges)
    if sum(layers[target] - layers[source] - 1 for source, target in edges) > _WAYPOINTS:
        return None
    chains, layer_of = _with_waypoints(count, edges, layers)
    rows: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for item, row in enumerate(layer_of):
        rows[row].append(item)
    links = [pair for chain in chains for pair in pairwise(chain)]
    above, below = _neighbours(len(layer_of), links)
    _order(rows, above, below)
    extents = [width if item < count else lane for item in range(len(layer_of))]
    middles = _positions(rows, above, below, extents, count, gap)
    left = min((middle - extent / 2 for middle, extent in zip(middles, extents, strict=True)), default=0.0)
    middles = [round(middle - left + gap, 1) for middle in middles]
    tops = [round(gap + row * (height + gap), 1) for row in layer_of]
    right = max((middle + extent / 2 for middle, extent in zip(middles, extents, strict=True)), default=0.0)
    return Drawing(
        tuple((round(middles[item] - width / 2, 1), tops[item]) for item in range(count)),
        tuple(Line(chain[0], chain[-1], _points(chain, middles, tops, height)) for chain in chains),
        round(right + gap, 1),
        gap + len(rows) * (height + gap),
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below the lowest box that it reads, or just above the first box that reads it."""
    layers = [0] * count
    into, out = _neighbours(count, edges)
    for item in range(count):
        layers[item] = max((layers[source] + 1 for source in into[item]), default=0)
    for item in range(count):
        if not into[item] and out[item]:
            layers[item] = min(layers[target] for target in out[item]) - 1
    return layers


def _with_waypoints(
    count: int, edges: Sequence[tuple[int, int]], layers: Sequence[int]
) -> tuple[list[list[int]], list[int]]:
    """Each edge as a chain of items in successive layers, and the layer of each item: boxes first, then waypoints."""
    layer_of, chains = list(layers), []
    for source, target in edges:
        between = range(layers[source] + 1, layers[target])
        chains.append([source, *range(len(layer_of), len(layer_of) + len(between)), target])
        layer_of += between
    return chains, layer_of


def _neighbours(count: int, links: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[list[int]]]:
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for upper, lower in links:
        above[lower].append(upper)
        below[upper].append(lower)
    return above, below


def _order(rows: list[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> None:
    """Sort the items of each row by the mean index of their neighbours, sweeping down and up; keep the best order."""
    columns = {item: index for row in rows for index, item in enumerate(row)}
    best, fewest = [list(row) for row in rows], _crossings(rows, below, columns)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            means = {item: _mean([columns[other] for other in neighbours[item]], columns[item]) for item in row}
            row.sort(key=lambda item: means[item])
            columns.update((item, index) for index, item in enumerate(row))
        crossings = _crossings(rows, below, columns)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    rows[:] = best


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]], columns: dict[int, int]) -> int:
    """How many pairs of links cross, counted with a tree of partial sums."""
    total = 0
    for row, following in pairwise(rows):
        ends = [end for item in row for end in sorted(columns[other] for other in below[item])]
        tree = [0] * (len(following) + 1)
        for seen, end in enumerate(ends):
            total += seen - _sum_to(tree, end)
            _count(tree, end)
    return total


def _sum_to(tree: Sequence[int], end: int) -> int:
    """How many indices up to ``end`` have been counted."""
    found, node = 0, end + 1
    while node:
        found += tree[node]
        node &= node - 1
    return found


def _count(tree: list[int], end: int) -> None:
    node = end + 1
    while node < len(tree):
        tree[node] += 1
        node += node & -node


def _positions(
    rows: Sequence[Sequence[int]],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    extents: Sequence[float],
    boxes: int,
    gap: float,
) -> list[float]:
    """The middle of each item, placed near the mean of its neighbours."""
    middles = [0.0] * len(extents)
    for row in rows:
        _spread(row, [0.0] * len(row), [1.0] * len(row), extents, gap, middles)
    for sweep in range(2 * _SWEEPS + 1):
        downwards = sweep % 2 == 0
        neighbours = above if downwards else below
        for row in rows if downwards else reversed(rows):
            wishes = [_wish(item, neighbours[item], middles, boxes) for item in row]
            weights = [_LIGHT if item >= boxes or not neighbours[item] else 1.0 for item in row]
            _spread(row, wishes, weights, extents, gap, middles)
    return middles


def _wish(item: int, neighbours: Sequence[int], middles: Sequence[float], boxes: int) -> float:
    """The mean position of the neighbours of the same kind, or else of all: chains and long lines run straight."""
    alike = [other for other in neighbours if (other < boxes) == (item < boxes)] or neighbours
    return _mean([middles[other] for other in alike], middles[item])


def _spread(
    row: Sequence[int],
    wishes: Sequence[float],
    weights: Sequence[float],
    extents: Sequence[float],
    gap: float,
    middles: list[float],
) -> None:
    """Place the items of a row as near to their wishes (weighted squares) as their order and extents allow.

    After the distances between neighbours are subtracted, this is isotonic regression: adjacent violators are pooled.
    """
    shifts, shift = [], 0.0
    for index, item in enumerate(row):
        if index:
            shift += (extents[row[index - 1]] + extents[item]) / 2 + gap
        shifts.append(shift)
    pools: list[tuple[float, float, int]] = []  # weighted mean, weight, number of items
    for wish, weight, moved in zip(wishes, weights, shifts, strict=True):
        mean, total, items = wish - moved, weight, 1
        while pools and pools[-1][0] > mean:
            before, other, others = pools.pop()
            mean = (before * other + mean * total) / (other + total)
            total, items = total + other, items + others
        pools.append((mean, total, items))
    settled = [mean for mean, _, items in pools for _ in range(items)]
    for item, mean, moved in zip(row, settled, shifts, strict=True):
        middles[item] = mean + moved


def _points(chain: Sequence[int], middles: Sequence[float], tops: Sequence[float], height: float) -> tuple[Point, ...]:
    """The points where an edge enters and leaves each layer, between the sides of its two boxes."""
    first, *waypoints, last = chain
    points = [(middles[first], tops[first] + height)]
    for item in waypoints:
        points += [(middles[item], tops[item]), (middles[item], tops[item] + height)]
    return (*points, (middles[last], tops[last]))
