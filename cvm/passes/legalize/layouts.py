"""The layouts that are tried for a weighted sum, those with the fewest ops first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cvm.passes.legalize.columns import Layout, WeightedSum
from cvm.passes.legalize.integers import bits

__all__ = ["layouts"]

BASES = range(6, 27)
"""The widths of digits, in bits, that are tried."""
SLACK = 6
"""Up to this many bits are taken from the top digits of multipliers, so that sums of products have more room."""
SPLIT = 4
"""The number of ops that it takes to split one digit off a tensor."""


def layouts(wanted: WeightedSum) -> list[tuple[int, Layout]]:
    """Layouts that can possibly be proven, each with an estimate of its ops, in the order of the estimates.

    A product of two digits must fit in 31 bits. So for every base, and every way to split the widest tensor, the top
    digits of multipliers are as wide as the products allow, or a few bits less.
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
                for last in _result_columns(sizes, base, wanted.shift):
                    layout = Layout(base, top, room, last)
                    found[(base, last, *sizes)] = (_estimate(sizes, last, len(wanted.constants)), layout)
    return sorted(found.values(), key=lambda item: (item[0], item[1].base, item[1].top, item[1].last))


def _count(size: int, base: int, top: int) -> int:
    """The number of digits of a number of ``size`` bits."""
    return 1 + -(min(0, top - size) // base)


def _result_columns(sizes: Sequence[tuple[int, int]], base: int, shift: int) -> Iterator[int]:
    """The possible columns of the result: the one that the shift ends in, or the last column with products if that is
    lower and a shift by up to 32 bits suffices from there.
    """
    highest = max(x + m - 2 for x, m in sizes)
    last = (shift - 1) // base
    yield last
    if highest < last and shift - base * highest <= 32:
        yield highest


def _estimate(sizes: Sequence[tuple[int, int]], last: int, chains: int) -> int:
    """Estimate the number of ops. ``sizes`` are the numbers of digits of each tensor and of its multiplier."""
    splits = sum(SPLIT * (x - 1) for x, _ in sizes)
    products = sum(x * m for x, m in sizes)
    columns = max(x + m - 1 for x, m in sizes)
    above = max(0, columns - 1 - last)
    # Products and their sums, constants, carries and H.
    return splits + products + (products - columns) + min(last + 1, columns) + chains * 2 * last + 1 + 2 * above + 1
