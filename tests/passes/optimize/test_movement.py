"""Movement: what leaves elements in place, and moves of moves; what only has the same shape stays."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.passes.optimize.chains import add, built, const, fires, ops_of, stays

PASS = "movement"
SHAPE = (1, 2, 3, 2)


def one(op, shape=SHAPE, **attributes):
    return built(-9, 9, lambda b, x: add(b, op, x, **attributes), shape=shape)


@pytest.mark.parametrize("program", [
    one("transpose", axes=(0, 1, 2, 3)), one("transpose", shape=(5,)), one("reshape", target_shape=SHAPE),
    one("flatten", shape=(4,)), one("squeeze", shape=(2, 3)), one("expand_dims", axis=1, num_newaxis=0),
    one("slice"), one("slice", begin=(0, -2), end=(9, 2, 3), strides=(7,)),
    one("slice", begin=(0,), end=(-2,), strides=(-1,)),
    one("repeat", repeats=1), one("tile", reps=(1, 1)), one("upsampling", scale=1), one("concatenate", axis=2),
    one("max_pool2d", pool_size=(1, 1)), one("sum", axes=(0,), keepdims=True), one("max", axes=(0,), keepdims=True),
    built(-9, 9, lambda b, x: add(b, "slice_like", x, x), shape=SHAPE),
])  # fmt: skip
def test_movement_in_place_is_removed(program):
    after = fires(PASS, program)
    assert after.nodes == ()
    assert after.outputs[0].value == "x"


@pytest.mark.parametrize("program", [
    one("transpose", axes=(0, 3, 2, 1)), one("slice", begin=(0, -1), end=(1, -3), strides=(1, -1)),
    one("slice", begin=(0, 0, -1), end=(1, 2, -4), strides=(1, 1, -1, 1)),
    one("repeat", repeats=2), one("tile", reps=(2, 1, 1, 1)), one("max_pool2d", pool_size=(1, 2), padding=(0, 0)),
    one("max_pool2d", pool_size=(2, 3), padding=(1, 1), shape=(1, 1, 1, 1)),
    one("sum", axes=(1,), keepdims=True), one("max", axes=(), keepdims=True), one("transpose", shape=(2, 2)),
    one("transpose", axes=(1, 0), shape=(3, 3)),
    built(-9, 9, lambda b, x: add(b, "concatenate", x, x, axis=1), shape=SHAPE),
])  # fmt: skip
def test_movement_that_moves_stays(program):
    stays(PASS, program)


def test_a_pool_over_one_item_with_padding_is_left_alone():
    """Its shape is the operand's, and so are its elements; it is not among the ops that are looked at."""
    stays(PASS, one("max_pool2d", shape=(1, 1, 1, 1), pool_size=(2, 2), padding=(1, 1), strides=(2, 2)))


def test_every_transpose_of_a_transpose_is_one_or_none():
    shape = (2, 3, 4)
    for first in permutations(range(3)):
        for second in permutations(range(3)):

            def grow(b, x, first=first, second=second):
                inner = add(b, "transpose", x, axes=first)
                return add(b, "transpose", inner, axes=tuple(axis - 3 for axis in second))

            after = fires(PASS, built(-9, 9, grow, shape=shape))
            assert len(after.nodes) <= 1


def test_default_axes_are_the_reverse():
    def grow(b, x):
        return add(b, "transpose", add(b, "transpose", x), axes=(2, 1, 0))

    assert fires(PASS, built(-9, 9, grow, shape=(2, 3, 4))).nodes == ()


RESHAPES = {
    "reshape": ("reshape", {"target_shape": (2, 1, 6)}),
    "flatten": ("flatten", {}),
    "squeeze": ("squeeze", {"axes": (0,)}),
    "expand_dims": ("expand_dims", {"axis": -1, "num_newaxis": 2}),
    "unit transpose": ("transpose", {"axes": (1, 2, 0, 3)}),
}


@pytest.mark.parametrize("first", RESHAPES.values(), ids=RESHAPES)
@pytest.mark.parametrize("last", [(1, 2, 3, 2), (12,), (3, 4), (2, 1, 3, 2)])
def test_a_reshape_of_a_reshape_is_one_or_none(first, last):
    def grow(b, x):
        return add(b, "reshape", add(b, first[0], x, **first[1]), target_shape=last)

    after = fires(PASS, built(-9, 9, grow, shape=SHAPE))
    assert ops_of(after) == ({} if last == SHAPE else {"reshape": 1})


def test_a_reshape_of_a_transpose_that_moves_stays():
    def grow(b, x):
        return add(b, "reshape", add(b, "transpose", x, axes=(0, 2, 1, 3)), target_shape=SHAPE)

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_a_reshape_whose_operand_is_read_elsewhere_skips_it_all_the_same():
    def grow(b, x):
        flat = add(b, "flatten", x)
        return [add(b, "reshape", flat, target_shape=(3, 4)), add(b, "negative", flat)]

    assert ops_of(fires(PASS, built(-9, 9, grow, shape=SHAPE))) == {"reshape": 1, "flatten": 1, "negative": 1}


def test_a_sum_of_single_elements_is_a_reshape_of_less_gas():
    assert ops_of(fires(PASS, one("sum", axes=(0,)))) == {"reshape": 1}


@pytest.mark.parametrize(("inner", "outer", "merged"), [(1, 1, True), (1, -3, True), (2, 1, False)])
def test_concatenations_along_one_axis_are_one(inner, outer, merged):
    def grow(b, x):
        first = add(b, "concatenate", x, const(b, np.full(SHAPE, 4)), axis=inner)
        shape = b.shape(first)
        return add(b, "concatenate", const(b, np.full(shape, -4)), first, axis=outer)

    program = built(-9, 9, grow, shape=SHAPE)
    if merged:
        assert len(fires(PASS, program).nodes[0].inputs) == 3
    else:
        stays(PASS, program)


def test_a_concatenation_read_twice_is_kept():
    def grow(b, x):
        first = add(b, "concatenate", x, x, axis=1)
        return [add(b, "concatenate", x, first, axis=1), add(b, "negative", first)]

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_a_tensor_of_the_document_in_another_order_may_go_and_the_report_says_so():
    def grow(b, x):
        transposed = add(b, "transpose", x, axes=(0, 2, 3, 1), name="turned")
        return add(b, "transpose", transposed, axes=(0, 3, 1, 2))

    after = fires(PASS, built(-9, 9, grow, shape=SHAPE, named=["turned"]))
    assert after.nodes == ()
    assert [item.value for item in after.provenance.exactness] == [""]
