"""Cases of the vision ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tools.vector_cases.case import Cases, Tensor, arange, filled, tensor
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY", "rows"]

Row = Sequence[int]


def rows(*batches: Sequence[Row]) -> Tensor:
    """A tensor (B, N, K) of rows."""
    flat = [x for batch in batches for row in batch for x in row]
    return tensor((len(batches), len(batches[0]), len(batches[0][0])), flat)


def get_valid_count(op: str) -> Cases:
    """All, none and some rows valid; scores at the threshold; several batches; every K at its ends."""
    c = Cases(op)
    for index in range(28):
        s = Stream(f"{op}/drawn_{index}")
        shape = (s.between(1, 3), s.between(1, 6), s.choice((2, 3, 5, 6, 7)))
        threshold = s.between(-2, 2)
        aim = f"{list(shape)}, scores around the threshold {threshold}"
        c.value(f"drawn_{index:02}", aim, s.spread(shape, threshold - 2, threshold + 2), score_threshold=threshold)
    for k in (2, 3, 6, 31, 32):
        s = Stream(f"{op}/k_{k}")
        c.value(f"k_{k}", f"rows of {k}", s.spread((2, 3, k), -5, 5), score_threshold=0)
    some = rows([(1, 5, 9), (2, 4, 8), (3, 6, 7), (4, 5, 6)])
    for threshold in (3, 4, 5, 6, 7, MAX, -MAX):
        name = f"threshold_{threshold}".replace("-", "m")
        c.value(name, f"scores 5, 4, 6, 5 against {threshold}", some, score_threshold=threshold)
    c.value("negative_scores", "scores below zero", rows([(1, -5), (2, -4), (3, -3)]), score_threshold=-4)
    c.value("extremes", "the extremes as scores", rows([(MAX, MAX), (-MAX, -MAX), (0, 0)]), score_threshold=MAX - 1)
    c.value(
        "batches",
        "a batch of all, one of none, one of some",
        rows([(1, 9), (2, 9)], [(3, 0), (4, 0)], [(5, 0), (6, 9)]),
        score_threshold=5,
    )
    c.value("minus_one", "rows of -1 are valid rows too", rows([(-1, -1), (-1, 3), (0, -1)]), score_threshold=-2)
    c.value("id_is_not_score", "the id is larger, the score is smaller", rows([(9, 1), (1, 9)]), score_threshold=5)
    x = arange((1, 2, 6))
    c.refused("C1", "X of 2 dimensions", arange((2, 6)), score_threshold=0)
    c.refused("C1", "X of 4 dimensions", arange((1, 1, 2, 6)), score_threshold=0)
    c.refused("C2", "K = 1", arange((1, 2, 1)), score_threshold=0)
    c.refused("C2", "K = 33", arange((1, 1, 33)), score_threshold=0)
    c.refused("attribute.score_threshold", "score_threshold is missing", x)
    c.refused("attribute.score_threshold", "-2^31 is no element", x, score_threshold=-(2**31))
    c.refused("attribute.score_threshold", "a boolean is no integer", x, score_threshold=True)
    c.refused("attribute.threshold", "an attribute that the op has not", x, score_threshold=0, threshold=0)
    c.refused("arity", "two inputs", x, x, score_threshold=0)
    return c


WHOLE = (-MAX, -MAX, MAX, MAX)
"""The corners of the largest box; its area is near 2^64."""

PLAIN: dict[str, Any] = {"iou_threshold": 50, "max_output_size": -1, "force_suppress": False, "top_k": -1}


def _boxes(s: Stream, batches: int, count: int, size: int) -> Tensor:
    """Boxes with few ids, few scores and overlapping corners; one in eight has its corners swapped."""
    drawn = []
    for _ in range(batches):
        batch = []
        for _ in range(count):
            x, y = s.between(0, size), s.between(0, size)
            w, h = s.between(0, size), s.between(0, size)
            corners = (x, y, x + w, y + h) if s.between(0, 7) else (x + w, y, x, y + h)
            batch.append((s.between(-1, 2), s.between(0, 5), *corners))
        drawn.append(batch)
    return rows(*drawn)


CRAFTED: tuple[tuple[str, str, Sequence[Row], dict[str, Any]], ...] = (
    ("identical_50", "identical boxes", [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {}),
    ("identical_100", "identical boxes overlap by exactly 100",
     [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {"iou_threshold": 100}),
    ("identical_101", "101 never suppresses", [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {"iou_threshold": 101}),
    ("identical_largest", "nor does a larger one", [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {"iou_threshold": MAX}),
    ("half_at_50", "overlap of exactly 50", [(0, 9, 0, 0, 2, 1), (0, 8, 0, 0, 1, 1)], {}),
    ("half_at_51", "overlap of exactly 50", [(0, 9, 0, 0, 2, 1), (0, 8, 0, 0, 1, 1)], {"iou_threshold": 51}),
    ("third_at_33", "overlap of 1/3", [(0, 9, 0, 0, 2, 1), (0, 8, 1, 0, 3, 1)], {"iou_threshold": 33}),
    ("third_at_34", "overlap of 1/3", [(0, 9, 0, 0, 2, 1), (0, 8, 1, 0, 3, 1)], {"iou_threshold": 34}),
    ("unit", "identical boxes of area 1", [(0, 9, 3, 3, 4, 4), (0, 8, 3, 3, 4, 4)], {}),
    ("touching_edge", "a common edge is no overlap", [(0, 9, 0, 0, 2, 2), (0, 8, 2, 0, 4, 2)], {"iou_threshold": 1}),
    ("touching_corner", "a common corner is no overlap",
     [(0, 9, 0, 0, 2, 2), (0, 8, 2, 2, 4, 4)], {"iou_threshold": 1}),
    ("apart_both_axes", "two negative extents make no overlap",
     [(0, 9, 0, 0, 2, 2), (0, 8, 5, 5, 7, 7)], {"iou_threshold": 1}),
    ("inside_at_1", "1 of 100", [(0, 9, 0, 0, 10, 10), (0, 8, 3, 3, 4, 4)], {"iou_threshold": 1}),
    ("inside_at_2", "1 of 100", [(0, 9, 0, 0, 10, 10), (0, 8, 3, 3, 4, 4)], {"iou_threshold": 2}),
    ("other_id", "another id is not compared", [(0, 9, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {}),
    ("other_id_forced", "another id is compared", [(0, 9, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"force_suppress": True}),
    ("negative_id", "a negative id is left out", [(-1, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {}),
    ("negative_id_forced", "a negative id suppresses nothing",
     [(-1, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4)], {"force_suppress": True}),
    ("negative_ids_only", "nothing is left", [(-1, 9, 0, 0, 4, 4), (-5, 8, 0, 0, 4, 4)], {}),
    ("negative_id_counts_for_top_k", "top_k counts a negative id",
     [(-1, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4), (0, 7, 9, 9, 10, 10)], {"top_k": 2}),
    ("by_score", "falling scores", [(0, 1, 0, 0, 1, 1), (1, 3, 5, 5, 6, 6), (2, 2, 8, 8, 9, 9)], {}),
    ("equal_scores", "equal scores keep their order", [(0, 5, 0, 0, 1, 1), (1, 5, 5, 5, 6, 6), (2, 5, 8, 8, 9, 9)], {}),
    ("equal_scores_suppress", "of equal scores the first wins", [(0, 5, 0, 0, 4, 4), (0, 5, 0, 0, 4, 5)], {}),
    ("chain", "the suppressed one does not suppress", [(0, 9, 0, 0, 4, 1), (0, 8, 1, 0, 5, 1), (0, 7, 2, 0, 6, 1)], {}),
    ("top_k_0", "0 looks at nothing", [(0, 9, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"top_k": 0}),
    ("top_k_1", "the best one", [(0, 7, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"top_k": 1}),
    ("top_k_large", "more than there are", [(0, 7, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"top_k": MAX}),
    ("top_k_least", "any negative number is no limit", [(0, 7, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"top_k": -(2**31)}),
    ("top_k_suppressed", "a suppressed one counts",
     [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4), (1, 7, 0, 0, 4, 4)], {"top_k": 2}),
    ("output_0", "0 keeps nothing", [(0, 9, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"max_output_size": 0}),
    ("output_1", "one is kept", [(0, 7, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"max_output_size": 1}),
    ("output_2_of_3", "suppressed ones do not count",
     [(0, 9, 0, 0, 4, 4), (0, 8, 0, 0, 4, 4), (1, 7, 0, 0, 4, 4)], {"max_output_size": 2}),
    ("output_least", "any negative number is no limit",
     [(0, 7, 0, 0, 4, 4), (1, 8, 0, 0, 4, 4)], {"max_output_size": -(2**31)}),
    ("empty_boxes", "identical boxes of area 0", [(0, 9, 1, 1, 1, 1), (0, 8, 1, 1, 1, 1)], {"iou_threshold": 1}),
    ("empty_inside", "an empty box inside another", [(0, 9, 0, 0, 4, 4), (0, 8, 2, 2, 2, 2)], {"iou_threshold": 1}),
    ("swapped_once", "areas that sum to zero", [(0, 9, 0, 0, 4, 4), (0, 8, 4, 0, 0, 4)], {"iou_threshold": 1}),
    ("swapped_twice", "swapped on both axes: a positive area, no extent",
     [(0, 9, 0, 0, 4, 4), (0, 8, 4, 4, 0, 0)], {"iou_threshold": 1}),
    ("swapped_smaller", "a small negative area", [(0, 9, 0, 0, 10, 10), (0, 8, 3, 1, 2, 9)], {"iou_threshold": 1}),
    ("negative_union", "an overlap larger than the areas",
     [(0, 9, 0, 0, 10, 10), (0, 8, 0, 6, 10, 5)], {"iou_threshold": 1}),
    ("negative_coordinates", "corners below zero", [(0, 9, -4, -4, 0, 0), (0, 8, -4, -3, 0, 0)], {"iou_threshold": 75}),
    ("negative_scores", "scores below zero", [(0, -9, 0, 0, 1, 1), (0, -8, 3, 3, 4, 4), (0, 0, 6, 6, 7, 7)], {}),
    ("extreme_scores", "the extremes as scores", [(0, -MAX, 0, 0, 1, 1), (0, MAX, 3, 3, 4, 4), (0, 0, 6, 6, 7, 7)], {}),
    ("large_identical", "areas near 2^64", [(0, 9, *WHOLE), (0, 8, *WHOLE)], {"iou_threshold": 100}),
    ("large_almost", "one row less than 100",
     [(0, 9, *WHOLE), (0, 8, -MAX, 1 - MAX, MAX, MAX)], {"iou_threshold": 100}),
    ("large_at_99", "one row less than 100", [(0, 9, *WHOLE), (0, 8, -MAX, 1 - MAX, MAX, MAX)], {"iou_threshold": 99}),
    ("large_half", "half of the plane", [(0, 9, *WHOLE), (0, 8, -MAX, -MAX, MAX, 0)], {"iou_threshold": 50}),
    ("large_half_less", "a little less than half",
     [(0, 9, *WHOLE), (0, 8, -MAX, -MAX, MAX, -1)], {"iou_threshold": 50}),
    ("large_id", "the largest id", [(MAX, 9, 0, 0, 4, 4), (MAX, 8, 0, 0, 4, 4), (MAX - 1, 7, 0, 0, 4, 4)], {}),
)  # fmt: skip
"""Single batches of valid rows: name, aim, rows, attributes that differ from the defaults."""


def non_max_suppression(op: str) -> Cases:
    """The table, drawn boxes over all attributes, counts of all kinds."""
    c = Cases(op)
    for name, aim, batch, changed in CRAFTED:
        c.value(name, aim, rows(batch), tensor((1,), [len(batch)]), **{**PLAIN, **changed})
    for index in range(24):
        s = Stream(f"{op}/drawn_{index}")
        batches, count = s.between(1, 3), s.between(1, 9)
        attributes = {
            "iou_threshold": s.choice((1, 10, 25, 33, 50, 67, 100, 101)),
            "max_output_size": s.choice((-1, -1, 0, 1, 3, 20)),
            "force_suppress": bool(s.between(0, 1)),
            "top_k": s.choice((-1, -1, 1, 4, 20)),
        }
        valid = tensor((batches,), [s.between(-1, count + 2) for _ in range(batches)])
        aim = f"{batches} batches of {count} boxes"
        c.value(f"drawn_{index:02}", aim, _boxes(s, batches, count, 6), valid, **attributes)
    three = [(0, 7, 0, 0, 1, 1), (1, 9, 3, 3, 4, 4), (2, 8, 6, 6, 7, 7)]
    for count in (0, -1, -MAX, 1, 2, 3, 4, MAX):
        name = f"count_{count}".replace("-", "m")
        c.value(name, f"valid_count {count} of 3 rows", rows(three), tensor((1,), [count]), **PLAIN)
    c.value(
        "counts",
        "one batch without rows does not end the others",
        rows(three, three, three),
        tensor((3,), [3, 0, 2]),
        **PLAIN,
    )
    x, n = filled((1, 2, 6), 1), tensor((1,), [2])
    c.refused("C1", "X of 2 dimensions", filled((2, 6), 1), n, **PLAIN)
    c.refused("C1", "K = 5", filled((1, 2, 5), 1), n, **PLAIN)
    c.refused("C1", "K = 7", filled((1, 2, 7), 1), n, **PLAIN)
    c.refused("C2", "two counts for one batch", x, tensor((2,), [1, 1]), **PLAIN)
    c.refused("C2", "counts of two dimensions", x, tensor((1, 1), [2]), **PLAIN)
    for name, bad in (
        ("iou_threshold", 0), ("iou_threshold", -1), ("iou_threshold", 2**31), ("max_output_size", True),
        ("max_output_size", 2**31), ("force_suppress", 1), ("top_k", -(2**31) - 1),
    ):  # fmt: skip
        c.refused(f"attribute.{name}", f"{name} = {bad}", x, n, **{**PLAIN, name: bad})
    c.refused("attribute.coord_start", "an attribute that the op has not", x, n, **PLAIN, coord_start=2)
    c.refused("arity", "no valid_count", x, **PLAIN)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "get_valid_count": get_valid_count,
    "non_max_suppression": non_max_suppression,
}
"""For each op, the function that makes its cases."""
