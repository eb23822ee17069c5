"""NonMaxSuppression with a result of fixed size: unused rows are -1.

Boxes are integers on the grid of their quantiser, so intersections and unions are exact integers; whether their ratio
is above the threshold is decided exactly. Of equal scores the first box counts as greater. Source: ONNX,
NonMaxSuppression.
"""

from __future__ import annotations

import numpy as np

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []

_MOST_BOXES = 256


@expansion("NonMaxSuppression")
def suppression(w: Writer) -> None:
    """Take box after box by falling score for each batch and class; drop the boxes that overlap a box that is kept."""
    boxes, scores = w.call.operand(0), w.call.operand(1)
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape[2] != 4 or scores.shape[0] != boxes.shape[0]:
        raise w.call.invalid("shape", f"boxes have shape {list(boxes.shape)}, scores {list(scores.shape)}")
    batches, count, classes = boxes.shape[0], boxes.shape[1], scores.shape[1]
    if scores.shape[2] != count:
        raise w.call.invalid("shape", f"boxes have shape {list(boxes.shape)}, scores {list(scores.shape)}")
    if count > _MOST_BOXES:
        raise w.call.refuse(f"{count} boxes are compared with each other", f"give it at most {_MOST_BOXES}")
    steps = min(w.call.constant_integer(2, "the number of boxes") if w.given(2) else 0, count)
    if steps < 1:
        raise w.call.refuse("no box is asked for, so that the result has no items", "say how many boxes are kept")
    over = _overlaps(w, count)
    alive = _ranked(w, count)
    kept = []
    numbers = w.constant(np.arange(count), "int64")
    zero, one = w.integers([0]), w.integers([1])
    for _ in range(steps):
        most = w.add("ReduceMax", [alive, w.integers([2])], keepdims=1)
        first = w.add("And", [w.add("Equal", [alive, most]), w.add("Greater", [most, zero])])
        chosen = w.add("Cast", [first], to=7)
        number = w.add("ReduceSum", [w.add("Mul", [chosen, numbers]), w.integers([2])], keepdims=1)
        kept.append(w.add("Where", [w.add("Greater", [most, zero]), number, w.integers([-1])]))
        beside = w.add("Greater", [w.add("MatMul", [chosen, over]), zero])
        gone = w.add("Cast", [w.add("Or", [beside, first])], to=7)
        alive = w.add("Mul", [alive, w.add("Sub", [one, gone])])
    found = w.reshape(w.add("Concat", kept, axis=2), (-1, 1))
    places = np.array([(b, c) for b in range(batches) for c in range(classes) for _ in range(steps)], np.int64)
    there = w.add("GreaterOrEqual", [found, zero])
    before = w.add("Where", [there, w.constant(places, "int64"), w.integers([-1])])
    w.add("Concat", [before, found], w.node.outputs[0], axis=1)


def _ranked(w: Writer, count: int) -> str:
    """The rank of each box: ``count`` for the greatest score down to 1; 0 where a score is not above the threshold [B,
    C, N].
    """
    scores = w.required(1)[0]
    batches, classes, _ = w.call.operand(1).shape
    row = w.reshape(scores, (batches, classes, 1, count))
    column = w.reshape(scores, (batches, classes, count, 1))
    earlier = w.constant(np.tri(count, k=-1, dtype=bool), "bool")
    tie = w.add("And", [w.add("Equal", [row, column]), earlier])
    ahead = w.add("Cast", [w.add("Or", [w.add("Greater", [row, column]), tie])], to=7)
    rank = w.add("Sub", [w.integers([count]), w.add("ReduceSum", [ahead, w.integers([3])], keepdims=0)])
    if not w.given(4):
        return rank
    limit = w.call.constant(4, "the threshold of scores").ravel()
    if limit.size != 1 or not np.isfinite(limit).all():
        raise w.call.invalid("shape", "the threshold of scores must be one number")
    valid = w.add("Greater", [scores, w.constant(limit.reshape(()), w.call.operand(1).data_type)])
    return w.add("Mul", [rank, w.add("Cast", [valid], to=7)])


def _overlaps(w: Writer, count: int) -> str:
    """Whether two boxes overlap by more than the threshold, as integers 0 and 1: [B, N, N]."""
    grid = w.grid(w.required(0)[0])
    if grid is None or not grid.uniform:
        advice = "put QuantizeLinear and DequantizeLinear of one scale before it"
        raise w.call.refuse(
            "its boxes are not on the grid of one quantiser, so that overlaps have no exact test", advice
        )
    scale = w.constant(grid.scale.ravel()[:1].reshape(()), w.call.operand(0).data_type)
    zero = w.constant(grid.zero_point.ravel()[:1].reshape(()), grid.data_type)
    codes = w.add("Cast", [w.add("QuantizeLinear", [w.required(0)[0], scale, zero])], to=6)
    codes = w.add("Sub", [codes, w.constant(np.int32(int(grid.zero_point.ravel()[0])), "int32")])
    parts = [w.add("Gather", [codes, w.constant(np.array(i), "int64")], axis=2) for i in range(4)]
    if w.call.flag("center_point_box", False):  # twice the corners, so that halves become integers
        x, y, width, height = (w.add("Add", [part, part]) if i < 2 else part for i, part in enumerate(parts))
        parts = [w.add(op, pair) for op in ("Sub", "Add") for pair in ([y, height], [x, width])]
    batches = w.call.operand(0).shape[0]
    spans, lengths = [], []
    for one, other in ((parts[0], parts[2]), (parts[1], parts[3])):
        low, high = w.add("Min", [one, other]), w.add("Max", [one, other])
        lengths.append(w.add("Sub", [high, low]))
        rows = [w.reshape(name, (batches, 1, count)) for name in (low, high)]
        columns = [w.reshape(name, (batches, count, 1)) for name in (low, high)]
        begin, end = w.add("Max", [rows[0], columns[0]]), w.add("Min", [rows[1], columns[1]])
        spans.append(w.add("Relu", [w.add("Sub", [end, begin])]))
    shared, area = w.add("Mul", spans), w.add("Mul", lengths)
    both = w.add("Add", [w.reshape(area, (batches, 1, count)), w.reshape(area, (batches, count, 1))])
    threshold = w.call.constant(3, "the threshold of overlaps").ravel() if w.given(3) else np.zeros(1, np.float32)
    if threshold.size != 1 or not 0 <= float(threshold[0]) <= 1:
        raise w.call.invalid("shape", "the threshold of overlaps must be one number from 0 to 1")
    left = w.add("Cast", [shared], to=11)
    right = w.add("Cast", [both], to=11)
    ratio = w.constant(np.float64(threshold[0]), "float64")
    less = w.add("Sub", [right, left])
    return w.add("Cast", [w.add("Greater", [left, w.add("Mul", [less, ratio])])], to=7)
