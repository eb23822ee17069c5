"""Two ways to round a linear form, proven to agree on a whole interval.

A requantization of one varying operand is floor((m x + c) / 2^s), cut to an interval. Machine code computes it with
other numbers, M, C and S, and in one form with up to ``slack`` more in the numerator. Both rise with x. Where they
differ by D(x) before they are rounded, they agree as long as D carries no value over an integer: with
N(x) = (m x + c) mod 2^s,

    0 <= N(x) + 2^s D(x)   and   N(x) + 2^s D(x) + slack < 2^s   for every x.

D is linear, so its bounds on a stretch are those at its ends. How many x of a stretch have N(x) below a bound is a sum
of floors, which Euclid's algorithm gives in a few steps. A stretch on which the bounds are too coarse is halved.
Everything is a Python integer.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Line", "agree"]

SHORT = 8
"""A stretch of so many integers is tried one by one."""
STRETCHES = 2000
"""A proof that needs more stretches is given up."""


class Line(NamedTuple):
    """floor((m x + c) / 2^s)."""

    m: int
    c: int
    s: int


def agree(a: Line, b: Line, slack: int, interval: tuple[int, int], cut: tuple[int, int]) -> bool:
    """Whether both lines, cut to ``cut``, are proven equal for every integer x of the interval.

    The numerator of ``b`` may hold up to ``slack`` more than it says.
    """
    shift = max(a.s, b.s)
    m, c, M, C = a.m << shift - a.s, a.c << shift - a.s, b.m << shift - b.s, b.c << shift - b.s
    slack <<= shift - b.s
    (lo, hi), (least, most) = interval, cut
    if (m, c, slack) == (M, C, 0):
        return True
    if m < 0:  # count from the other end
        m, M, lo, hi = -m, -M, -hi, -lo

    def first(result: int) -> int:
        """The first x of the interval, or the one after it, with at least this result."""
        return min(max(-((c - (result << shift)) // m), lo), hi + 1)

    if m == 0 or M < 0:
        ends = [c + m * lo >> shift, c + m * hi >> shift]
        ends += [C + M * x + more >> shift for x in (lo, hi) for more in (0, slack)]
        return len({min(max(end, least), most) for end in ends}) == 1
    if least >= most:
        return True
    begin, end = first(least + 1), first(most)
    if begin > lo and C + M * (begin - 1) + slack >> shift > least:
        return False
    if end <= hi and C + M * end >> shift < most:
        return False
    return _carries_nothing(m, c, 1 << shift, M - m, C - c, slack, begin, end - 1)


def _carries_nothing(m: int, c: int, n: int, dm: int, dc: int, slack: int, lo: int, hi: int) -> bool:
    """Whether 0 <= N(x) + dm x + dc, and with ``slack`` < n, for lo <= x <= hi, where N(x) = (m x + c) mod n."""

    def holds(x: int) -> bool:
        moved = (m * x + c) % n + dm * x + dc
        return moved >= 0 and moved + slack < n

    stretches = [(lo, hi)] if lo <= hi else []
    for _ in range(STRETCHES):
        if not stretches:
            return True
        lo, hi = stretches.pop()
        if hi - lo < SHORT:
            if not all(map(holds, range(lo, hi + 1))):
                return False
            continue
        if not (holds(lo) and holds(hi)):
            return False
        ends = dm * lo + dc, dm * hi + dc
        if not _lies_within(m, m * lo + c, n, hi - lo + 1, -min(ends), n - max(ends) - slack):
            middle = (lo + hi) // 2
            stretches += [(lo, middle), (middle + 1, hi)]
    return False


def _lies_within(m: int, c: int, n: int, count: int, least: int, end: int) -> bool:
    """Whether least <= (m k + c) mod n < end for 0 <= k < count.

    Of a number with the remainder r, floor((v - least) / n) is one more than floor((v - end) / n) if least <= r < end,
    and the same if not: the difference of both sums counts the k.
    """
    least, end = max(least, 0), min(end, n)
    return least < end and _floors(count, n, m, c - least) - _floors(count, n, m, c - end) == count


def _floors(count: int, n: int, m: int, c: int) -> int:
    """The sum of floor((m k + c) / n) for 0 <= k < count: whole parts first, then rows and columns change places."""
    total = 0
    while True:
        total += count * (count - 1) // 2 * (m // n) + count * (c // n)
        m, c = m % n, c % n
        top = m * count + c
        if top < n:
            return total
        count, n, m, c = top // n, m, n, top % n
