"""Computed indices of gathers and scatters, and integers at the ends of what the machine has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm import webnn
from cvm.errors import Invalid

SETTINGS = settings(max_examples=40, deadline=None)


def computed(build: Any, feeds: dict[str, np.ndarray], ranges: dict[str, tuple[int, int]] | None = None) -> np.ndarray:
    context = webnn.ML().create_context(executor="numpy")
    b = webnn.MLGraphBuilder(context)
    given_ranges = ranges or {}
    operands = {
        name: b.input(name, (array.dtype.name, array.shape), value_range=given_ranges.get(name))
        for name, array in feeds.items()
    }
    return context.compute(b.build({"y": build(b, **operands)}), feeds)["y"]


@st.composite
def elements(draw: st.DrawFn) -> Any:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    indices = list(shape)
    indices[axis] = draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["int32", "uint32", "int64"]))
    n = shape[axis]
    at = random.integers(0 if kind == "uint32" else -n, n, indices).astype(kind)
    return random.integers(-128, 128, shape).astype(np.int8), at, axis, random


@SETTINGS
@given(elements())
def test_elements_are_gathered_and_scattered_at_computed_indices(case: Any) -> None:
    x, at, axis, random = case
    places = np.where(at < 0, at.astype(np.int64) + x.shape[axis], at.astype(np.int64))
    found = computed(lambda b, x, i: b.gather_elements(x, i, axis=axis), {"x": x, "i": at})
    np.testing.assert_array_equal(found, np.take_along_axis(x, places, axis))
    updates = random.integers(-128, 128, at.shape).astype(np.int8)
    expected = x.copy()
    for place in np.ndindex(*at.shape):  # row-major: the last one stays
        where = list(place)
        where[axis] = places[place]
        expected[tuple(where)] = updates[place]
    feeds = {"x": x, "i": at, "u": updates}
    found = computed(lambda b, x, i, u: b.scatter_elements(x, i, u, axis=axis), feeds)
    np.testing.assert_array_equal(found, expected)


@st.composite
def coordinates(draw: st.DrawFn) -> Any:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    count = draw(st.integers(1, len(shape)))
    kept = tuple(draw(st.lists(st.integers(1, 3), min_size=0, max_size=2)))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    at = np.stack([random.integers(-n, n, kept) for n in shape[:count]], -1).astype(np.int32)
    return random.integers(-128, 128, shape).astype(np.int8), at, random


@SETTINGS
@given(coordinates())
def test_slices_are_gathered_and_scattered_at_computed_coordinates(case: Any) -> None:
    x, at, random = case
    places = tuple(np.where(at < 0, at + np.array(x.shape[: at.shape[-1]]), at)[..., i] for i in range(at.shape[-1]))
    np.testing.assert_array_equal(computed(lambda b, x, i: b.gather_nd(x, i), {"x": x, "i": at}), x[places])
    updates = random.integers(-128, 128, x[places].shape).astype(np.int8)
    expected = x.copy()
    for row in np.ndindex(*at.shape[:-1]):
        expected[tuple(column[row] for column in places)] = updates[row]
    found = computed(lambda b, x, i, u: b.scatter_nd(x, i, u), {"x": x, "i": at, "u": updates})
    np.testing.assert_array_equal(found, expected)


def test_computed_indices_out_of_range_are_clamped_and_constant_ones_of_a_scatter_refused() -> None:
    x, at = np.array([1, 2, 3], np.int8), np.array([-9, 9], np.int32)
    assert computed(lambda b, x, i: b.gather_elements(x, i), {"x": x, "i": at}).tolist() == [1, 3]
    feeds = {"x": x, "i": at, "u": np.array([7, 8], np.int8)}
    assert computed(lambda b, x, i, u: b.scatter_elements(x, i, u), feeds).tolist() == [7, 2, 8]
    with pytest.raises(webnn.NotSupportedError, match=r"an index is out of \[-3, 2\]"):
        computed(lambda b, x, u: b.scatter_elements(x, b.constant(at), u), {"x": x, "u": feeds["u"]})


EVERY_INDEX = (
    ("int32", [-(2**31), -4, -3, -1, 0, 2, 3, 2**31 - 1]),
    ("uint32", [0, 2, 3, 2**31 - 1, 2**31, 2**32 - 1]),
    ("int64", [-(2**63), -(2**31) - 1, -4, -3, -1, 0, 2, 3, 2**31, 2**63 - 1]),
)


@pytest.mark.parametrize(("kind", "indices"), EVERY_INDEX)
@pytest.mark.parametrize("form", ["constant", "computed", "moved"])
def test_every_index_is_clamped_and_negative_ones_count_from_the_end(kind: str, indices: list[int], form: str) -> None:
    x, at = np.array([10, 20, 30], np.int8), np.array(indices, kind)
    expected = [int(x[min(max(i, -3), 2)]) for i in indices]
    coordinates = np.array(indices, kind)[:, None]
    feeds: dict[str, np.ndarray] = {"x": x} if form == "constant" else {"x": x, "i": at}

    def operand(b: webnn.MLGraphBuilder, i: Any) -> Any:
        return b.constant(at) if i is None else b.reverse(b.reverse(i)) if form == "moved" else i

    assert computed(lambda b, x, i=None: b.gather(x, operand(b, i)), feeds).tolist() == expected
    assert computed(lambda b, x, i=None: b.gather_elements(x, operand(b, i)), feeds).tolist() == expected

    def rows(b: webnn.MLGraphBuilder, i: Any) -> Any:
        return b.constant(coordinates) if i is None else b.reshape(operand(b, i), coordinates.shape)

    assert computed(lambda b, x, i=None: b.gather_nd(x, rows(b, i)), feeds).tolist() == expected


def test_integers_beyond_the_machine_are_clamped_as_indices_alone() -> None:
    x = np.array([10, 20, 30], np.int8)
    wide = np.array([2**40], np.int64)
    with pytest.raises(webnn.NotSupportedError, match="the range of the machine"):
        computed(lambda b, x: b.add(b.cast(b.gather(x, b.constant(wide)), "int64"), b.constant(wide)), {"x": x})
    with pytest.raises(Invalid, match="is not in"):  # given as it is, too
        computed(lambda b, x, i: b.concat([b.cast(b.gather(x, i), "int64"), b.identity(i)], 0), {"x": x, "i": wide})


def test_too_many_comparisons_are_refused() -> None:
    b = webnn.MLGraphBuilder(webnn.ML().create_context())
    x, i = b.input("x", ("int8", [2**12])), b.input("i", ("int32", [2**11]))
    u = b.input("u", ("int8", [2**11]))
    with pytest.raises(webnn.NotSupportedError, match="comparisons; use constant indices"):
        b.build({"y": b.scatter_elements(x, i, u)})


# The ends of the machine

ENDS = np.array([-(2**31), 2**31 - 1, 0, -5], np.int32)
WIDE = np.array([-(2**63), 2**63 - 1, 2**31, 7], np.int64)


@pytest.mark.parametrize(
    ("build", "values", "expected"),
    [
        (lambda b, x: b.sign(x), ENDS, np.sign(ENDS)),
        (lambda b, x: b.relu(x), ENDS, np.maximum(ENDS, 0)),
        (lambda b, x: b.clamp(x, min_value=-3), ENDS, np.maximum(ENDS, -3)),
        (lambda b, x: b.sign(x), WIDE, np.sign(WIDE)),
        (lambda b, x: b.clamp(x, min_value=-9, max_value=2**31 - 1), WIDE, np.clip(WIDE, -9, 2**31 - 1)),
    ],
)
def test_what_reads_alike_beyond_the_machine_may_be_promised(build: Any, values: Any, expected: Any) -> None:
    ranges = {"x": (int(values.min()), int(values.max()))}
    np.testing.assert_array_equal(computed(build, {"x": values}, ranges), expected)


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.relu(x),
        lambda b, x: b.clamp(x, max_value=5),
        lambda b, x: b.clamp(x, min_value=5),
        lambda b, x: b.identity(x),
        lambda b, x: b.add(b.sign(x), x),
    ],
)
def test_what_would_read_otherwise_is_refused(build: Any) -> None:
    with pytest.raises(webnn.NotSupportedError, match=r"operand 'x' \(int64\).*the range of the machine.*value_range"):
        computed(build, {"x": WIDE}, {"x": (-(2**40), 2**40)})


@pytest.mark.parametrize("data_type", ["uint32", "uint64"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_unsigned_results_that_are_given_wrap_below_zero(op: str, data_type: str) -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(0, 1000, 50).astype(data_type) for _ in range(2))
    with np.errstate(over="ignore"):
        expected = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op](a, b)
    found = computed(lambda g, a, b: getattr(g, op)(a, b), {"a": a, "b": b}, {"a": (0, 1000), "b": (0, 1000)})
    assert found.dtype == np.dtype(data_type)
    np.testing.assert_array_equal(found, expected)


def test_an_unsigned_difference_that_is_read_must_be_proven_not_to_be_negative() -> None:
    def graph(b: webnn.MLGraphBuilder) -> webnn.MLOperand:
        x, y = (b.input(name, ("uint32", [2]), value_range=(0, 9)) for name in "xy")
        return b.sub(x, y, label="less")

    b = webnn.MLGraphBuilder(webnn.ML().create_context())
    with pytest.raises(webnn.NotSupportedError, match=r"\[less\].*not proven to fit"):
        b.build({"z": b.max(graph(b), b.constant("uint32", 3))})
    b = webnn.MLGraphBuilder(webnn.ML().create_context(integer_overflow="error"))
    with pytest.raises(webnn.NotSupportedError, match=r"\[less\].*not proven to fit"):
        b.build({"z": graph(b)})
