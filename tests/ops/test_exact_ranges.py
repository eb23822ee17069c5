"""Ranges of constants: narrow elements prove what the same elements in 64 bits prove, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.ops import Call, get
from cvm.ops.ranges import BLOCK, Exact, Range, products
from cvm.ops.windows import valid_taps

WIDTHS = (1, 2, 4, 8)


def wide(values: np.ndarray[Any, Any]) -> Range:
    """The range of a constant, told as any other range is."""
    bounds = values.astype(np.int64)
    return Range(bounds, bounds)


def extremes(draw: Any, shape: tuple[int, ...], width: int) -> np.ndarray[Any, Any]:
    """Elements of ``width`` bytes, many of them the largest and the least ones."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    most = 2 ** (8 * width - 1) - 1
    items = random.integers(-most - 1, most, shape, np.int64, endpoint=True)
    items[random.random(shape) < 0.3] = most
    items[random.random(shape) < 0.3] = -most - 1
    return items.astype(f"<i{width}")


@st.composite
def activations(draw: st.DrawFn, rank: int, channels: int) -> Range:
    """Per channel, for all channels alike, or beyond int32."""
    count = draw(st.sampled_from([1, channels]))
    bits = draw(st.sampled_from([1, 8, 31, 40]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = np.sort(random.integers(-(2**bits), 2**bits, (2, count), endpoint=True), axis=0)
    lo, hi = ends.reshape(2, *(count if axis == 1 else 1 for axis in range(rank)))
    return Range(lo, hi)


def same(one: Range, other: Range) -> bool:
    return one.shape == other.shape and one.lo.tolist() == other.lo.tolist() and one.hi.tolist() == other.hi.tolist()


@given(st.data(), st.sampled_from(WIDTHS))
def test_convolutions_of_narrow_weights_have_the_range_of_wide_ones(data: st.DataObject, width: int) -> None:
    groups, outs, ins, rows, columns = (data.draw(st.integers(1, 3)) for _ in range(5))
    channels, shape = groups * ins, (groups * outs, ins, rows, columns)
    x = data.draw(activations(4, channels))
    weights = extremes(data.draw, shape, width)
    op = get("conv2d")
    attributes = op.parse({"groups": groups, "padding": data.draw(st.sampled_from([(0, 0), (1, 2)]))})
    shapes = ((1, channels, 4, 5), shape)
    (found,) = op.range(Call(shapes, attributes, (x, Range.exactly(weights))))
    (expected,) = op.range(Call(shapes, attributes, (x, wide(weights))))
    assert same(found, expected)


@given(st.data(), st.sampled_from(WIDTHS))
def test_products_of_narrow_weights_have_the_range_of_wide_ones(data: st.DataObject, width: int) -> None:
    rows, terms, columns = (data.draw(st.integers(1, 4)) for _ in range(3))
    x = data.draw(activations(2, terms))
    weights = extremes(data.draw, (columns, terms), width)
    op = get("dense")
    shapes = ((rows, terms), (columns, terms))
    (found,) = op.range(Call(shapes, op.parse({}), (x, Range.exactly(weights))))
    (expected,) = op.range(Call(shapes, op.parse({}), (x, wide(weights))))
    assert same(found, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_blocks_of_weights_join(dtype: type[np.generic]) -> None:
    random = np.random.default_rng(1)
    weights = random.integers(-128, 128, (7, 2**15 + 1, 3)).astype(dtype)
    assert weights.size > 2 * BLOCK
    ends = np.sort(random.integers(-255, 256, (2, 7, 1, 2**15 + 1)), axis=0)
    found = products(Range(*ends), weights)
    assert found is not None
    low, high = (end.transpose(0, 2, 1) * weights.astype(np.int64) for end in ends)
    assert np.array_equal(found.lo[:, 0], np.minimum(low, high).sum(axis=1))
    assert np.array_equal(found.hi[:, 0], np.maximum(low, high).sum(axis=1))


@pytest.mark.parametrize("bits", [30, 31, 32, 61, 62])
def test_sums_at_the_edge_of_a_width_are_exact_or_left_to_others(bits: int) -> None:
    # 2 * |x| * |w| * K is 2^bits or just less.
    for x, exact in ((2 ** (bits - 9), bits < 62), (2 ** (bits - 9) - 1, True)):
        ends = (np.full((1, 1, 2), end) for end in (-x, x - 1))
        found = products(Range(*ends), np.full((1, 2, 1), -128, np.int8))
        assert (found is not None) == exact
        if found is not None:
            assert (int(found.lo[0, 0, 0]), int(found.hi[0, 0, 0])) == (-256 * (x - 1), 256 * x)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_constant_is_seen_in_64_bits_whatever_its_width(width: int) -> None:
    most = 2 ** (8 * width - 1)
    values = np.array([[-most, 3], [0, most - 1]], f"<i{width}")
    found, expected = Range.exactly(values), wide(values)
    assert isinstance(found, Exact)
    assert found.lo.dtype == found.hi.dtype == np.int64
    for view in (
        lambda r: r,
        lambda r: r.over((0,)),
        lambda r: r.per_channel(),
        lambda r: r.monotone(lambda b: b * 1),
        lambda r: r.union(Range.uniform(2, 0, 1)),
        lambda r: r.for_terms(2**8),
        lambda r: r * Range.uniform(2, -9, 300),
        lambda r: Range.uniform(2, -9, 300) * r,
        lambda r: r.total((1,), (2, 2)),
        lambda r: r + r if width < 8 else r,
        lambda r: -r if width < 8 else r,
    ):
        assert same(view(found), view(expected))
    assert found.hull() == expected.hull() == (-most, most - 1)
    assert found.magnitude() == most
    assert (found.shape, found.size, found.rank) == ((2, 2), 4, 2)


def test_the_range_of_an_array_does_not_follow_what_is_written_to_it() -> None:
    values = np.array([1, 2], np.int8)
    found = Range.exactly(values)
    values[0] = 100
    assert found.hull() == (1, 2)


@given(*(st.integers(1, most) for most in (9, 4, 3)), st.integers(0, 6), st.integers(1, 3))
def test_valid_taps_are_those_of_all_positions(
    extent: int, taps: int, stride: int, padding: int, dilation: int
) -> None:
    outputs = (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    if outputs < 1:
        return
    expected = set()
    for position in range(outputs):
        indices = [position * stride - padding + tap * dilation for tap in range(taps)]
        inside = [tap for tap, index in enumerate(indices) if 0 <= index < extent]
        if inside:
            assert inside == list(range(inside[0], inside[-1] + 1))
            expected.add((inside[0], inside[-1] + 1))
    found = valid_taps(extent, taps, stride, padding, dilation)
    assert {(first, last) for first, last in found.tolist() if first < last} == expected
    assert len({tuple(pair) for pair in found.tolist()}) == len(found)
