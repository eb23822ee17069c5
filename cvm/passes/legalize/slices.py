"""``update_slice`` in the document's ops: each place along the axis takes from U or from X."""

from __future__ import annotations

import numpy as np

from cvm.passes.legalize.expressions import Expression, Expressions
from cvm.passes.legalize.tensors import Tensors

__all__ = ["update_slice"]


def update_slice(made: Expressions, x: Expression, u: Expression, index: Expression, axis: int) -> Expression:
    """X with a slice along ``axis`` replaced by U. With p = d_axis - s, the result is U at p where 0 <= p < u_axis.

    Elsewhere `take` gives what is at an end of U, which is not used.
    """
    tensors, rank = Tensors(made), len(x.shape)
    at = axis % rank
    n, count = x.shape[at], u.shape[at]
    start = tensors.clip(index, 0, n - count, "start")
    place = made.constant(np.arange(n), narrow=False).minus(start, "place")
    begun = tensors.clip(tensors.plus(place, np.full((1,), 1), "begun"), 0, 1, "begun")
    left = made.constant(np.full((1,), count)).minus(place, "left")
    inside = begun.times(tensors.clip(left, 0, 1, "left"), "inside")
    if inside.shape != (n,):
        inside = made.constant(np.zeros(n, np.int64), narrow=False).plus(inside, "inside")
    taken = u.apply("take", place, label="taken", axis=at)
    chosen = inside.reshape(tuple(n if k == at else 1 for k in range(rank)))
    return tensors.spread(chosen, x, "chosen").apply("where", taken, x, label="updated")
