"""Arrays of rationals against the rationals one by one."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cvm.quantization.rationals import Rationals

ITEMS = st.lists(st.fractions(-9, 9, max_denominator=60), min_size=6, max_size=6)


@given(ITEMS, ITEMS)
def test_arithmetic_is_that_of_the_items(left: list[Fraction], right: list[Fraction]) -> None:
    a, b = Rationals.of(left, (2, 3)), Rationals.of(right, (2, 3))
    assert (a + b).fractions() == [x + y for x, y in zip(left, right, strict=True)]
    assert (a - b).fractions() == [x - y for x, y in zip(left, right, strict=True)]
    assert (a * b).fractions() == [x * y for x, y in zip(left, right, strict=True)]
    assert (-a).fractions() == [-x for x in left]
    if all(right):
        assert (a / b).fractions() == [x / y for x, y in zip(left, right, strict=True)]


@given(ITEMS, st.integers(0, 3))
def test_further_axes_have_extent_one_and_leave_the_items(items: list[Fraction], count: int) -> None:
    found = Rationals.of(items, (2, 3)).with_trailing_axes(count)
    assert found.shape == (2, 3) + (1,) * count
    assert found.fractions() == items


@given(ITEMS)
def test_one_item_serves_a_whole_tensor(items: list[Fraction]) -> None:
    one, many = Rationals.scalar(items[0], 2), Rationals.of(items, (3, 2))
    assert one.uniform
    assert one.item() == items[0]
    assert (one * many).shape == (3, 2)
    assert (one * many).fractions() == [items[0] * item for item in items]


def test_numerators_are_never_of_64_bits() -> None:
    with pytest.raises(TypeError, match="int64"):
        Rationals(np.array([1]))


def test_items_are_row_major() -> None:
    items = [Fraction(i, 7) for i in range(6)]
    array = Rationals.of(items, (2, 3))
    for i, j in product(range(2), range(3)):
        assert Fraction(array.numerators[i, j], array.denominator) == items[3 * i + j]


@given(arrays(np.float64, (7,), elements=st.floats(allow_nan=False, allow_infinity=False)))
@example(np.array([0.0, -0.0, 5e-324, -1.7976931348623157e308, 0.1, 3.0, -0.375]))
@example(np.array([2.0**53, -(2.0**53) + 1, 1.0, 2.0**1023, 2.0**-1022, 2.0**-1074, -1.5]))
def test_floats_are_the_rationals_that_they_are(values: np.ndarray) -> None:
    exact, wanted = Rationals.of_floats(values), Rationals.of(map(Fraction, values.tolist()), values.shape)
    assert exact.numerators.tolist() == wanted.numerators.tolist()
    assert exact.denominator == wanted.denominator
    assert all(type(item) is int for item in exact.numerators.tolist())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (), (2, 3), (1, 1)])
def test_floats_of_any_width_and_shape_are_exact(dtype: type[np.floating], shape: tuple[int, ...]) -> None:
    values = np.asarray(np.random.default_rng(4).normal(size=shape), dtype)
    exact = Rationals.of_floats(values)
    assert exact.shape == shape
    assert exact.fractions() == [Fraction(float(item)) for item in values.ravel()]
