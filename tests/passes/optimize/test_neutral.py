"""Neutral ops: each table row where it holds, and one integer beyond."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.optimize.chains import add, built, const, fires, stays
from tests.passes.optimize.equality import passed

PASS = "neutral ops"
ROW = (1, 4)


def unary(op, lo, hi, **attributes):
    return built(lo, hi, lambda b, x: add(b, op, x, **attributes))


@pytest.mark.parametrize(("yes", "no"), [
    (unary("clip", -5, 9, a_min=-5, a_max=9), unary("clip", -5, 9, a_min=-4, a_max=9)),
    (unary("clip", -5, 9, a_min=-6, a_max=10), unary("clip", -5, 9, a_min=-5, a_max=8)),
    (unary("cvm_clip", -7, 7, precision=4), unary("cvm_clip", -7, 8, precision=4)),
    (unary("cvm_clip", -7, 7, precision=32), unary("cvm_clip", -8, 7, precision=4)),
    (unary("relu", 0, 9), unary("relu", -1, 9)),
    (unary("abs", 0, 9), unary("abs", -1, 9)),
])  # fmt: skip
def test_clips_that_change_nothing(yes, no):
    assert fires(PASS, yes).nodes == ()
    stays(PASS, no)


def binary(op, value, left=False, shape=(1,), lo=-5, hi=9):
    def grow(b, x):
        other = const(b, np.full(shape, value))
        return add(b, op, *((other, x) if left else (x, other)))

    return built(lo, hi, grow, shape=ROW)


@pytest.mark.parametrize(("yes", "no"), [
    (binary("broadcast_add", 0), binary("broadcast_add", 1)),
    (binary("broadcast_add", 0, left=True), binary("broadcast_add", -1, left=True)),
    (binary("elemwise_add", 0, shape=ROW), binary("elemwise_add", 1, shape=ROW)),
    (binary("broadcast_sub", 0), binary("broadcast_sub", 0, left=True)),
    (binary("elemwise_sub", 0, shape=ROW), binary("elemwise_sub", 0, left=True, shape=ROW)),
    (binary("broadcast_mul", 1), binary("broadcast_mul", -1)),
    (binary("broadcast_mul", 1, left=True), binary("broadcast_mul", 0, left=True)),
    (binary("broadcast_div", 1), binary("broadcast_div", 1, left=True)),
    (binary("broadcast_max", -5), binary("broadcast_max", -4)),
    (binary("broadcast_max", -9, left=True), binary("broadcast_max", 8)),
    (binary("broadcast_add", 0), binary("broadcast_add", 0, shape=(2, 1))),
    (binary("broadcast_add", 0), binary("broadcast_add", 0, shape=(1, 1, 1))),
    (binary("broadcast_div", 1), binary("broadcast_div", -1)),
])  # fmt: skip
def test_neutral_operands(yes, no):
    assert fires(PASS, yes).nodes == ()
    stays(PASS, no)


def test_a_maximum_that_is_always_the_constant_is_the_constant():
    program = binary("broadcast_max", 9, shape=ROW)
    assert fires(PASS, program).outputs[0].value == program.constants[0].name


def test_one_zero_too_few_is_an_addition():
    def grow(b, x):
        return add(b, "broadcast_add", x, const(b, [[0, 0, 1, 0]]))

    stays(PASS, built(-5, 5, grow, shape=ROW))


def test_where_by_a_condition_that_is_proven():
    def grow(condition):
        def chosen(b, x):
            return add(b, "where", condition(b, x), x, add(b, "negative", x))

        return chosen

    ones = lambda b, x: add(b, "clip", x, a_min=1, a_max=5)  # noqa: E731
    zeros = lambda b, x: add(b, "broadcast_mul", x, const(b, [0]))  # noqa: E731
    either = lambda b, x: add(b, "clip", x, a_min=0, a_max=5)  # noqa: E731
    some = lambda b, x: const(b, [[1, 1, 0, 1]])  # noqa: E731
    rows = lambda b, x: const(b, [3])  # noqa: E731
    for condition in (ones, rows):
        assert fires(PASS, built(-5, 5, grow(condition), shape=ROW)).nodes == ()
    assert [node.op for node in fires(PASS, built(-5, 5, grow(zeros), shape=ROW)).nodes] == ["negative"]
    for condition in (either, some):
        stays(PASS, built(-5, 5, grow(condition), shape=ROW))


def test_an_output_that_is_neutral_is_the_operand_under_its_public_name():
    program = built(0, 9, lambda b, x: [add(b, "relu", x), x])
    after = fires(PASS, program)
    assert [(output.name, output.value) for output in after.outputs] == [("y0", "x"), ("y1", "x")]


def test_a_tensor_of_the_document_gives_its_name_to_an_inner_value_and_is_reported():
    def grow(b, x):
        return add(b, "negative", add(b, "relu", add(b, "abs", x, name="inner"), name="tensor"))

    after = fires(PASS, built(-9, 9, grow, named=["tensor"]))
    assert [value.name for node in after.nodes for value in node.outputs] == ["tensor", "negative"]
    assert [item.value for item in after.provenance.exactness] == ["tensor"]


def test_a_second_tensor_with_the_same_codes_is_reported_under_the_name_of_the_first():
    def grow(b, x):
        return add(b, "negative", add(b, "relu", add(b, "abs", x, name="first"), name="second"))

    after = fires(PASS, built(-9, 9, grow, named=["first", "second"]))
    assert [(item.tensor, item.value) for item in after.provenance.exactness] == [
        ("tensor first", "first"),
        ("tensor second", "first"),
    ]


def test_a_value_per_channel_is_compared_as_a_whole():
    program = built(-9, 9, lambda b, x: add(b, "broadcast_max", x, const(b, [[[[-9]], [[-10]]]])), shape=(1, 2, 1, 1))
    fires(PASS, program)
    program = built(-9, 9, lambda b, x: add(b, "broadcast_max", x, const(b, [[[[-9]], [[-8]]]])), shape=(1, 2, 1, 1))
    assert passed(PASS, program) is program
