"""Large arrays, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.blocks import blocks, finite

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
