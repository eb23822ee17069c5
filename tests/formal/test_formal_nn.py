from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.formal.formal_tensors import arange, call


def convolved(X: Any, W: Any, B: Any, padding: Any, stride: Any, dilation: Any, groups: int) -> list[Any]:
    """Convolution by slices of a padded array: another way than FORMAL's."""
    N, C, H, width = X.shape
    OC, _, KH, KW = W.shape
    Z = np.zeros((N, C, H + 2 * padding[0], width + 2 * padding[1]), dtype=np.int64)
    Z[:, :, padding[0] : padding[0] + H, padding[1] : padding[1] + width] = X
    rows = (Z.shape[2] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    columns = (Z.shape[3] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    Y = np.zeros((N, OC, rows, columns), dtype=np.int64)
    for group, i, j in product(range(groups), range(KH), range(KW)):
        top, left = i * dilation[0], j * dilation[1]
        part = Z[:, :, top : top + (rows - 1) * stride[0] + 1 : stride[0]]
        part = part[:, :, :, left : left + (columns - 1) * stride[1] + 1 : stride[1]]
        outputs = slice(group * OC // groups, (group + 1) * OC // groups)
        inputs = slice(group * C // groups, (group + 1) * C // groups)
        Y[:, outputs] += np.einsum("nchw,oc->nohw", part[:, inputs], W[outputs, :, i, j])
    if B is not None:
        Y += B[None, :, None, None]
    result: list[Any] = Y.tolist()
    return result


def test_a_convolution_by_hand() -> None:
    X = [[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]
    W = [[[[1, 0], [0, -1]]]]
    geometry = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    assert call("conv2d", X, W, **geometry) == [[[[-4, -4], [-4, -4]]]]
    assert call("conv2d", X, W, [100], **geometry) == [[[[96, 96], [96, 96]]]]
    assert call("conv2d", X, W, **{**geometry, "dilation": (2, 2)}) == [[[[-8]]]]
    assert call("conv2d", X, W, **{**geometry, "padding": (1, 1), "stride": (3, 3)}) == [[[[-1, 0], [0, 9]]]]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_convolutions_equal_sums_of_slices(groups: int, bias: bool) -> None:
    rng = np.random.default_rng(groups)
    for padding, stride, dilation in product([(0, 0), (2, 1)], [(1, 1), (2, 3)], [(1, 1), (2, 1)]):
        X = rng.integers(-128, 128, (2, 4, 5, 4))
        W = rng.integers(-128, 128, (8, 4 // groups, 2, 3))
        B = rng.integers(-(2**20), 2**20, 8) if bias else None
        expected = convolved(X, W, B, padding, stride, dilation, groups)
        inputs = (X, W) if B is None else (X, W, B)
        found = call("conv2d", *inputs, padding=padding, stride=stride, dilation=dilation, groups=groups)
        assert found == expected


def test_dense_is_a_product_of_matrices_plus_a_bias_per_column() -> None:
    X, W, B = arange((3, 4), -5), arange((2, 4), -3), np.array([1000, -1000])
    assert call("dense", X, W) == (X @ W.T).tolist()
    assert call("dense", X, W, B) == (X @ W.T + B).tolist()


def test_relu_on_every_int8() -> None:
    assert call("relu", list(range(-128, 128))) == [0] * 128 + list(range(128))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_equals_the_maximum_of_what_each_window_covers(ceil_mode: bool) -> None:
    rng = np.random.default_rng(7)
    compared = 0
    for size, pool, padding, stride in product([4, 5], [1, 2, 3], [0, 1, 2], [1, 2, 3]):
        steps = size + 2 * padding - pool
        outputs = (-(-steps // stride) if ceil_mode else steps // stride) + 1
        if padding >= pool or (outputs - 1) * stride - padding >= size:
            continue
        X = rng.integers(-1000, 0, (1, 2, size, 3))
        starts = [p * stride - padding for p in range(outputs)]
        rows = [X[:, :, max(0, start) : start + pool].max(axis=2) for start in starts]
        found = call(
            "max_pool2d", X, pool_size=(pool, 1), padding=(padding, 0), strides=(stride, 1), ceil_mode=ceil_mode
        )
        assert found == np.stack(rows, axis=2).tolist()
        compared += 1
    assert compared > 20


def test_pooling_along_the_width_is_pooling_along_the_height_of_the_transposed_plane() -> None:
    X = (arange((1, 2, 5, 5)) * 37) % 53 - 60
    tall = call("max_pool2d", X, pool_size=(3, 2), padding=(1, 0), strides=(2, 3), ceil_mode=True)
    wide = call("max_pool2d", X.swapaxes(2, 3), pool_size=(2, 3), padding=(0, 1), strides=(3, 2), ceil_mode=True)
    assert tall == np.array(wide).swapaxes(2, 3).tolist()


def test_upsampling_repeats_rows_and_columns() -> None:
    X = arange((2, 2, 2, 3))
    assert call("upsampling", X, scale=3) == X.repeat(3, axis=2).repeat(3, axis=3).tolist()
    assert call("upsampling", [[[[1, 2]]]], scale=2) == [[[[1, 1, 2, 2], [1, 1, 2, 2]]]]
