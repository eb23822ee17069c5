"""Extremes of an arithmetic progression modulo an integer, without enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["ResidueBounds", "bounds_of_least_residue", "least_residue"]

Integers = npt.NDArray[np.object_]
_WORD = 62
"""The recursion fits int64 if count * modulus has at most this many bits."""


def least_residue(count: int, modulus: int, step: int, start: Integers) -> Integers:
    """Min over 0 <= i < count of (start + step * i) mod modulus, for each item of ``start``.

    It is a recursion like Euclid's algorithm. Let a = step mod m. While the progression rises without wrapping, its
    least item is its first one. After the j-th wrap (j = 1 .. J), its first item is (start - j*m) mod a. These items
    are a progression of J items modulo a < m. If a <= m/2 (otherwise the progression is reversed), the modulus at least
    halves each time. ``start`` is an object array of Python integers; ``count`` >= 1.
    """
    return np.asarray(_least(count, modulus, step, start))


def _least(count: int, modulus: int, step: int, start: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`least_residue` for Python integers, or for int64 if count * modulus, which bounds all sums, is below 2^63."""
    counts = np.full_like(start, count)
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


@dataclass(frozen=True, eq=False, slots=True)
class ResidueBounds:
    """Bounds of least residues, in 8 bytes each.

    A residue lies between (``scaled`` - ``error``) / ``denominator`` and ``scaled`` / ``denominator`` of the modulus.
    If ``scaled`` is below ``error``, nothing is known of it.
    """

    modulus: int
    scaled: npt.NDArray[np.int64]
    denominator: int
    error: int

    def lower(self) -> Integers:
        """A lower bound of every residue."""
        scaled = np.maximum(self.scaled - self.error, 0).astype(object)
        return np.asarray(scaled * self.modulus // self.denominator)

    def upper(self) -> Integers:
        """An upper bound of every residue. It equals the lower bound if ``error`` is 0."""
        scaled = np.where(self.scaled < self.error, self.denominator, self.scaled).astype(object)
        return np.asarray(np.minimum(-(scaled * -self.modulus // self.denominator), self.modulus - 1))


def bounds_of_least_residue(count: int, modulus: int, step: int, start: Integers) -> ResidueBounds:
    """Bounds of `least_residue`, for each item of ``start``, from a recursion in int64.

    If the modulus is small enough for int64, the bounds are the residue itself. Otherwise let P / Q be a fraction with
    count * Q * |a - P / Q| <= 1 for a = (step mod modulus) / modulus. For x = start / modulus, the distance of Q * (x +
    a i) and xQ + P i is at most 1, so v = floor(xQ) + P i + 2 exceeds Q * (x + a i) by more than 0 and by at most 3. If
    no v mod Q is below 3, every v wraps exactly where Q * (x + a i) does, and the least residue lies between (W - 3) /
    Q and W / Q of the modulus, where W is the least v mod Q. Otherwise nothing is known.
    """
    bits = _WORD - count.bit_length()
    if count.bit_length() > bits:
        return ResidueBounds(modulus, np.zeros(start.shape, np.int64), 1, 3)
    if modulus <= 2**bits:
        found = _least(count, modulus, step % modulus, (start % modulus).astype(np.int64))
        return ResidueBounds(modulus, found, modulus, 0)
    p, q = _near(step % modulus, modulus, count, 2**bits)
    scaled = (start % modulus * q // modulus + 2).astype(np.int64)
    return ResidueBounds(modulus, _least(count, q, p, scaled), q, 3)


def _near(step: int, modulus: int, count: int, largest: int) -> tuple[int, int]:
    """A fraction P / Q near step / modulus, with Q <= ``largest`` and count * Q * |step / modulus - P / Q| <= 1.

    It is the last convergent of the continued fraction of step / modulus with such a denominator, extended. Unless it
    is step / modulus itself, it differs from it by less than 1 / (Q * Q'), where Q' is the denominator of the next
    convergent. It needs step < modulus and count <= largest.
    """
    before, at = (1, 0), (0, 1)
    a, b = modulus, step
    following = 0
    while b:
        quotient = a // b
        a, b = b, a - quotient * b
        following = before[1] + quotient * at[1]
        if following > largest:
            break
        before, at = at, (before[0] + quotient * at[0], following)
    times = largest // at[1]
    if following > largest:
        times = min(times, following // count)
    return at[0] * times, at[1] * times
