"""The statements about the transform ops."""

from __future__ import annotations

from typing import Any

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Example, Statement

__all__ = ["STATEMENTS"]

_MATRIX = given((2, 3), (1, 2, 3, 4, 5, 6), (0, 7))
_FIXED = constant((2, 3), (1, -2, 3, 4, 5, -6))
_N = "n, N = X.shape, len(X.shape)"

_REPEATED = (
    "is kept if R(X) has extent 1 along it or if there is one repetition. Otherwise, if the number of bounds times "
    "the repetitions is more than 2^18, R(X) is replaced by its hull along that axis; if not, its bounds are "
    "repeated as the elements are."
)

_RESHAPED = (
    "If R(X) has one bound: this bound.",
    (
        "Else, if R(X) has an extent above 1 along one axis k only, and the result has an axis of extent n_k such "
        "that the product of the extents before it equals the product of the extents of X before axis k: the bounds "
        "lie along the first such axis, and all other axes have extent 1."
    ),
    (
        "Else, if X has at most 2^18 elements, or not more elements than R(X) has bounds: a bound for each element, "
        "in row-major order."
    ),
    "Else: one bound, the hull of R(X).",
)

_SELECTED = (
    (
        "R(X) and R(indices) are first made to fit 2^18 bounds. The count is the product of the extents of R(X) other "
        "than the one along the axis, times the number of bounds of R(indices)."
    ),
    "If R(X) then has extent 1 along the axis, as many axes of extent 1 as indices has axes replace that axis.",
    (
        "Else the extents of R(indices) replace the axis, and the bound for an index in [lo, hi] is the hull of R(X) "
        "over the indices from clip(lo, 0, n - 1) to clip(hi, 0, n - 1), where n is X's extent along the axis."
    ),
)


def _moving(shape: str, interval: tuple[str, ...], *where: str, data: Any = _FIXED, **attributes: Any) -> Statement:
    return Statement(where=where, shapes=(shape,), interval=interval, example=Example((data,), attributes))


STATEMENTS = {
    "repeat": _moving(
        "n[:a] + (n[a] * repeats,) + n[a + 1 :]",
        (f"The axis {_REPEATED}",),
        _N,
        "a = axis % N",
        axis=1,
        repeats=2,
    ),
    "tile": _moving(
        "tuple(u * r for u, r in zip(e, R))",
        (
            (
                "Leading axes of extent 1 are added to R(X), to K axes. Then for each axis in order, with its "
                "repetitions R[k]:"
            ),
            f"the axis {_REPEATED}",
        ),
        "K = max(len(X.shape), len(reps))",
        "e = (1,) * (K - len(X.shape)) + X.shape",
        "R = (1,) * (K - len(reps)) + reps",
        reps=(2, 1),
    ),
    "flatten": _moving("(X.size,)", _RESHAPED),
    "concatenate": Statement(
        where=("n = I[0].shape", "a = axis % len(n)"),
        shapes=("n[:a] + (sum(t.shape[a] for t in I),) + n[a + 1 :]",),
        interval=(
            (
                "Along the channel axis (1; 0 for vectors), if its extent in the result is at most 2^18: each operand "
                "is taken per channel, and its bounds have the indices of its elements; an operand with one bound "
                "along that axis has this bound for each of its indices."
            ),
            "Along the channel axis otherwise: one bound, the hull of all operands.",
            (
                "Along another axis: the operands are first made to fit 2^18 bounds, where the bounds of the result "
                "of this rule are counted. Then the hull of each is taken along the axis, and a bound of the result "
                "is the hull of the bounds of all operands, which broadcast."
            ),
        ),
        example=Example((_MATRIX, constant((2, 1), (9, -9))), {"axis": 1}),
    ),
    "transpose": _moving(
        "tuple(n[k] for k in order)",
        ("The bounds of R(X), with their axes in the same order.",),
        _N,
        "order = [k % N for k in axes] or [N - 1 - k for k in range(N)]",
        axes=(),
    ),
    "slice": _moving(
        "tuple(count)",
        ("Along each axis: a single bound is kept. Of one bound per index, those of the kept indices, in order.",),
        _N,
        "s_arr = [strides[k] if k < len(strides) else 1 for k in range(N)]",
        "b_arr = [begin[k] if k < len(begin) else 0 for k in range(N)]",
        "e_arr = [end[k] if k < len(end) else n[k] for k in range(N)]",
        "low = [0 if s > 0 else -1 for s in s_arr]",
        "high = [n[k] if s_arr[k] > 0 else n[k] - 1 for k in range(N)]",
        "b_vec = [clip(b + n[k] if b < 0 else b, low[k], high[k]) for k, b in enumerate(b_arr)]",
        "e_vec = [clip(e + n[k] if e < 0 else e, low[k], high[k]) for k, e in enumerate(e_arr)]",
        "count = [-((b - e) // s) for b, e, s in zip(b_vec, e_vec, s_arr)]",
        begin=(0, 2),
        end=(2, -4),
        strides=(1, -2),
    ),
    "slice_like": Statement(
        where=(
            "n, N, m = X.shape, len(X.shape), shape_like.shape",
            "sliced = [k % N for k in axes] or [k for k in range(len(m))]",
        ),
        shapes=("tuple(m[k] if k in sliced else n[k] for k in range(N))",),
        interval=("Along each axis: a single bound is kept. Of one bound per index, the first ones are kept.",),
        example=Example((_FIXED, constant((2, 2), (0, 0, 0, 0)))),
    ),
    "take": Statement(
        where=(
            "n, m = X.shape, indices.shape",
            "a = None if axis is None else axis % len(n)",
        ),
        shapes=("m if a is None else n[:a] + m + n[a + 1 :]",),
        interval=(
            "Without axis, R(X) is first flattened by the rule of `flatten`, and the axis is its only axis.",
            *_SELECTED,
        ),
        example=Example((_FIXED, given((2,), (1, 2), (1, 2))), {"axis": 1}),
    ),
    "cvm_lut": Statement(
        where=("m = indices.shape",),
        shapes=("m",),
        interval=(
            "R(X) is first flattened by the rule of `flatten`, and the axis is its only axis.",
            *_SELECTED,
        ),
        example=Example((constant((4,), (10, 20, 0, -5)), given((3,), (0, 1, 1), (0, 1)))),
    ),
    "expand_dims": _moving(
        "n[:a] + (1,) * num_newaxis + n[a:]",
        ("The bounds of R(X), with the same new axes of extent 1.",),
        _N,
        "a = axis % (N + 1)",
        axis=-1,
    ),
    "reshape": _moving("target_shape", _RESHAPED, target_shape=(3, 2)),
    "squeeze": _moving(
        "tuple(n[k] for k in range(N) if k not in dropped) or (1,)",
        ("The bounds of R(X) without the same axes; at least one axis is left.",),
        _N,
        "dropped = [k % N for k in axes] or [k for k in range(N) if n[k] == 1]",
        data=constant((1, 2, 1), (3, -4)),
    ),
    "where": Statement(
        shapes=("A.shape",),
        interval=(
            (
                "R(Cond) gets axes of extent 1 at its end, to the rank of A. R(Cond), R(A) and R(B) are then made "
                "to fit 2^18 bounds or as many as they have together, counted as those of their broadcast."
            ),
            (
                "For each bound of their broadcast: the interval of A if the condition is [lo, hi] with lo > 0 or "
                "hi < 0; the interval of B if lo = hi = 0; else the hull of both."
            ),
        ),
        example=Example(
            (
                constant((2,), (1, 0)),
                given((2, 2), (1, 2, 3, 4), (0, 7)),
                constant((2, 2), (-1, -2, -3, -4)),
            )
        ),
    ),
}
