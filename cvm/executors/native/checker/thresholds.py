"""Two ways to round a linear form, proven to agree on a whole interval.

A requantization with one operand that varies is floor((m x + c) / 2^s), clipped to an interval. Machine code computes
it with other numbers M, C and S; in the fused arithmetic the numerator may also be larger by up to ``slack``. Both
forms rise with x. Let D(x) be their difference before rounding. They are equal if adding D never crosses an integer,
that is, with N(x) = (m x + c) mod 2^s, if

    0 <= N(x) + 2^s D(x)   and   N(x) + 2^s D(x) + slack < 2^s   for every x.

D is linear, so on an interval it lies between its values at the two ends. Whether N(x) stays within bounds is decided
in a few steps of Euclid's algorithm. That is nearly always enough. If these bounds are too coarse, sums decide: where
one form is never below the other, all floors are equal if and only if their sums are. All numbers are Python integers.
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

    The numerator of ``b`` may be larger by up to ``slack`` than its ``m`` and ``c`` say.
    """
    shift = max(a.s, b.s)
    m, c, M, C = a.m << shift - a.s, a.c << shift - a.s, b.m << shift - b.s, b.c << shift - b.s
    slack <<= shift - b.s
    (lo, hi), (least, most) = interval, clip
    if (m, c, slack) == (M, C, 0):
        return True
    if m < 0:  # replace x by -x
        m, M, lo, hi = -m, -M, -hi, -lo

    def first(result: int) -> int:
        """The first x of the interval with at least this result; the x after the interval if there is none."""
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
    """Whether floor((m x + c) / n) is the same for both pairs (m, c) if lo <= x <= hi.

    The numerator of the second pair may be larger by up to ``slack``.
    """
    (m, c), (M, C) = a, b
    if lo > hi:
        return True
    first, last = (M - m) * lo + C - c, (M - m) * hi + C - c
    least, end = max(-min(first, last), 0), min(n - max(first, last) - slack, n)
    # A remainder is bad if it lies in [end, n) or [0, least), that is, if (remainder - end) mod n is below the width.
    if least < end and _stays_above(m, m * lo + c - end, n, hi - lo + 1, n - end + least):
        return True
    return all(_equal_floors(n, a, (M, C + more), lo, hi) for more in {0, slack})


def _equal_floors(n: int, a: tuple[int, int], b: tuple[int, int], lo: int, hi: int) -> bool:
    """Whether floor((m x + c) / n) is the same for both pairs (m, c) if lo <= x <= hi.

    That is so if the sums of the floors are equal on either side of the point where the two lines cross.
    """
    (m, c), (M, C) = a, b
    crossing = min(max((c - C) // (M - m), lo - 1), hi) if m != M else hi
    return all(
        _floors(end - begin + 1, n, m, m * begin + c) == _floors(end - begin + 1, n, M, M * begin + C)
        for begin, end in ((lo, crossing), (crossing + 1, hi))
    )


def _stays_above(m: int, c: int, n: int, count: int, width: int) -> bool:
    """Whether (m k + c) mod n >= width for 0 <= k < count, where count >= 1.

    Remainders rise by m until they would pass n; then the next rise begins. The least remainder of a rise is its first
    one, which is below m. The first remainders of all rises are themselves the remainders of such a sequence modulo m,
    which is shorter, and the argument is repeated for it. If m is above n / 2, k is counted from the other end.
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
    """The sum of floor((m k + c) / n) for 0 <= k < count, by Euclid's algorithm.

    First the multiples of n in m and c are summed. The rest counts the lattice points below a line, which are counted
    again with both axes swapped.
    """
    total = 0
    while count > 0:
        total += count * (count - 1) // 2 * (m // n) + count * (c // n)
        m, c = m % n, c % n
        top = m * count + c
        if top < n:
            break
        count, n, m, c = top // n, m, n, top % n
    return total
