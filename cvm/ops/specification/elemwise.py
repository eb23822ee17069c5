"""The statements about the elementwise ops."""

from __future__ import annotations

from typing import Any

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Each, Example, Statement

__all__ = ["STATEMENTS"]

_X = given((4,), (-8, -1, 0, 6), (-8, 7))
_ALPHA = "alpha = 2 ** (precision - 1) - 1"


def _unary(interval: Each, work: str = "", **attributes: Any) -> Statement:
    return Statement(shapes=("X.shape",), interval=interval, work=work, example=Example((_X,), attributes))


def _binary(interval: Each) -> Statement:
    other = constant((4,), (1, 2, 3, -4))
    return Statement(shapes=("A.shape",), interval=interval, example=Example((_X, other)))


STATEMENTS = {
    "abs": _unary(Each("max(X.lo, -X.hi, 0)", "max(-X.lo, X.hi)")),
    "cvm_precision": _unary(
        Each(
            "max(1, max(X.lo, -X.hi, 0).bit_length())",
            "max(1, max(-X.lo, X.hi).bit_length())",
        ),
        work="5 * X.size",
    ),
    "elemwise_add": _binary(Each("A.lo + B.lo", "A.hi + B.hi")),
    "elemwise_sub": _binary(Each("A.lo - B.hi", "A.hi - B.lo")),
    "negative": _unary(Each("-X.hi", "-X.lo")),
    "clip": _unary(Each("clip(X.lo, a_min, a_max)", "clip(X.hi, a_min, a_max)"), a_min=-3, a_max=5),
    "cvm_clip": _unary(Each("clip(X.lo, -alpha, alpha)", "clip(X.hi, -alpha, alpha)", (_ALPHA,)), precision=3),
    "cvm_right_shift": _unary(
        Each(
            'clip(rounded(X.lo, shift_bit, "half_up"), -alpha, alpha)',
            'clip(rounded(X.hi, shift_bit, "half_up"), -alpha, alpha)',
            (_ALPHA,),
        ),
        precision=8,
        shift_bit=2,
    ),
    "cvm_left_shift": _unary(
        Each(
            "clip(X.lo * 2**shift_bit, -alpha, alpha)",
            "clip(X.hi * 2**shift_bit, -alpha, alpha)",
            (_ALPHA,),
        ),
        precision=6,
        shift_bit=3,
    ),
}
