"""Extremes of quotients over the slacks of many steps, of which few are computed exactly."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.modular import least_residue
from cvm.quantization.slacks import Slacks
from tests.quantization.residues import greatest_residue


@given(
    st.integers(1, 2**22),
    st.one_of(st.integers(1, 300), st.integers(2**40, 2**100)),
    st.integers(-(2**101), 2**101),
    st.integers(1, 2**40),
    st.integers(1, 2**110),
    st.randoms(),
)
def test_quotients_are_those_of_exact_slacks(
    count: int, modulus: int, step: int, factor: int, divisor: int, random: Random
) -> None:
    k = np.arange(-20, 20).astype(object)
    offset, denominator = random.randint(-(2**90), 2**90), random.randint(1, 2**90)
    base = np.array([random.randint(-(2**60), 2**60) for _ in k], dtype=object)
    start, progression = offset - k * denominator, (offset, denominator, count, modulus, step)
    for slacks, exact in (
        (Slacks.least_of(k, *progression), least_residue(count, modulus, step, start)),
        (Slacks.greatest_of(k, *progression), greatest_residue(count, modulus, step, start)),
    ):
        # Twice, with other bases: what was computed for the first is used again.
        for moved in (base, -base):
            quotients = (moved + factor * exact) // divisor
            assert slacks.least_quotient(moved, factor, divisor) == quotients.min()
            assert slacks.greatest_quotient(moved, factor, divisor) == quotients.max()


@pytest.mark.parametrize("extreme", ["least", "greatest"])
def test_few_slacks_are_computed_exactly(extreme: str) -> None:
    modulus, step, denominator = 10**24 + 7, 618033988749894848204587, 271828182845904523536028747
    k, count = np.arange(1, 65536).astype(object), 2304 * 255
    base, factor, start = k * 0, 2**40, 12345 - k * denominator
    if extreme == "least":
        slacks = Slacks.least_of(k, 12345, denominator, count, modulus, step)
        expected = (factor * least_residue(count, modulus, step, start) // modulus).min()
        assert slacks.least_quotient(base, factor, modulus) == expected
    else:
        slacks = Slacks.greatest_of(k, 12345, denominator, count, modulus, step)
        expected = (factor * greatest_residue(count, modulus, step, start) // modulus).max()
        assert slacks.greatest_quotient(base, factor, modulus) == expected
    assert len(slacks.known) < 100
