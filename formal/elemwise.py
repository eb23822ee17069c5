"""Elementwise ops, FORMAL: the document's section "Elemwise Operators", in its order and with its index names."""

from __future__ import annotations

from formal.tensor import Index, Tensor

__all__ = ["abs_", "clip", "cvm_clip", "cvm_left_shift", "cvm_precision", "cvm_right_shift", "elemwise_add",
           "elemwise_sub", "negative"]  # fmt: skip


def abs_(X: Tensor) -> Tensor:
    """Y[d_0, .., d_{N-1}] = x if x >= 0, -x if x < 0, where x denotes X[d_0, .., d_{N-1}]."""

    def Y(d: Index) -> int:
        x = X[d]
        return x if x >= 0 else -x

    return Tensor(X.shape, Y)


def cvm_precision(X: Tensor) -> Tensor:
    """Y[d] = ceil(log2(abs(x) + 1)) if x != 0, 1 if x = 0.

    ceil(log2(n + 1)) for an integer n > 0 is the number of binary digits of n.
    """

    def Y(d: Index) -> int:
        x = X[d]
        return abs(x).bit_length() if x != 0 else 1

    return Tensor(X.shape, Y)


def elemwise_add(A: Tensor, B: Tensor) -> Tensor:
    """Y = A + B."""
    return Tensor(A.shape, lambda d: A[d] + B[d])


def elemwise_sub(A: Tensor, B: Tensor) -> Tensor:
    """Y = A - B."""
    return Tensor(A.shape, lambda d: A[d] - B[d])


def negative(X: Tensor) -> Tensor:
    """Y = -X."""
    return Tensor(X.shape, lambda d: -X[d])


def clip(X: Tensor, *, a_min: int, a_max: int) -> Tensor:
    """Y[d] = a_max if x >= a_max, x if x in (a_min, a_max), a_min if x <= a_min."""

    def Y(d: Index) -> int:
        x = X[d]
        if x >= a_max:
            return a_max
        if x <= a_min:
            return a_min
        return x

    return Tensor(X.shape, Y)


def cvm_clip(X: Tensor, *, precision: int) -> Tensor:
    """Y = clip(X, a_min = -alpha, a_max = alpha), where alpha = 2^(precision - 1) - 1."""
    alpha = 2 ** (precision - 1) - 1
    return clip(X, a_min=-alpha, a_max=alpha)


def cvm_right_shift(X: Tensor, *, precision: int, shift_bit: int) -> Tensor:
    """Y = clip(T, a_min = -alpha, a_max = alpha).

    where T = floor((floor(X / 2^(shift_bit - 1)) + 1) / 2) and alpha = 2^(precision - 1) - 1.
    """
    alpha = 2 ** (precision - 1) - 1
    T = Tensor(X.shape, lambda d: (X[d] // 2 ** (shift_bit - 1) + 1) // 2)
    return clip(T, a_min=-alpha, a_max=alpha)


def cvm_left_shift(X: Tensor, *, precision: int, shift_bit: int) -> Tensor:
    """Y = clip(T, a_min = -alpha, a_max = alpha).

    where T = X * 2^shift_bit and alpha = 2^(precision - 1) - 1.
    """
    alpha = 2 ** (precision - 1) - 1
    T = Tensor(X.shape, lambda d: X[d] * 2**shift_bit)
    return clip(T, a_min=-alpha, a_max=alpha)
