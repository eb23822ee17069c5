"""Packed weights are the weights: digits add up and fit their bytes, and every element is filled once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvm.executors.native.descriptions.sums import Block, interleaved
from cvm.executors.native.emit.contraction import segments
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.kernels.packing import packed_weights, parts, passes
from cvm.program import Constant

WEIGHTS = st.integers(1, 31).flatmap(
    lambda bits: hnp.arrays(
        np.int64, (3, 2, 5), elements=st.integers(-(2**bits) + 1, 2**bits - 1) | st.sampled_from((-(2**bits) + 1, 0))
    )
)


def total(digits: list[tuple[Any, int]]) -> Any:
    """What the passes compute of an input of one."""
    result: Any = 0
    for digit, shift in digits:
        result = (result << shift) + digit.astype(np.int64)
    return result


def narrow(weights: Any) -> Any:
    """The weights at the width that a program stores them with."""
    return Constant.of("w", weights).stored()


@given(weights=WEIGHTS | hnp.arrays(np.int64, (3, 2, 5), elements=st.integers(-128, 127) | st.just(-128)))
def test_narrow_weights_have_the_digits_of_wide_ones(weights: Any) -> None:
    stored = narrow(weights)
    for per in (4, 2, 1):
        for (digit, shift), (expected, same) in zip(passes(stored, per), passes(weights, per), strict=True):
            assert shift == same
            np.testing.assert_array_equal(digit, expected)


@given(weights=WEIGHTS)
def test_digits_add_up_and_fit_a_byte(weights: Any) -> None:
    digits = passes(weights, 4)
    np.testing.assert_array_equal(total(digits), weights)
    for digit, _ in digits:
        assert digit.min() >= -128
        assert digit.max() <= 127
    assert digits[0][1] == 0


@pytest.mark.sweep
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@given(weights=hnp.arrays(np.int16, (3, 2, 5), elements=st.integers(-255, 255) | st.sampled_from((-255, 255, 0))))
def test_parts_of_a_depthwise_window_add_up_and_fit_a_byte(machine: Machine, weights: Any) -> None:
    found = parts(weights, machine)
    np.testing.assert_array_equal(sum(part.astype(np.int64) for part in found), weights)
    for part in found:
        assert part.dtype == np.int8
        low, high = int(min(part.min(), 0)), int(max(part.max(), 0))
        assert not machine.saturates or (2 * low * 255 >= -(2**15) and 2 * high * 255 < 2**15)


@given(weights=WEIGHTS)
def test_wider_products_take_weights_as_they_are(weights: Any) -> None:
    for per in (1, 2):
        ((same, shift),) = passes(weights, per)
        assert shift == 0
        np.testing.assert_array_equal(same, weights)


@pytest.mark.parametrize("vectors", [2, 4])
@pytest.mark.parametrize("lane", [4, 8, 16])
def test_interleaved_channels_are_a_permutation_within_blocks_of_128_bits(lane: int, vectors: int) -> None:
    found = list(interleaved(lane, vectors))
    assert sorted(found) == list(range(vectors * lane))
    for index, channel in enumerate(found):
        q, rest = divmod(index, lane)
        block, e = divmod(rest, 4)
        assert channel == 4 * vectors * block + 4 * q + e
    for interleaved_ in (False, True):
        block_ = Block(lane, vectors, vectors * lane, interleaved_)
        channels = [channel for q in range(vectors) for channel in block_.channels(q)]
        assert channels == (found if interleaved_ else list(range(vectors * lane)))


@given(
    channels=st.integers(1, 300), pixels=st.sampled_from((1, 2, 100)), packs=st.booleans(),
    machine=st.sampled_from(MACHINES),
)  # fmt: skip
def test_segments_cover_all_channels_once_within_the_registers(
    channels: int, pixels: int, packs: bool, machine: Machine
) -> None:
    done = 0
    found = segments(channels, pixels, packs, machine)
    for segment in found:
        assert segment.start == done
        assert segment.count >= 1
        assert (segment is found[-1]) or segment.block.valid == segment.channels
        assert 1 <= segment.tile <= pixels
        assert segment.block.vectors * (segment.tile + 1) <= max(machine.registers, 2 * segment.block.vectors)
        assert segment.block.lane in (machine.width, *machine.narrower)
        done += (segment.count - 1) * segment.channels + segment.block.valid
    assert done == channels


@pytest.mark.parametrize(("pixels", "size"), [(1, 1), (3, 3), (9, 5), (16, 4), (25, 5), (49, 5), (196, 4), (3136, 4)])
def test_tiles_of_lists_have_a_pixel_more_where_a_row_takes_fewer_of_them(pixels: int, size: int) -> None:
    avx2 = next(machine for machine in MACHINES if machine.name == "avx2")
    (found,) = segments(64, pixels, True, avx2, listed=True, row=True)
    assert (found.tile, found.block.vectors) == (size, 2 if pixels > 1 else 4)
    (usual,) = segments(64, pixels, True, avx2, listed=True)
    assert usual.tile == min(pixels, 4 if pixels > 1 else 1)
    for machine in MACHINES:
        if machine.registers > 16:  # there are enough for larger tiles
            assert segments(64, pixels, True, machine, True, True) == segments(64, pixels, True, machine, True)


@pytest.mark.parametrize(("per", "bits"), [(4, 8), (2, 16), (1, 32)])
def test_digits_that_are_too_wide_are_not_packed(per: int, bits: int) -> None:
    kernel: Any = SimpleNamespace(per=per, widened=False, listed=False, segments=(), steps=1)
    least, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert packed_weights([np.array([[[least, largest]]])], kernel) == b""
    for item in (least - 1, largest + 1):
        with pytest.raises(OverflowError, match="a digit of a weight"):
            packed_weights([np.array([[[0, item]]])], kernel)
