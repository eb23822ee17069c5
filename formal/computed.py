"""Ops of op-set 2, FORMAL: what attention, normalisation and decoding need between computed tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from formal.broadcast import aligned
from formal.extension import rounded_quotient
from formal.tensor import Index, Tensor

__all__ = ["matmul", "moments", "normalize", "normalized", "quotient", "update_slice"]


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


def quotient(*tensors: Tensor, terms: int, rounding: str, lo: int, hi: int) -> Tensor:
    """Y[d] = clip(round(N / D), lo, hi).

    where N = m_1[d] x_1[d] + .. + m_n[d] x_n[d] + c[d] and D = w_1 y_1[d] + .. + w_k y_k[d] + e, with
    n = terms. D is positive for all values that the operands are proven to have.
    The inputs are x_1 .. x_n, y_1 .. y_k, m_1 .. m_n, w_1 .. w_k, c, e. The output has the shape of x_1, to which all
    others are broadcast: their index is the one `aligned` with d.
    """
    count = (len(tensors) - 2) // 2
    values, factors, c, e = tensors[:count], tensors[count : 2 * count], tensors[-2], tensors[-1]

    def Y(d: Index) -> int:
        products = [m[aligned(d, m.shape)] * x[aligned(d, x.shape)] for x, m in zip(values, factors, strict=True)]
        N = sum(products[:terms]) + c[aligned(d, c.shape)]
        D = sum(products[terms:]) + e[aligned(d, e.shape)]
        return max(lo, min(rounded_quotient(N, D, rounding), hi))

    return Tensor(values[0].shape, Y)


def moments(x: int, n: int, S_1: int, S_2: int, statistic: str) -> tuple[int, int]:
    """What t and Q are for an element x of a row of n, S_1 being the sum of the row and S_2 that of the squares.

    t / sqrt(Q) is x minus the mean over the standard deviation, x over the root of the mean square, or x over the
    root of the sum of squares.
    """
    if statistic == "variance":
        return n * x - S_1, n * S_2 - S_1 * S_1
    if statistic == "mean_square":
        return n * x, n * S_2
    if statistic == "square_sum":
        return x, S_2
    raise ValueError(f"there is no statistic {statistic!r}")


def normalized(t: int, Q: int, m: int, c: int, k: int, r: int, epsilon: int, rounding: str, lo: int, hi: int) -> int:
    """The code of u = (m t / sqrt(Q + epsilon / r^2) + c) / k: the greatest of lo and all q <= hi that u reaches.

    u reaches q if u >= q - 1/2, and with the rounding half_even u > q - 1/2 if q is odd. Both sides times 2 k are
    2 m t / sqrt(..) and T = (2 q - 1) k - 2 c. With V = r^2 Q + epsilon > 0 they are 2 m t r and T sqrt(V), which are
    compared by their signs and squares.
    """
    V = r * r * Q + epsilon
    left = 2 * m * t * r

    def square(x: int) -> int:
        return x * x if x >= 0 else -x * x

    def reached(q: int) -> bool:
        T = (2 * q - 1) * k - 2 * c
        right = square(T) * V
        return square(left) > right or (square(left) == right and (rounding == "half_up" or q % 2 == 0))

    # What u reaches is all q up to one of them: the interval (below, above) around it is halved.
    below, above = lo, hi + 1
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if reached(middle) else (below, middle)
    return below


def normalize(
    X: Tensor,
    m: Tensor,
    c: Tensor,
    k: Tensor,
    r: Tensor,
    e: Tensor,
    *,
    axes: tuple[int, ...],
    statistic: str,
    shift: int,
    rounding: str,
    lo: int,
    hi: int,
) -> Tensor:
    """Y[d] = clip(round((m[d] t[d] / sqrt(Q[d] + e 2^shift / r^2) + c[d]) / k[d]), lo, hi).

    A row is all X[z] with z_i = d_i for the axes i that are not in ``axes``. It has n elements; with their sum S_1 and
    the sum of their squares S_2, t and Q are what `moments` says. r and e have one element. m, c and k are broadcast to
    X: their index is the one `aligned` with d.
    """
    N = len(X.shape)
    R = [i if i >= 0 else i + N for i in axes]

    def row(d: Index) -> Iterator[int]:
        return (X[z] for z in product(*(range(X.shape[i]) if i in R else (d[i],) for i in range(N))))

    def Y(d: Index) -> int:
        n = sum(1 for _ in row(d))
        t, Q = moments(X[d], n, sum(row(d)), sum(x * x for x in row(d)), statistic)
        m_d, c_d, k_d = (f[aligned(d, f.shape)] for f in (m, c, k))
        return normalized(t, Q, m_d, c_d, k_d, r[(0,)], e[(0,)] * 2**shift, rounding, lo, hi)

    return Tensor(X.shape, Y)


def update_slice(X: Tensor, U: Tensor, I: Tensor, *, axis: int) -> Tensor:  # noqa: E741 - indices, as in take
    """Y[d] = U[d_0, .., d_a - s, .., d_{N-1}] if s <= d_a < s + u_a, else X[d].

    where a = axis, axis + N for a negative one; u is the shape of U; s = min(max(I[0], 0), n_a - u_a), n being the
    shape of X.
    """
    n, u = X.shape, U.shape
    a = axis if axis >= 0 else axis + len(n)

    def Y(d: Index) -> int:
        s = min(max(I[(0,)], 0), n[a] - u[a])
        return U[*d[:a], d[a] - s, *d[a + 1 :]] if s <= d[a] < s + u[a] else X[d]

    return Tensor(n, Y)
