"""Constant folding: by FORMAL, within bounds of time and size."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.ops import REGISTRY
from cvm.passes.optimize import folding
from cvm.program import Output, ProgramBuilder, verify
from tests.passes.optimize.chains import add, built, const, fires, ops_of, requantize, stays
from tests.random_programs.strategies import GROWERS

PASS = "constant folding"


def constant_of(program, name):
    return next(item for item in program.constants if item.name == name).array()


def test_a_node_of_constants_is_its_result():
    def grow(b, x):
        total = add(b, "broadcast_add", const(b, [[1], [2]]), const(b, [[3, 4]]))
        return add(b, "broadcast_mul", x, add(b, "sum", total, axes=(0,)))

    after = fires(PASS, built(-3, 3, grow, shape=(1, 2)))
    assert ops_of(after) == {"broadcast_mul": 1}
    np.testing.assert_array_equal(constant_of(after, after.nodes[0].inputs[1]), [9, 11])


def test_an_output_of_constants_is_a_constant_on_every_executor():
    from cvm.executors import create

    def grow(b, x):
        return [requantize(b, const(b, [[3, -3]]), 1, 0, 1, -9, 9, rounding) for rounding in ("half_up", "half_even")]

    after = fires(PASS, built(0, 1, grow))
    assert after.nodes == ()
    for executor in ("formal", "numpy"):
        values = create(executor, verify(after)).run({"x": np.zeros((1, 2), np.int32)}, {}).values
        found = [values[output.value].tolist() for output in after.outputs]
        assert found == [[[2, -1]], [[2, -2]]]


def test_a_value_of_one_possible_number_is_that_number():
    program = built(-5, 5, lambda b, x: add(b, "broadcast_max", x, const(b, [7])), shape=(2, 3))
    after = fires(PASS, program)
    np.testing.assert_array_equal(constant_of(after, after.outputs[0].value), np.full((2, 3), 7))
    stays(PASS, built(-5, 7, lambda b, x: add(b, "broadcast_max", x, const(b, [6])), shape=(2, 3)))


def test_two_numbers_for_two_channels_are_left():
    """The proven range is kept per channel; its hull is not one number."""
    stays(PASS, built(-5, 5, lambda b, x: add(b, "broadcast_max", x, const(b, [[[7]], [[8]]])), shape=(1, 2, 2)))


def test_an_op_with_a_computed_operand_stays():
    stays(PASS, built(0, 3, lambda b, x: add(b, "cvm_lut", const(b, [1, 2, 3, 4]), x)))


@pytest.mark.parametrize(("reps", "folds"), [(folding.GROWTH // 4, True), (folding.GROWTH // 4 + 1, False)])
def test_a_constant_does_not_grow_beyond_the_bound(reps, folds):
    def grow(b, x):
        return add(b, "broadcast_add", x, add(b, "tile", const(b, [[1, 2, 3, 4]]), reps=(1, reps)))

    program = built(0, 1, grow, shape=(1, 1))
    if not folds:
        stays(PASS, program)
    else:
        assert ops_of(fires(PASS, program)) == {"broadcast_add": 1}


def test_a_large_constant_may_become_one_of_the_same_size():
    values = np.arange(6000).reshape(60, 100)

    def grow(b, x):
        return add(b, "broadcast_add", x, add(b, "transpose", const(b, values)))

    assert ops_of(fires(PASS, built(0, 1, grow, shape=(1, 1)))) == {"broadcast_add": 1}


def test_work_is_bounded():
    values = np.ones((200, 200), int)

    def grow(b, x):
        return add(b, "broadcast_add", x, add(b, "transpose", const(b, values)))

    stays(PASS, built(0, 1, grow, shape=(1, 1)))


def test_work_is_bounded_over_the_whole_program(monkeypatch):
    monkeypatch.setattr(folding, "WORK", 20)

    def grow(b, x):
        one, two = (add(b, "negative", const(b, [[value, 3, 4, 5]])) for value in (1, 2))
        return add(b, "broadcast_add", add(b, "broadcast_add", x, one), two)

    assert ops_of(fires(PASS, built(0, 1, grow, shape=(1, 1)))) == {"broadcast_add": 2}  # 9 of gas each
    monkeypatch.setattr(folding, "WORK", 17)
    assert ops_of(fires(PASS, built(0, 1, grow, shape=(1, 1)))) == {"broadcast_add": 2, "negative": 1}


def test_the_initial_state_and_the_update_may_be_constants():
    builder = ProgramBuilder()
    builder.input("x", (2,), 0, 1)
    initial = const(builder, [1, 2])
    h = builder.state("h", initial, -9, 9)
    builder.update("h", add(builder, "negative", initial))
    program = builder.build([Output("y", add(builder, "broadcast_add", h, "x"))])
    after = fires(PASS, program)
    assert ops_of(after) == {"broadcast_add": 1}


def test_every_op_of_one_result_folds():
    """One node of constants for each op: folded, it is what FORMAL computes."""
    small = {
        "take": ([[3, 1, 2], [1, 0]], {}), "cvm_lut": ([[3, 1, 2], [1, 0]], {}),
        "conv2d": ([np.ones((1, 1, 2, 2), int), np.ones((1, 1, 1, 1), int)], {}),
        "dense": ([[[1, 2]], [[3, 4]]], {}), "matmul": ([[[1, 2]], [[3], [4]]], {}), "requantize": (None, None),
        "max_pool2d": ([np.ones((1, 1, 2, 2), int)], {"pool_size": (2, 2)}),
        "upsampling": ([np.ones((1, 1, 2, 2), int)], {"scale": 2}), "clip": ([[1, 2]], {"a_min": 0, "a_max": 1}),
        "cvm_clip": ([[1, 2]], {"precision": 2}), "cvm_right_shift": ([[5]], {"precision": 8, "shift_bit": 1}),
        "cvm_left_shift": ([[5]], {"precision": 8, "shift_bit": 1}), "repeat": ([[5]], {"repeats": 2}),
        "tile": ([[5]], {"reps": (2,)}), "concatenate": ([[1], [2]], {"axis": 0}), "slice_like": ([[1, 2], [1]], {}),
        "expand_dims": ([[1]], {"axis": 0}), "reshape": ([[1, 2]], {"target_shape": (2, 1)}),
        "quotient": (None, None), "normalize": (None, None), "update_slice": ([[1, 2], [3], [1]], {"axis": 0}),
        "where": ([[1], [2], [3]], {}), "squeeze": ([[[1, 2]]], {}),
    }  # fmt: skip
    missed = []
    for op in GROWERS:
        declaration = REGISTRY[op]
        if len(declaration.outputs) > 1 or op in ("requantize", "quotient", "normalize", "non_max_suppression"):
            continue
        default = [[4, -2]] * (declaration.arity()[1] or 1)
        operands, attributes = small.get(op, (default, {}))

        def grow(b, x, op=op, operands=operands, attributes=attributes):
            return add(b, op, *(const(b, item) for item in operands), **attributes)

        if fires(PASS, built(0, 1, grow)).nodes:
            missed.append(op)
    assert missed == []
