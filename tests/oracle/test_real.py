"""Numbers are enclosed rigorously, equal where algebra says so, and refused where nothing can be decided."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.selection import examples

from . import enclosures, real
from .activations import logistic
from .enclosures import Interval
from .real import Number, Real, Undecided, floor_of, integer_root, power, reciprocal, sign

BITS = st.sampled_from([64, 128, 400])
rationals = st.fractions(-60, 60, max_denominator=10**6)
positive = st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6)


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


def check(found: Interval, bits: int, true: Callable[[], Decimal], slack: int) -> None:
    """The interval holds the value that decimal computes with 300 digits, and is at most 2^slack units wide."""
    with localcontext() as context:
        context.prec = 300
        middle = Fraction(true()) * 2**bits
    margin = abs(middle) / 10**280 + Fraction(1, 10**280)
    assert found[0] <= middle + margin
    assert middle - margin <= found[1]
    assert found[1] - found[0] <= 1 << slack


@given(rationals, BITS)
@settings(deadline=None)
def test_exp_is_enclosed(x: Fraction, bits: int) -> None:
    check(enclosures.exp(enclosures.around(x, bits), bits), bits, lambda: decimal(x).exp(), max(0, int(x * 3 // 2)) + 4)


@given(positive, BITS)
@settings(deadline=None)
def test_log_is_enclosed(x: Fraction, bits: int) -> None:
    assume(x != 1)
    check(enclosures.log(enclosures.around(x, bits), bits), bits, lambda: decimal(x).ln(), 24)


@given(positive, BITS)
@settings(deadline=None)
def test_square_root_is_enclosed(x: Fraction, bits: int) -> None:
    check(enclosures.square_root(enclosures.around(x, bits), bits), bits, lambda: decimal(x).sqrt(), 12)


@given(rationals, BITS)
@settings(deadline=None)
def test_sin_and_cos_are_enclosed_by_their_series(x: Fraction, bits: int) -> None:
    def series(first: int) -> Decimal:
        term, total, k = (decimal(x) if first else Decimal(1)), Decimal(0), first
        while abs(term) > Decimal(10) ** -250 or k < 2 * abs(x):
            total += term
            term *= -decimal(x) * decimal(x) / ((k + 1) * (k + 2))
            k += 2
        return total

    check(enclosures.sin(enclosures.around(x, bits), bits), bits, lambda: series(1), 4)
    check(enclosures.cos(enclosures.around(x, bits), bits), bits, lambda: series(0), 4)


@given(rationals, BITS)
@settings(deadline=None)
def test_the_arctangent_is_the_angle_of_its_tangent(x: Fraction, bits: int) -> None:
    low, high = enclosures.arctangent(enclosures.around(x, bits), bits)
    assert high - low <= 8
    # sin grows up to pi/2 and cos falls: the tangent of the ends is on either side of x.
    for angle, side in ((low - 1, -1), (high + 1, 1)):
        sine, cosine = (f((angle, angle), bits) for f in (enclosures.sin, enclosures.cos))
        ends = [side * (s * x.denominator - x.numerator * c) for s in sine for c in cosine]
        assert max(ends) >= 0


@given(st.fractions(-12, 12, max_denominator=10**6), BITS)
@settings(deadline=None)
def test_the_error_function_is_enclosed_by_its_alternating_series(x: Fraction, bits: int) -> None:
    """2 / sqrt(pi) * (x - x^3 / 3 + x^5 / 10 - ..): another series than that of the enclosure."""

    def series() -> Decimal:
        term, found, k = decimal(x), Decimal(0), 0
        while abs(term) > Decimal(10) ** -250 or k < 2 * x * x:
            found += term / (2 * k + 1)
            k += 1
            term *= -decimal(x) * decimal(x) / k
        return found * 2 / decimal_pi().sqrt()

    check(enclosures.error_function(enclosures.around(x, bits), bits), bits, series, 8)


def decimal_pi() -> Decimal:
    """Machin's formula, 16 arctan(1 / 5) - 4 arctan(1 / 239)."""

    def arctan(n: int) -> Decimal:
        return sum((Decimal((-1) ** k) / ((2 * k + 1) * Decimal(n) ** (2 * k + 1)) for k in range(220)), Decimal(0))

    return 16 * arctan(5) - 4 * arctan(239)


@given(rationals, rationals, st.sampled_from([64, 200]))
@settings(deadline=None)
def test_products_and_reciprocals_are_enclosed(x: Fraction, y: Fraction, bits: int) -> None:
    low, high = enclosures.product(enclosures.around(x, bits), enclosures.around(y, bits), bits)
    assert low <= x * y * 2**bits <= high
    assert high - low <= 200
    if abs(x) > Fraction(1, 2**20):
        low, high = enclosures.reciprocal(enclosures.around(x, bits), bits)
        assert low <= 1 / x * 2**bits <= high


def test_what_is_not_known_well_enough_asks_for_more_bits() -> None:
    with pytest.raises(enclosures.Unresolved):
        enclosures.reciprocal((-1, 1), 64)
    with pytest.raises(enclosures.Unresolved):
        enclosures.log((0, 1), 64)


E, ROOT2, ROOT8, LN3 = real.exp(1), power(2, Fraction(1, 2)), power(8, Fraction(1, 2)), real.log(3)
EQUALITIES: list[tuple[str, Number, Number | int]] = [
    ("e^0", real.exp(0), 1),
    ("ln 1", real.log(1), 0),
    ("sin 0", real.sin(0), 0),
    ("cos 0", real.cos(0), 1),
    ("atan 0", real.arctangent(0), 0),
    ("erf 0", real.erf(0), 0),
    ("a sum of like terms", real.total([E, ROOT2, Fraction(1, 2), -E, LN3, ROOT2 * -1]), LN3 + Fraction(1, 2)),
    ("8^(1/3)", power(8, Fraction(1, 3)), 2),
    ("(4/9)^(-3/2)", power(Fraction(4, 9), Fraction(-3, 2)), Fraction(27, 8)),
    ("4^(1/4) = sqrt 2", power(4, Fraction(1, 4)), ROOT2),
    ("sqrt 2 * sqrt 8", ROOT2 * ROOT8, 4),
    ("sqrt 8 = 2 * sqrt 2", ROOT8, ROOT2 * 2),
    ("1 / sqrt 2 = sqrt 2 / 2", reciprocal(ROOT2), ROOT2 / 2),
    ("2^(1/3) * 2^(2/3)", power(2, Fraction(1, 3)) * power(2, Fraction(2, 3)), 2),
    ("(1 + sqrt 2) * (sqrt 2 - 1)", (ROOT2 + 1) * (ROOT2 - 1), 1),
    ("e * e^-1", E * real.exp(-1), 1),
    ("e^2 = e * e", real.exp(2), E * E),
    ("sqrt(e^4) = e^2", power(real.exp(4), Fraction(1, 2)), E * E),
    ("ln(e^3 * 2) = 3 + ln 2", real.log(real.exp(3) * 2), real.log(2) + 3),
    ("e^(2 ln 3)", real.exp(LN3 * 2), 9),
    ("e^(ln 3 / 2) = sqrt 3", real.exp(LN3 / 2), power(3, Fraction(1, 2))),
    ("ln 8 / ln 2", real.log(8) / real.log(2), 3),
    ("ln(1/8) / ln 4", real.log(Fraction(1, 8)) / real.log(4), Fraction(-3, 2)),
    ("ln sqrt 3 = ln 3 / 2", real.log(power(3, Fraction(1, 2))), LN3 / 2),
    ("2^(log2 5)", power(2, real.log(5) / real.log(2)), 5),
    ("x - x", (E + ROOT2) - (ROOT2 + E), 0),
    ("x / x", (E + ROOT2) / (ROOT2 + E), 1),
    ("1 / (1 / x)", reciprocal(reciprocal(E + 1)), E + 1),
    ("e / (e + 1) + 1 / (e + 1)", E / (E + 1) + 1 / (E + 1), 1),
    ("sigmoid(3) + sigmoid(-3)", logistic(Fraction(3)) + logistic(Fraction(-3)), 1),
    ("sigmoid(0)", logistic(Fraction(0)), Fraction(1, 2)),
    ("|1 - e|", abs(1 - E), E - 1),
    ("(e + sqrt 2)^2", power(E + ROOT2, 2), E * E + E * ROOT2 * 2 + 2),
]


@pytest.mark.parametrize(("left", "right"), [pytest.param(a, b, id=name) for name, a, b in EQUALITIES])
def test_equal_numbers_are_found_equal(left: Number, right: Number | int) -> None:
    assert sign(left - right) == 0
    assert floor_of(left - right) == (0, True)
    assert left <= right
    assert not left < right
    assert sign(left - right + Fraction(1, 10**300)) == 1


def test_numbers_are_ordered_as_their_decimals_are() -> None:
    numbers = [-E, -ROOT2, Fraction(0), LN3, Fraction(11, 10), ROOT2, Fraction(2), E, ROOT8]
    for i, x in enumerate(numbers):
        for j, y in enumerate(numbers):
            assert ((x < y), (x <= y), (x > y), (x >= y), (x == y)) == (i < j, i <= j, i > j, i >= j, i == j)


def test_comparisons_are_decided_beyond_every_usual_precision() -> None:
    p, q = 1, 1  # convergents p / q of sqrt(2), alternately below and above
    for _ in range(400):
        p, q = p + 2 * q, p + q
        assert floor_of(ROOT2, Fraction(q, p)) == (int(2 * q * q > p * p), False)
    assert q > 10**150
    with localcontext() as context:
        context.prec = 300
        ln3 = Decimal(3).ln()
        below, above = Fraction(ln3.next_minus()), Fraction(ln3.next_plus())
    assert floor_of(real.exp(below), Fraction(1, 3)) == (0, False)
    assert floor_of(real.exp(above), Fraction(1, 3)) == (1, False)
    assert floor_of(logistic(-below), Fraction(4)) == (1, False)
    assert floor_of(logistic(-above), Fraction(4)) == (0, False)


def test_what_400_digits_do_not_decide_is_refused() -> None:
    close = real.log(3) - Fraction(str(Decimal(real_log3(900))))
    with pytest.raises(Undecided, match="400 digits"):
        sign(close)
    with pytest.raises(Undecided, match="400 digits"):
        floor_of(close)
    unknown = real.log(6) - real.log(2) - real.log(3)  # an equality that the rules do not know
    with pytest.raises(Undecided, match="400 digits"):
        sign(unknown)


def real_log3(digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = digits
        return Decimal(3).ln()


@pytest.mark.parametrize(
    "undefined",
    [
        lambda: real.log(0),
        lambda: real.log(-E),
        lambda: reciprocal(0),
        lambda: power(0, -1),
        lambda: power(0, Fraction(-1, 2)),
        lambda: power(-8, Fraction(1, 3)),
        lambda: power(-E, Fraction(1, 2)),
        lambda: power(-1, ROOT2),
    ],
)
def test_what_is_no_real_number_is_refused(undefined: Callable[[], Number]) -> None:
    with pytest.raises(ValueError, match="not satisfied"):
        undefined()


def test_powers_of_zero_and_negative_numbers() -> None:
    assert power(0, 0) == 1
    assert power(0, Fraction(1, 2)) == 0
    assert power(-2, 3) == -8
    assert power(-2, -3) == Fraction(-1, 8)
    assert power(-E, 2) == E * E


@given(st.integers(1, 10**6), st.integers(1, 7), st.integers(-1, 1))
def test_integer_roots_are_exact(root: int, k: int, off: int) -> None:
    assume(root**k + off > 0)
    found = integer_root(root**k + off, k)
    assert found == root if off == 0 else found is None or found**k == root**k + off


@given(st.lists(st.tuples(st.sampled_from("+-*/elrs"), st.fractions(-3, 3, max_denominator=8)), max_size=6))
@settings(deadline=None, max_examples=examples(150))
def test_chains_of_operations_agree_with_floats(chain: list[tuple[str, Fraction]]) -> None:
    """A sanity check of values with a tolerance: the float64 evaluation of the same chain."""
    exact: Number = Fraction(1, 3)
    approximate = 1 / 3
    for operation, operand in chain:
        if operation == "+":
            exact, approximate = exact + operand, approximate + float(operand)
        elif operation == "*":
            exact, approximate = exact * (operand + 4), approximate * float(operand + 4)
        elif operation == "-":
            exact, approximate = operand - exact * exact, float(operand) - approximate * approximate
        elif operation == "/":
            exact, approximate = 1 / (exact * exact + 1), 1 / (approximate * approximate + 1)
        elif operation == "e":
            exact, approximate = real.exp(-exact * exact), math.exp(-approximate * approximate)
        elif operation == "l":
            exact, approximate = real.log(exact * exact + 1), math.log(approximate * approximate + 1)
        elif operation == "r":
            exact, approximate = power(exact * exact, Fraction(1, 2)), abs(approximate)
        else:
            exact, approximate = logistic(exact), 1 / (1 + math.exp(-approximate)) if approximate > -500 else 0.0
    if isinstance(exact, Real):
        low, high = exact.enclosure(512)
        assert high - low < 1 << 480
    assert math.isclose(float(exact), approximate, rel_tol=1e-6, abs_tol=1e-6)
