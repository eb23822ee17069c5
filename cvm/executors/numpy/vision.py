"""Vision ops: selection of detections, batch by batch."""

from __future__ import annotations

import numpy as np

from cvm.executors.numpy.step import Array, PlannedNode, plans, single
from cvm.limits import INT64_MAX
from cvm.ops.declaration import Call
from cvm.records import dataclass

__all__: list[str] = []


@plans("get_valid_count")
def plan_get_valid_count(call: Call) -> PlannedNode:
    """The rows whose score exceeds the threshold, in their order, and the number of these rows."""
    threshold = call.attributes.score_threshold

    def run(X: Array) -> tuple[Array, Array]:
        valid = X[:, :, 1] > threshold
        Y = np.full(X.shape, -1, np.int32)
        for rows, chosen, target in zip(X, valid, Y, strict=True):
            kept = rows[chosen]
            target[: len(kept)] = kept
        return np.count_nonzero(valid, axis=1).astype(np.int32), Y

    return PlannedNode(lambda arrays: run(*arrays), "int32")


@plans("non_max_suppression")
def plan_non_max_suppression(call: Call) -> PlannedNode:
    """Greedy selection in the order of falling scores."""
    a = call.attributes
    lo, hi = call.ranges[0].hull()
    suppression = Suppression.of(hi - lo, a.iou_threshold, a.force_suppress)

    def run(X: Array, valid_count: Array) -> Array:
        Y = np.full(X.shape, -1, np.int32)
        for rows, count, target in zip(X, valid_count.tolist(), Y, strict=True):
            total = max(min(len(rows), count), 0)
            order = np.argsort(-rows[:total, 1], kind="stable")
            candidates = rows[order[: _unlimited(a.top_k, total)]]
            kept = suppression.survivors(candidates[candidates[:, 0] >= 0], _unlimited(a.max_output_size, total))
            target[: len(kept)] = kept
        return Y

    return single(run, f"{suppression.dtype.name} areas, coordinates in [{lo}, {hi}]")


def _unlimited(count: int, total: int) -> int:
    """The limit ``count`` on a number of rows; if it is negative there is no limit, and the result is ``total``."""
    return total if count < 0 else min(count, total)


@dataclass(frozen=True, slots=True)
class Suppression:
    """The rule by which one box suppresses another, and the integer type in which it is evaluated.

    Rows are (id, score, x1, y1, x2, y2). Areas (x2 - x1) * (y2 - y1) have a sign. Let o >= 0 be the overlap of two
    boxes and u = sum of their areas - o the union. One suppresses the other if the sum and u are positive and 100 * o
    >= threshold * u. An overlap that is not empty lies within both boxes, so o <= u; so every threshold above 100 acts
    like 101.

    If coordinates differ by at most D, then |area| <= D^2, |u| <= 3 * D^2 and o <= D^2. So int64 is wide enough if
    303 * D^2 < 2^63.
    """

    dtype: np.dtype[np.generic]
    threshold: int
    force: bool

    @staticmethod
    def of(spread: int, threshold: int, force: bool) -> Suppression:
        """The rule for coordinates that differ by at most ``spread``: in int64, or in Python integers if that could
        overflow.
        """
        wide = 303 * spread * spread <= INT64_MAX
        return Suppression(np.dtype(np.int64 if wide else object), min(threshold, 101), force)

    def survivors(self, candidates: Array, limit: int) -> Array:
        """The first ``limit`` candidates that no earlier survivor suppresses, in the order of falling scores."""
        boxes = candidates[:, 2:6].astype(self.dtype).T
        areas = (boxes[2] - boxes[0]) * (boxes[3] - boxes[1])
        alive = np.ones(len(candidates), np.bool_)
        kept: list[int] = []
        for index in range(len(candidates)):
            if len(kept) == limit:
                break
            if not alive[index]:
                continue
            kept.append(index)
            later = slice(index + 1, None)
            suppressed = self.overlapping(boxes[:, later], areas[later], boxes[:, index], areas[index])
            if not self.force:
                suppressed &= candidates[later, 0] == candidates[index, 0]
            alive[later] &= ~suppressed
        return candidates[kept]

    def overlapping(self, boxes: Array, areas: Array, box: Array, area: Array) -> Array:
        """Which of ``boxes`` (x1, y1, x2, y2; n) overlap ``box`` by the threshold or more."""
        x1, y1 = np.maximum(boxes[0], box[0]), np.maximum(boxes[1], box[1])
        x2, y2 = np.minimum(boxes[2], box[2]), np.minimum(boxes[3], box[3])
        overlap = np.maximum(x2 - x1, 0) * np.maximum(y2 - y1, 0)
        total = areas + area
        union = total - overlap
        enough = 100 * overlap >= self.threshold * union
        suppressed: Array = (total > 0) & (union > 0) & enough
        return suppressed.astype(np.bool_)
