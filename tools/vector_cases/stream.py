"""Numbers for vectors: a small counter-based generator whose output depends on its label and the seed alone.

The k-th number of a stream is SplitMix64's output function of key + k * GOLDEN modulo 2^64, k = 1, 2, ..; the key is
the 64-bit FNV-1a hash of the UTF-8 bytes of ``<seed>/<label>``. Python's `random` and NumPy are not used, so that
regenerating the vectors gives the same bytes with any version of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

from tools.vector_cases.case import Tensor

__all__ = ["MAX", "SEED", "Stream"]

SEED = 1
MAX = 2**31 - 1
"""The largest magnitude of an element."""

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15

_T = TypeVar("_T")


def _fnv1a(text: str) -> int:
    key = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        key = (key ^ byte) * 0x100000001B3 & _MASK
    return key


class Stream:
    """The numbers that belong to one label."""

    def __init__(self, label: str) -> None:
        self._state = _fnv1a(f"{SEED}/{label}")

    def word(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + _GOLDEN) & _MASK
        z = self._state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        return z ^ (z >> 31)

    def between(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi]; the bias of the modulus does not matter here."""
        return lo + (self.word() << 64 | self.word()) % (hi - lo + 1)

    def choice(self, items: Sequence[_T]) -> _T:
        """One of the items."""
        return items[self.between(0, len(items) - 1)]

    def shuffled(self, items: Sequence[_T]) -> list[_T]:
        """The items in random order (Fisher-Yates)."""
        left = list(items)
        for last in range(len(left) - 1, 0, -1):
            other = self.between(0, last)
            left[last], left[other] = left[other], left[last]
        return left

    def element(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi], half of the time from its edges: the ends, and 0, 1, -1 where they are inside."""
        edges = [edge for edge in (lo, hi, 0, 1, -1) if lo <= edge <= hi]
        return self.choice(edges) if self.between(0, 1) else self.between(lo, hi)

    def tensor(self, shape: Sequence[int], lo: int, hi: int) -> Tensor:
        """A tensor of such elements."""
        return Tensor(tuple(shape), tuple(self.element(lo, hi) for _ in range(prod(shape))))

    def spread(self, shape: Sequence[int], lo: int = -MAX, hi: int = MAX) -> Tensor:
        """A tensor whose elements are all different with high probability, so that each shows where it came from."""
        return Tensor(tuple(shape), tuple(self.between(lo, hi) for _ in range(prod(shape))))

    def shape(self, rank: int, largest: int = 3) -> tuple[int, ...]:
        """A shape of that rank with extents up to ``largest``, fewer of them above 1 the higher the rank."""
        return tuple(self.between(1, largest) if self.between(1, rank) <= 4 else 1 for _ in range(rank))
