"""``broadcast_greater`` in the document's ops: [a > b], exactly, for all int32 numbers."""

from __future__ import annotations

from cvm.limits import INT32_MAX
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable
from cvm.passes.legalize.tensors import Tensors

__all__ = ["greater"]


def greater(made: Expressions, a: Expression, b: Expression) -> Expression:
    """[a > b] = clip(a - b, 0, 1) if the difference is proven to be an int32.

    Otherwise let p(z) = max(z, 0) and n(z) = min(z, 0). Neither decreases with z, and where z rises, one of them rises.
    So a > b if and only if p(a) > p(b) or n(a) > n(b), and both differences lie within +-(2^31 - 1).
    """
    tensors = Tensors(made)

    def exceeds(x: Expression, y: Expression) -> Expression:
        return tensors.clip(x.minus(y, "difference"), 0, 1, "greater")

    try:
        return exceeds(a, b)
    except Unprovable:
        positive, negative = (
            exceeds(tensors.clip(a, lo, hi, "half"), tensors.clip(b, lo, hi, "half"))
            for lo, hi in ((0, INT32_MAX), (-INT32_MAX, 0))
        )
        return positive.maximum(negative, "greater")
