"""Composed tables: pointwise ops of one tensor, tried on every integer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.passes.optimize import optimize
from cvm.program import Output, ProgramBuilder
from tests.passes.optimize.chains import ROUNDINGS, add, built, const, every, fires, ops_of, requantize, stays
from tests.passes.optimize.equality import assert_equal, passed

PASS = "composed tables"
ROW = (2, 300)


def lut(b, table, x):
    return add(b, "cvm_lut", const(b, table), x)


TABLES = st.lists(st.integers(-20, 20), min_size=1, max_size=9)


@settings(deadline=None)
@given(TABLES, TABLES, st.integers(-15, 15), st.integers(0, 20))
def test_a_table_of_a_table_is_one_whatever_the_interval(inner, outer, first, length):
    program = built(first, first + length, lambda b, x: lut(b, outer, lut(b, inner, x)))
    assert ops_of(fires(PASS, program)) == {"cvm_lut": 1}


def test_a_table_of_a_table_of_all_of_int32():
    program = built(-(2**31) + 1, 2**31 - 1, lambda b, x: lut(b, [5, 6, 7], lut(b, [2, -9, 1, 8], x)), shape=ROW)
    (node,) = fires(PASS, program).nodes
    assert len(passed(PASS, program).constants[0].data) == 4
    assert node.op == "cvm_lut"


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_two_requantizes_are_one_table_with_both_roundings(rounding):
    def grow(b, x):
        return requantize(b, requantize(b, x, 3, 1, 2, -90, 90, rounding), -5, 2, 3, -100, 100, rounding)

    assert ops_of(fires(PASS, built(0, 255, grow))) == {"cvm_lut": 1}


def test_an_interval_that_does_not_begin_at_zero_costs_a_subtraction():
    def two(b, x):
        return requantize(b, requantize(b, x, 3, 1, 2, -90, 90), -5, 2, 3, -100, 100)

    def three(b, x):
        return requantize(b, two(b, x), 7, 0, 1, -100, 100)

    stays(PASS, built(-128, 127, two, shape=ROW))
    assert ops_of(fires(PASS, built(-128, 127, three, shape=ROW))) == {"broadcast_sub": 1, "cvm_lut": 1}
    assert ops_of(fires(PASS, built(100, 300, two))) == {"cvm_lut": 1}


def test_several_paths_from_one_tensor_are_one_table():
    def grow(b, x):
        left, right = add(b, "abs", x), requantize(b, x, 3, 1, 2, -90, 90)
        return add(b, "broadcast_mul", left, add(b, "broadcast_max", right, const(b, [3])))

    first = fires(PASS, built(0, 200, grow))
    assert ops_of(fires(PASS, first)) == {"cvm_lut": 1}


def test_a_table_that_costs_more_than_the_ops_is_not_made():
    def grow(b, x):
        return add(b, "abs", add(b, "negative", x))

    stays(PASS, built(0, 255, grow, shape=(1, 30)))
    fires(PASS, built(0, 255, grow, shape=(1, 300)))


def test_two_tensors_are_not_one_table():
    builder = ProgramBuilder()
    x, z = builder.input("x", ROW, 0, 9), builder.input("z", ROW, 0, 9)
    y = lut(builder, [1, 2, 3], add(builder, "broadcast_add", x, z))
    program = builder.build([Output("y", y)])
    stays(PASS, program)


def test_the_part_that_has_one_tensor_becomes_a_table():
    builder = ProgramBuilder()
    x, z = builder.input("x", ROW, 0, 9), builder.input("z", ROW, 0, 9)
    total = add(builder, "broadcast_add", x, z)
    y = requantize(builder, requantize(builder, total, 3, 1, 2, -90, 90), -5, 2, 3, -100, 100)
    program = builder.build([Output("y", y)])
    after = passed(PASS, program)
    assert ops_of(after) == {"broadcast_add": 1, "cvm_lut": 1}
    feed = {
        "x": np.arange(600).reshape(ROW).astype(np.int32) % 10,
        "z": np.arange(600).reshape(ROW).astype(np.int32) // 60,
    }
    assert_equal(program, after, [feed])


STAY = {
    "a constant per channel": built(
        0, 9, lambda b, x: add(b, "abs", add(b, "broadcast_sub", x, const(b, [[[1]], [[2]]]))), shape=(1, 2, 300)
    ),
    "a long interval": built(0, 2**16, lambda b, x: add(b, "abs", add(b, "negative", x)), shape=(1, 2**18)),
    "movement between": built(
        0, 9, lambda b, x: add(b, "abs", add(b, "transpose", add(b, "negative", x))), shape=(2, 300)
    ),
    "a broadcast": built(
        0, 9, lambda b, x: add(b, "abs", add(b, "broadcast_add", x, const(b, np.zeros((2, 1), int)))), shape=(1, 300)
    ),
    "one op": built(0, 9, lambda b, x: requantize(b, x, 3, 1, 2, -90, 90), shape=ROW),
    "another reader": built(
        0, 9, lambda b, x: [add(b, "abs", y := add(b, "negative", x)), add(b, "sum", y, axes=(1,))], shape=ROW
    ),
    "a tensor that is its own table": built(
        0, 9, lambda b, x: add(b, "abs", add(b, "cvm_lut", x, x)), shape=(1, 300)
    ),
    "a table that is computed": built(
        0, 9, lambda b, x: add(b, "abs", add(b, "cvm_lut", add(b, "negative", x), x)), shape=(1, 300)
    ),
    "a vector of conditions": built(
        0, 1, lambda b, x: add(b, "where", add(b, "sum", x, axes=(1,)), x, add(b, "negative", x)), shape=(2, 300)
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", STAY.values(), ids=STAY)
def test_what_is_no_function_of_one_integer_stays(program):
    stays(PASS, program)


def test_an_inner_tensor_of_the_document_stays():
    def grow(b, x):
        return add(b, "abs", add(b, "negative", x, name="inner"))

    stays(PASS, built(0, 9, grow, shape=ROW, named=["inner"]))


def test_the_last_integer_that_is_tried_is_tried():
    program = built(0, 255, lambda b, x: add(b, "abs", add(b, "negative", x)), shape=(1, 300))
    after = passed(PASS, program)
    feed = {"x": np.resize(np.arange(256), (1, 300)).astype(np.int32)}
    assert_equal(program, after, [feed, *every(program)])


def test_entries_that_are_never_read_may_lead_beyond_64_bits():
    """The index is 0 or 1; the cube of the third entry takes 93 bits, and is no element of a verified program."""

    def cubed(b, x):
        y = lut(b, [1, 0, 2**31 - 1, 5], x)
        return add(b, "broadcast_mul", add(b, "broadcast_mul", y, y), y)

    program = built(0, 1, cubed)
    assert_equal(program, optimize(program), every(program))
