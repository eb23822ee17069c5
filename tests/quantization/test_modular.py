"""The extremes of an arithmetic progression modulo an integer, against enumeration."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.modular import bounds_of_least_residue, least_residue
from tests.quantization.residues import greatest_residue

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


LARGE = st.integers(-(2**140), 2**140)


@given(
    st.integers(1, 2**40),
    st.one_of(st.integers(1, 500), st.integers(2**40, 2**120)),
    st.one_of(INTEGERS, LARGE),
    st.lists(st.one_of(INTEGERS, LARGE), min_size=1, max_size=8),
)
def test_bounds_hold_the_extremes(count: int, modulus: int, step: int, starts: list[int]) -> None:
    start = np.array(starts, dtype=object)
    bounds, found = bounds_of_least_residue(count, modulus, step, start), least_residue(count, modulus, step, start)
    assert (bounds.lower() >= 0).all()
    assert (bounds.lower() <= found).all()
    assert (found <= bounds.upper()).all()
    assert (bounds.upper() < modulus).all()


@pytest.mark.parametrize("count", [2**9, 2304 * 255])
@pytest.mark.parametrize("bits", [10, 60, 100, 300])
def test_bounds_are_narrow_beside_the_residues(count: int, bits: int) -> None:
    random = Random(bits)
    for _ in range(10):
        modulus = random.getrandbits(bits) + 2**bits
        step, *starts = (random.randrange(modulus) for _ in range(256))
        bounds = bounds_of_least_residue(count, modulus, step, np.array(starts, dtype=object))
        assert ((bounds.upper() - bounds.lower()) * count * 100 < modulus + 100 * count).sum() > 240


def test_the_last_item_counts_and_a_wrap_is_not_missed() -> None:
    modulus = 3 * 2**70 + 1
    start = np.array([modulus - 1, 0, 1, modulus - 5], dtype=object)
    bounds, least = bounds_of_least_residue(6, modulus, 1, start), np.array([0, 0, 1, 0], dtype=object)
    assert (bounds.lower() <= least).all()
    assert (least <= bounds.upper()).all()
