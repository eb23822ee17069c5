"""Broadcast ops, FORMAL: the document's section "Broadcast Operators", in its order and with its index names."""

from __future__ import annotations

from collections.abc import Callable

from formal.tensor import Index, Shape, Tensor

__all__ = ["aligned", "broadcast", "broadcast_add", "broadcast_div", "broadcast_max", "broadcast_mul", "broadcast_sub"]


def aligned(d: Index, m: Shape) -> Index:
    """The index a of an operand of shape m for the output index d.

    a_j = d_{Q-M+j} if d_{Q-M+j} < m_j else 0, for all j in [0, M), where Q = len(d) and M = len(m).
    """
    Q, M = len(d), len(m)
    return tuple(d[Q - M + j] if d[Q - M + j] < m[j] else 0 for j in range(M))


def broadcast(A: Tensor, B: Tensor, OP: Callable[[int, int], int]) -> Tensor:
    """Y[d_0, .., d_{Q-1}] = A[a_0, .., a_{M-1}] OP B[b_0, .., b_{N-1}], for all d_i in [0, max(em_i, en_i)).

    where Q = max(M, N); a and b are the indices `aligned` with d;
    em_i = 1 if i < Q - M, else m_{i-(Q-M)}; en_i = 1 if i < Q - N, else n_{i-(Q-N)} (E10).
    """
    m, n = A.shape, B.shape
    M, N = len(m), len(n)
    Q = max(M, N)
    em = [1 if i < Q - M else m[i - (Q - M)] for i in range(Q)]
    en = [1 if i < Q - N else n[i - (Q - N)] for i in range(Q)]
    return Tensor([max(em[i], en[i]) for i in range(Q)], lambda d: OP(A[aligned(d, m)], B[aligned(d, n)]))


def broadcast_add(A: Tensor, B: Tensor) -> Tensor:
    """OP is add."""
    return broadcast(A, B, lambda a, b: a + b)


def broadcast_sub(A: Tensor, B: Tensor) -> Tensor:
    """OP is sub."""
    return broadcast(A, B, lambda a, b: a - b)


def broadcast_mul(A: Tensor, B: Tensor) -> Tensor:
    """OP is multiply."""
    return broadcast(A, B, lambda a, b: a * b)


def broadcast_div(A: Tensor, B: Tensor) -> Tensor:
    """OP is divide: the exact quotient truncated toward zero; 0 where the divisor is 0 (E11)."""

    def divide(a: int, b: int) -> int:
        if b == 0:
            return 0
        magnitude = abs(a) // abs(b)
        return magnitude if (a < 0) == (b < 0) else -magnitude

    return broadcast(A, B, divide)


def broadcast_max(A: Tensor, B: Tensor) -> Tensor:
    """OP is max."""
    return broadcast(A, B, max)
