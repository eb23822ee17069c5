"""Ops of op-set 2, FORMAL: results worked out by hand, and NumPy's products."""

from __future__ import annotations

from itertools import product
from typing import Any

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


def computed(op: str, operands: list[list[int]], **attributes: Any) -> list[int]:
    """The elements of an op on vectors."""
    found = OPS[op](*(stored((len(item),), item) for item in operands), **attributes)
    assert not isinstance(found, tuple)
    return elements(found)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("half_up", [-3, -1, -1, 0, 1, 2, 2, 3]), ("half_even", [-3, -2, -1, 0, 0, 2, 2, 2]),
     ("toward_zero", [-3, -1, 0, 0, 0, 1, 2, 2])],
)  # fmt: skip
def test_a_quotient_by_hand(rounding: str, expected: list[int]) -> None:
    x = [-6, -3, -2, 0, 1, 3, 4, 5]  # over 2, but for -2 over 3
    y = [2, 2, 3, 2, 2, 2, 2, 2]
    attributes = {"terms": 1, "rounding": rounding, "lo": -9, "hi": 9}
    assert computed("quotient", [x, y, [1], [1], [0], [0]], **attributes) == expected


def test_the_sums_of_a_quotient_and_its_bounds() -> None:
    operands = [[5, -5], [7, 1], [1, 0], [2, 10], [100], [4], [-6, 8], [1]]
    found = computed("quotient", operands, terms=2, rounding="toward_zero", lo=-9, hi=120)
    assert found == [120, 58]  # (10 + 700 - 6) / (4 + 1), clipped; (-50 + 100 + 8) / (0 + 1)


def test_a_normalised_row_by_hand() -> None:
    """1 and 7 are 3 below and 3 above their mean; variance 9, to which 16 is added: 3 / 5, times 10."""
    row = {"axes": (0,), "shift": 4, "rounding": "half_up", "lo": -9, "hi": 9}
    # n = 2: t is 2 x - 8 and Q is 4 times the variance, so that e 2^shift / r^2 = 4 * 16 = 4 * 2^4 / 1^2.
    found = computed("normalize", [[1, 7], [10], [0], [1], [1], [4]], statistic="variance", **row)
    assert found == [-6, 6]
    # 3 / sqrt(9 + 16), where Q is the sum of squares of one element
    found = computed(
        "normalize",
        [
            [3],
            [
                10,
            ],
            [5],
            [2],
            [1],
            [1],
        ],
        statistic="square_sum",
        **row,
    )
    assert found == [6]  # (6 + 5) / 2 = 5.5, upward
    found = computed("normalize", [[3], [10], [5], [2], [1], [1]], statistic="square_sum", **{**row, "lo": 8})
    assert found == [8]
    # The root of the mean square of 3 and 4, with e / r^2 = 4 * 14 / 2^2 more: n Q = 50 + 14 = 64
    found = computed(
        "normalize", [[3, 4], [12], [0], [1], [2], [56]], statistic="mean_square", **{**row, "shift": 0, "hi": 99}
    )
    assert found == [9, 12]  # 12 * 2 * 3 / 8 and 12 * 2 * 4 / 8


@pytest.mark.parametrize(("rounding", "expected"), [("half_up", [-1, 0, 1, 2]), ("half_even", [-2, 0, 0, 2])])
def test_ties_of_a_normalised_row(rounding: str, expected: list[int]) -> None:
    """t / sqrt(Q + e) is x / 10 for a row of squares of 36 in all, to which 64 are added; times 5: x / 2."""
    found = computed(
        "normalize", [[-3, -1, 1, 3, 4], [5], [0], [1], [1], [64]],
        axes=(0,), statistic="square_sum", shift=0, rounding=rounding, lo=-9, hi=9,
    )  # fmt: skip
    assert found == [*expected, 2]


@pytest.mark.parametrize(("index", "expected"), [(-5, [8, 9, 3]), (0, [8, 9, 3]), (1, [1, 8, 9]), (7, [1, 8, 9])])
def test_an_updated_slice_by_hand(index: int, expected: list[int]) -> None:
    assert computed("update_slice", [[1, 2, 3], [8, 9], [index]], axis=0) == expected
    assert computed("update_slice", [[1, 2, 3], [8, 9], [index]], axis=-1) == expected


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
