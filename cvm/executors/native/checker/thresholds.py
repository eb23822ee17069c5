"""Two ways to round a linear form, proven to agree on a whole interval.

A requantization of one varying operand is floor((m x + c) / 2^s), clipped to an interval. Machine code computes it with
other numbers, M, C and S, and in one form with up to ``slack`` more in the numerator. Both rise with x. Where they
differ by D(x) before they are rounded, they agree if D carries no value over an integer: with N(x) = (m x + c) mod 2^s,

    0 <= N(x) + 2^s D(x)   and   N(x) + 2^s D(x) + slack < 2^s   for every x.

D is linear, so its bounds on a stretch are those at its ends, and whether N(x) stays within bounds is decided in a few
steps of Euclid's algorithm. That suffices nearly always. Where these bounds are too coarse, sums decide: where one form
is never below the other, all floors are equal if and only if their sums are. Everything is a Python integer.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Line", "agree"]


class Line(NamedTuple):
    """floor((m x + c) / 2^s)."""

    m: int
    c: int
    s: int


def agree(a: Line, b: Line, slack: int, interval: tuple[int, int], clip: tuple[int, int]) -> bool:
    """Whether both lines, clipped to ``clip``, are proven equal for every integer x of the interval.

    The numerator of ``b`` may hold up to ``slack`` more than it says.
    """
    shift = max(a.s, b.s)
    m, c, M, C = a.m << shift - a.s, a.c << shift - a.s, b.m << shift - b.s, b.c << shift - b.s
    slack <<= shift - b.s
    (lo, hi), (least, most) = interval, clip
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
    return _same_floors(1 << shift, (m, c), (M, C), slack, begin, end - 1)


def _same_floors(n: int, a: tuple[int, int], b: tuple[int, int], slack: int, lo: int, hi: int) -> bool:
    """Whether floor((m x + c) / n) is the same for both (m, c) if lo <= x <= hi, with up to ``slack`` in the second."""
    (m, c), (M, C) = a, b
    if lo > hi:
        return True
    first, last = (M - m) * lo + C - c, (M - m) * hi + C - c
    least, end = max(-min(first, last), 0), min(n - max(first, last) - slack, n)
    # Bad remainders are those from end up to n and those from 0 up to least: less than a width above end, modulo n.
    if least < end and _stays_above(m, m * lo + c - end, n, hi - lo + 1, n - end + least):
        return True
    return all(_same_sums(n, a, (M, C + more), lo, hi) for more in {0, slack})


def _same_sums(n: int, a: tuple[int, int], b: tuple[int, int], lo: int, hi: int) -> bool:
    """Whether floor((m x + c) / n) is the same for both (m, c) if lo <= x <= hi: their sums are, on either side of
    where the lines cross.
    """
    (m, c), (M, C) = a, b
    crossing = min(max((c - C) // (M - m), lo - 1), hi) if m != M else hi
    return all(
        _floors(end - begin + 1, n, m, m * begin + c) == _floors(end - begin + 1, n, M, M * begin + C)
        for begin, end in ((lo, crossing), (crossing + 1, hi))
    )


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


def _floors(count: int, n: int, m: int, c: int) -> int:
    """The sum of floor((m k + c) / n) for 0 <= k < count: the whole parts first, then rows and columns are swapped."""
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (m // n) + count * (c // n)
        m, c = m % n, c % n
        top = m * count + c
        if top < n:
            break
        count, n, m, c = top // n, m, n, top % n
    return total
