"""Reduce ops, FORMAL: the document's section "Reduce Operators", in its order and with its index names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product

from formal.tensor import Index, Tensor, elements

__all__ = ["max_", "sum_"]


def reduce(
    X: Tensor, axes: tuple[int, ...], keepdims: bool, exclude: bool, REDUCE_FUNC: Callable[[Iterable[int]], int]
) -> Tensor:
    """The common logic: Y[d_{I(0)}, .., d_{I(N-r-1)}] = REDUCE_FUNC(Z).

    where T = the axes, i + N for a negative i; U = {0, .., N-1}; R = U - T if exclude, else T; r = card R;
    I and J number the elements of U - R and of R in increasing order;
    Z = all X[d_0, .., d_{N-1}] with d_i in [0, n_i) for i in R. Z is a family: equal elements all count (E5).
    """
    n = X.shape
    N, M = len(n), len(axes)
    T = [i if i >= 0 else i + N for i in axes]
    U = range(N)
    R = [j for j in U if j not in T] if exclude else [j for j in U if j in T]

    # 1. Case exclude is true and M = N.
    if exclude and M == N:
        return X

    # 2. Case exclude is false and M = 0: no axes stand for all of them.
    if not exclude and M == 0:
        K = N if keepdims else 1
        return Tensor((1,) * K, lambda _: REDUCE_FUNC(elements(X)))

    I = [i for i in U if i not in R]  # noqa: E741 - the document's name

    # 3. Case keepdims is false.
    def Z(d_I: Index) -> Iterator[int]:
        d = dict(zip(I, d_I, strict=False))  # if no axis is kept, d_I is (0,) and I is empty
        return (X[d] for d in product(*(range(n[i]) if i in R else (d[i],) for i in U)))

    # If no axis is left, Y has one element, and its shape is (1,), since rank 0 does not exist (E6).
    Y = Tensor([n[i] for i in I] or [1], lambda d_I: REDUCE_FUNC(Z(d_I)))
    if not keepdims:
        return Y

    # 4. Otherwise.
    return Tensor([1 if i in R else n[i] for i in U], lambda d: Y[tuple(d[i] for i in I) or (0,)])


def sum_(X: Tensor, *, axes: tuple[int, ...], keepdims: bool, exclude: bool) -> Tensor:
    """REDUCE_FUNC(Z) = sum Z."""
    return reduce(X, axes, keepdims, exclude, sum)


def max_(X: Tensor, *, axes: tuple[int, ...], keepdims: bool, exclude: bool) -> Tensor:
    """REDUCE_FUNC(Z) = max Z. It is an element of Z; there is no initial value."""
    return reduce(X, axes, keepdims, exclude, max)
