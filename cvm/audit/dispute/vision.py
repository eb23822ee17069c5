"""The ops of vision in small steps.

`get_valid_count` counts and searches in chunks of rows. `non_max_suppression` sorts, then keeps or drops each row, and
no single integer can say how far it has come. So a party that disputes it commits to three auxiliary tensors of
shape (B, N), which are disputed like outputs, in this order:

`rank`   rank[b, i] is the rank of row i of X by falling score, -1 for the rows from T on;
`order`  order[b, p] is the row of rank p, -1 from T on: I(p) of the document;
`kept`   kept[b, p] is 1 if p is in U, else 0.

Each element of these tensors follows by small steps from the operands, the tensors before it and, for `kept`, the
elements before it. There is one right tensor of each kind, so two parties who differ in the output differ in one of
them, or in a step of the output that reads them; at the first difference they agree on all that the step reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from cvm.audit.dispute.chunks import TERMS, Chunks
from cvm.audit.dispute.folds import SEARCHING, Fold, FoldCall
from formal.vision import overlaps

__all__ = ["AUXILIARIES", "FOLDS", "auxiliaries"]


ROWS = 2
"""The leaves that ``rows`` rows of X touch: one row, or rows of at most `TERMS` elements together."""


def _parts(extent: int, size: int = 1) -> tuple[int, Callable[[int], range]]:
    """The range [0, extent) in parts of at most `TERMS` elements, ``size`` per index: how many parts, and part j."""
    most = max(1, TERMS // size)
    return -(-extent // most), lambda j: range(j * most, min((j + 1) * most, extent))


def _search(indices: Iterable[int], before: int, chosen: Callable[[int], bool], element: Callable[[int], int]) -> int:
    """Continue a search: the element at the first chosen index after ``before - SEARCHING`` other chosen indices."""
    to_skip = before - SEARCHING
    for index in indices:
        if chosen(index):
            if to_skip == 0:
                return element(index)
            to_skip -= 1
    return SEARCHING + to_skip


def valid_count(call: FoldCall) -> Fold:
    """The number of {q | q in [0, N) and X[b, q, 1] > score_threshold}: partials count some q."""
    (b,), X, score_threshold = call.d, call.operands[0], call.attribute("score_threshold")
    count, part = _parts(*X.shape[1:])
    return Fold(count, 0, lambda j, before: before + sum(X[b, q, 1] > score_threshold for q in part(j)), {0: ROWS})


def valid_row(call: FoldCall) -> Fold:
    """X[b, n, k] for the valid row n with idx valid rows before it: partials count the rows left to skip."""
    (b, idx, k), X, score_threshold = call.d, call.operands[0], call.attribute("score_threshold")
    count, part = _parts(*X.shape[1:])

    def step(j: int, before: int) -> int:
        if before < SEARCHING:
            return before
        after = _search(part(j), before, lambda n: X[b, n, 1] > score_threshold, lambda n: X[b, n, k])
        return -1 if after >= SEARCHING and j == count - 1 else after

    return Fold(count, SEARCHING + idx, step, {0: ROWS})


def get_valid_count(call: FoldCall) -> Fold:
    """The number of valid rows, and these rows."""
    return valid_count(call) if call.output == 0 else valid_row(call)


def rank(call: FoldCall) -> Fold:
    """The number of {j | row j is before row i}, for i < T: partials count some j."""
    (b, i), X, valid = call.d, call.operands[0], call.operands[1]
    _, N, K = X.shape
    chunks = Chunks((N,), [(K,)], leaves=7)  # and one leaf for the score of row i

    def step(j: int, before: int) -> int:
        T = max(min(N, valid[b,]), 0)
        if i >= T:
            return -1
        score = X[b, i, 1]
        for (other,) in chunks.indices(j):
            if other < T and other != i:
                before += (-X[b, other, 1], other) < (-score, i)
        return before

    return Fold(chunks.count, 0, step, {0: chunks.leaves[0] + 1, 1: 1})


def order(call: FoldCall) -> Fold:
    """The i with rank[b, i] = p: a search."""
    (b, p), ranks = call.d, call.operands[2]
    count, part = _parts(ranks.shape[1])

    def step(j: int, before: int) -> int:
        if before < SEARCHING:
            return before
        after = _search(part(j), before, lambda i: ranks[b, i] == p, lambda i: i)
        return -1 if after >= SEARCHING and j == count - 1 else after

    return Fold(count, SEARCHING, step, {2: 2})


def kept(call: FoldCall) -> Fold:
    """Whether p is in U. Step q < p: whether q in U suppresses p; step p: whether p < min{TK, T} and it has an id.

    Partials are 1 until a step finds a reason against it.
    """
    (b, p), X, rows, members = call.d, call.operands[0], call.operands[3], call.operands[4]
    top_k, force_suppress = call.attribute("top_k"), call.attribute("force_suppress")

    def row(index: int) -> Sequence[int]:
        return [X[b, rows[b, index], k] for k in range(6)]

    def step(q: int, before: int) -> int:
        if before == 0 or rows[b, p] < 0:
            return 0
        if q == p:
            return int((top_k < 0 or p < top_k) and X[b, rows[b, p], 0] >= 0)
        if members[b, q] != 1:
            return 1
        r, s = row(p), row(q)
        rivals = force_suppress or r[0] == s[0]
        return int(not (rivals and overlaps(r, s, call.attribute("iou_threshold"))))

    return Fold(p + 1, 1, step, {0: 2 * ROWS, 3: 2, 4: 1})


def kept_row(call: FoldCall) -> Fold:
    """R[b, IDX(n), k], if n < MOS: partials count the elements of U left to skip."""
    (b, n, k), X = call.d, call.operands[0]
    rows, members = call.operands[3], call.operands[4]
    MOS = call.attribute("max_output_size")
    count, part = _parts(call.record.outputs[0].shape[1])

    def step(j: int, before: int) -> int:
        if before < SEARCHING:
            return before
        if 0 <= MOS <= n:
            return -1
        after = _search(part(j), before, lambda p: members[b, p] == 1, lambda p: X[b, rows[b, p], k])
        return -1 if after >= SEARCHING and j == count - 1 else after

    return Fold(count, SEARCHING + n, step, {0: 1, 3: 1, 4: 2})


AUXILIARIES: Mapping[str, tuple[Callable[[FoldCall], Fold], ...]] = {"non_max_suppression": (rank, order, kept)}
"""The folds of the tensors that a party commits to in a dispute; they are operands after those of the op."""

FOLDS: Mapping[str, Callable[[FoldCall], Fold]] = {"get_valid_count": get_valid_count, "non_max_suppression": kept_row}


def auxiliaries(call: FoldCall) -> tuple[list[int], list[int], list[int]]:
    """The elements of `rank`, `order` and `kept` of a non_max_suppression, row-major, all at once."""
    X, valid = call.operands[0], call.operands[1]
    top_k, force_suppress = call.attribute("top_k"), call.attribute("force_suppress")
    iou_threshold = call.attribute("iou_threshold")
    B, N, K = X.shape
    ranks, orders, members = [], [], []
    for b in range(B):
        rows = [[X[b, i, k] for k in range(K)] for i in range(N)]
        T = max(min(N, valid[b,]), 0)
        I = sorted(range(T), key=lambda i: (-rows[i][1], i))  # noqa: E741 - used at once; the document's name
        rank = {i: p for p, i in enumerate(I)}
        U: list[int] = []
        for p in range(T if top_k < 0 else min(T, top_k)):
            r = rows[I[p]]
            rivals = (rows[I[q]] for q in U if force_suppress or rows[I[q]][0] == r[0])
            if r[0] >= 0 and not any(overlaps(r, s, iou_threshold) for s in rivals):
                U.append(p)
        ranks += [rank.get(i, -1) for i in range(N)]
        orders += [*I, *[-1] * (N - T)]
        members += [int(p in U) for p in range(N)]
    return ranks, orders, members
