"""Integer roots, exactly."""

from __future__ import annotations

import math

__all__ = ["exact_root", "floor_root"]


def floor_root(n: int, degree: int) -> int:
    """The greatest integer r with r^degree <= n, for n >= 0 and degree >= 1, by Newton's method from above."""
    if degree == 1:
        return n
    if degree >= n.bit_length():
        return min(n, 1)  # 2^degree exceeds n, and need not be computed
    if degree == 2:
        return math.isqrt(n)
    root = 1 << -(-n.bit_length() // degree)
    while True:
        better = ((degree - 1) * root + n // root ** (degree - 1)) // degree
        if better >= root:
            return root
        root = better


def exact_root(n: int, degree: int) -> int | None:
    """The integer r with r^degree = n, for n >= 0 and degree >= 1; None if there is none."""
    root = floor_root(n, degree)
    return root if root**degree == n else None
