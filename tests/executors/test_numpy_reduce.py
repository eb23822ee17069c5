from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from .kernels import LARGEST, agree, int32, shapes, tensors

FLAGS = list(itertools.product([False, True], repeat=2))


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize(("keepdims", "exclude"), FLAGS)
def test_reductions_equal_formal_for_every_choice_of_axes(op: str, keepdims: bool, exclude: bool) -> None:
    X = int32(np.arange(24) * 7 % 11 - 9, (2, 1, 3, 4))
    for count in range(5):
        for axes in itertools.combinations(range(4), count):
            signed = tuple(axis - 4 if axis % 2 else axis for axis in axes)
            agree(op, [X], {"axes": signed, "keepdims": keepdims, "exclude": exclude})


@given(X=tensors(), keepdims=st.booleans(), exclude=st.booleans(), data=st.data())
def test_reductions_equal_formal(X: np.ndarray, keepdims: bool, exclude: bool, data: st.DataObject) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, X.ndim - 1))))
    attributes = {"axes": axes, "keepdims": keepdims, "exclude": exclude}
    agree("max", [X], attributes)
    assume(abs(X.astype(np.int64)).sum() <= LARGEST)
    agree("sum", [X], attributes)


@given(shape=shapes)
def test_a_sum_whose_partial_sums_leave_int32_is_taken_in_int64(shape: tuple[int, ...]) -> None:
    X = np.full(shape, LARGEST, np.int32)
    X.ravel()[1::2] *= -1
    note = agree("sum", [X], {"axes": (), "keepdims": False, "exclude": False})
    assert note.startswith("int64" if X.size > 1 else "int32")


def test_the_maximum_of_negative_elements_is_negative() -> None:
    agree("max", [int32([[-5, -LARGEST], [-7, -6]])], {"axes": (), "keepdims": False, "exclude": False})
