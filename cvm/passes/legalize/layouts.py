"""The layouts that a weighted sum is tried in, those with the fewest ops first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cvm.passes.legalize.columns import Layout, WeightedSum
from cvm.passes.legalize.integers import bits

__all__ = ["layouts"]

BASES = range(6, 27)
"""The widths of digits, in bits, that are tried."""
SLACK = 6
"""The reductions, in bits, that are tried for the top digits of multipliers, so that sums of products have room."""
SPLIT = 4
"""The number of ops that split one digit off a tensor."""


def layouts(wanted: WeightedSum) -> list[tuple[int, Layout]]:
    """Layouts that may be proven, with an estimate of their ops, in ascending order of it.

    A product of digits fits 31 bits. So for every base, and every way to split the widest tensor, multipliers keep top
    digits as wide as the products leave room for, or a few bits less.
    """
    tensors = [max(abs(x.lo), abs(x.hi)).bit_length() for x, _ in wanted.terms]
    multipliers = [bits(items) for _, items in wanted.terms]
    found: dict[tuple[object, ...], tuple[int, Layout]] = {}
    for base in BASES:
        for top in sorted({max(max(tensors) - part * base, base - 1) for part in range(6)}):
            widest = max(min(top, max(tensors)), base - 1 if max(tensors) > top else 0)
            for room in range(31 - widest, 31 - widest - SLACK, -1):
                if room < (base - 1 if max(multipliers) > room else 0):
                    continue
                sizes = [
                    (_count(x, base, top), _count(m, base, room)) for x, m in zip(tensors, multipliers, strict=True)
                ]
                for last in _lasts(sizes, base, wanted.shift):
                    layout = Layout(base, top, room, last)
                    found[(base, last, *sizes)] = (_estimate(sizes, last, len(wanted.constants)), layout)
    return sorted(found.values(), key=lambda item: (item[0], item[1].base, item[1].top, item[1].last))


def _count(size: int, base: int, top: int) -> int:
    """The digits of a number of ``size`` bits."""
    return 1 + -(min(0, top - size) // base)


def _lasts(sizes: Sequence[tuple[int, int]], base: int, shift: int) -> Iterator[int]:
    """The column of the result; or the last one with products, if the shift is beyond."""
    highest = max(x + m - 2 for x, m in sizes)
    last = (shift - 1) // base
    yield last
    if highest < last and shift - base * highest <= 32:
        yield highest


def _estimate(sizes: Sequence[tuple[int, int]], last: int, chains: int) -> int:
    """Estimate the number of ops from how many digits the tensors and multipliers have."""
    splits = sum(SPLIT * (x - 1) for x, _ in sizes)
    products = sum(x * m for x, m in sizes)
    columns = max(x + m - 1 for x, m in sizes)
    above = max(0, columns - 1 - last)
    # Products and their sums, constants, carries and H.
    return splits + products + (products - columns) + min(last + 1, columns) + chains * 2 * last + 1 + 2 * above + 1
