"""Hypothesis strategies for valid programs: graphs of all ops, deep, over odd shapes and extreme data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from tools.fuzz.growers import GROWERS, Sample, sample

__all__ = ["GROWERS", "Sample", "samples"]

T = TypeVar("T")


class _Drawn:
    """What hypothesis decides, as a `Draw`."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, lo: int, hi: int) -> int:
        return self._draw(st.integers(lo, hi))

    def boolean(self) -> bool:
        return self._draw(st.booleans())

    def choice(self, items: Sequence[T]) -> T:
        return self._draw(st.sampled_from(items))

    def permutation(self, items: Sequence[T]) -> list[T]:
        return self._draw(st.permutations(items))


@st.composite
def samples(draw: st.DrawFn, among: Collection[str] = tuple(GROWERS)) -> Sample:
    """A valid program with a chain of at least three nodes, and inputs for one run, or for three if it has state.

    The ops are ``among`` those given, and what their operands need.
    """
    ops = st.lists(st.sampled_from([op for op in GROWERS if op in among]), min_size=5, max_size=9)
    return sample(_Drawn(draw), lambda: draw(ops))
