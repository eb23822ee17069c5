"""Reductions, shape operations, products, normalisations and the rest: sections 4.4, 4.5, 4.7, 4.9.2, 4.9.4, 4.9.6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.graphs import apply, evaluate, one, reals

X = np.arange(24.0).reshape(2, 3, 4)


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape)


# 4.4 Reduce operations


def test_reductions_keep_the_rank() -> None:
    assert one("sum_reduce", input=X, axes=[0, 2]).tolist() == [[[60], [92], [124]]]
    assert one("sum_reduce", input=X, axes=[0, 2], normalize=True).tolist() == [[[7.5], [11.5], [15.5]]]
    assert one("mean_reduce", input=X, axes=[1]).tolist() == [[[4, 5, 6, 7]], [[16, 17, 18, 19]]]
    assert one("max_reduce", input=X, axes=[1, 2]).tolist() == [[[11]], [[23]]]
    assert one("min_reduce", input=X, axes=[0]).tolist() == X[:1].tolist()


def test_reductions_over_no_axis_change_nothing() -> None:
    for name in ("sum_reduce", "mean_reduce", "max_reduce", "min_reduce"):
        assert one(name, input=X, axes=[]).tolist() == X.tolist()
    assert one("argmax_reduce", input=X, axes=[]).tolist() == np.zeros((2, 3, 4)).tolist()


def test_positions_are_those_of_the_first_in_row_major_order() -> None:
    x = reals([3, 7, 7], [7, 1, 1])
    assert one("argmax_reduce", input=x, axes=[1]).tolist() == [[1], [0]]
    assert one("argmin_reduce", input=x, axes=[1]).tolist() == [[0], [1]]
    assert one("argmax_reduce", input=x, axes=[0]).tolist() == [[1, 0, 0]]
    assert one("argmax_reduce", input=x, axes=[0, 1]).tolist() == [[1]]
    assert one("argmin_reduce", input=x, axes=[1, 0]).tolist() == [[4]]
    assert one("argmax_reduce", input=x, axes=[1]).dtype == np.int64


def test_positions_along_axes_that_are_not_neighbours() -> None:
    x = random(2, 3, 4)
    found = one("argmax_reduce", input=x, axes=[0, 2])
    assert found.ravel().tolist() == [int(np.argmax(x[:, channel])) for channel in range(3)]
    assert found.shape == (1, 3, 1)


def test_logical_reductions_of_the_dialect() -> None:
    x = np.array([[True, False], [True, True]])
    assert apply("any_reduce", input=x, axes=(1,)).tolist() == [[True], [True]]
    assert apply("all_reduce", input=x, axes=(1,)).tolist() == [[False], [True]]


# 4.5 Tensor shape operations


@pytest.mark.parametrize(
    ("shape", "expected"), [([6, 4], (6, 4)), ([0, -1], (2, 12)), ([-1], (24,)), ([0, 0, 2, 2], (2, 3, 2, 2))]
)
def test_reshape_keeps_the_row_major_order(shape: list[int], expected: tuple[int, ...]) -> None:
    found = one("reshape", input=X, shape=shape)
    assert found.shape == expected
    assert found.ravel().tolist() == X.ravel().tolist()


def test_reshape_of_some_dimensions() -> None:
    found = apply("reshape", input=X, shape=(2, -1), axis_start=2, axis_count=1)
    assert found.shape == (2, 3, 2, 2)
    kept = apply("reshape", input=X, shape=(0, 1), axis_start=1, axis_count=1)
    assert kept.shape == (2, 3, 1, 4)


def test_squeeze_and_unsqueeze() -> None:
    assert one("squeeze", input=X[:1, :, :1], axes=[0, 2]).shape == (3,)
    assert one("unsqueeze", input=X, axes=[0, 3]).shape == (1, 2, 3, 1, 4)


def test_transpose_leaves_trailing_dimensions() -> None:
    found = one("transpose", input=X, axes=[1, 0])
    assert found.shape == (3, 2, 4)
    assert found[2, 1].tolist() == X[1, 2].tolist()
    cycled = one("transpose", input=X, axes=[2, 0, 1])
    assert cycled.shape == (4, 2, 3)
    assert cycled[3, 1, 2] == X[1, 2, 3]


def test_split_by_ratios_and_concat_back() -> None:
    parts = evaluate("split", value=X, axis=2, ratios=[1, 3])
    assert [part.tolist() for part in parts] == [X[..., :1].tolist(), X[..., 1:].tolist()]
    doubled = evaluate("split", value=X, axis=2, ratios=[1, 1])
    assert [part.shape for part in doubled] == [(2, 3, 2), (2, 3, 2)]
    assert one("concat", values=list(parts), axis=2).tolist() == X.tolist()


def test_unstack_and_stack_back() -> None:
    parts = evaluate("unstack", value=X, axis=1)
    assert [part.tolist() for part in parts] == [X[:, i].tolist() for i in range(3)]
    assert one("stack", values=list(parts), axis=1).tolist() == X.tolist()


def test_slice_counts_from_the_end_and_an_end_of_0_is_the_end() -> None:
    found = one("slice", input=X, axes=[2, 1], begin=[-3, 1], end=[-1, 0])
    assert found.tolist() == X[:, 1:, 1:3].tolist()


@pytest.mark.parametrize(
    ("begin", "end", "stride", "expected"),
    [(0, 0, 2, [0, 2, 4]), (1, -1, 2, [1, 3]), (-1, 0, -1, [4, 3, 2, 1]), (4, -6, -2, [4, 2, 0]), (3, -4, -1, [3, 2])],
)
def test_slices_with_a_stride(begin: int, end: int, stride: int, expected: list[int]) -> None:
    found = apply("slice", input=np.arange(5), axes=(0,), begin=(begin,), end=(end,), stride=(stride,))
    assert found.tolist() == expected


def test_shape_operations_keep_the_data_type() -> None:
    x = np.array([[1, 2], [3, 4]])
    assert one("transpose", input=x, axes=[1, 0]).dtype == np.int64
    assert one("reshape", input=x > 2, shape=[4]).tolist() == [False, False, True, True]


# 4.7 Matrix multiplication, 4.9.2 Linear operations


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_matmul_is_the_sum_of_products(left: bool, right: bool) -> None:
    a, b = random(2, 1, 3, 4), random(1, 5, 4, 2)
    expected = np.zeros((2, 5, 3, 2))
    for i, j, k, m, n in np.ndindex(2, 5, 3, 2, 4):
        expected[i, j, k, m] += a[i, 0, k, n] * b[0, j, n, m]
    arguments = {"A": a.swapaxes(-1, -2) if left else a, "B": b.swapaxes(-1, -2) if right else b}
    found = one("matmul", **arguments, transposeA=left, transposeB=right)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_linear_transposes_its_filter() -> None:
    x, w = reals([1, 2]), reals([3, 4], [5, 6], [7, 8])
    assert one("linear", input=x, filter=w).tolist() == [[11, 17, 23]]
    assert one("linear", input=x, filter=w, bias=reals([1, 2, 3])).tolist() == [[12, 19, 26]]


def test_separable_convolutions_are_two_convolutions() -> None:
    x, plane, point, bias = random(1, 2, 5, 5), random(4, 1, 3, 3), random(3, 2, 1, 1), random(1, 6)
    point = random(6, 2, 1, 1)
    window: dict[str, Any] = {"padding": [(1, 0), (2, 1)], "stride": [2, 1], "border": "replicate"}
    found = one("separable_conv", input=x, plane_filter=plane, point_filter=point, bias=bias, groups=2, **window)
    filtered = one("conv", input=x, filter=plane, groups=0, **window)
    assert (found == one("conv", input=filtered, filter=point, bias=bias, groups=2)).all()

    back, plane, bias = random(2, 4, 1, 1), random(4, 1, 3, 3), random(1, 4)
    arguments: dict[str, Any] = {"stride": [2, 2], "output_shape": [1, 4, 9, 10]}
    found = one("separable_deconv", input=x, plane_filter=plane, point_filter=back, bias=bias, **arguments)
    filtered = one("deconv", input=x, filter=back)
    assert (found == one("deconv", input=filtered, filter=plane, bias=bias, groups=0, **arguments)).all()


# 4.9.4 Normalization operations


def window_mean(x: Any, size: list[int]) -> Any:
    return one("box", input=x, size=size, normalize=True)


def test_local_normalisations_are_their_formulas() -> None:
    x, size = random(1, 5, 4), [1, 3, 2]
    sigma = 2.0 + 0.5 * window_mean(x * x, size)
    found = one("local_response_normalization", input=x, size=size, alpha=0.5, beta=0.75, bias=2.0)
    np.testing.assert_allclose(found, x / sigma**0.75, rtol=1e-13)
    centred = one("local_mean_normalization", input=x, size=size)
    np.testing.assert_allclose(centred, x - window_mean(x, size), rtol=1e-13)
    scaled = one("local_variance_normalization", input=x, size=size, bias=0.25, epsilon=1.0)
    np.testing.assert_allclose(scaled, x / np.maximum(np.sqrt(window_mean(x * x, size)) + 0.25, 1.0), rtol=1e-13)
    contrast = one("local_contrast_normalization", input=x, size=size, bias=0.25, epsilon=0.5)
    expected = one("local_variance_normalization", input=centred, size=size, bias=0.25, epsilon=0.5)
    np.testing.assert_allclose(contrast, expected, rtol=1e-13)


def test_local_response_normalization_by_hand() -> None:
    # Windows of 3 channels: means of squares (0 + 1 + 4) / 3, (1 + 4 + 4) / 3, (4 + 4 + 0) / 3; border zeros count.
    found = one("local_response_normalization", input=reals([1, 2, 2]), size=[1, 3])
    np.testing.assert_allclose(found, [[1 / (8 / 3) ** 0.5, 2 / 4**0.5, 2 / (11 / 3) ** 0.5]], rtol=1e-14)


def test_norms_divide_by_sums_along_axes() -> None:
    x = reals([3, -4], [6, 8])
    np.testing.assert_allclose(one("l1_normalization", input=x, axes=[1]), [[3 / 7, -4 / 7], [6 / 14, 8 / 14]])
    np.testing.assert_allclose(one("l2_normalization", input=x, axes=[1]), [[0.6, -0.8], [0.6, 0.8]])
    assert one("l1_normalization", input=x, axes=[1], bias=1.0, epsilon=16.0)[0].tolist() == [3 / 16, -4 / 16]
    assert one("l2_normalization", input=x, axes=[1], bias=1.0, epsilon=6.5)[0].tolist() == [3 / 6.5, -4 / 6.5]


def test_batch_normalization_by_hand() -> None:
    parameters = {"mean": reals([1, 2]), "variance": reals([3, 8]), "offset": reals([10, 20]), "scale": reals([2, 3])}
    found = one("batch_normalization", input=reals([[5], [8]]), epsilon=1.0, **parameters)
    assert found.tolist() == [[[14], [26]]]


# 4.9.6 Miscellaneous operations


def test_copies_sums_and_moments() -> None:
    assert [part.tolist() for part in evaluate("copy_n", x=reals(1, 2), times=3)] == [[1, 2]] * 3
    assert one("add_n", x=[reals([1, 2]), reals([10]), 0.5]).tolist() == [[11.5, 12.5]]
    assert one("add_n", x=[]).tolist() == 0
    mean, variance = evaluate("moments", input=reals([1, 3], [5, 9]), axes=[1])
    assert mean.tolist() == [[2], [7]]
    assert variance.tolist() == [[1], [4]]


def test_update_returns_the_new_value() -> None:
    assert apply("update", variable=reals(1), value=reals(2)).tolist() == [2]
