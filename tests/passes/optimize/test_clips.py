"""Exact clips: a requantize or a table that clips its integers, and all that nearly do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors import create
from cvm.program import verify
from tests.passes.optimize.chains import ROUNDINGS, add, built, const, fires, ops_of, requantize, stays
from tests.passes.optimize.equality import assert_equal, passed

PASS = "exact clips"
HALF = 2**29


@pytest.mark.parametrize("c", [0, -1, HALF - 1, -HALF])
def test_a_requantize_by_one_with_an_offset_below_a_step_is_a_clip(c):
    def grow(b, x):
        return requantize(b, x, 2**30, c, 30, -100, 90)

    (node,) = fires(PASS, built(-128, 127, grow)).nodes
    assert dict(node.attributes) == {"a_min": -100, "a_max": 90}


@pytest.mark.parametrize("c", [HALF, -HALF - 1])
def test_one_more_or_less_is_a_step(c):
    stays(PASS, built(-128, 127, lambda b, x: requantize(b, x, 2**30, c, 30, -128, 128)))


@pytest.mark.parametrize(("rounding", "c", "clip"), [
    ("half_up", HALF, False), ("half_even", HALF, False), ("half_even", -HALF, False), ("half_up", -HALF, True),
    ("toward_zero", 1, False), ("toward_zero", 0, True), ("toward_zero", -1, False),
])  # fmt: skip
def test_ties_count_as_the_rounding_says(rounding, c, clip):
    program = built(-8, 7, lambda b, x: requantize(b, x, 2**30, c, 30, -100, 100, rounding))
    (fires if clip else stays)(PASS, program)


def test_toward_zero_with_a_sign_that_does_not_change_is_a_clip():
    fires(PASS, built(0, 50, lambda b, x: requantize(b, x, 2**30, 5, 30, 0, 40, "toward_zero")))


def test_a_slope_that_shows_at_one_end_only_is_no_clip():
    grow = lambda m: lambda b, x: requantize(b, x, m, 0, 10, -(2**31) + 1, 2**31 - 1)  # noqa: E731
    fires(PASS, built(-511, 511, grow(1025)))
    stays(PASS, built(-512, 512, grow(1025)))
    fires(PASS, built(-512, 512, grow(1023)))  # -512 becomes -511: a clip
    stays(PASS, built(-513, 512, grow(1023)))


def test_a_slope_that_shows_beyond_the_bounds_alone_is_a_clip():
    fires(PASS, built(-2000, 2000, lambda b, x: requantize(b, x, 1025, 0, 10, -400, 400)))


def test_every_channel_must_be_the_same_clip():
    def grow(c):
        return lambda b, x: requantize(b, x, [[[[64]], [[64]], [[64]]]], c, 6, -5, 5)

    shape = (1, 3, 2, 2)
    fires(PASS, built(-9, 9, grow([[[[0]], [[1]], [[-32]]]]), shape))
    stays(PASS, built(-9, 9, grow([[[[0]], [[1]], [[32]]]]), shape))


def test_channels_clipped_at_different_integers_are_no_clip():
    def grow(b, x):
        return requantize(b, x, [[[[4]], [[4]]]], [[[[0]], [[0]]]], [[[[2]], [[1]]]], -4, 4)

    stays(PASS, built(-2, 2, grow, shape=(1, 2, 1, 1)))


def test_an_integer_scaled_by_minus_one_or_zero_is_no_clip():
    stays(PASS, built(-3, 3, lambda b, x: requantize(b, x, -1, 0, 0, -3, 3)))
    fires(PASS, built(-3, 3, lambda b, x: requantize(b, x, 1, 0, 0, -3, 2)))


def test_an_interval_that_is_too_long_to_try_is_left():
    stays(PASS, built(-(2**20), 2**20, lambda b, x: requantize(b, x, 1, 0, 0, -5, 5), shape=(1, 4)))


def test_two_tensors_are_not_a_clip():
    def grow(b, x):
        m = const(b, [1], parameter=True)
        zero = const(b, [0], parameter=True)
        return add(b, "requantize", x, x, m, m, zero, m, rounding="half_up", lo=-9, hi=9)

    stays(PASS, built(-3, 3, grow))


def test_a_table_of_its_own_positions_is_a_clip():
    def grow(table):
        return lambda b, x: add(b, "cvm_lut", const(b, table), x)

    fires(PASS, built(0, 7, grow([2, 2, 2, 3, 4, 5, 5, 5])))
    fires(PASS, built(-3, 12, grow(np.arange(8))))
    stays(PASS, built(0, 7, grow([2, 2, 2, 3, 5, 5, 5, 5])))
    stays(PASS, built(0, 7, grow(np.arange(8)[::-1])))


@settings(deadline=None)
@given(
    st.integers(-70, 70), st.integers(-140, 140), st.integers(0, 7), st.sampled_from(ROUNDINGS), st.integers(-20, 20),
    st.integers(0, 40), st.integers(-20, 20), st.integers(0, 40),
)  # fmt: skip
def test_what_is_taken_for_a_clip_is_one(m, c, s, rounding, lo, length, first, codes):
    program = built(first, first + codes, lambda b, x: requantize(b, x, m, c, s, lo, lo + length, rounding))
    after = passed(PASS, program)
    feed = {"x": np.arange(first, first + codes + 1, dtype=np.int32).reshape(1, -1)}
    assert_equal(program, after, [feed])
    y = create("formal", verify(program)).run(feed, {}).values[program.outputs[0].value]
    is_clip = bool((y == np.clip(feed["x"], y[0, 0], y[0, -1])).all()) if y[0, 0] <= y[0, -1] else False
    assert (ops_of(after) == {"clip": 1}) == is_clip
