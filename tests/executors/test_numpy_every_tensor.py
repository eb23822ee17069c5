"""All tensors of one run, planned node by node, are those that a NumPy executor captures."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.base import initial_state
from cvm.executors.numpy import NumpyExecutor
from cvm.executors.numpy.executor import _narrowest, every_tensor
from cvm.program import Output, ProgramBuilder, verify
from tools.planted.networks import network


@pytest.mark.parametrize("aim", ["reductions", "convolutions"])
def test_every_tensor_is_the_captured_one(aim: str) -> None:
    for number in range(3):
        verified = verify(network(aim, number))
        random = np.random.default_rng(number)
        values = [one.value for one in verified.program.inputs]
        feed = {one.name: random.integers(one.lo, one.hi + 1, one.shape).astype(np.int32) for one in values}
        state = initial_state(verified.program)
        expected = NumpyExecutor(verified).run(feed, state, "all").values
        found = every_tensor(verified, feed, state)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_a_result_is_stored_in_the_narrowest_integers_and_read_again_in_32_bits() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 2), -128, 127)
    (small,) = builder.add("clip", [x], {"a_min": -128, "a_max": 127})
    (large,) = builder.add("broadcast_mul", [small, small])
    verified = verify(builder.build([Output("y", large)]))
    found = every_tensor(verified, {"x": np.array([[-128, 127]], np.int32)}, {})
    assert found[large].tolist() == [[16384, 16129]]
    assert found[small].dtype == np.int8


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (-128, 127, np.int8), (0, 255, np.uint8), (-1, 128, np.int16), (0, 256, np.int16), (0, 65535, np.uint16),
        (-1, 65535, np.int32), (-(2**31) + 1, 2**31 - 1, np.int32),
    ],
)  # fmt: skip
def test_the_narrowest_type_holds_both_ends(lo: int, hi: int, expected: type) -> None:
    assert _narrowest(lo, hi) is expected
