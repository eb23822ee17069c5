"""Transposes that cancel across other ops, and those that must not be taken to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.optimize.chains import add, built, const, fires, ops_of, requantize, stays

PASS = "cancelled transposes"
THERE, BACK = (0, 2, 3, 1), (0, 3, 1, 2)
SHAPE = (1, 2, 3, 4)
TRANSPOSED = (1, 3, 4, 2)


def between(grow, there=THERE, back=BACK, named=()):
    def whole(b, x):
        return add(b, "transpose", grow(b, add(b, "transpose", x, axes=there)), axes=back)

    return built(-9, 9, whole, shape=SHAPE, named=named)


def constants(shape):
    return lambda b, x: add(b, "broadcast_sub", x, const(b, np.arange(np.prod(shape)).reshape(shape)))


OPS = {
    "clip": lambda b, x: add(b, "clip", x, a_min=-3, a_max=4),
    "shift": lambda b, x: add(b, "cvm_left_shift", x, precision=8, shift_bit=2),
    "number": constants((1,)),
    "last axis": constants((2,)),
    "two axes": constants((4, 2)),
    "first axes": constants((1, 3, 1, 1)),
    "all": constants(TRANSPOSED),
    "left": lambda b, x: add(b, "broadcast_sub", const(b, np.arange(24).reshape(TRANSPOSED)), x),
    "table": lambda b, x: add(b, "cvm_lut", const(b, [3, 1, 2]), x),
    "requantize": lambda b, x: requantize(b, x, np.arange(1, 3), np.arange(12).reshape(1, 3, 4, 1), 1, -20, 20),
    "two": lambda b, x: add(b, "relu", add(b, "negative", x)),
    "square": lambda b, x: add(b, "broadcast_mul", x, x),
    "pad": lambda b, x: add(b, "concatenate", const(b, np.ones((1, 1, 4, 2), int)), x, axis=1),
    "pad from the end": lambda b, x: add(b, "concatenate", x, const(b, np.ones((1, 3, 4, 1), int)), axis=-1),
    "where": lambda b, x: add(b, "where", x, add(b, "abs", x), const(b, np.full(TRANSPOSED, 5))),
}  # fmt: skip


@pytest.mark.parametrize("grow", OPS.values(), ids=OPS)
def test_ops_between_inverse_transposes_work_in_the_order_outside(grow):
    assert "transpose" not in ops_of(fires(PASS, between(grow)))


def _rows(b, x):
    return add(b, "where", const(b, [1, 0]), x, add(b, "negative", x))


STAY = {
    "another order": between(OPS["clip"], back=THERE),
    "a reduction": between(lambda b, x: add(b, "sum", x, axes=(1,), keepdims=True)),
    "a pool": between(lambda b, x: add(b, "max_pool2d", x, pool_size=(2, 2))),
    "a computed operand in the other order": between(
        lambda b, x: add(b, "broadcast_add", x, add(b, "reshape", "x", target_shape=TRANSPOSED))
    ),
    "an operand of fewer axes": between(lambda b, x: add(b, "broadcast_add", x, add(b, "max", x, axes=(0, 1, 2)))),
    "rows chosen by a vector": between(lambda b, x: add(b, "where", const(b, [1]), x, add(b, "abs", x))),
    "rows of a square": built(
        -9,
        9,
        lambda b, x: add(b, "transpose", _rows(b, add(b, "transpose", x, axes=(1, 0))), axes=(1, 0)),
        shape=(2, 2),
    ),
}


@pytest.mark.parametrize("program", STAY.values(), ids=STAY)
def test_what_does_not_commute_or_cancel_stays(program):
    stays(PASS, program)


def test_a_value_that_is_read_in_the_inner_order_too_stays():
    def grow(b, x):
        inner = add(b, "relu", add(b, "transpose", x, axes=THERE))
        return [add(b, "transpose", inner, axes=BACK), add(b, "negative", inner)]

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_an_inner_value_that_is_an_output_stays():
    def grow(b, x):
        inner = add(b, "relu", add(b, "transpose", x, axes=THERE))
        return [add(b, "transpose", inner, axes=BACK), inner]

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_both_branches_of_a_fork_are_transposed():
    def grow(b, x):
        inner = add(b, "relu", add(b, "transpose", x, axes=THERE))
        left, right = add(b, "negative", inner), add(b, "abs", inner)
        return [add(b, "transpose", left, axes=BACK), add(b, "transpose", right, axes=BACK)]

    assert ops_of(fires(PASS, built(-9, 9, grow, shape=SHAPE))) == {"relu": 1, "negative": 1, "abs": 1}


def test_a_fork_of_which_one_branch_stays_transposed_stays():
    def grow(b, x):
        inner = add(b, "relu", add(b, "transpose", x, axes=THERE))
        return [add(b, "transpose", add(b, "negative", inner), axes=BACK), add(b, "abs", inner)]

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_a_transpose_with_other_readers_serves_them_still():
    def grow(b, x):
        transposed = add(b, "transpose", x, axes=THERE)
        return [add(b, "transpose", add(b, "relu", transposed), axes=BACK), add(b, "sum", transposed, axes=(1,))]

    assert ops_of(fires(PASS, built(-9, 9, grow, shape=SHAPE))) == {"transpose": 1, "relu": 1, "sum": 1}


def test_tensors_of_the_document_keep_their_names_where_their_codes_stay():
    def grow(b, x):
        transposed = add(b, "transpose", x, axes=THERE, name="turned")
        inner = add(b, "relu", transposed, name="inner")
        return add(b, "negative", add(b, "transpose", inner, axes=BACK, name="back"))

    after = fires(PASS, built(-9, 9, grow, shape=SHAPE, named=["turned", "inner", "back"]))
    assert {item.tensor: item.value for item in after.provenance.exactness} == {
        "tensor turned": "", "tensor inner": "", "tensor back": "back",
    }  # fmt: skip
    assert [value.name for node in after.nodes for value in node.outputs] == ["back", "negative"]
