"""Places in the arena: what lives at the same time lies apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cvm.executors.native.plan.arena import ALIGNMENT, allocate
from cvm.executors.native.plan.homes import Buffer

LIVES = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)
BUFFERS = st.lists(
    st.tuples(st.integers(1, 500) | st.sampled_from((63, 64, 65, 4096)), LIVES).map(
        lambda pair: Buffer("arena", pair[0], first=pair[1][0], last=pair[1][1])
    ),
    max_size=25,
)


@given(BUFFERS)
def test_buffers_that_live_together_do_not_overlap(buffers: list[Buffer]) -> None:
    offsets, size = allocate(buffers)
    assert set(offsets) == set(buffers)
    for buffer, start in offsets.items():
        assert start >= 0
        assert start % ALIGNMENT == 0
        assert start + buffer.size <= size
        for other, begin in offsets.items():
            together = buffer.first <= other.last and other.first <= buffer.last
            if other is not buffer and together:
                assert start + buffer.size <= begin or begin + other.size <= start
    assert size % ALIGNMENT == 0


@given(BUFFERS)
def test_the_arena_is_no_larger_than_all_buffers_and_no_smaller_than_those_of_any_step(buffers: list[Buffer]) -> None:
    _, size = allocate(buffers)
    rounded = {buffer: -(-buffer.size // ALIGNMENT) * ALIGNMENT for buffer in buffers}
    steps = [sum(rounded[one] for one in buffers if one.first <= step <= one.last) for step in range(10)]
    assert max(steps) <= size <= sum(rounded.values())


def test_buffers_of_one_step_after_another_share_their_place() -> None:
    buffers = [Buffer("arena", 100, first=step, last=step) for step in range(5)]
    offsets, size = allocate(buffers)
    assert set(offsets.values()) == {0}
    assert size == 128


def test_a_buffer_knows_the_steps_that_need_it() -> None:
    buffer = Buffer("arena", 1)
    for step in (4, 2, 7):
        buffer.used(step)
    assert (buffer.first, buffer.last) == (2, 7)
