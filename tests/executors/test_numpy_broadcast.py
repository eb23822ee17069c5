from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from .kernels import LARGEST, agree, int32, integers, shapes, tensors

EXTREMES = int32([-LARGEST, -LARGEST + 1, -7, -2, -1, 0, 1, 2, 7, LARGEST - 1, LARGEST])


@st.composite
def operands(draw: st.DrawFn, elements: st.SearchStrategy[int] = integers) -> list[np.ndarray]:
    """Two tensors of shapes that broadcast: each may have an extent 1, or none, where the other has any."""
    shape = draw(shapes)
    found = []
    for _ in range(2):
        own = tuple(1 if draw(st.booleans()) else n for n in shape)
        found.append(draw(tensors(own[draw(st.integers(0, len(shape) - 1)) :], elements)))
    return found


@pytest.mark.parametrize("op", ["broadcast_div", "broadcast_max", "broadcast_greater"])
@given(pair=operands())
def test_ops_that_never_overflow_equal_formal(op: str, pair: list[np.ndarray]) -> None:
    agree(op, pair)


@pytest.mark.parametrize(
    ("op", "wide"), [("broadcast_add", np.add), ("broadcast_sub", np.subtract), ("broadcast_mul", np.multiply)]
)
@given(pair=operands(st.one_of(st.integers(-46340, 46340), st.sampled_from([-LARGEST, -1, 0, 1, LARGEST]))))
def test_arithmetic_equals_formal_wherever_it_is_int32(op: str, wide: np.ufunc, pair: list[np.ndarray]) -> None:
    assume(abs(wide(pair[0], pair[1], dtype=np.int64)).max() <= LARGEST)
    agree(op, pair)


def test_division_truncates_toward_zero_and_gives_0_for_0_whatever_is_proven_of_the_divisor() -> None:
    A = EXTREMES[:, None]
    for B in (EXTREMES, EXTREMES[EXTREMES > 0], EXTREMES[EXTREMES < 0], EXTREMES[EXTREMES >= 0]):
        agree("broadcast_div", [A, B])
        agree("broadcast_div", [np.abs(A), B])
