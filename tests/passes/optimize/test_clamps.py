"""Merged clamps: clips of clips, and clips of a requantize."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.optimize.chains import ROUNDINGS, add, built, fires, ops_of, requantize, stays

PASS = "merged clamps"
BOUND = st.integers(-12, 12)
INTERVALS = st.tuples(BOUND, BOUND).map(lambda pair: (min(pair), max(pair)))


@given(INTERVALS, INTERVALS)
def test_a_clip_of_a_clip_is_one_clip_also_where_the_intervals_do_not_meet(inner, outer):
    def grow(b, x):
        first = add(b, "clip", x, a_min=inner[0], a_max=inner[1])
        return add(b, "clip", first, a_min=outer[0], a_max=outer[1])

    assert ops_of(fires(PASS, built(-15, 15, grow))) == {"clip": 1}


@settings(deadline=None)
@given(INTERVALS, INTERVALS, st.sampled_from(ROUNDINGS), st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 3))
def test_a_clip_of_a_requantize_is_its_bounds(inner, outer, rounding, m, c, s):
    def grow(b, x):
        first = requantize(b, x, m, c, s, *inner, rounding)
        return add(b, "clip", first, a_min=outer[0], a_max=outer[1])

    assert ops_of(fires(PASS, built(-15, 15, grow))) == {"requantize": 1}


@pytest.mark.parametrize(
    ("op", "attributes", "bounds"),
    [("relu", {}, (0, 100)), ("cvm_clip", {"precision": 5}, (-15, 15)), ("cvm_clip", {"precision": 1}, (0, 0))],
)
def test_relu_and_cvm_clip_are_clips(op, attributes, bounds):
    def grow(b, x):
        return add(b, op, requantize(b, x, 3, -1, 1, -100, 100), **attributes)

    (node,) = fires(PASS, built(-40, 40, grow)).nodes
    assert (node.attributes["lo"], node.attributes["hi"]) == bounds


def test_a_value_that_another_node_reads_is_not_clipped():
    def grow(b, x):
        first = requantize(b, x, 1, 0, 1, -9, 9)
        return [add(b, "clip", first, a_min=-3, a_max=3), add(b, "negative", first)]

    stays(PASS, built(-20, 20, grow))


def test_a_value_that_is_an_output_too_is_not_clipped():
    def grow(b, x):
        first = requantize(b, x, 1, 0, 1, -9, 9)
        return [first, add(b, "clip", first, a_min=-3, a_max=3)]

    stays(PASS, built(-20, 20, grow))


def test_a_tensor_of_the_document_is_not_clipped():
    def grow(b, x):
        return add(b, "relu", requantize(b, x, 1, 0, 1, -9, 9, name="named"))

    stays(PASS, built(-20, 20, grow, named=["named"]))
    fires(PASS, built(-20, 20, grow))


def test_a_right_shift_is_no_clip():
    def grow(b, x):
        return add(b, "cvm_right_shift", add(b, "clip", x, a_min=-9, a_max=9), precision=4, shift_bit=1)

    stays(PASS, built(-20, 20, grow))


def test_the_bounds_of_an_axis_that_is_sliced_stay_per_channel():
    def grow(b, x):
        first = requantize(b, x, [[[[1]], [[2]]]], 0, 0, -100, 100)
        return add(b, "clip", first, a_min=-15, a_max=15)

    program = built(-10, 10, grow, shape=(1, 2, 1, 1))
    assert (fires(PASS, program).nodes[0].outputs[0].lo, program.nodes[1].outputs[0].lo) == (-15, -15)
