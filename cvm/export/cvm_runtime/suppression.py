"""Non-maximum suppression in a form on which both backends of cvm-runtime agree.

One backend stops at the first row with a negative id, leaves all batches after an empty one unwritten, takes a
max_output_size of 0 for none, and writes to its input where top_k drops rows. Therefore each batch is suppressed by
itself, after its valid rows have been sorted and reduced to top_k and those with negative ids removed. Sorting is a
suppression, too, of rows that never suppress each other and that hold their index in place of an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cvm.errors import Unsupported
from cvm.export.cvm_runtime.expressions import LibraryExpressions, bits_of
from cvm.passes.legalize.expressions import Expression

__all__ = ["suppressed"]

_COORDINATE = 28
"""The most bits of coordinates for which the library's overlap of boxes is exact."""
_NEVER = 101
"""A threshold that no overlap reaches."""
_COLUMNS = 6


def suppressed(
    made: LibraryExpressions, x: Expression, count: Expression, attributes: Mapping[str, Any], label: str
) -> Expression:
    """The result of a non_max_suppression. Raises `Unsupported` for coordinates that are too wide, and `Unprovable`."""
    if bits_of(x) > _COORDINATE:
        message = f"the library computes overlaps exactly for rows of up to {_COORDINATE} bits, found {bits_of(x)}"
        raise Unsupported("cvm_runtime.export.suppression", message)
    if 0 in (attributes["max_output_size"], attributes["top_k"]):
        return made.filled(x, -1, label)
    if x.lo >= 0 and x.shape[0] == 1 and not 0 < attributes["top_k"] < x.shape[1]:
        return made.plain("non_max_suppression", x, count, label=label, **attributes)
    batches = []
    for batch in range(x.shape[0]):
        rows = _part(made, x, 0, batch, batch + 1, label)
        counted = _part(made, count, 0, batch, batch + 1, label)
        batches.append(_batch(made, rows, counted, attributes, label))
    return batches[0] if len(batches) == 1 else made.plain("concatenate", *batches, label=label, axis=0)


def _part(made: LibraryExpressions, x: Expression, axis: int, begin: int, end: int, label: str) -> Expression:
    """The slice x[.., begin:end, ..] along an axis."""
    if begin == 0 and end == x.shape[axis]:
        return x
    before = (0,) * axis
    ends = (*x.shape[:axis], end)
    return made.plain("slice", x, label=label, begin=(*before, begin), end=ends, strides=())


def _columns(made: LibraryExpressions, *parts: Expression, label: str) -> Expression:
    return made.plain("concatenate", *parts, label=label, axis=2)


def _batch(
    made: LibraryExpressions, x: Expression, count: Expression, attributes: Mapping[str, Any], label: str
) -> Expression:
    """The suppression of one batch, a tensor (1, N, 6)."""
    rows = x.shape[1]
    index = made.constant(np.arange(rows).reshape(1, rows, 1), narrow=False)
    counts = made.plain("broadcast_greater", made.reshaped(count, (1, 1, 1), label), index, label=label)
    if 0 < attributes["top_k"] < rows:
        x, counts = _best(made, x, count, index, attributes["top_k"], label)
    ids, score, box = (_part(made, x, 2, *ends, label) for ends in ((0, 1), (1, 2), (2, _COLUMNS)))
    # the id where a row counts, -1 elsewhere: (id + 1) * counts - 1
    one = made.number(1)
    raised = made.total("broadcast_add", ids, one, label)
    ids = made.total("broadcast_sub", made.product(raised, counts, label), one, label)
    # keep the rows whose id is above -1; the id stands in the column where this op looks for the score
    valid, kept = made.valid_counts(_columns(made, score, ids, box, label=label), -1, label)
    score, ids, box = (_part(made, kept, 2, *ends, label) for ends in ((0, 1), (1, 2), (2, _COLUMNS)))
    kept = _columns(made, ids, score, box, label=label)
    return made.plain("non_max_suppression", kept, valid, label=label, **{**attributes, "top_k": -1})


def _best(
    made: LibraryExpressions, x: Expression, count: Expression, index: Expression, top_k: int, label: str
) -> tuple[Expression, Expression]:
    """The first ``top_k`` of the valid rows by falling score, and a flag for each: 1 for a valid row, else 0."""
    rows = x.shape[1]
    nothing = made.constant(np.zeros((1, rows, _COLUMNS - 2), np.int64), narrow=False)
    numbered = _columns(made, index, _part(made, x, 2, 1, 2, label), nothing, label=label)
    options = {"iou_threshold": _NEVER, "max_output_size": top_k, "force_suppress": False, "top_k": -1}
    ranked = made.plain("non_max_suppression", numbered, count, label=label, **options)
    order = _part(made, ranked, 2, 0, 1, label)
    taken = made.plain(
        "take", made.reshaped(x, (rows, _COLUMNS), label), made.reshaped(order, (rows,), label), label=label, axis=0
    )
    counts = made.plain("broadcast_greater", order, made.number(-1), label=label)
    return made.reshaped(taken, x.shape, label), counts
