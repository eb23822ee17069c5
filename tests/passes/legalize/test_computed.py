"""Ops of op-set 2 in the document's ops give FORMAL's codes: drawn operands, ties, the widest ones, and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cvm import ops
from cvm.errors import Invalid, Unsupported
from cvm.executors import create
from cvm.ops import REGISTRY
from cvm.passes.legalize import legalize
from cvm.program import Output, Program, ProgramBuilder, verify
from formal.registry import OPS
from formal.tensor import elements, stored
from tests.ops.strategies import RECIPES

drawn = settings(
    max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def applied(op: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> tuple[Program, dict[str, np.ndarray]]:
    """The program that applies an op to inputs with the intervals of these arrays, and the inputs."""
    builder, feed, names = ProgramBuilder(), {}, []
    for index, (array, kind) in enumerate(zip(arrays, ops.get(op).input_kinds(len(arrays)), strict=True)):
        if kind == "parameter":
            names.append(builder.parameter(array))
        else:
            feed[f"x{index}"] = array.astype(np.int32)
            names.append(builder.input(f"x{index}", array.shape, int(array.min()), int(array.max())))
    (y,) = builder.add(op, names, attributes, name="y")
    return builder.build([Output("y", y)]), feed


def agree(op: str, arrays: list[np.ndarray], attributes: dict[str, Any]) -> int:
    """Assert that the legalised program gives what FORMAL gives; returns the number of its nodes."""
    program, feed = applied(op, arrays, attributes)
    found = legalize(program)
    assert not any(REGISTRY[node.op].extension for node in found.nodes)
    result = create("numpy", verify(found)).run(feed, {}).values["y"]
    complete = dict(ops.get(op).parse(attributes))
    expected = OPS[op](*(stored(array.shape, array.ravel().tolist()) for array in arrays), **complete)
    assert not isinstance(expected, tuple)
    np.testing.assert_array_equal(result.ravel(), elements(expected))
    return len(found.nodes)


def of_bits(bits: int) -> st.SearchStrategy[int]:
    most = 2**bits - 1
    return st.one_of(st.integers(-most, most), st.integers(-3, 3), st.sampled_from([-most, most]))


def array_of(draw: Any, shape: tuple[int, ...], items: st.SearchStrategy[int]) -> np.ndarray:
    count = math.prod(shape)
    return np.array(draw(st.lists(items, min_size=count, max_size=count)), np.int64).reshape(shape)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
@drawn
@given(data=st.data())
def test_quotients(rounding: str, data: st.DataObject) -> None:
    shapes, attributes = RECIPES["quotient"](data.draw)
    attributes |= {"rounding": rounding}
    terms, count = attributes["terms"], (len(shapes) - 2) // 2
    bits, of_divisor = data.draw(st.integers(1, 62)), data.draw(st.integers(1, 62))
    arrays = []
    for index, shape in enumerate(shapes):
        width = 31 if index < count else of_divisor if shape == (1,) else bits
        array = array_of(data.draw, shape, of_bits(width))
        positive = terms <= index < count or count + terms <= index < 2 * count
        arrays.append(np.abs(array) if positive else array)
    arrays[-1] = np.abs(arrays[-1]) + 1
    agree("quotient", arrays, attributes)


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
@pytest.mark.parametrize("factor", [1, 2**40 + 1, 2**62 - 1])
def test_ties_of_quotients(rounding: str, factor: int) -> None:
    x = np.arange(-20, 21)
    for y in (1, 2, 3, 4):
        for nudge in (-1, 0, 1):
            parameters = [np.array([item]) for item in (factor, factor, nudge, 0)]
            agree("quotient", [x, np.array([y]), *parameters], {"terms": 1, "rounding": rounding, "lo": -9, "hi": 9})


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_quotients_of_all_of_int32(rounding: str) -> None:
    most = 2**31 - 1
    x = np.array([most, -most, most - 1, 1 - most, 1, -1, 0])
    attributes = {"terms": 1, "rounding": rounding, "lo": -most, "hi": most}
    for m, w, c in ((2**62, 2**62, 2**61), (2**62 + 1, 2**62, -(2**61) + 1), (2**63 - 1, 1, 0)):
        agree("quotient", [x, np.array([1]), *(np.array([item]) for item in (m, w, c, 0))], attributes)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ["half_up", "half_even"])
@pytest.mark.parametrize("statistic", ["variance", "mean_square", "square_sum"])
@settings(drawn, max_examples=8)
@given(data=st.data())
def test_normalised_rows(statistic: str, rounding: str, data: st.DataObject) -> None:
    shapes, attributes = RECIPES["normalize"](data.draw)
    attributes |= {"statistic": statistic, "rounding": rounding}
    bits = data.draw(st.integers(1, 31 - math.prod(shapes[0]).bit_length()))
    widths = (bits, *(data.draw(st.integers(1, most)) for most in (62, 50, 30, 31, 62)))
    arrays = [array_of(data.draw, shape, of_bits(width)) for shape, width in zip(shapes, widths, strict=True)]
    arrays[3:] = [np.maximum(np.abs(array), 1) for array in arrays[3:]]
    try:
        applied("normalize", arrays, attributes)
    except Invalid:
        assume(False)
    agree("normalize", arrays, attributes)


def test_a_normalised_row_of_16_bits_has_some_thousand_nodes() -> None:
    random = np.random.default_rng(1)
    x = random.integers(-32768, 32768, (3, 64))
    parameters = [random.integers(2**29, 2**30, 64), random.integers(-(2**30), 2**30, 64), [2**17], [1000], [10**9]]
    attributes = {"axes": (1,), "statistic": "variance", "rounding": "half_up", "lo": -32768, "hi": 32767}
    assert agree("normalize", [x, *map(np.array, parameters)], attributes) < 7_000
    program, _ = applied("quotient", [x[:, :3], np.array([[5]]), *(np.array([k]) for k in (255, 1, 0, 1))],
                         {"terms": 1, "rounding": "half_up", "lo": 0, "hi": 255})  # fmt: skip
    assert len(legalize(program).nodes) < 300


@drawn
@given(data=st.data())
def test_updated_slices(data: st.DataObject) -> None:
    shapes, attributes = RECIPES["update_slice"](data.draw)
    arrays = [array_of(data.draw, shape, of_bits(31)) for shape in shapes[:2]]
    for place in (data.draw(of_bits(31)), data.draw(st.integers(-1, 5))):
        agree("update_slice", [*arrays, np.array([place])], attributes)


def test_rows_that_are_too_long_are_refused() -> None:
    rows, attributes = 2**19 + 1, {"axes": (0,), "statistic": "square_sum", "rounding": "half_up", "lo": 0, "hi": 1}
    program, _ = applied("normalize", [np.resize([-4000, 4000], rows), *[np.array([1])] * 5], attributes)
    with pytest.raises(Unsupported) as caught:
        legalize(program)
    assert caught.value.code == "legalize.unprovable"


def test_the_widest_operands_and_codes_of_32_bits_fit_a_program() -> None:
    most = 2**31 - 1
    parameters = [np.array([item]) for item in (2**62 - 1, 2**40, 2**30, most, 2**62 - 1)]
    attributes = {"axes": (0,), "statistic": "variance", "shift": 62, "rounding": "half_even", "lo": -most, "hi": most}
    assert agree("normalize", [np.array([1 - 2**30, 2**30 - 1]), *parameters], attributes) < 25_000
