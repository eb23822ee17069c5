from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cvm.blocks import boxes


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), limit=st.integers(1, 200))
def test_blocks_partition_the_indices_in_order_and_keep_to_the_limit(shape: tuple[int, ...], limit: int) -> None:
    indices = np.arange(math.prod(shape)).reshape(shape)
    found = list(boxes(shape, limit))
    assert np.concatenate([indices[box].ravel() for box in found]).tolist() == list(range(indices.size))
    assert all(indices[box].size <= limit for box in found)
    assert len(found) == 1 or math.prod(shape) > limit
