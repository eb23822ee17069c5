"""Enclosures of few digits against those of sixty more: they hold the values of both ends, and are hardly wider."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.quantization.enclosures import Arithmetic, Interval

FUNCTIONS = ("exp", "log", "sqrt", "sin", "atan", "erf")
DIGITS = st.integers(4, 24)
NUMBERS = st.decimals(-20, 20, places=6)
WIDTHS = st.decimals(0, 2, places=6)


def enclosed(name: str, digits: int, x: Interval) -> Interval | None:
    """The function of an interval at so many digits."""
    result: Interval | None = getattr(Arithmetic.of(digits), name)(x)
    return result


@pytest.mark.sweep
@pytest.mark.parametrize("name", FUNCTIONS)
@given(NUMBERS, WIDTHS, DIGITS)
def test_an_enclosure_holds_the_values_of_both_ends(name: str, low: Decimal, width: Decimal, digits: int) -> None:
    high = low + width
    found = enclosed(name, digits, (low, high))
    assert (found is None) == ((name == "log" and low <= 0) or (name == "sqrt" and low < 0))
    if found is None:
        return
    assert found[0] <= found[1]
    for point in (low, high):
        value = enclosed(name, digits + 60, (point, point))
        assert value is not None
        assert found[0] <= value[1]
        assert value[0] <= found[1]


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.decimals("0.001", 20, places=6), st.integers(6, 24))
def test_the_enclosure_of_a_point_is_a_few_units_wide(name: str, x: Decimal, digits: int) -> None:
    found = enclosed(name, digits, (x, x))
    assert found is not None
    # An argument of more digits than the arithmetic has is rounded first: its function may move 20 times as far.
    unit = Decimal((0, (1,), -digits)) * max(Decimal(1), abs(found[1]))
    assert found[1] - found[0] <= 2000 * unit


@given(NUMBERS, WIDTHS, NUMBERS, WIDTHS, DIGITS)
def test_sums_products_and_quotients_hold_those_of_the_ends(
    a: Decimal, width: Decimal, b: Decimal, breadth: Decimal, digits: int
) -> None:
    arithmetic = Arithmetic.of(digits)
    x, y = (a, a + width), (b, b + breadth)
    quotient = arithmetic.div(x, y)
    assert (quotient is None) == (b <= 0 <= b + breadth)
    for p in x:
        for q in y:
            assert arithmetic.add(x, y)[0] <= Fraction(p) + Fraction(q) <= arithmetic.add(x, y)[1]
            assert arithmetic.mul(x, y)[0] <= Fraction(p) * Fraction(q) <= arithmetic.mul(x, y)[1]
            if quotient is not None:
                low, high = (Fraction(end) * Fraction(q) for end in quotient)
                assert min(low, high) <= p <= max(low, high)


@pytest.mark.parametrize("digits", [4, 10, 30])
def test_the_error_function_of_large_numbers_is_next_to_one(digits: int) -> None:
    low, high = Arithmetic.of(digits).erf((Decimal(40), Decimal(50)))
    assert high == 1
    assert 1 - Fraction(1, 10 ** (digits - 1)) <= low < 1
