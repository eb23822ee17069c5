"""Views are another way to index: every change of a view is the same change of an array of offsets."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from cvm.executors.native.plan.view import Axis, View, refined

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


def offsets(view: View) -> np.ndarray:
    return view.positions().reshape(view.shape)


@st.composite
def strided(draw: Any) -> tuple[View, np.ndarray]:
    """An ordinary view, and the array of its offsets in a buffer, made by NumPy."""
    shape = draw(SHAPES)
    strides = tuple(draw(st.integers(-6, 6)) for _ in shape)
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    offset = -low + draw(st.integers(0, 3))
    buffer = np.arange(offset + high + 1)
    array = as_strided(buffer[offset:], shape, [8 * s for s in strides])
    return View.strided(shape, strides, offset), array


@given(strided())
def test_an_ordinary_view_is_a_strided_array(both: tuple[View, np.ndarray]) -> None:
    view, array = both
    assert view.shape == array.shape
    np.testing.assert_array_equal(offsets(view), array)
    for axis, n in enumerate(array.shape):
        assert view.stride(axis) == (array.strides[axis] // 8 if n > 1 else 0)


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))))))
def test_ordered_axes_leave_no_gaps(given_: tuple[tuple[int, ...], list[int]]) -> None:
    shape, order = given_
    array = np.arange(prod(shape)).reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
    np.testing.assert_array_equal(offsets(View.ordered(shape, order)), array)


def changed(data: st.DataObject, view: View, array: np.ndarray) -> tuple[View | None, np.ndarray]:
    """One drawn change of both."""
    rank = array.ndim
    kind = data.draw(st.sampled_from(("transposed", "reshaped", "sliced", "repeated", "broadcast", "expanded")))
    axis = data.draw(st.integers(0, rank - 1))
    if kind == "transposed":
        axes = data.draw(st.permutations(range(rank)))
        return view.transposed(axes), array.transpose(axes)
    if kind == "reshaped":
        left, shape = array.size, []
        while left > 1 and len(shape) < 4:
            shape.append(data.draw(st.sampled_from([k for k in range(1, left + 1) if left % k == 0])))
            left //= shape[-1]
        shape.insert(data.draw(st.integers(0, len(shape))), left)
        return view.reshaped(shape), array.reshape(shape)
    if kind == "sliced":
        n = array.shape[axis]
        start, step = data.draw(st.integers(0, n - 1)), data.draw(st.sampled_from((1, 2, 3, -1, -2)))
        most = (n - 1 - start) // step + 1 if step > 0 else start // -step + 1
        count = data.draw(st.integers(1, most))
        taken = np.take(array, [start + k * step for k in range(count)], axis)
        return view.sliced(axis, start, step, count), taken
    if kind == "repeated":
        times, each = data.draw(st.integers(1, 3)), data.draw(st.booleans())
        more = np.repeat(array, times, axis) if each else np.concatenate([array] * times, axis)
        return view.repeated(axis, times, each), more
    if kind == "broadcast":
        shape = [data.draw(st.integers(1, 3)) if n == 1 else n for n in array.shape]
        shape = [data.draw(st.integers(1, 2)) for _ in range(data.draw(st.integers(0, 1)))] + shape
        return view.broadcast(shape), np.broadcast_to(array, shape)
    return view.expanded(axis), np.expand_dims(array, axis)


@given(strided(), st.data())
def test_chains_of_changes_are_those_of_an_array(both: tuple[View, np.ndarray], data: st.DataObject) -> None:
    view, array = both
    for _ in range(data.draw(st.integers(1, 6))):
        found, array = changed(data, view, array)
        assume(array.size <= 3000 and array.ndim <= 8)
        if found is None:  # the axis has several factors, or one would have to break: the elements are laid out anew
            found = View.ordered(array.shape, range(array.ndim))
            array = np.arange(array.size).reshape(array.shape)
        view = found
        assert view.shape == array.shape
        np.testing.assert_array_equal(offsets(view), array)


@given(strided(), st.data())
def test_a_reshape_that_needs_no_copy_is_a_view(both: tuple[View, np.ndarray], data: st.DataObject) -> None:
    view, array = both
    left, shape = array.size, []
    while left > 1:
        shape.append(data.draw(st.sampled_from([k for k in range(2, left + 1) if left % k == 0])))
        left //= shape[-1]
    reshaped = view.reshaped(shape or (1,))
    if np.shares_memory(array.reshape(shape or (1,)), array):
        assert reshaped is not None
    if reshaped is not None:
        np.testing.assert_array_equal(offsets(reshaped).ravel(), array.ravel())


@given(strided(), st.data())
def test_whole_slices_of_axes_with_several_factors_are_the_axes(
    both: tuple[View, np.ndarray], data: st.DataObject
) -> None:
    view, _ = both
    axis = data.draw(st.integers(0, len(view.axes) - 1))
    view = view.repeated(axis, 2, data.draw(st.booleans()))
    assert view.sliced(axis, 0, 1, view.shape[axis]) is not None


def along(axis: Axis) -> list[int]:
    return View(0, (axis,)).positions().tolist()


@st.composite
def factors(draw: Any, extent: int) -> Axis:
    """An axis of an extent, in factors."""
    factors = []
    while extent > 1:
        n = draw(st.sampled_from([k for k in range(2, extent + 1) if extent % k == 0]))
        factors.append((n, draw(st.integers(-9, 9))))
        extent //= n
    return tuple(factors)


@given(st.sampled_from((1, 2, 6, 12, 16, 24, 36)).flatmap(lambda n: st.lists(factors(n), min_size=1, max_size=3)))
def test_refined_loops_visit_every_axis_in_its_order(axes: list[Axis]) -> None:
    loops = refined(axes)
    if loops is None:
        return
    assert prod(n for n, _ in loops) == len(along(axes[0]))
    for index, axis in enumerate(axes):
        assert along(tuple((n, strides[index]) for n, strides in loops)) == along(axis)


@given(
    st.sampled_from((1, 2, 6, 12, 16, 24, 36)).flatmap(lambda n: st.tuples(factors(n), st.just(n), st.integers(1, 5)))
)
def test_an_ordinary_axis_can_follow_any_other(given_: tuple[Axis, int, int]) -> None:
    axis, extent, stride = given_
    assert refined([axis, ((extent, stride),) if extent > 1 else ()]) is not None


def test_axes_cut_where_the_cuts_do_not_divide_have_no_common_loops() -> None:
    assert refined([((4, 3), (3, 20)), ((3, 7), (4, 30))]) is None
