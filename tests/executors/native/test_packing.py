"""Packed weights are the weights: digits add up, no product saturates, and every place is filled once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvm.executors.native.machine import MACHINES, Machine
from cvm.executors.native.packing import order, passes

WEIGHTS = st.integers(1, 31).flatmap(
    lambda bits: hnp.arrays(
        np.int64, (3, 2, 5), elements=st.integers(-(2**bits) + 1, 2**bits - 1) | st.sampled_from((-(2**bits) + 1, 0))
    )
)


def total(digits: list[tuple[Any, int]]) -> Any:
    """What the passes compute of an input of one."""
    result: Any = 0
    for digit, shift in digits:
        result = (result << shift) + digit
    return result


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(weights=WEIGHTS)
def test_digits_add_up_and_fit_a_byte(machine: Machine, weights: Any) -> None:
    digits = passes(weights, machine, 4, 255)
    np.testing.assert_array_equal(total(digits), weights)
    for digit, _ in digits:
        assert digit.min() >= -128
        assert digit.max() <= 127
    assert digits[0][1] == 0


@given(weights=WEIGHTS, highest=st.sampled_from((1, 15, 127, 128, 129, 254, 255)))
def test_no_pair_of_products_saturates_where_they_would(weights: Any, highest: int) -> None:
    (machine,) = (machine for machine in MACHINES if machine.saturates)
    for digit, _ in passes(weights, machine, 4, highest):
        low, high = int(min(digit.min(), 0)), int(max(digit.max(), 0))
        assert 2 * low * highest >= -(2**15)
        assert 2 * high * highest < 2**15


@given(weights=WEIGHTS)
def test_wider_products_take_weights_as_they_are(weights: Any) -> None:
    for machine in MACHINES:
        for per in (1, 2):
            ((same, shift),) = passes(weights, machine, per, 255)
            assert shift == 0
            np.testing.assert_array_equal(same, weights)


@pytest.mark.parametrize("lane", [4, 8, 16])
def test_interleaved_channels_are_a_permutation_within_blocks_of_128_bits(lane: int) -> None:
    found = order(lane)
    assert sorted(found) == list(range(4 * lane))
    for place, channel in enumerate(found):
        q, rest = divmod(place, lane)
        block, e = divmod(rest, 4)
        assert channel == 16 * block + 4 * q + e
