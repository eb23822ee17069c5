from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cvm.ops import Range

from .kernels import LARGEST, agree, int32, integers, shapes, tensors

EXTREMES = int32([-LARGEST, -LARGEST + 1, -(2**30) - 1, -(2**30), -3, -2, -1, 0, 1, 2, 3, 2**30, LARGEST - 1, LARGEST])


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["abs", "negative", "cvm_precision", "relu"])
@given(X=tensors())
def test_unary_ops_equal_formal(op: str, X: np.ndarray) -> None:
    agree(op, [X])


@pytest.mark.parametrize("op", ["abs", "negative", "cvm_precision", "relu"])
def test_unary_ops_equal_formal_at_the_extremes(op: str) -> None:
    agree(op, [EXTREMES])


def test_precision_equals_formal_around_every_power_of_two() -> None:
    powers = [2**k for k in range(31)]
    agree("cvm_precision", [int32([sign * n for p in powers for n in (p - 1, p) for sign in (1, -1)])])


@pytest.mark.parametrize("op", ["elemwise_add", "elemwise_sub"])
@given(shape=shapes, data=st.data())
def test_sums_and_differences_equal_formal_wherever_they_are_int32(
    op: str, shape: tuple[int, ...], data: st.DataObject
) -> None:
    A, Y = data.draw(tensors(shape)), data.draw(tensors(shape))
    B = Y.astype(np.int64) - A if op == "elemwise_add" else A.astype(np.int64) - Y
    assume(abs(B).max() <= LARGEST)
    agree(op, [A, B.astype(np.int32)])


@given(X=tensors(), a=integers, b=integers)
def test_clip_equals_formal(X: np.ndarray, a: int, b: int) -> None:
    agree("clip", [X], {"a_min": min(a, b), "a_max": max(a, b)})


@pytest.mark.parametrize("precision", range(1, 33))
def test_cvm_clip_equals_formal_at_every_precision(precision: int) -> None:
    agree("cvm_clip", [EXTREMES], {"precision": precision})


@pytest.mark.parametrize("op", ["cvm_right_shift", "cvm_left_shift"])
@pytest.mark.parametrize("shift_bit", range(1, 33))
def test_shifts_equal_formal_at_every_shift_and_the_extremes(op: str, shift_bit: int) -> None:
    for precision in (1, 2, 8, 31, 32):
        attributes = {"precision": precision, "shift_bit": shift_bit}
        agree(op, [EXTREMES], attributes)
        agree(op, [int32([-5, -4, -1, 0, 1, 5])], attributes)


@given(X=tensors(), precision=st.integers(1, 32), shift_bit=st.integers(1, 32))
def test_shifts_equal_formal(X: np.ndarray, precision: int, shift_bit: int) -> None:
    for op in ("cvm_right_shift", "cvm_left_shift"):
        agree(op, [X], {"precision": precision, "shift_bit": shift_bit})


def test_what_is_proven_to_change_nothing_is_the_identity() -> None:
    X = int32([[0, 5]])
    for op, attributes in (("relu", {}), ("clip", {"a_min": 0, "a_max": 5}), ("cvm_clip", {"precision": 4})):
        assert agree(op, [X], attributes).startswith("identity"), op
    wider = {0: Range.uniform(2, -1, 6)}
    for op, attributes in (("relu", {}), ("clip", {"a_min": 0, "a_max": 5}), ("cvm_clip", {"precision": 3})):
        assert not agree(op, [int32([[-1, 6]])], attributes, ranges=wider).startswith("identity"), op
