from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.executors.numpy import KERNELS, nn
from tests.selection import examples

from .kernels import agree, call_of, int32, run_step, tensors

SMALL = st.integers(-9, 9)


def axes_of_conv2d() -> list[tuple[int, int, int, int, int]]:
    """Every (extent, kernel, padding, stride, dilation) of one axis with all of them small, that has an output."""
    combinations = itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2, 3), (1, 2))
    return [(n, k, p, s, d) for n, k, p, s, d in combinations if d * (k - 1) + 1 <= n + 2 * p]


def paired(axes: list[tuple[int, ...]]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Each axis as height with some other as width: every one occurs as both."""
    for index, height in enumerate(axes):
        yield tuple(zip(height, axes[(7 * index + 3) % len(axes)], strict=True))


@pytest.mark.parametrize("block", [1, 300, nn.BLOCK_BYTES])
def test_conv2d_equals_formal_for_every_small_window(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "BLOCK_BYTES", block)
    generator = np.random.default_rng(block)
    for index, (extent, kernel, padding, stride, dilation) in enumerate(paired(axes_of_conv2d())):
        groups = 1 + index % 2
        X = int32(generator.integers(-9, 10, (1 + index % 3 // 2, 2, *extent)))
        W = int32(generator.integers(-9, 10, (2, 2 // groups, *kernel)))
        B = int32(generator.integers(-99, 100, 2))
        arrays = [X, W, B] if index % 3 else [X, W]
        attributes = {"padding": padding, "stride": stride, "dilation": dilation, "groups": groups}
        agree("conv2d", arrays, attributes, constants=(1,) if index % 5 else ())


@settings(max_examples=examples(60))
@given(
    groups=st.integers(1, 3), inner=st.integers(1, 3), outer=st.integers(1, 3), batch=st.integers(1, 3),
    folded=st.booleans(), data=st.data(),
)  # fmt: skip
def test_conv2d_equals_formal_with_groups_and_depthwise(
    groups: int, inner: int, outer: int, batch: int, folded: bool, data: st.DataObject
) -> None:
    X = data.draw(tensors((batch, groups * inner, 3, 2), SMALL))
    W = data.draw(tensors((groups * outer, inner, 2, 1), SMALL))
    B = data.draw(tensors((groups * outer,), SMALL))
    attributes = {"padding": (1, 0), "stride": (1, 1), "dilation": (1, 1), "groups": groups}
    agree("conv2d", [X, W, B], attributes, constants=(1, 2) if folded else ())


def test_conv2d_takes_padding_far_beyond_the_image_without_allocating_it() -> None:
    X, W = int32([[[[5]]]]), int32([[[[1, 2], [3, 4]]]])
    attributes = {"padding": (4096, 4096), "stride": (4096, 4096), "dilation": (4096, 4096), "groups": 1}
    agree("conv2d", [X, W], attributes, constants=(1,))


@settings(max_examples=examples(60))
@given(
    shape=st.tuples(*(st.integers(1, 4),) * 3),
    bias=st.booleans(),
    block=st.sampled_from([1, 40, 2**22]),
    data=st.data(),
)
def test_dense_equals_formal(shape: tuple[int, int, int], bias: bool, block: int, data: st.DataObject) -> None:
    M, N, K = shape
    arrays = [data.draw(tensors((M, K), SMALL)), data.draw(tensors((N, K), SMALL)), data.draw(tensors((N,), SMALL))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn, "BLOCK_BYTES", block)
        agree("dense", arrays[: 3 if bias else 2], constants=data.draw(st.sampled_from([(), (1,)])))


def test_max_pool2d_equals_formal_for_every_small_window() -> None:
    generator = np.random.default_rng(3)
    axes = list(itertools.product((1, 2, 3), (1, 2, 3, 4), (0, 1, 2), (1, 2, 3)))
    seen = 0
    for ceil_mode in (False, True):
        valid = [axis for axis in axes if pooled(axis, ceil_mode)]
        for extent, pool_size, padding, strides in paired(valid):
            X = int32(generator.integers(-99, 0, (1, 2, *extent)))
            attributes = {"pool_size": pool_size, "padding": padding, "strides": strides, "ceil_mode": ceil_mode}
            agree("max_pool2d", [X], attributes)
            seen += 1
    assert seen > 80


def pooled(axis: tuple[int, ...], ceil_mode: bool) -> bool:
    """Whether a window of this kind along both axes is one that the declaration admits."""
    n, k, p, s = axis
    attributes = {"pool_size": (k, k), "padding": (p, p), "strides": (s, s), "ceil_mode": ceil_mode}
    try:
        call_of("max_pool2d", [np.zeros((1, 1, n, n), np.int32)], attributes)
    except Invalid:
        return False
    return True


@given(X=tensors((2, 2, 2, 3)), scale=st.integers(1, 4))
def test_upsampling_equals_formal(X: np.ndarray, scale: int) -> None:
    agree("upsampling", [X], {"scale": scale})


@pytest.mark.parametrize("stride", [(1, 1), (2, 1), (3, 2)])
def test_a_larger_conv2d_equals_sums_of_products_in_int64(stride: tuple[int, int]) -> None:
    generator = np.random.default_rng(11)
    X, W = int32(generator.integers(-128, 128, (2, 12, 17, 13))), int32(generator.integers(-127, 128, (10, 6, 3, 3)))
    attributes = {"padding": (1, 2), "stride": stride, "dilation": (2, 1), "groups": 2}
    padded = np.pad(X, ((0, 0), (0, 0), (1, 1), (2, 2))).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 3), axis=(2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], ::2, :]
    halves = [
        np.einsum("ncpqij,ocij->nopq", windows[:, g * 6 : g * 6 + 6], W[g * 5 : g * 5 + 5].astype(np.int64))
        for g in range(2)
    ]
    call = call_of("conv2d", [X, W], attributes, constants=(1,))
    (Y,) = run_step(KERNELS["conv2d"](call), call, [X, W])
    np.testing.assert_array_equal(Y, np.concatenate(halves, axis=1))


def test_conv2d_keeps_its_temporary_arrays_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn, "BLOCK_BYTES", 2**18)
    X, W = np.ones((1, 8, 64, 64), np.int32), np.ones((8, 8, 9, 9), np.int32)
    attributes = {"padding": (4, 4), "stride": (1, 1), "dilation": (1, 1), "groups": 1}
    step = KERNELS["conv2d"](call_of("conv2d", [X, W], attributes, constants=(1,)))
    tracemalloc.start()
    (Y,) = step.run([X])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= Y.nbytes + 2**18 + 2**14  # all columns at once would be 10 MiB
