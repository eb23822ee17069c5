from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.drawing import layout
from cvm.drawing.layout import lay_out

SIZES = {"width": 100, "height": 30, "gap": 20, "lane": 10}


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 25))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda pair: pair[0] < pair[1])
    return count, draw(st.lists(pairs, unique=True, max_size=40)) if count > 1 else []


@given(graphs())
def test_boxes_are_apart_and_lines_run_down_past_them(graph):
    count, edges = graph
    drawing = lay_out(count, edges, **SIZES)
    assert drawing == lay_out(count, edges, **SIZES)
    assert len(drawing.corners) == count
    for (x, y), (other_x, other_y) in combinations(drawing.corners, 2):
        assert abs(x - other_x) >= 100 + 20 - 0.2 or abs(y - other_y) >= 30 + 20
    for x, y in drawing.corners:
        assert 0 <= x <= drawing.width - 100
        assert 0 <= y <= drawing.height - 30
    assert [(line.source, line.target) for line in drawing.lines] == edges
    for line in drawing.lines:
        assert line.points[0] == pytest.approx(middle(drawing.corners[line.source], 30))
        assert line.points[-1] == pytest.approx(middle(drawing.corners[line.target], 0))
        assert all(upper[1] < lower[1] for upper, lower in pairwise(line.points))
        for x, y in line.points[1:-1:2]:
            beside = [corner for corner in drawing.corners if corner[1] == y]
            assert all(x < left or left + 100 < x for left, _ in beside)


def middle(corner, down):
    return corner[0] + 50, corner[1] + down


def test_a_chain_with_shortcuts_is_straight():
    edges = [(item, item + 1) for item in range(40)] + [(item, item + 8) for item in range(0, 32, 8)]
    drawing = lay_out(41, edges, **SIZES)
    assert len({x for x, _ in drawing.corners}) == 1
    assert drawing.width < 250


@given(graphs())
def test_crossings_are_counted(graph):
    count, edges = graph
    half = count // 2
    links = [(upper, lower) for upper, lower in edges if upper < half <= lower]
    below = [[] for _ in range(count)]
    for upper, lower in links:
        below[upper].append(lower)
    rows = [list(range(half)), list(range(half, count))]
    columns = {item: index for row in rows for index, item in enumerate(row)}
    crossing = sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(links, 2))
    assert layout._crossings(rows, below, columns) == crossing


def test_what_nobody_could_read_is_not_laid_out(monkeypatch):
    edges = [(item, item + 1) for item in range(9)] + [(0, 9)]
    monkeypatch.setattr(layout, "_WAYPOINTS", 8)
    assert lay_out(10, edges, **SIZES) is not None
    monkeypatch.setattr(layout, "_WAYPOINTS", 7)
    assert lay_out(10, edges, **SIZES) is None
