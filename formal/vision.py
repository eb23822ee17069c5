"""Vision ops, FORMAL: the document's section "Vision Operators", in its order and with its index names.

Facts about a whole batch - which rows are valid, which are kept - are computed once per batch and remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from formal.tensor import Index, Tensor

__all__ = ["get_valid_count", "non_max_suppression"]


def get_valid_count(X: Tensor, *, score_threshold: int) -> tuple[Tensor, Tensor]:
    """valid_count[b] = card {q | q in [0, N) and X[b, q, 1] > score_threshold}.

    Y[b, idx, k] = X[b, n, k] for all n in [0, N) with X[b, n, 1] > score_threshold,
    where idx = card {q | q in [0, n) and X[b, q, 1] > score_threshold};
    Y[b, n, k] = -1 for all n in [valid_count[b], N).
    """
    B, N, K = X.shape

    @cache
    def valid(b: int) -> Sequence[int]:
        """The valid n in increasing order. So the row with index idx has idx valid rows before it."""
        return [n for n in range(N) if X[b, n, 1] > score_threshold]

    def Y(d: Index) -> int:
        b, idx, k = d
        return X[b, valid(b)[idx], k] if idx < len(valid(b)) else -1

    return Tensor((B,), lambda d: len(valid(d[0]))), Tensor((B, N, K), Y)


def overlaps(r: Sequence[int], s: Sequence[int], iou_threshold: int) -> bool:
    """OLR(r, s) >= iou_threshold, with OLR in percent: 100 * intersection / union, compared exactly (E42).

    A row is (id, score, x1, y1, x2, y2). Areas have a sign: a box whose corners are swapped on one axis has a negative
    area. If the sum of the areas, or the union, is not positive, the boxes do not overlap (E43). The intersection is
    never greater than the union, so a threshold of 101 or more is never reached.
    """
    _, _, r_x1, r_y1, r_x2, r_y2 = r
    _, _, s_x1, s_y1, s_x2, s_y2 = s
    areas = (r_x2 - r_x1) * (r_y2 - r_y1) + (s_x2 - s_x1) * (s_y2 - s_y1)
    if areas <= 0:
        return False
    width = max(0, min(r_x2, s_x2) - max(r_x1, s_x1))
    height = max(0, min(r_y2, s_y2) - max(r_y1, s_y1))
    intersection = width * height
    union = areas - intersection
    if union <= 0:
        return False
    return 100 * intersection >= iou_threshold * union


def non_max_suppression(
    X: Tensor, valid_count: Tensor, *, iou_threshold: int, max_output_size: int, force_suppress: bool, top_k: int
) -> Tensor:
    """R[b, i, k] = X[b, I(i), k]: the first T rows of X by falling score, equal scores in the order of X.

    T = max{min(N, valid_count[b]), 0}; I permutes [0, T).

    Y[b, n, k] = R[b, IDX(n), k] for n in [0, min{T, MOS, card U}), and -1 for the other n in [0, N), where
    TK = infinity if top_k < 0, else top_k; MOS = infinity if max_output_size < 0, else max_output_size;
    U = {p | p in [0, min{TK, T}) and R[b, p, 0] >= 0 and iou(p, q) < iou_threshold for all q in U with q < p};
    iou(p, q) = OLR(R[b, p, :], R[b, q, :]) if force_suppress or R[b, p, 0] = R[b, q, 0], else 0;
    IDX numbers the elements of U in increasing order.
    """
    B, N, K = X.shape
    # No set of rows has more than N elements, so N has the same effect as infinity.
    TK = N if top_k < 0 else top_k
    MOS = N if max_output_size < 0 else max_output_size

    @cache
    def R(b: int) -> Sequence[Sequence[int]]:
        T = max(min(N, valid_count[b,]), 0)
        I = sorted(range(T), key=lambda i: (-X[b, i, 1], i))  # noqa: E741 - the document's name
        return [[X[b, i, k] for k in range(K)] for i in I]

    @cache
    def U(b: int) -> Sequence[int]:
        """U in increasing order; membership of p depends on the smaller members only, so one pass finds it."""
        members: list[int] = []
        for p, r in enumerate(R(b)[:TK]):
            if r[0] < 0:
                continue
            rivals = [R(b)[q] for q in members if force_suppress or r[0] == R(b)[q][0]]
            if not any(overlaps(r, s, iou_threshold) for s in rivals):
                members.append(p)
        return members

    def Y(d: Index) -> int:
        b, n, k = d
        IDX = U(b)
        return R(b)[IDX[n]][k] if n < min(MOS, len(IDX)) else -1

    return Tensor((B, N, K), Y)
