"""Merged steps: constants, signs and factors beside a requantize, and where a rounding stands in the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.program import Output, ProgramBuilder
from tests.passes.optimize.chains import ROUNDINGS, add, built, const, fires, ops_of, requantize, stays
from tests.passes.optimize.equality import assert_equal, extremes, passed
from tests.selection import examples

PASS = "merged steps"
LARGEST = 2**31 - 1


def before(op, value=None, left=False, **attributes):
    """A step on x."""

    def step(b, x):
        operands = [x] if value is None else [x, const(b, value)]
        return add(b, op, *(operands[::-1] if left else operands), **attributes)

    return step


STEPS = {
    "add": before("broadcast_add", [7]),
    "add to": before("broadcast_add", [-7], left=True),
    "sub": before("broadcast_sub", [5]),
    "sub from": before("broadcast_sub", [5], left=True),
    "mul": before("broadcast_mul", [-3]),
    "mul by": before("broadcast_mul", [4], left=True),
    "negative": before("negative"),
    "shift": before("cvm_left_shift", precision=32, shift_bit=3),
    "per channel": before("broadcast_add", [[[[4]], [[-9]]]]),
}
SETTINGS = settings(deadline=None, max_examples=40)
SMALL, SHIFT = st.integers(-9, 9), st.integers(0, 4)
INTERVALS = st.tuples(st.integers(-20, 20), st.integers(-20, 20)).map(lambda pair: tuple(sorted(pair)))


@pytest.mark.sweep
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_step_before_a_requantize_is_part_of_its_sum(step, rounding):
    @SETTINGS
    @given(SMALL, SMALL, SHIFT, INTERVALS)
    def merges(m, c, s, bounds):
        channels = step is STEPS["per channel"]
        offset = np.full((1, 2, 1, 1), c)  # room for one offset per channel
        grow = lambda b, x: requantize(b, step(b, x), m, offset if channels else c, s, *bounds, rounding)  # noqa: E731
        shape = (1, 2, 2, 3) if channels else None
        program = built(-10, 9, grow, shape=shape)
        if m:
            assert ops_of(fires(PASS, program)) == {"requantize": 1}

    merges()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("by", [-3, -2, 1, 2])
def test_an_addition_after_a_requantize_where_the_rounding_commutes_with_it(rounding, by):
    """-1.5, -0.5, 0.5, 1.5: ties everywhere, of both signs."""

    def grow(b, x):
        return add(b, "broadcast_add", requantize(b, x, 1, 0, 1, -4, 4, rounding), const(b, [by]))

    program = built(-9, 9, grow)
    if rounding == "half_up" or (rounding == "half_even" and by % 2 == 0):
        assert ops_of(fires(PASS, program)) == {"requantize": 1}
    else:
        stays(PASS, program)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_without_a_shift_there_is_no_rounding(rounding):
    program = built(
        -9, 9, lambda b, x: add(b, "broadcast_sub", requantize(b, x, 3, 2, 0, -9, 9, rounding), const(b, [3]))
    )
    assert ops_of(fires(PASS, program)) == {"requantize": 1}


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_one_shift_of_several_is_a_rounding(rounding):
    def grow(b, x):
        first = requantize(b, x, 1, np.zeros((1, 2, 1, 1), int), [[[[0]], [[1]]]], -9, 9, rounding)
        return add(b, "broadcast_add", first, const(b, [3]))

    program = built(-5, 5, grow, shape=(1, 2, 11, 1))
    (fires if rounding == "half_up" else stays)(PASS, program)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@settings(deadline=None, max_examples=examples(60))
@given(SMALL, SMALL, SHIFT, INTERVALS)
def test_the_negative_of_a_requantize_is_one(rounding, m, c, s, bounds):
    program = built(-10, 9, lambda b, x: add(b, "negative", requantize(b, x, m, c, s, *bounds, rounding)))
    assert ops_of(fires(PASS, program)) == {"requantize": 1}


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_the_negative_where_some_shifts_are_zero(rounding):
    def grow(b, x):
        return add(b, "negative", requantize(b, x, 1, np.zeros((1, 2, 1, 1), int), [[[[0]], [[1]]]], -9, 9, rounding))

    fires(PASS, built(-6, 6, grow, shape=(1, 2, 13, 1)))


def test_a_factor_after_a_requantize_is_not_merged():
    def grow(b, x):
        return add(b, "broadcast_mul", requantize(b, x, 1, 0, 1, -9, 9), const(b, [2]))

    stays(PASS, built(-9, 9, grow))


def test_a_requantize_of_a_requantize_rounds_twice():
    stays(PASS, built(-9, 9, lambda b, x: requantize(b, requantize(b, x, 3, 0, 1, -9, 9), 3, 0, 1, -9, 9)))


def test_an_addition_of_different_numbers_after_a_requantize_is_not_merged():
    def grow(b, x):
        return add(b, "broadcast_add", requantize(b, x, 1, 0, 1, -9, 9), const(b, [[[[1]], [[2]]]]))

    stays(PASS, built(-9, 9, grow, shape=(1, 2, 1, 1)))


def test_a_left_shift_that_clips_is_no_factor():
    def grow(precision):
        return lambda b, x: requantize(
            b, add(b, "cvm_left_shift", x, precision=precision, shift_bit=2), 1, 0, 1, -200, 200
        )

    fires(PASS, built(-31, 31, grow(8)))  # 124 <= 127
    stays(PASS, built(-32, 31, grow(8)))  # -128 is clipped to -127


def test_a_value_read_elsewhere_keeps_its_step():
    def grow(b, x):
        moved = add(b, "broadcast_add", x, const(b, [3]))
        return [requantize(b, moved, 1, 0, 1, -9, 9), add(b, "abs", moved)]

    stays(PASS, built(-9, 9, grow))


def test_a_step_that_is_an_output_stays():
    def grow(b, x):
        moved = add(b, "broadcast_add", x, const(b, [3]))
        return [moved, requantize(b, moved, 1, 0, 1, -9, 9)]

    stays(PASS, built(-9, 9, grow))


def test_a_sum_that_would_exceed_64_bits_is_not_merged():
    """m * (x - big): the sum of both is small, that of its parts is not."""

    def grow(m):
        return lambda b, x: requantize(b, add(b, "broadcast_sub", x, const(b, [2**30])), m, 0, 20, -LARGEST, LARGEST)

    lo, hi = 2**30 - 8, 2**30 + 7
    fires(PASS, built(lo, hi, grow(2**30)))
    stays(PASS, built(lo, hi, grow(2**40)))


def test_a_multiplier_of_62_bits_is_not_merged():
    def grow(value):
        def program(b, x):
            return requantize(b, add(b, "broadcast_mul", x, const(b, [value])), 2**40, 0, 60, -9, 9)

        return program

    fires(PASS, built(0, 1, grow(2**21)))
    stays(PASS, built(0, 0, grow(2**22)))


def test_bounds_beyond_int32_are_never_reached():
    def grow(b, x):
        first = requantize(b, x, 2**20, 0, 0, -LARGEST, LARGEST)
        return add(b, "broadcast_sub", first, const(b, [1000]))

    (node,) = fires(PASS, built(-100, 100, grow)).nodes
    assert (node.attributes["lo"], node.attributes["hi"]) == (-LARGEST, LARGEST - 1000)


def test_constants_do_not_grow():
    """One factor per channel and one offset per row: merged, there would be one offset for each of both."""

    def grow(b, x):
        moved = add(b, "broadcast_add", x, const(b, np.arange(4).reshape(1, 1, 4, 1)))
        return requantize(b, moved, np.arange(1, 4).reshape(1, 3, 1, 1), 0, 0, -99, 99)

    stays(PASS, built(-9, 9, grow, shape=(1, 3, 4, 1)))


def two(grow, shape=(1, 2, 2, 1), shape_2=None):
    builder = ProgramBuilder()
    x, z = builder.input("x", shape, -9, 9), builder.input("z", shape_2 or shape, -9, 9)
    return builder.build([Output("y", grow(builder, x, z))])


def terms(b, xs, ms, c=0, s=1):
    parameters = [const(b, np.atleast_1d(item), parameter=True) for item in (*ms, c, s)]
    return add(b, "requantize", *xs, *parameters, rounding="half_up", lo=-50, hi=50)


@pytest.mark.parametrize(("grow", "left"), [
    (lambda b, x, z: terms(b, [x, z], [3, 0]), 1),
    (lambda b, x, z: terms(b, [x, x], [3, 4]), 1),
    (lambda b, x, z: terms(b, [x, z, x], [3, 1, -3]), 1),
    (lambda b, x, z: terms(b, [x, z, const(b, np.full((1, 2, 2, 1), 5))], [3, 1, 7]), 2),
])  # fmt: skip
def test_terms_of_factor_zero_of_one_tensor_and_of_constants_are_merged(grow, left):
    program = two(grow)
    result = passed(PASS, program)
    assert len(result.nodes[0].inputs) == 2 * left + 2
    assert_equal(program, result, extremes(program, 8))


def test_the_first_term_has_the_shape_of_the_result():
    program = two(lambda b, x, z: terms(b, [x, z, z], [0, 2, 3]), shape_2=(1, 2, 1, 1))
    stays(PASS, program)
    program = two(lambda b, x, z: terms(b, [const(b, np.full((1, 2, 2, 1), 5)), z, x], [3, 1, 1]), shape_2=(1, 2, 1, 1))
    result = passed(PASS, program)
    assert result.nodes[0].inputs[:2] == ("x", "z")
    assert_equal(program, result, extremes(program))


@pytest.mark.parametrize(("first", "second", "ops"), [
    ("add", "sub", {"broadcast_add": 1}),
    ("sub from", "sub from", {}),
    ("negative", "negative", {}),
    ("mul", "mul by", {"broadcast_mul": 1}),
    ("negative", "add", {"broadcast_sub": 1}),
    ("sub from", "negative", {"broadcast_add": 1}),
    ("mul", "negative", {"broadcast_mul": 1}),
    ("shift", "mul", {"broadcast_mul": 1}),
])  # fmt: skip
def test_steps_of_steps_are_one(first, second, ops):
    program = built(-20, 20, lambda b, x: STEPS[second](b, STEPS[first](b, x)))
    assert ops_of(fires(PASS, program)) == ops


@pytest.mark.parametrize(("first", "second"), [("mul", "add"), ("add", "mul"), ("sub from", "mul by")])
def test_a_factor_and_an_offset_take_two_ops(first, second):
    stays(PASS, built(-20, 20, lambda b, x: STEPS[second](b, STEPS[first](b, x))))


def test_a_constant_beyond_int32_is_not_made():
    def offsets(b, x):
        return add(b, "broadcast_sub", add(b, "broadcast_sub", x, const(b, [LARGEST])), const(b, [LARGEST]))

    stays(PASS, built(LARGEST, LARGEST, offsets, shape=(1, 1)))

    def factors(b, x):
        return add(b, "broadcast_mul", add(b, "broadcast_mul", x, const(b, [2**16])), const(b, [2**16]))

    stays(PASS, built(0, 0, factors, shape=(1, 1)))
