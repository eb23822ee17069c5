"""Ops of op-set 2, FORMAL: results worked out by hand, and NumPy's products."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from formal.registry import OPS
from formal.tensor import elements, stored


def multiplied(a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False) -> np.ndarray:
    tensors = [stored(item.shape, item.ravel().tolist()) for item in (a, b)]
    found = OPS["matmul"](*tensors, transpose_a=transpose_a, transpose_b=transpose_b)
    assert not isinstance(found, tuple)
    return np.array(elements(found)).reshape(found.shape)


def test_a_product_by_hand() -> None:
    a, b = np.array([[1, 2], [3, -4]]), np.array([[5, 6], [-7, 8]])
    assert multiplied(a, b).tolist() == [[-9, 22], [43, -14]]
    assert multiplied(a, b, transpose_a=True).tolist() == [[-16, 30], [38, -20]]
    assert multiplied(a, b, transpose_b=True).tolist() == [[17, 9], [-9, -53]]


def test_neighbouring_matrices_share_one() -> None:
    a, b = np.arange(4).reshape(4, 1, 1), np.array([10, 100]).reshape(2, 1, 1)
    assert multiplied(a, b).ravel().tolist() == [0, 10, 200, 300]


@pytest.mark.parametrize(("of_a", "of_b"), [((), ()), ((6,), (3,)), ((4, 6), (2, 1)), ((2, 1, 2), (1, 1, 2))])
def test_products_are_numpys(of_a: tuple[int, ...], of_b: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    for transpose_a, transpose_b in product((False, True), repeat=2):
        a, b = random.integers(-9, 9, (*of_a, 3, 4)), random.integers(-9, 9, (*of_b, 4, 2))
        full = b
        for axis, (n, m) in enumerate(zip(of_a, of_b, strict=True)):
            full = full.repeat(n // m, axis)
        given = (a.swapaxes(-1, -2) if transpose_a else a, b.swapaxes(-1, -2) if transpose_b else b)
        assert np.array_equal(multiplied(*given, transpose_a, transpose_b), a @ full)
