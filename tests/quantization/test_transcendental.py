"""The table of the exponential, against its Taylor series in rationals."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.transcendental import exp_scaled


def series_bounds(x: Fraction, terms: int) -> tuple[Fraction, Fraction]:
    """exp(x) for x <= 0 as 1 / exp(-x), whose series has positive terms; the tail is below a geometric series."""
    y, total, term = -x, Fraction(0), Fraction(1)
    for i in range(terms):
        total += term
        term = term * y / (i + 1)
    tail = term / (1 - y / (terms + 1))
    return 1 / (total + tail), 1 / total


@given(st.fractions(-12, 0, max_denominator=10**6), st.integers(1, 24))
def test_entries_are_correctly_rounded(x: Fraction, bits: int) -> None:
    below, above = (bound * 2**bits for bound in series_bounds(x, 70))
    entry = exp_scaled(x, 2**bits)
    assert entry - Fraction(1, 2) <= above
    assert below < entry + Fraction(1, 2)
    assert above - below < Fraction(1, 10**9)


@pytest.mark.parametrize("scale", [1, 2, 255, 2**24])
def test_zero_is_exact(scale: int) -> None:
    assert exp_scaled(Fraction(0), scale) == scale


def test_what_is_below_half_is_zero() -> None:
    assert exp_scaled(Fraction(-1000), 2**24) == 0
    assert exp_scaled(-(Fraction(10) ** 9), 2**24) == 0
    assert exp_scaled(Fraction(-1), 1) == 0
    assert exp_scaled(Fraction(-1, 2), 1) == 1
