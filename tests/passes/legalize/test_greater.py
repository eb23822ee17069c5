"""A legalised broadcast_greater compares all int32 numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.passes.legalize import legalize
from cvm.program import Output, ProgramBuilder, verify
from tests.passes.legalize.nodes import LARGEST, run
from tests.selection import examples

WHOLE = (-LARGEST, LARGEST)
EDGES = (-LARGEST, -LARGEST + 1, -(2**30) - 1, -(2**30), -1, 0, 1, 2**30, 2**30 + 1, LARGEST - 1, LARGEST)


def compared(a: np.ndarray, b: np.ndarray, bounds: tuple[tuple[int, int], tuple[int, int]]) -> int:
    """Assert that the legalised comparison is exact; the number of its ops."""
    builder = ProgramBuilder()
    inputs = [builder.input(name, items.shape, *pair) for name, items, pair in zip("ab", (a, b), bounds, strict=True)]
    (y,) = builder.add("broadcast_greater", inputs, name="y")
    program = builder.build([Output("y", y)])
    found = legalize(program)
    assert verify(program).ranges["y"].contains(verify(found).ranges["y"])
    np.testing.assert_array_equal(run(found, {"a": a, "b": b})["y"], (a > b).astype(np.int32), strict=True)
    return len(found.nodes)


def test_all_pairs_of_edges() -> None:
    edges = np.array(EDGES, np.int32)
    assert compared(edges.reshape(1, -1, 1), edges, (WHOLE, WHOLE)) == 9


@pytest.mark.parametrize("bound", [5, 2**30 - 1])
def test_differences_that_fit_take_two_ops(bound: int) -> None:
    items = np.array([-bound, -1, 0, 1, bound], np.int32)
    assert compared(items.reshape(-1, 1), items, ((-bound, bound), (-bound, bound))) == 2


@settings(max_examples=examples(60))
@given(st.data())
def test_any_bounds(data: st.DataObject) -> None:
    numbers = st.one_of(st.sampled_from(EDGES), st.integers(*WHOLE))
    bounds = [tuple(sorted(data.draw(st.tuples(numbers, numbers)))) for _ in "ab"]
    a, b = (
        np.array([*data.draw(st.lists(st.integers(*pair), min_size=4, max_size=4)), *pair], np.int32) for pair in bounds
    )
    compared(a.reshape(-1, 1), b, (bounds[0], bounds[1]))


def test_constants_keep_the_shape_of_the_result() -> None:
    for items in (np.full((2, 3), LARGEST), np.full((2, 3), -LARGEST), np.arange(6).reshape(2, 3) - 2**31 + 1):
        for swapped in (False, True):
            builder = ProgramBuilder()
            inputs = [builder.input("a", (1, 3), *WHOLE), builder.constant(items)]
            (y,) = builder.add("broadcast_greater", inputs[::-1] if swapped else inputs, name="y")
            program = builder.build([Output("y", y)])
            feed = {"a": np.array([[-LARGEST, 0, LARGEST]], np.int32)}
            np.testing.assert_array_equal(run(legalize(program), feed)["y"], run(program, feed)["y"], strict=True)
