from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.formal.formal_tensors import arange, call, shapes

REFERENCES: dict[str, Any] = {
    "broadcast_add": np.add,
    "broadcast_sub": np.subtract,
    "broadcast_mul": np.multiply,
    "broadcast_max": np.maximum,
    "broadcast_greater": lambda a, b: np.greater(a, b).astype(int),
}


def test_the_example_of_the_document() -> None:
    assert call("broadcast_add", [[1, 1, 1], [1, 1, 1]], [[0], [1]]) == [[1, 1, 1], [2, 2, 2]]


@pytest.mark.parametrize("op", REFERENCES)
def test_every_pair_of_small_shapes_equals_numpy(op: str) -> None:
    compared = 0
    for m in shapes(3, 2):
        for n in shapes(3, 2):
            A, B = arange(m, -2), arange(n, -1)
            assert call(op, A, B) == REFERENCES[op](A, B).tolist()
            compared += 1
    assert compared == 14**2


def test_division_truncates_the_exact_quotient_and_gives_zero_for_a_zero_divisor() -> None:
    largest = 2**31 - 1
    numbers = [*range(-8, 9), largest, -largest]
    expected = [[int(Fraction(a, b)) if b else 0 for b in numbers] for a in numbers]
    assert call("broadcast_div", [[a] for a in numbers], numbers) == expected
