"""Large arrays, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm import blocks as module
from cvm.blocks import blocks, finite, greatest, made_in_blocks

SHAPES = st.lists(st.integers(0, 6), max_size=4).map(tuple)


@given(SHAPES, st.integers(1, 40))
def test_blocks_have_every_item_once_in_order_and_few_items_each(shape: tuple[int, ...], most: int) -> None:
    items = np.arange(int(np.prod(shape))).reshape(shape)
    found = [items[block] for block in blocks(shape, most)]
    assert all(isinstance(part, np.ndarray) and 0 < part.size <= most for part in found)
    assert np.concatenate([part.ravel() for part in found] or [[]]).tolist() == items.ravel().tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_array_is_finite_if_all_items_are(dtype: type, bad: float) -> None:
    items: npt.NDArray[Any] = np.linspace(-3, 3, 100).astype(dtype).reshape(10, 10)
    assert finite(items)
    assert finite(items[:0])
    for place in ((0, 0), (4, 7), (9, 9)):
        broken = items.copy()
        broken[place] = bad
        assert not finite(broken)


@pytest.mark.parametrize("filed", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 5), (700, 900), (2**19,)])
def test_an_array_is_made_in_blocks_in_memory_and_in_a_file(
    shape: tuple[int, ...], filed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    monkeypatch.setattr(module, "LEAST_FILED", 0 if filed else 2**40)
    found = made_in_blocks(shape, np.float32, lambda block: 2 * items[block])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, 2 * items)
    assert not found.flags.writeable


def test_an_array_lies_in_memory_where_no_file_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "LEAST_FILED", 0)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    found = made_in_blocks((3,), np.int8, lambda block: np.arange(3, dtype=np.int8)[block])
    assert found.tolist() == [0, 1, 2]


@given(st.integers(0, 2**32))
def test_the_greatest_magnitudes_are_those_of_all_items(seed: int) -> None:
    items = np.random.default_rng(seed).normal(0, 1, (3, 4, 5)).astype(np.float32)
    for axes in ((), (0,), (1, 2), (0, 1, 2)):
        np.testing.assert_array_equal(greatest(items, axes), np.abs(items.astype(np.float64)).max(axes, keepdims=True))
