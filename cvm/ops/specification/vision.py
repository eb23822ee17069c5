"""The statements about the vision ops."""

from __future__ import annotations

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Example, Statement

__all__ = ["STATEMENTS"]

STATEMENTS = {
    "get_valid_count": Statement(
        where=("B, N, K = X.shape",),
        shapes=("(B,)", "X.shape"),
        interval=(
            (
                "valid_count: R(X) is first made to fit 2^18 bounds; the count is its extent along the batches. For "
                "each batch of bounds, lo is the number of bounds along the rows whose lower bound, at column 1, is "
                "greater than score_threshold, and hi is this number for upper bounds; a bound for all rows counts N "
                "times. If R(X) has extent 1 along the columns, its bound is the bound of column 1."
            ),
            "Y: one bound, the hull of R(X) and -1.",
        ),
        example=Example((given((1, 3, 2), (0, 10, 1, 90, 2, 60), (0, 100)),), {"score_threshold": 50}),
    ),
    "non_max_suppression": Statement(
        where=("B, N, K = X.shape",),
        shapes=("X.shape",),
        work="32 * B * N * N",
        interval=("One bound, the hull of R(X) and -1.",),
        example=Example(
            (
                given(
                    (1, 3, 6),
                    (0, 50, 0, 0, 10, 10, 0, 90, 0, 0, 10, 8, 1, 70, 0, 0, 10, 10),
                    (0, 100),
                ),
                constant((1,), (3,)),
            ),
            {"iou_threshold": 50},
        ),
        formulas=(
            "OLR(r, s) in percent, for rows r and s with corners x1, y1, x2, y2, compared exactly:",
            "  area(r) = (r.x2 - r.x1) * (r.y2 - r.y1), negative where the corners of one axis are swapped;",
            "  I = max(0, min(r.x2, s.x2) - max(r.x1, s.x1)) * max(0, min(r.y2, s.y2) - max(r.y1, s.y1));",
            "  union = area(r) + area(s) - I;",
            "  OLR(r, s) >= iou_threshold  if and only if  area(r) + area(s) > 0 and union > 0 and",
            "  100 * I >= iou_threshold * union.",
        ),
    ),
}
