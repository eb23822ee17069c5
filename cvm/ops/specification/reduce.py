"""The statements about the reduce ops."""

from __future__ import annotations

from cvm.ops.specification.operands import constant
from cvm.ops.specification.statement import Example, Statement

__all__ = ["STATEMENTS"]

_WHERE = (
    "n, N = X.shape, len(X.shape)",
    "T = [axis % N for axis in axes]",
    "R = [k for k in range(N) if (k in T) != exclude] if axes else [k for k in range(N)]",
    "kept = tuple(n[k] for k in range(N) if k not in R)",
)
_SHAPE = ("tuple(1 if k in R else n[k] for k in range(N)) if keepdims else kept or (1,)",)
_REDUCED = (
    "R(X) is first made to fit 2^18 bounds. The count is the product of its extents along the axes that are kept, "
    "which are those outside R."
)
_MATRIX = constant((2, 3), (1, -2, 3, 4, 5, -6))
_EXAMPLE = Example((_MATRIX,), {"axes": (0,)})

STATEMENTS = {
    "sum": Statement(
        where=_WHERE,
        shapes=_SHAPE,
        work="X.size",
        interval=(
            _REDUCED,
            (
                "A bound of Y is the sum of the bounds of R(X) over the axes in R, lower bounds and upper bounds "
                "apart; a bound that stands for a whole reduced axis of extent n counts n times."
            ),
            (
                "The bounds keep the axes outside R, with the extents that they had in R(X); the reduced axes stay "
                "with extent 1 or leave, as in the shape."
            ),
        ),
        example=_EXAMPLE,
    ),
    "max": Statement(
        where=_WHERE,
        shapes=_SHAPE,
        work="X.size",
        interval=(
            _REDUCED,
            "A bound of Y is [the largest lower bound, the largest upper bound] of R(X) over the axes in R.",
            (
                "The bounds keep the axes outside R, with the extents that they had in R(X); the reduced axes stay "
                "with extent 1 or leave, as in the shape."
            ),
        ),
        example=_EXAMPLE,
    ),
}
