"""Arrays of rationals against the rationals one by one."""

import math
import operator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cvm.quantization.rationals import Rationals, condensed, core

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


# Items that are the same along an axis and take no memory along it

SHAPE = (3, 4, 2)


@st.composite
def thin(draw: st.DrawFn) -> Rationals:
    """An array of the shape SHAPE that takes no memory along some of its axes."""
    extents = tuple(draw(st.sampled_from([1, n])) for n in SHAPE)
    count = math.prod(extents)
    numerators = draw(st.lists(st.integers(-6, 6).filter(bool), min_size=count, max_size=count))
    items = np.array(numerators, dtype=object).reshape(extents)
    return Rationals(np.broadcast_to(items, SHAPE), draw(st.integers(1, 4)))


def dense(items: Rationals) -> Rationals:
    return Rationals(items.numerators.copy(), items.denominator)


@given(thin(), thin())
def test_thin_arrays_compute_what_dense_ones_do(x: Rationals, y: Rationals) -> None:
    for operation in (operator.add, operator.sub, operator.mul, operator.truediv):
        found, expected = operation(x, y), operation(dense(x), dense(y))
        assert found.numerators.shape == expected.numerators.shape == SHAPE
        assert (found.denominator, found.fractions()) == (expected.denominator, expected.fractions())
        assert core(found.numerators).size <= core(x.numerators * 0 + y.numerators * 0).size
    assert (-x).fractions() == (-dense(x)).fractions()
    assert x.reduced().fractions() == x.fractions()
    assert x.equals(y) == dense(x).equals(dense(y))
    assert x.equals(dense(x))
    assert x.over(12 * x.denominator).tolist() == dense(x).over(12 * x.denominator).tolist()
    assert not x.is_zero()
    assert (x - x).is_zero()


@given(st.one_of(thin(), thin().map(dense)), st.permutations(range(3)), st.lists(st.integers(0, 3), min_size=1))
def test_selected_items_are_those_of_the_moved_array(x: Rationals, axes: list[int], taken: list[int]) -> None:
    for move in (
        lambda items: np.take(items, taken, 1),
        lambda items: items.transpose(axes),
        lambda items: items.reshape(6, 4),
        lambda items: np.tile(items, (1, 2, 1)),
        lambda items: items[1:, ::2],
    ):
        found, expected = x.selected(SHAPE, move), x.moved(move)
        assert found.shape == expected.shape
        assert found.fractions() == expected.fractions()


@given(st.lists(st.integers(-2, 2), min_size=24, max_size=24))
def test_condensed_items_are_the_same_items(items: list[int]) -> None:
    array = np.array(items).reshape(SHAPE)
    for other in (array, array[:, :1] * np.ones((1, 4, 1), np.int64), np.zeros(SHAPE, np.int64)):
        np.testing.assert_array_equal(condensed(other), other)
    assert core(condensed(array[:1] * np.ones((3, 1, 1), np.int64))).shape[0] == 1


def test_arrays_that_do_not_vary_take_no_memory_and_are_uniform_only_if_they_have_one_item() -> None:
    wide = Rationals.scalar(3, 2).broadcast((1000, 1000))
    product = wide * wide + wide
    assert product.shape == (1000, 1000)
    assert core(product.numerators).size == 1
    assert not product.uniform
