"""The parts: digits of constants and of tensors, and the upper part of a sum that is wanted within bounds only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.ops import Range
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable, missing
from cvm.passes.legalize.integers import balanced, bits, digits, narrowed, roomy, trailing_zeros
from cvm.passes.legalize.tensors import Tensors
from cvm.program import Output, ProgramBuilder
from tests.passes.legalize.nodes import LARGEST, run
from tests.selection import examples


def evaluated(roots: list[Expression], x: np.ndarray, lo: int, hi: int) -> list[np.ndarray]:
    """The elements of expressions of one input."""
    builder = ProgramBuilder()
    builder.input("x", x.shape, lo, hi)
    names: dict[int, str] = {}
    for root in roots:
        for item in missing(root, names):
            if item.elements is not None:
                names[item.number] = builder.constant(item.elements)
            else:
                inputs = [part.name or names[part.number] for part in item.inputs]
                (names[item.number],) = builder.add(item.op, inputs, item.attributes)
    values = run(builder.build([Output("x", "x")]), {"x": x.astype(np.int32)})
    return [values[root.name or names[root.number]].astype(np.int64) for root in roots]


def tensor(made: Expressions, x: np.ndarray, lo: int, hi: int) -> Expression:
    return made.value("x", x.shape, Range.uniform(x.ndim, lo, hi))


@given(st.lists(st.integers(-(2**130), 2**130), min_size=1, max_size=5), st.integers(1, 26), st.integers(0, 30))
def test_digits_of_constants_add_up(values: list[int], base: int, top: int) -> None:
    items = roomy(np.array(values, object))
    parts = digits(items, base, top)
    assert [sum(int(part[i]) << (base * j) for j, part in enumerate(parts)) for i in range(len(values))] == values
    half = 2 ** (base - 1)
    assert all(-half <= int(d) < half for part in parts[:-1] for d in part)
    assert bits(parts[-1]) <= top + 1
    assert (balanced(items, base) == parts[0]).all() or len(parts) == 1


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5))
def test_trailing_zeros_divide(values: list[int]) -> None:
    zeros = trailing_zeros(np.array(values, np.int64))
    assert all(value % 2**zeros == 0 for value in values)
    assert not any(values) or any(value % 2 ** (zeros + 1) for value in values)


def test_constants_that_do_not_vary_are_narrowed() -> None:
    assert narrowed(np.array([[1, 2], [1, 2]])).tolist() == [[1, 2]]
    assert narrowed(np.array([[1, 1], [2, 2]])).tolist() == [[1], [2]]
    assert narrowed(np.zeros((2, 3, 4))).shape == (1, 1, 1)


@settings(max_examples=examples(60))
@given(st.integers(-LARGEST, LARGEST), st.integers(-LARGEST, LARGEST), st.integers(2, 26), st.integers(1, 31))
def test_digits_of_tensors_add_up_and_are_proven(one: int, other: int, base: int, top: int) -> None:
    lo, hi = sorted((one, other))
    top = max(top, base - 1)
    powers = [sign * 2**k + step for k in range(32) for step in (-1, 0, 1) for sign in (-1, 1)]
    x = np.array(sorted({max(lo, min(hi, item)) for item in [*powers, lo, hi, (lo + hi) // 2]}))
    made = Expressions()
    parts = Tensors(made).digits(tensor(made, x, lo, hi), base, top)
    values = evaluated(parts, x, lo, hi)
    np.testing.assert_array_equal(sum(value << (base * j) for j, value in enumerate(values)), x)
    assert all(max(-part.lo, part.hi) <= 2**base for part in parts[:-1])
    assert max(-parts[-1].lo, parts[-1].hi) <= 2**top


@settings(max_examples=examples(200))
@given(st.data())
def test_the_upper_part_of_a_sum_is_right_within_what_is_wanted(data: st.DataObject) -> None:
    small = st.integers(-20, 20)
    lo, hi = sorted(data.draw(st.tuples(small, small)))
    below = sorted(data.draw(st.tuples(small, small)))
    needed = sorted(data.draw(st.tuples(small, small)))
    shift = data.draw(st.integers(0, 4))
    x = np.arange(lo, hi + 1)
    made = Expressions()
    root = Tensors(made).raised(tensor(made, x, lo, hi), shift, (below[0], below[1]), (needed[0], needed[1]), "upper")
    (upper,) = evaluated([root], x, lo, hi)
    for low in range(below[0], below[1] + 1):
        expected, found = np.clip((x << shift) + low, *needed), np.clip(upper + low, *needed)
        np.testing.assert_array_equal(found, expected)


def test_a_product_beyond_int32_is_not_taken_for_proven() -> None:
    made = Expressions()
    x = tensor(made, np.zeros((1,)), -(2**20), 2**20)
    with pytest.raises(Unprovable):
        Tensors(made).up(x, 11, "upper")
    with pytest.raises(Unprovable):
        made.constant(np.array([2**31]))
    with pytest.raises(Unprovable):
        made.apply("broadcast_mul", x, x, label="product")


def test_an_expression_is_made_once_and_one_of_constants_is_a_constant() -> None:
    made = Expressions()
    x = tensor(made, np.zeros((2,)), -9, 9)
    three = made.constant(np.array([3]))
    one, other = (made.apply("broadcast_mul", x, three, label=label) for label in ("one", "other"))
    assert one is other
    assert made.apply("broadcast_mul", three, three, label="nine") is made.constant(np.array([9]))
    made.forget({three.number: "three"})
    assert made.constant(np.array([3])) is three
    assert made.apply("broadcast_mul", x, three, label="one") is not one


def test_what_lies_within_its_bounds_is_not_clipped() -> None:
    made = Expressions()
    tensors = Tensors(made)
    x = tensor(made, np.zeros((1,)), -7, 9)
    assert tensors.clip(x, -7, 9, "same") is x
    assert tensors.clip(x, -7, 8, "less") is not x
    assert tensors.clip(x, -6, 9, "less") is not x
