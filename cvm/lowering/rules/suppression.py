"""Non-maximum suppression of boxes whose coordinates have one scale and offset, by the op of that name."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from cvm.limits import INT32_MAX
from cvm.lowering.claims import exact
from cvm.lowering.context import Lowering, Result, rule
from cvm.lowering.forms.form import LinearForm, Term
from cvm.quantization.rationals import Rationals

__all__: list[str] = []


@rule("non_max_suppression", claim=exact("areas of the integers of the boxes; scores are compared as codes"))
def non_max_suppression(lowering: Lowering) -> list[Result]:
    """The indices (B, count) of the boxes (B, N, 4) that are kept, followed by -1.

    Overlaps do not change if all boxes are moved or scaled, so the integers of the coordinates' codes can be used. The
    index of a box is the id of its row; it is -1 if the score is below the threshold.
    """
    boxes, _, _, form = lowering.coded("boxes")
    scores, factor, constant, _ = lowering.coded("scores")
    batches, items, _ = form.shape
    column = (batches, items, 1)
    numbers = np.broadcast_to(np.arange(items, dtype=np.int64).reshape(1, items, 1), column)
    ids = lowering.tensor_constant(np.ascontiguousarray(numbers), "numbers")
    score = scores.reshape(column)
    threshold = Fraction(lowering.operation.attributes["score_threshold"])  # type: ignore[arg-type]
    least = math.ceil((threshold - constant) / factor)
    if least > scores.range.hull()[0]:
        below = lowering.tensor_constant(np.array([max(least, -INT32_MAX)]).reshape(1, 1, 1), "least")
        # (index + 1) * [score >= least] - 1 is the index, or -1.
        one = lowering.tensor_constant(np.array([1]).reshape(1, 1, 1), "one")
        reached = one - lowering.emit("broadcast_greater", below, score)
        ids = (ids + one) * reached - one
    rows = lowering.emit("concatenate", ids, score, boxes, axis=2)
    counts = lowering.tensor_constant(np.full((batches,), items), "rows")
    kept = lowering.emit(
        "non_max_suppression", rows, counts, iou_threshold=lowering.integer("overlap"),
        max_output_size=lowering.integer("count"), force_suppress=True, top_k=-1,
    )  # fmt: skip
    shape = (batches, lowering.integer("count"))
    first = lowering.emit("slice", kept, begin=(0, 0, 0), end=(batches, shape[1], 1)).reshape(shape)
    scale, offset = (Rationals.scalar(item, 2) for item in (1, 0))
    return [LinearForm(shape, (Term(first, scale),), offset)]
