"""Least integers beside sums of square roots, against 60-digit decimals and, at ties, against rationals."""

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.quantization.surds import ceil_surd, least_integer
from tests.selection import examples

RATIONALS = st.fractions(-50, 50, max_denominator=40)
SQUARES = st.fractions(0, 500, max_denominator=40)
SIGNS = st.sampled_from([-1, 0, 1])


def approximate(start, surds):
    with localcontext() as context:
        context.prec = 60
        total = Decimal(start.numerator) / start.denominator
        for sign, square in surds:
            total += sign * (Decimal(square.numerator) / square.denominator).sqrt()
        return total


@pytest.mark.slow
@settings(max_examples=examples(1000))
@given(RATIONALS, st.lists(st.tuples(SIGNS, SQUARES), max_size=2), st.booleans())
def test_it_is_the_least_integer_beside_the_sum(start, surds, strict):
    found, total = least_integer(start, surds, strict), approximate(start, surds)
    nearest = total.to_integral_value()
    if abs(total - nearest) < Decimal("1e-40"):  # an integer, since no such sum comes so near to one otherwise
        assert found == int(nearest) + strict
    else:
        assert found - 1 < total < found


@given(RATIONALS, st.tuples(RATIONALS, RATIONALS), st.tuples(SIGNS, SIGNS), st.booleans())
def test_roots_of_squares_are_rational(start, roots, signs, strict):
    exact = start + sum(sign * abs(root) for sign, root in zip(signs, roots, strict=True))
    found = least_integer(start, [(sign, root * root) for sign, root in zip(signs, roots, strict=True)], strict)
    assert found - 1 < exact < found or (exact == found - strict)


@given(SQUARES, RATIONALS, st.booleans())
def test_equal_roots_vanish(square, start, strict):
    assert least_integer(start, [(1, square), (-1, square)], strict) == least_integer(start, [], strict)


@given(RATIONALS, SQUARES, st.sampled_from([-1, 1]))
def test_one_root(start, square, sign):
    assert ceil_surd(start, square, sign) == least_integer(start, [(sign, square)])


def test_three_roots_are_too_many():
    with pytest.raises(ValueError, match="at most two"):
        least_integer(Fraction(0), [(1, Fraction(2))] * 3)
