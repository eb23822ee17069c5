from __future__ import annotations

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import Invalid

from .kernels import agree, int32, shapes, tensors


@given(X=tensors(), repeats=st.integers(1, 4), data=st.data())
def test_repeat_equals_formal(X: np.ndarray, repeats: int, data: st.DataObject) -> None:
    agree("repeat", [X], {"axis": data.draw(st.integers(-X.ndim, X.ndim - 1)), "repeats": repeats})


@given(X=tensors(), reps=st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple))
def test_tile_equals_formal_also_where_ranks_differ(X: np.ndarray, reps: tuple[int, ...]) -> None:
    agree("tile", [X], {"reps": reps})


@given(X=tensors())
def test_flatten_equals_formal(X: np.ndarray) -> None:
    agree("flatten", [X])


@given(shape=shapes, widths=st.lists(st.integers(1, 3), min_size=1, max_size=4), data=st.data())
def test_concatenate_equals_formal(shape: tuple[int, ...], widths: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    index = axis % len(shape)
    parts = [data.draw(tensors((*shape[:index], n, *shape[index + 1 :]))) for n in widths]
    agree("concatenate", parts, {"axis": axis})


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_transpose_equals_formal_for_every_permutation(rank: int) -> None:
    X = int32(np.arange(math.prod((2, 3, 4, 1)[:rank])), (2, 3, 4, 1)[:rank])
    agree("transpose", [X], {"axes": ()})
    for axes in itertools.permutations(range(rank)):
        agree("transpose", [X], {"axes": tuple(axis - rank if axis % 2 else axis for axis in axes)})


def test_slice_equals_formal_for_every_slice_of_a_short_axis() -> None:
    bounds, seen = range(-5, 6), 0
    for n, begin, end, stride in itertools.product((1, 3, 4), bounds, bounds, (-4, -2, -1, 1, 2, 4)):
        try:
            agree("slice", [int32(np.arange(n))], {"begin": (begin,), "end": (end,), "strides": (stride,)})
            seen += 1
        except Invalid:
            continue
    assert seen > 200


@given(X=tensors(), data=st.data())
def test_slice_equals_formal_with_missing_entries(X: np.ndarray, data: st.DataObject) -> None:
    def some(least: int, largest: int) -> tuple[int, ...]:
        return tuple(data.draw(st.lists(st.integers(least, largest), max_size=X.ndim)))

    with contextlib.suppress(Invalid):  # nothing left along some axis
        agree("slice", [X], {"begin": some(-3, 1), "end": some(1, 4), "strides": some(1, 2)})


@given(X=tensors(), data=st.data())
def test_slice_like_equals_formal(X: np.ndarray, data: st.DataObject) -> None:
    like = np.zeros([data.draw(st.integers(1, n)) for n in X.shape], np.int32)
    axes = data.draw(st.sets(st.integers(0, X.ndim - 1)))
    agree("slice_like", [X, like], {"axes": tuple(axis - X.ndim if axis % 2 else axis for axis in axes)})


@given(X=tensors(), indices=tensors(), data=st.data())
def test_take_and_cvm_lut_equal_formal_with_indices_outside(
    X: np.ndarray, indices: np.ndarray, data: st.DataObject
) -> None:
    agree("take", [X, indices])
    agree("cvm_lut", [X, indices])
    agree("take", [X, indices], {"axis": data.draw(st.integers(-X.ndim, X.ndim - 1))})


@given(X=tensors(), count=st.integers(0, 3), data=st.data())
def test_expand_dims_equals_formal(X: np.ndarray, count: int, data: st.DataObject) -> None:
    agree("expand_dims", [X], {"axis": data.draw(st.integers(-X.ndim - 1, X.ndim)), "num_newaxis": count})


@given(X=tensors(), data=st.data())
def test_reshape_equals_formal(X: np.ndarray, data: st.DataObject) -> None:
    first = data.draw(st.sampled_from([n for n in range(1, X.size + 1) if X.size % n == 0]))
    agree("reshape", [X], {"target_shape": (first, 1, X.size // first)})


@given(X=tensors(), data=st.data())
def test_squeeze_equals_formal(X: np.ndarray, data: st.DataObject) -> None:
    ones = [axis for axis, n in enumerate(X.shape) if n == 1]
    axes = data.draw(st.sets(st.sampled_from(ones))) if ones else set()
    agree("squeeze", [X], {"axes": tuple(axis - X.ndim if axis % 2 else axis for axis in axes)})


@given(shape=shapes, rows=st.booleans(), data=st.data())
def test_where_equals_formal_for_conditions_on_elements_and_on_rows(
    shape: tuple[int, ...], rows: bool, data: st.DataObject
) -> None:
    condition = data.draw(tensors(shape[:1] if rows else shape, st.integers(-1, 1)))
    agree("where", [condition, data.draw(tensors(shape)), data.draw(tensors(shape))])
