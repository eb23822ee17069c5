"""Range rules that work in blocks: how large these are is nobody's business, and what they need does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.ops import REGISTRY, Call, Range, get, nn, ranges
from cvm.ops.ranges import BOUNDS, Exact, Stored, contracted, pointwise

from .strategies import proven_call

FEW, MANY = (settings(deadline=None, max_examples=n, suppress_health_check=list(HealthCheck)) for n in (15, 500))


def ends(found: Range) -> tuple[tuple[int, ...], list[Any], list[Any]]:
    return found.shape, found.lo.tolist(), found.hi.tolist()


@pytest.mark.parametrize("name", REGISTRY)
@FEW
@given(data=st.data())
def test_ranges_do_not_depend_on_the_size_of_blocks(name: str, data: st.DataObject) -> None:
    check_blocks(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRY)
@MANY
@given(data=st.data())
def test_many_ranges_do_not_depend_on_the_size_of_blocks(name: str, data: st.DataObject) -> None:
    check_blocks(name, data)


def check_blocks(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(proven_call(op))
    expected = list(map(ends, op.prove(call)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "PIECE", data.draw(st.integers(1, 5)))
        block = data.draw(st.integers(1, 9))
        patch.setattr(ranges, "BLOCK", block)
        patch.setattr(nn, "BLOCK", block)
        assert list(map(ends, op.prove(call))) == expected


@pytest.mark.parametrize("name", REGISTRY)
@FEW
@given(data=st.data())
def test_ranges_that_are_kept_prove_what_the_same_bounds_prove(name: str, data: st.DataObject) -> None:
    check_kept(name, data)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRY)
@MANY
@given(data=st.data())
def test_many_ranges_that_are_kept_prove_what_the_same_bounds_prove(name: str, data: st.DataObject) -> None:
    check_kept(name, data)


def check_kept(name: str, data: st.DataObject) -> None:
    op = get(name)
    call = data.draw(proven_call(op))
    kinds = op.input_kinds(len(call.shapes))
    kept = tuple(r.kept() if kind == "tensor" else r for r, kind in zip(call.ranges, kinds, strict=True))
    stored = Call(call.shapes, call.attributes, kept)
    assert list(map(ends, op.prove(stored))) == list(map(ends, op.prove(call)))


def test_kept_bounds_take_four_bytes_each() -> None:
    lo = np.arange(10).reshape(1, 10)
    kept = Range(lo, lo + 1).kept()
    assert isinstance(kept, Stored)
    assert kept.least.nbytes == kept.largest.nbytes == 40
    assert (kept.lo == lo).all()
    assert kept.lo.dtype == np.int64
    assert kept.part((slice(0, 1), slice(3, 5))).hi.tolist() == [[4, 5]]


def test_results_of_more_bounds_are_formed_per_channel_and_those_of_more_channels_per_tensor() -> None:
    size = BOUNDS // 4
    values = np.arange(8 * size).reshape(2, 4, size)
    found = pointwise([Exact(values)], lambda x: x + x)
    assert ends(found) == ((1, 4, 1), [[[0], [2 * size], [4 * size], [6 * size]]],
                           [[[2 * (k * size - 1)] for k in (5, 6, 7, 8)]])  # fmt: skip
    wide = Exact(np.arange(BOUNDS + 1).reshape(1, BOUNDS + 1))
    assert ends(pointwise([wide], lambda x: -x)) == ((1, 1), [[-BOUNDS]], [[0]])
    assert wide.per_channel().shape == (1, 1)
    assert Exact(wide.values[:, 1:]).per_channel().shape == (1, BOUNDS)


def test_sums_of_many_terms_are_exact_where_64_bits_are_few() -> None:
    most = 2**31 - 1
    x, w = (Exact(np.full(shape, most, np.int32)) for shape in ((1, 1, 5000), (1, 5000, 1)))
    assert contracted(x, w, 5000).hull() == (5000 * most * most,) * 2


def test_each_tap_of_a_huge_kernel_may_fall_on_the_padding() -> None:
    taps = BOUNDS + 2
    values = np.where(np.arange(taps) % 2, 3, -2).astype(np.int8).reshape(1, 1, 1, taps)
    op = get("conv2d")
    call = Call(((1, 1, 1, taps), values.shape), op.parse({}), (Range.uniform(4, 1, 2), Range.exactly(values)))
    (found,) = op.prove(call)
    assert found.hull() == (-2 * taps, 3 * taps)
