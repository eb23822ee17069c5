"""The extremes of an arithmetic progression modulo an integer, against enumeration."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.modular import greatest_residue, least_residue

INTEGERS = st.integers(-600, 600)


@given(st.integers(1, 70), st.integers(1, 500), INTEGERS, st.lists(INTEGERS, min_size=1, max_size=8))
def test_extremes_equal_those_of_enumeration(count: int, modulus: int, step: int, starts: list[int]) -> None:
    start = np.array(starts, dtype=object)
    residues = [[(first + step * i) % modulus for i in range(count)] for first in starts]
    assert least_residue(count, modulus, step, start).tolist() == [min(items) for items in residues]
    assert greatest_residue(count, modulus, step, start).tolist() == [max(items) for items in residues]


@given(st.integers(2**80, 2**90), st.integers(2**79, 2**90), st.integers(-(2**95), 2**95))
def test_extremes_of_integers_far_beyond_int64(modulus: int, step: int, first: int) -> None:
    start = np.array([first], dtype=object)
    residues = [(first + step * i) % modulus for i in range(500)]
    assert least_residue(500, modulus, step, start).item() == min(residues)
    assert greatest_residue(500, modulus, step, start).item() == max(residues)
