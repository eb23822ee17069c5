"""Vision ops (the document's section "Vision Operators")."""

from __future__ import annotations

from cvm.ops.attributes import EXTENT, INT32, INTEGER, TRUTH, Attribute, TypedAttributes
from cvm.ops.declaration import Call, Constraint, Input, Op, register
from cvm.ops.ranges import BOUNDS, Range, Shape, affordable

__all__ = ["GetValidCount", "NonMaxSuppression"]


def _rows_or_fill(x: Range) -> Range:
    """The range of rows of ``x`` in any order, or of rows of -1."""
    return x.over(range(3)).union(Range.uniform(3, -1, -1))


@register
class GetValidCount(Op):
    """The number of rows of each batch with a score above a threshold, and these rows, moved to the front.

    valid_count[b] = card {q | X[b, q, 1] > score_threshold}; Y holds these rows of X in order, then rows of -1.
    """

    name = "get_valid_count"
    family = "vision"
    source = "Vision Operators, get_valid_count"
    inputs = (Input("X", "rows (id, score, ..), (B, N, K)"),)
    outputs = ("valid_count", "Y")

    class Attributes(TypedAttributes):
        """The threshold."""

        score_threshold = Attribute(INT32, "a row is valid if its score is greater than this")

    constraints = (
        Constraint("C1", "X of 3 dimensions", lambda c: len(c.shapes[0]) == 3),
        Constraint("C2", "2 <= K <= 32", lambda c: 2 <= c.shapes[0][2] <= 32),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0][:1], call.shapes[0])

    def range(self, call: Call) -> tuple[Range, ...]:
        threshold = call.attributes.score_threshold
        (x,) = affordable(call.ranges, lambda shapes: shapes[0][0], allowed=BOUNDS)
        score = x.moved(lambda bounds: bounds[:, :, min(1, bounds.shape[2] - 1)])
        rows = call.shapes[0][1] // score.shape[1]
        count = score.moved(lambda bounds: (bounds > threshold).sum(axis=1) * rows)
        return (count, _rows_or_fill(call.ranges[0]))


@register
class NonMaxSuppression(Op):
    """The boxes in the order of falling scores, without those that overlap a better box too much; then rows of -1.

    A row is (id, score, x1, y1, x2, y2). In each batch, only the first valid_count[b] rows are considered. A row with a
    negative id is dropped. A row is also dropped if a kept row of the same id (with force_suppress: of any id) overlaps
    it by iou_threshold percent or more: intersection over union, in exact integers.
    """

    name = "non_max_suppression"
    family = "vision"
    source = "Vision Operators, non_max_suppression"
    inputs = (
        Input("X", "rows (id, score, x1, y1, x2, y2), (B, N, 6)"),
        Input("valid_count", "the number of rows that take part, (B,)"),
    )

    class Attributes(TypedAttributes):
        """Thresholds and limits."""

        iou_threshold = Attribute(EXTENT, "the least overlap in percent that suppresses a row; above 100: none")
        max_output_size = Attribute(INTEGER, "the most rows to keep; negative: no limit", default=-1)
        force_suppress = Attribute(TRUTH, "whether boxes of different ids suppress each other", default=False)
        top_k = Attribute(INTEGER, "the most rows to consider, by score; negative: no limit", default=-1)

    constraints = (
        Constraint("C1", "X of 3 dimensions, K = 6", lambda c: len(c.shapes[0]) == 3 and c.shapes[0][2] == 6),
        Constraint("C2", "valid_count of shape (B,)", lambda c: c.shapes[1] == c.shapes[0][:1]),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (_rows_or_fill(call.ranges[0]),)

    def work(self, call: Call) -> int:
        # Every pair of rows takes four extremes, three areas and a comparison of products of up to 71 bits.
        batches, rows, _ = call.shapes[0]
        return 32 * batches * rows * rows
