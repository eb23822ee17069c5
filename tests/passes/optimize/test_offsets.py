"""Offsets that go into biases: without padding, through movement and constants; not otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.program import verify
from tests.passes.optimize.chains import add, built, const, fires, ops_of, stays

PASS = "offsets into biases"
SHAPE = (1, 2, 4, 4)
WEIGHTS = np.array([3, -1, 2, 0, -4, 1, 5, -2, 1, 1, -1, 2, 4, -3, 0, 2, 1, 1, 2, -2, 3, 1, 0, 1]).reshape(3, 2, 2, 2)


def conv(b, x, bias=None, weights=WEIGHTS, **attributes):
    inputs = [x, const(b, weights)] + ([] if bias is None else [const(b, bias)])
    return add(b, "conv2d", *inputs, **attributes)


def minus(b, x, z=5):
    return add(b, "broadcast_sub", x, const(b, [z]))


def layer(before, **attributes):
    return built(-9, 9, lambda b, x: conv(b, before(b, x), **attributes), shape=SHAPE)


def rows(b, x, value=0):
    return add(b, "concatenate", const(b, np.full((1, 2, 1, 4), value)), x, axis=2)


@pytest.mark.parametrize("attributes", [
    {}, {"bias": [7, -8, 0]}, {"stride": (2, 1)}, {"dilation": (2, 3)},
    {"weights": WEIGHTS[:2, :1], "groups": 2}, {"weights": WEIGHTS[:2, :1], "groups": 2, "bias": [1, 2]},
])  # fmt: skip
@pytest.mark.parametrize("before", [
    minus, lambda b, x: add(b, "broadcast_add", const(b, [[[[-7]]]]), x), lambda b, x: rows(b, minus(b, x)),
    lambda b, x: rows(b, rows(b, minus(b, x), 3), -5),
    lambda b, x: add(b, "transpose", minus(b, x), axes=(0, 1, 3, 2)),
    lambda b, x: add(b, "max_pool2d", minus(b, x), pool_size=(2, 2), strides=(1, 1), padding=(1, 1)),
    lambda b, x: add(b, "concatenate", minus(b, x), minus(b, x), axis=2),
])  # fmt: skip
def test_an_offset_before_a_convolution_is_part_of_its_bias(before, attributes):
    program = layer(before, **attributes)
    after = fires(PASS, program)
    assert not {"broadcast_sub", "broadcast_add"} & set(ops_of(after))
    assert after.nodes[-1].op == "conv2d"
    ends = [verify(item).ranges[item.outputs[0].value] for item in (program, after)]
    np.testing.assert_array_equal(ends[0].lo, ends[1].lo)
    np.testing.assert_array_equal(ends[0].hi, ends[1].hi)


def test_an_offset_before_a_dense_layer_is_part_of_its_bias():
    def grow(b, x):
        flat = add(b, "reshape", minus(b, x), target_shape=(2, 16))
        return add(b, "dense", flat, const(b, np.arange(-24, 24).reshape(3, 16)), const(b, [1, 2, 3]))

    assert ops_of(fires(PASS, built(-9, 9, grow, shape=SHAPE))) == {"reshape": 1, "dense": 1}


STAY = {
    "padding": layer(minus, padding=(1, 0)),
    "an offset per channel": layer(lambda b, x: add(b, "broadcast_sub", x, const(b, [[[[1]], [[2]]]]))),
    "a sign": layer(lambda b, x: add(b, "broadcast_sub", const(b, [5]), x)),
    "a factor": layer(lambda b, x: add(b, "broadcast_mul", x, const(b, [5]))),
    "two offsets": layer(lambda b, x: add(b, "concatenate", minus(b, x, 1), minus(b, x, 2), axis=2)),
    "a part without offset": layer(lambda b, x: add(b, "concatenate", minus(b, x, 1), x, axis=2)),
    "a cut": layer(lambda b, x: add(b, "clip", minus(b, x), a_min=-3, a_max=3)),
    "a repetition": layer(lambda b, x: add(b, "repeat", minus(b, x), axis=0, repeats=2)),
    "more channels than items": built(
        -9, 9, lambda b, x: conv(b, minus(b, x), weights=np.ones((40, 1, 1, 1), int)), shape=(1, 1, 2, 2)
    ),
    "a constant input": built(-9, 9, lambda b, x: conv(b, const(b, np.ones(SHAPE, int))), shape=SHAPE),
    "weights of the input": built(
        -9, 9, lambda b, x: add(b, "conv2d", minus(b, x), add(b, "slice", x, begin=(), end=(1, 2, 2, 2))), shape=SHAPE
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", STAY.values(), ids=STAY)
def test_what_is_no_offset_of_every_tap_stays(program):
    stays(PASS, program)


def test_an_offset_that_others_read_stays():
    def grow(b, x):
        moved = minus(b, x)
        return [conv(b, moved), add(b, "negative", moved)]

    stays(PASS, built(-9, 9, grow, shape=SHAPE))


def test_an_offset_that_is_a_tensor_of_the_document_stays():
    def grow(b, x):
        return conv(b, add(b, "broadcast_sub", x, const(b, [5]), name="moved"))

    stays(PASS, built(-9, 9, grow, shape=SHAPE, named=["moved"]))


def test_a_bias_beyond_int32_is_not_made():
    def grow(z):
        return lambda b, x: conv(b, minus(b, x, z), weights=np.full((1, 2, 1, 1), 2))

    fires(PASS, built(2**28, 2**28 + 9, grow(2**28), shape=SHAPE))
    stays(PASS, built(2**29, 2**29 + 9, grow(2**29), shape=SHAPE))
