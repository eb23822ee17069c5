"""Ops of op-set 2, FORMAL: what attention and normalisation need between computed tensors."""

from __future__ import annotations

from formal.tensor import Index, Tensor

__all__ = ["matmul"]


def matmul(A: Tensor, B: Tensor, *, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Y[b, m, n] = sum over k in [0, K) of a(b, m, k) * c(b', k, n).

    b = b_0, .., b_{R-1} for b_i in [0, p_i), the first extents of A; b'_i = floor(b_i / (p_i / q_i)), q_i being the
    first extents of B, which divide p_i: each matrix of B serves p_i / q_i neighbouring ones of A.
    a(b, m, k) = A[b, k, m] if transpose_a else A[b, m, k]; c(b, k, n) = B[b, n, k] if transpose_b else B[b, k, n].
    """
    *p, rows, columns = A.shape
    M, K = (columns, rows) if transpose_a else (rows, columns)
    *q, rows, columns = B.shape
    N = rows if transpose_b else columns

    def Y(d: Index) -> int:
        *b, m, n = d
        shared = [b[i] // (p[i] // q[i]) for i in range(len(q))]

        def a(k: int) -> int:
            return A[*b, k, m] if transpose_a else A[*b, m, k]

        def c(k: int) -> int:
            return B[*shared, n, k] if transpose_b else B[*shared, k, n]

        return sum(a(k) * c(k) for k in range(K))

    return Tensor((*p, M, N), Y)
