from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tests.formal.formal_tensors import arange, call, shapes

DATA = [[[1, 2], [2, 3], [1, 3]], [[1, 4], [4, 3], [5, 2]], [[7, 1], [7, 2], [7, 3]]]


def test_the_examples_of_the_document() -> None:
    assert call("sum", DATA, axes=(1,), keepdims=False, exclude=False) == [[4, 8], [10, 9], [21, 6]]
    assert call("sum", DATA, axes=(1, 2), keepdims=False, exclude=False) == [12, 19, 27]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("shape", [*shapes(3, 3), (2, 5, 1, 3)])
def test_every_choice_of_axes_equals_numpy(shape: tuple[int, ...], exclude: bool, keepdims: bool) -> None:
    N = len(shape)
    X: Any = (arange(shape) * 7 + 3) % 11 - 9
    for M in range(N + 1):
        for axes, signs in product(combinations(range(N), M), ((0, 0, 0, 0), (-N,) * 4)):
            given = tuple(axis + sign for axis, sign in zip(axes, signs, strict=False))
            reduced = tuple(range(N)) if M == 0 else tuple(i for i in range(N) if (i in axes) != exclude)
            for op, reference in (("sum", np.sum), ("max", np.max)):
                expected = np.atleast_1d(reference(X, axis=reduced, keepdims=keepdims))
                if exclude and M == N:
                    expected = X
                assert call(op, X, axes=given, keepdims=keepdims, exclude=exclude) == expected.tolist()
