from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.executors.numpy import KERNELS
from cvm.executors.numpy.vision import Suppression
from cvm.ops import Range
from tests.selection import examples

from .kernels import LARGEST, agree, call_of, int32, integers, run_step, tensors

limits = st.sampled_from([-1, 0, 1, 2, 3, 100])


@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 4)), threshold=integers, data=st.data())
def test_get_valid_count_equals_formal(shape: tuple[int, ...], threshold: int, data: st.DataObject) -> None:
    agree("get_valid_count", [data.draw(tensors(shape))], {"score_threshold": threshold})


@st.composite
def detections(draw: st.DrawFn, coordinates: st.SearchStrategy[int]) -> list[np.ndarray]:
    batches, rows = draw(st.integers(1, 2)), draw(st.integers(1, 6))
    row = st.tuples(st.integers(-1, 1), st.integers(-2, 2), *(coordinates,) * 4)
    X = draw(st.lists(row, min_size=batches * rows, max_size=batches * rows))
    counts = draw(st.lists(st.integers(-1, rows + 1), min_size=batches, max_size=batches))
    return [int32(X, (batches, rows, 6)), int32(counts)]


@pytest.mark.parametrize("coordinates", [st.integers(0, 4), integers], ids=["small", "any"])
@settings(max_examples=examples(200))
@given(
    data=st.data(),
    threshold=st.sampled_from([1, 20, 33, 50, 99, 100, 101, 2**31 - 1]),
    force=st.booleans(),
    kept=limits,
    top=limits,
)
def test_non_max_suppression_equals_formal(
    coordinates: st.SearchStrategy[int], data: st.DataObject, threshold: int, force: bool, kept: int, top: int
) -> None:
    attributes = {"iou_threshold": threshold, "max_output_size": kept, "force_suppress": force, "top_k": top}
    agree("non_max_suppression", data.draw(detections(coordinates)), attributes)


@pytest.mark.parametrize("threshold", [1, 2, 33, 50, 99, 100, 101, LARGEST])
@pytest.mark.parametrize(("unit", "height"), [(1, 2), (7, 2**20), (2**24, 2**30), (LARGEST // 50, 2 * (LARGEST // 2))])
def test_an_overlap_of_exactly_the_threshold_suppresses_and_one_less_does_not(
    unit: int, height: int, threshold: int
) -> None:
    # A box within another: overlap / union is the ratio of their widths. All coordinates within int32.
    left, low = -50 * unit, -(height // 2)
    percent = min(threshold, 100)
    for missing, kept in ((0, 1 if threshold <= 100 else 2), (1, 2)):
        rows = [[0, 2, left, low, 50 * unit, height // 2]]
        rows += [[0, 1, left, low, left + percent * unit - missing, height // 2]]
        arrays, attributes = [int32([rows]), int32([2])], {"iou_threshold": threshold}
        agree("non_max_suppression", arrays, attributes)
        call = call_of("non_max_suppression", arrays, attributes)
        (Y,) = run_step(KERNELS["non_max_suppression"](call), call, arrays)
        assert (Y[0, :, 1] > 0).sum() == kept


def test_python_integers_decide_where_int64_could_overflow() -> None:
    assert Suppression.of(2**27, 50, False).dtype == np.int64
    assert Suppression.of(2**28, 50, False).dtype == object
    limit = math.isqrt((2**63 - 1) // 303)
    assert Suppression.of(limit, 2**31 - 1, False).dtype == np.int64
    assert Suppression.of(limit + 1, 1, False).dtype == object


def test_both_integer_types_select_the_same_boxes() -> None:
    generator = np.random.default_rng(5)
    corners = generator.integers(0, 200, (1, 150, 2))
    sizes = generator.integers(10, 80, (1, 150, 2))
    ids, scores = generator.integers(0, 3, (1, 150, 1)), generator.integers(0, 50, (1, 150, 1))
    arrays = [int32(np.concatenate([ids, scores, corners, corners + sizes], axis=2)), int32([140])]
    results = []
    for bounds in (Range.uniform(3, 0, 300), Range.uniform(3, -LARGEST, LARGEST)):
        call = call_of("non_max_suppression", arrays, {"iou_threshold": 30}, ranges={0: bounds})
        step = KERNELS["non_max_suppression"](call)
        results.append((step.note.split()[0], run_step(step, call, arrays)[0]))
    assert [note for note, _ in results] == ["int64", "object"]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert 0 < (results[0][1][0, :, 0] >= 0).sum() < 140
