from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest

from tests.formal.formal_tensors import arange, call, shapes

SHAPES = list(shapes(3, 3))


@pytest.mark.parametrize("shape", SHAPES)
def test_repeat_equals_numpy(shape: tuple[int, ...]) -> None:
    X = arange(shape)
    for axis, repeats in product(range(-len(shape), len(shape)), (1, 2, 3)):
        assert call("repeat", X, axis=axis, repeats=repeats) == X.repeat(repeats, axis=axis).tolist()


@pytest.mark.parametrize("shape", list(shapes(2, 3)))
def test_tile_equals_numpy(shape: tuple[int, ...]) -> None:
    X = arange(shape)
    for reps in shapes(3, 2):
        assert call("tile", X, reps=reps) == np.tile(X, reps).tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_flatten_and_reshape_keep_the_row_major_order(shape: tuple[int, ...]) -> None:
    X = arange(shape)
    assert call("flatten", X) == list(range(X.size))
    for target in SHAPES:
        if np.prod(target) == X.size:
            assert call("reshape", X, target_shape=target) == X.reshape(target).tolist()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_concatenate_equals_numpy(count: int) -> None:
    for axis in range(-3, 3):
        tensors = [arange((2, 3, 2), 100 * i).take(range(i % 2 + 1), axis=axis) for i in range(count)]
        assert call("concatenate", *tensors, axis=axis) == np.concatenate(tensors, axis=axis).tolist()


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_transpose_equals_numpy(rank: int) -> None:
    X = arange((2, 3, 4, 5)[:rank])
    assert call("transpose", X, axes=()) == X.transpose().tolist()
    for axes in permutations(range(rank)):
        assert call("transpose", X, axes=axes) == X.transpose(axes).tolist()
        negative = tuple(axis - rank for axis in axes)
        assert call("transpose", X, axes=negative) == X.transpose(axes).tolist()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_slice_equals_pythons_for_every_begin_end_and_stride(n: int) -> None:
    X = list(range(n))
    compared = 0
    for begin, end, stride in product(range(-n - 2, n + 3), range(-n - 2, n + 3), (-3, -2, -1, 1, 2, 3)):
        expected = X[begin:end:stride]
        if expected:
            assert call("slice", X, begin=(begin,), end=(end,), strides=(stride,)) == expected
            compared += 1
    assert compared > 0


def test_slice_has_defaults_for_missing_entries() -> None:
    X = arange((3, 4, 2))
    assert call("slice", X, begin=(), end=(), strides=()) == X.tolist()
    assert call("slice", X, begin=(1,), end=(), strides=()) == X[1:].tolist()
    assert call("slice", X, begin=(), end=(2, -1), strides=(1, 2)) == X[:2, :-1:2].tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_slice_like_keeps_the_first_elements_of_the_sliced_axes(shape: tuple[int, ...]) -> None:
    X, N = arange(shape), len(shape)
    for like in shapes(N, 3):
        for count in range(N + 1):
            for axes in combinations(range(min(N, len(like))), count):
                sliced = axes or range(N)
                if (not axes and len(like) != N) or any(like[j] > shape[j] for j in sliced):
                    continue
                expected = X[tuple(slice(like[j]) if j in sliced else slice(None) for j in range(N))]
                assert call("slice_like", X, np.zeros(like), axes=axes) == expected.tolist()
                assert call("slice_like", X, np.zeros(like), axes=tuple(j - N for j in axes)) == expected.tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_take_clamps_its_indices(shape: tuple[int, ...]) -> None:
    X = arange(shape)
    for m in ((1,), (4,), (2, 2)):
        indices = arange(m, -1) * 2 - 1
        assert call("take", X, indices) == X.take(indices, mode="clip").tolist()
        assert call("cvm_lut", X, indices) == X.take(indices, mode="clip").tolist()
        for axis in range(-len(shape), len(shape)):
            assert call("take", X, indices, axis=axis) == X.take(indices, axis=axis, mode="clip").tolist()


@pytest.mark.parametrize("shape", SHAPES)
def test_expand_dims_counts_the_gaps_between_dimensions(shape: tuple[int, ...]) -> None:
    X, N = arange(shape), len(shape)
    for axis, num_newaxis in product(range(-N - 1, N + 1), (1, 2)):
        index = axis if axis >= 0 else N + 1 + axis
        target = shape[:index] + (1,) * num_newaxis + shape[index:]
        assert call("expand_dims", X, axis=axis, num_newaxis=num_newaxis) == X.reshape(target).tolist()


@pytest.mark.parametrize("shape", [shape for shape in shapes(3, 2) if 1 in shape])
def test_squeeze_equals_numpy(shape: tuple[int, ...]) -> None:
    X, N = arange(shape), len(shape)
    ones = [axis for axis in range(N) if shape[axis] == 1]
    assert call("squeeze", X, axes=()) == np.atleast_1d(X.squeeze()).tolist()
    for count in range(1, len(ones) + 1):
        for axes in combinations(ones, count):
            expected = np.atleast_1d(X.squeeze(axes)).tolist()
            assert call("squeeze", X, axes=axes) == expected
            assert call("squeeze", X, axes=tuple(axis - N for axis in axes)) == expected


def test_where_selects_elements_or_rows() -> None:
    A, B = arange((3, 2, 2)), arange((3, 2, 2), 100)
    elementwise = arange((3, 2, 2)) % 3 - 1
    assert call("where", elementwise, A, B) == np.where(elementwise != 0, A, B).tolist()
    rows = [0, -5, 1]
    assert call("where", rows, A, B) == [B[0].tolist(), A[1].tolist(), A[2].tolist()]
    assert call("where", rows, [1, 2, 3], [4, 5, 6]) == [4, 2, 3]
