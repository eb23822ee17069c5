"""The limits of sums in local response normalisation, against their definition."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cvm.lowering.rules.norms import _power_divisor

POSITIVE = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6)
BETAS = st.sampled_from([Fraction(3, 4), Fraction(1, 2), Fraction(1), Fraction(2, 3), Fraction(5, 4)])


@given(POSITIVE, BETAS, st.fractions(-5, 50, max_denominator=1000), POSITIVE, st.integers(-20, 10**7), st.booleans())
def test_limits_are_the_integers_on_either_side_of_the_sum(
    alpha: Fraction, beta: Fraction, bias: Fraction, unit: Fraction, sums: int, met: bool
) -> None:
    parameters = {"alpha": alpha, "beta": beta, "bias": bias}
    lowering: Any = SimpleNamespace(fraction=parameters.__getitem__)

    def compared(n: int, square: Fraction) -> int:
        """The sign of d(n units) - r, for r >= 0 with the given square; of negative bases -1."""
        base = bias + alpha * unit * n
        mine, other = base ** (2 * beta.numerator), square**beta.denominator
        return -1 if base < 0 else (mine > other) - (mine < other)

    base = bias + alpha * unit * sums
    if base <= 0:
        return
    # The square of d for a whole number of units, where its root is rational; else of any number.
    power = base ** (2 * beta.numerator)
    square = power if met and beta.denominator == 1 else base * base + Fraction(1, 7)
    found = _power_divisor(lowering).limit(square, unit)
    assert found is not None
    below, above = found
    assert compared(below, square) <= 0 < compared(below + 1, square)
    assert above == (below if compared(below, square) == 0 else below + 1)
