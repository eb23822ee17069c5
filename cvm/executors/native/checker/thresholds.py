"""Two ways to round a linear form, proven to agree on a whole interval.

A requantization of one varying operand is floor((m x + c) / 2^s), cut to an interval. Machine code computes it with
other numbers, M, C and S, and in one form with up to ``slack`` more in the numerator. Both rise with x. Where they
differ by D(x) before they are rounded, they agree as long as D carries no value over an integer: with
N(x) = (m x + c) mod 2^s,

    0 <= N(x) + 2^s D(x)   and   N(x) + 2^s D(x) + slack < 2^s   for every x.

D is linear, so its bounds on a stretch are those at its ends. Whether N(x) stays within bounds on a stretch is decided
in a few steps of Euclid's algorithm. A stretch on which the bounds of D are too coarse is halved. Everything is a
Python integer.
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
        first, last = dm * lo + dc, dm * hi + dc
        least, end = max(-min(first, last), 0), min(n - max(first, last) - slack, n)
        # Bad remainders are those from end up to n and those from 0 up to least: less than a width above end, modulo n.
        if least < end and _stays_above(m, m * lo + c - end, n, hi - lo + 1, n - end + least):
            continue
        if not (holds(lo) and holds(hi)) or (hi - lo < SHORT and not all(map(holds, range(lo, hi + 1)))):
            return False
        if hi - lo >= SHORT:
            middle = (lo + hi) // 2
            stretches += [(lo, middle), (middle + 1, hi)]
    return False


def _stays_above(m: int, c: int, n: int, count: int, width: int) -> bool:
    """Whether (m k + c) mod n >= width for 0 <= k < count, where count >= 1.

    Remainders rise by m until they pass n; the least of each rise is its first, which is below m. First ones are
    remainders modulo m, of which there are fewer, and so on. Where m is above n / 2, k is counted from the other end.
    """
    m, c = m % n, c % n
    while c >= width:
        if 2 * m > n:
            m, c = n - m, (c + m * (count - 1)) % n
            if c < width:
                return False
        rises = (c + m * (count - 1)) // n
        if rises == 0:
            return True
        step = -n % m
        m, c, n, count = step, (c + step) % m, m, rises
    return False
