"""Extremes of an arithmetic progression modulo an integer, without enumeration."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["greatest_residue", "least_residue"]

Integers = npt.NDArray[np.object_]


def least_residue(count: int, modulus: int, step: int, start: Integers) -> Integers:
    """Min over 0 <= i < count of (start + step * i) mod modulus, for each item of ``start``.

    It is a recursion like Euclid's algorithm. Let a = step mod m. While the progression rises without wrapping, its
    least item is its first one. After the j-th wrap (j = 1 .. J), its first item is (start - j*m) mod a. These items
    are a progression of J items modulo a < m. If a <= m/2 (otherwise the progression is reversed), the modulus at least
    halves each time. ``start`` is an object array of Python integers; ``count`` >= 1.
    """
    counts = np.full(start.shape, count, dtype=object)
    start = start % modulus
    step %= modulus
    best = start.copy()
    while step:
        if 2 * step > modulus:
            # Reverse the progression: go from the last item in steps of m - a. Items with count 0 are done.
            start = np.where(counts > 0, (start + step * (counts - 1)) % modulus, start)
            step = modulus - step
        active = counts > 0
        best = np.where(active, np.minimum(best, start), best)
        counts = np.where(active, (start + step * (counts - 1)) // modulus, 0)
        if not counts.any():
            break
        start = (start - modulus) % step
        modulus, step = step, -modulus % step
    return np.where(counts > 0, np.minimum(best, start), best)


def greatest_residue(count: int, modulus: int, step: int, start: Integers) -> Integers:
    """Max over 0 <= i < count of (start + step * i) mod modulus, for each item of ``start``."""
    return np.asarray(modulus - 1 - least_residue(count, modulus, -step, -1 - start))
