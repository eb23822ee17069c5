"""The rows of many positions are told apart as those of few are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.lowering.proofs import rows

SHAPE = (2, 3, 2)


@st.composite
def columns(draw: st.DrawFn) -> list[np.ndarray]:
    found = []
    for _ in range(draw(st.integers(1, 4))):
        extents = tuple(draw(st.sampled_from([1, n])) for n in SHAPE)
        count = int(np.prod(extents))
        items = draw(st.lists(st.sampled_from([0, 1, -5, 2**70]), min_size=count, max_size=count))
        found.append(np.array(items, dtype=object).reshape(extents))
    return found


@settings(deadline=None)
@given(columns())
def test_rows_by_arrays_of_numbers_are_those_by_a_dictionary(parts: list[np.ndarray]) -> None:
    keys, where = rows._distinct(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_MANY", 0)
        others, there = rows._distinct(parts)
    assert keys == others
    np.testing.assert_array_equal(where, there)
