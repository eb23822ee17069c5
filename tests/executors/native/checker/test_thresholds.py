"""Two rounded lines are proven equal only if they are, and whenever they are."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cvm.executors.native.checker.thresholds import Line, _stays_above, agree
from tests.selection import examples

LINES = st.tuples(st.integers(-20, 20), st.integers(-300, 300), st.integers(0, 8))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Line, Line]:
    """A line, and one that is a little off, or any other."""
    a = Line(*draw(LINES))
    if draw(st.booleans()):
        return a, Line(*draw(LINES))
    s = draw(st.integers(0, 9))
    m, c = ((number << s) >> a.s for number in (a.m, a.c))
    return a, Line(m + draw(st.integers(-1, 1)), c + draw(st.integers(-3, 3)), s)


@pytest.mark.slow
@settings(max_examples=examples(1500))
@given(
    pairs(), st.sampled_from([0, 0, 1, 3]), st.integers(-40, 20), st.integers(0, 60), st.integers(-30, 20), st.data()
)
def test_the_proof_says_what_trying_every_integer_says(
    lines: tuple[Line, Line], slack: int, lo: int, count: int, least: int, data: st.DataObject
) -> None:
    a, b = lines
    interval, clip = (lo, lo + count), (least, least + data.draw(st.integers(0, 40)))

    def clipped(line: Line, x: int, more: int) -> int:
        return min(max((line.m * x + line.c + more) >> line.s, clip[0]), clip[1])

    every = range(interval[0], interval[1] + 1)
    right = all(clipped(a, x, 0) == clipped(b, x, 0) == clipped(b, x, slack) for x in every)
    event("equal" if right else "different")
    assert agree(a, b, slack, interval, clip) == right


@given(st.integers(2**20, 2**31), st.integers(-(2**50), 2**50), st.integers(24, 40), st.integers(-(2**22), 2**22))
def test_one_wrong_sum_among_millions_is_found(m: int, c: int, s: int, x: int) -> None:
    """The offset is moved until the code of one sum changes, and no further."""
    a, interval = Line(m, c, s), (-(2**22), 2**22)
    residues = (m * x + c) % 2**s
    moved = Line(m, c + 2**s - residues, s)
    assert (m * x + c >> s) != (m * x + moved.c >> s)
    assert not agree(a, moved, 0, interval, (-(2**31), 2**31 - 1))
    assert agree(a, Line(8 * m, 8 * c + 7, s + 3), 0, interval, (-(2**31), 2**31 - 1))


@settings(max_examples=examples(1500))
@given(st.integers(1, 400), st.integers(-500, 500), st.integers(-500, 500), st.integers(1, 300), st.integers(0, 400))
def test_remainders_stay_above_a_bound_if_each_of_them_does(n: int, m: int, c: int, count: int, width: int) -> None:
    assert _stays_above(m, c, n, count, width) == all((m * k + c) % n >= width for k in range(count))


@given(st.integers(2**40, 2**55), st.integers(0, 2**55), st.integers(0, 2**55), st.integers(1, 3_000))
def test_the_least_of_large_remainders_is_found(n: int, m: int, c: int, count: int) -> None:
    least = min((m * k + c) % n for k in range(count))
    assert _stays_above(m, c, n, count, least)
    assert not _stays_above(m, c, n, count, least + 1)


def test_lines_that_run_beside_each_other_close_to_every_step_are_proven() -> None:
    """Remainders of the first line pass 0 in each of some 400 periods, as near as the second line is away there."""
    a, b = Line(-(2**46) + 2, 9223583143087702008, 55), Line(-4096, 536883200, 21)
    assert agree(a, b, 0, (-65535, 131070), (0, 183))
    assert not agree(a, b._replace(c=b.c + 4096), 0, (-65535, 131070), (0, 183))
