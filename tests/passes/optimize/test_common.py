"""Common subexpressions: equal nodes and equal constants, and those that only look alike."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.program import Constant, Output, Program, ProgramBuilder, verify
from tests.passes.optimize.chains import add, built, const, fires, ops_of, stays
from tests.passes.optimize.equality import assert_equal, extremes, passed

PASS = "common subexpressions"


def test_the_same_op_of_the_same_operands_is_computed_once():
    def grow(b, x):
        return add(b, "broadcast_sub", add(b, "clip", x, a_min=0, a_max=3), add(b, "clip", x, a_min=0, a_max=3))

    assert ops_of(fires(PASS, built(-5, 5, grow))) == {"clip": 1, "broadcast_sub": 1}


def test_chains_are_merged_in_one_go():
    def grow(b, x):
        one, two = (add(b, "abs", add(b, "negative", add(b, "relu", x))) for _ in range(2))
        return add(b, "elemwise_sub", one, two)

    assert len(fires(PASS, built(-5, 5, grow)).nodes) == 4


@pytest.mark.parametrize("op", ["broadcast_add", "broadcast_mul", "broadcast_max", "elemwise_add"])
def test_operands_of_commutative_ops_count_in_any_order(op):
    def grow(b, x):
        other = add(b, "abs", x)
        return [add(b, op, x, other), add(b, op, other, x)]

    assert ops_of(fires(PASS, built(-5, 5, grow)))[op] == 1


STAY = {
    "the order of a difference": lambda b, x: [
        add(b, "broadcast_sub", x, y := add(b, "abs", x)), add(b, "broadcast_sub", y, x),
    ],
    "an attribute": lambda b, x: [add(b, "clip", x, a_min=0, a_max=3), add(b, "clip", x, a_min=0, a_max=4)],
    "a constant": lambda b, x: [add(b, "broadcast_add", x, const(b, [1])), add(b, "broadcast_add", x, const(b, [2]))],
    "the shape of a constant": lambda b, x: [
        add(b, "broadcast_add", x, const(b, [1])), add(b, "broadcast_add", x, const(b, [[1]])),
    ],
    "an op": lambda b, x: [add(b, "elemwise_add", x, x), add(b, "broadcast_add", x, x)],
}  # fmt: skip


@pytest.mark.parametrize("grow", STAY.values(), ids=STAY)
def test_what_differs_stays(grow):
    stays(PASS, built(-5, 5, grow))


def test_two_outputs_may_be_one_value():
    program = built(-5, 5, lambda b, x: [add(b, "abs", x), add(b, "abs", x)])
    after = fires(PASS, program)
    assert len(after.nodes) == 1
    assert [(item.name, item.value) for item in after.outputs] == [("y0", "abs"), ("y1", "abs")]


def test_a_state_and_an_input_of_the_same_contents_are_different():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 0)
    h = builder.state("h", const(builder, [0, 0]), -9, 9)
    builder.update("h", add(builder, "relu", h))
    program = builder.build([Output("a", add(builder, "negative", x)), Output("b", add(builder, "negative", h))])
    assert passed(PASS, program) is program


def test_equal_constants_are_one_unless_their_kinds_differ():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 9)
    one, other = const(builder, [1, 2]), const(builder, [1, 3])
    y = add(builder, "broadcast_add", add(builder, "broadcast_add", x, one), other)
    whole = builder.build([Output("y", y)])
    twins = tuple(Constant.of(item.name, [1, 2]) for item in whole.constants)
    program = Program(whole.inputs, whole.outputs, twins, nodes=whole.nodes)
    # The declared intervals are those of [1, 2] and [1, 3]: they contain the proven ones.
    assert verify(program)
    after = passed(PASS, program)
    assert [item.name for item in after.constants] == [one]
    assert_equal(program, after, extremes(program))


def test_the_state_begins_and_ends_with_merged_values():
    builder = ProgramBuilder()
    x = builder.input("x", (2,), 0, 9)
    h = builder.state("h", const(builder, [1, 2]), -99, 99)
    g = builder.state("g", const(builder, [1, 2]), -99, 99)
    builder.update("h", add(builder, "relu", x))
    builder.update("g", add(builder, "relu", x))
    program = builder.build([Output("y", add(builder, "elemwise_add", h, g))])
    after = fires(PASS, program)
    assert {state.update for state in after.state} == {"relu"}
    assert np.all([state.value.name for state in after.state] == ["h", "g"])
