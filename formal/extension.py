"""Extension ops, FORMAL: what this project adds to the document's ops."""

from __future__ import annotations

from formal.broadcast import aligned, broadcast
from formal.tensor import Index, Tensor

__all__ = ["broadcast_greater", "requantize", "rounded_quotient"]


def rounded_quotient(N: int, D: int, rounding: str) -> int:
    """The integer that N / D is rounded to, for D > 0."""
    floor = N // D
    if rounding == "half_up":  # floor(N / D + 1/2), both terms over 2 D
        return (2 * N + D) // (2 * D)
    if rounding == "half_even":  # the nearest integer; of two equally near ones, the even one
        twice_remainder = 2 * (N - floor * D)
        odd = floor % 2 == 1  # % 2 is 0 or 1 for negative numbers too
        return floor + 1 if twice_remainder > D or (twice_remainder == D and odd) else floor
    if rounding == "toward_zero":
        return floor if N >= 0 else -(-N // D)
    raise ValueError(f"there is no rounding {rounding!r}")


def requantize(*tensors: Tensor, rounding: str, lo: int, hi: int) -> Tensor:
    """Y[d] = clip(round((m_1[d] x_1[d] + .. + m_n[d] x_n[d] + c[d]) / 2^s[d]), lo, hi).

    The inputs are x_1 .. x_n, m_1 .. m_n, c, s. The output has the shape of x_1, to which all others are broadcast:
    their index is the one `aligned` with d.
    """
    n = (len(tensors) - 2) // 2
    x, m, c, s = tensors[:n], tensors[n : 2 * n], tensors[2 * n], tensors[2 * n + 1]

    def Y(d: Index) -> int:
        v = sum(m[i][aligned(d, m[i].shape)] * x[i][aligned(d, x[i].shape)] for i in range(n))
        v += c[aligned(d, c.shape)]
        return max(lo, min(rounded_quotient(v, 2 ** s[aligned(d, s.shape)], rounding), hi))

    return Tensor(x[0].shape, Y)


def broadcast_greater(A: Tensor, B: Tensor) -> Tensor:
    """OP is 1 if a > b, else 0. The rest is as in the broadcast ops."""
    return broadcast(A, B, lambda a, b: 1 if a > b else 0)
