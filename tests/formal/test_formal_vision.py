from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formal.registry import OPS
from tests.formal.formal_tensors import call, nested, tensor


def boxes(scale: int) -> st.SearchStrategy[list[list[int]]]:
    """Rows (id, score, x1, y1, x2, y2) with few ids and scores, so that ties and rivals are common."""
    corner = st.integers(-3, 3).map(lambda c: c * scale)
    row = st.tuples(st.integers(-1, 1), st.integers(-2, 2), corner, corner, corner, corner)
    return st.lists(row.map(list), min_size=1, max_size=8)


@given(boxes(1), st.integers(-3, 3))
def test_get_valid_count_keeps_the_rows_above_the_threshold_in_order(rows: list[list[int]], threshold: int) -> None:
    batches = [rows, rows[::-1]]
    kept = [[row for row in batch if row[1] > threshold] for batch in batches]
    result = OPS["get_valid_count"](tensor(batches), score_threshold=threshold)
    assert isinstance(result, tuple)
    count, Y = result
    assert nested(count) == [len(batch) for batch in kept]
    assert nested(Y) == [batch + [[-1] * 6] * (len(rows) - len(batch)) for batch in kept]


def percent(r: list[int], s: list[int]) -> int:
    """The overlap in percent, rounded down: the C++ library's way to say it, in exact arithmetic."""
    area_r = (r[4] - r[2]) * (r[5] - r[3])
    area_s = (s[4] - s[2]) * (s[5] - s[3])
    both = max(0, min(r[4], s[4]) - max(r[2], s[2])) * max(0, min(r[5], s[5]) - max(r[3], s[3]))
    if area_r + area_s <= 0 or area_r + area_s - both <= 0:
        return 0
    return int(Fraction(100 * both, area_r + area_s - both))


def suppressed(rows: list[list[int]], count: int, threshold: int, limit: int, force: bool, top_k: int) -> Any:
    """Greedy suppression that removes rivals from a list: another way than FORMAL's set U."""
    left = sorted(rows[: max(count, 0)], key=lambda row: -row[1])
    left = [row for row in (left if top_k < 0 else left[:top_k]) if row[0] >= 0]
    kept: list[list[int]] = []
    while left:
        best, *left = left
        kept.append(best)
        left = [row for row in left if not ((force or row[0] == best[0]) and percent(row, best) >= threshold)]
    kept = kept if limit < 0 else kept[:limit]
    return kept + [[-1] * 6] * (len(rows) - len(kept))


@given(
    st.one_of(boxes(1), boxes(2**28)),
    st.integers(-1, 9),
    st.sampled_from([1, 10, 33, 34, 50, 99, 100, 101, 2**31 - 1]),
    st.integers(-1, 4),
    st.booleans(),
    st.integers(-1, 6),
)
def test_non_max_suppression_equals_a_greedy_removal(
    rows: list[list[int]], count: int, threshold: int, limit: int, force: bool, top_k: int
) -> None:
    attributes = {"iou_threshold": threshold, "max_output_size": limit, "force_suppress": force, "top_k": top_k}
    found = call("non_max_suppression", [rows, rows[::-1]], [count, len(rows)], **attributes)
    assert found == [
        suppressed(rows, count, threshold, limit, force, top_k),
        suppressed(rows[::-1], len(rows), threshold, limit, force, top_k),
    ]
