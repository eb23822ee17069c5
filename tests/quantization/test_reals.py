"""Real numbers against other ways to compute them: series in rationals, identities, algebraic points."""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.enclosures import Arithmetic
from cvm.quantization.quantizer import Rounding
from cvm.quantization.reals import (
    FUNCTIONS,
    MOST_DIGITS,
    Real,
    Undecided,
    Undefined,
    code,
    exp,
    floor,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    power,
    rational,
    rounded,
)

SMALL = st.fractions(-9, 9, max_denominator=10**6)
HALF = Fraction(1, 2)


def exponential(x: Fraction, terms: int = 70) -> tuple[Fraction, Fraction]:
    """exp(x) for x >= 0 between a partial sum of its series and that sum with a geometric bound on the rest."""
    total, term = Fraction(0), Fraction(1)
    for i in range(terms):
        total += term
        term = term * x / (i + 1)
    return total, total + term / (1 - x / (terms + 1))


@given(st.fractions(-12, 0, max_denominator=10**6), st.integers(1, 24))
def test_scaled_exponentials_are_correctly_rounded(x: Fraction, bits: int) -> None:
    below, above = exponential(-x)
    entry = rounded(rational(2**bits) * exp(rational(x)))
    assert entry - HALF <= 2**bits / below
    assert 2**bits / above < entry + HALF


@given(st.fractions("1/9", 50, max_denominator=1000), st.fractions(0, 50, max_denominator=1000), st.integers(8, 30))
def test_the_root_of_an_interval_holds_the_roots_of_both_ends(low: Fraction, width: Fraction, digits: int) -> None:
    arithmetic = Arithmetic.of(digits)
    interval = arithmetic.rational(low)[0], arithmetic.rational(low + width)[1]
    found = arithmetic.sqrt(interval)
    assert found is not None
    assert Fraction(found[0]) ** 2 <= low
    assert low + width <= Fraction(found[1]) ** 2


LIBRARY: dict[str, tuple[Callable[[float], float], str, str]] = {
    "copy": (lambda v: v, "-9", "9"),
    "neg": (lambda v: -v, "-9", "9"),
    "abs": (abs, "-9", "9"),
    "sign": (lambda v: (v > 0) - (v < 0), "-9", "9"),
    "rcp": (lambda v: 1 / v, "1/99", "9"),
    "exp": (math.exp, "-9", "9"),
    "log": (math.log, "1/99", "9"),
    "log2": (math.log2, "1/99", "9"),
    "floor": (math.floor, "-9", "9"),
    "ceil": (math.ceil, "-9", "9"),
    "round": (lambda v: math.floor(v + 0.5), "-9", "9"),
    "sqr": (lambda v: v * v, "-9", "9"),
    "sqrt": (math.sqrt, "1/99", "9"),
    "rsqr": (lambda v: 1 / (v * v), "1/99", "9"),
    "rsqrt": (lambda v: 1 / math.sqrt(v), "1/99", "9"),
    "sigmoid": (lambda v: 1 / (1 + math.exp(-v)), "-9", "9"),
    "tanh": (math.tanh, "-9", "9"),
    "softplus": (lambda v: math.log1p(math.exp(v)), "-9", "9"),
    "elu": (lambda v: v if v >= 0 else math.expm1(v), "-9", "9"),
    "relu": (lambda v: max(v, 0.0), "-9", "9"),
    "gelu": (lambda v: v / (1 + math.exp(-1.702 * v)), "-9", "9"),
    "erf": (math.erf, "-9", "9"),
    "hard_swish": (lambda v: v * min(max(v + 3, 0), 6) / 6, "-9", "9"),
    "softsign": (lambda v: v / (1 + abs(v)), "-9", "9"),
    "silu": (lambda v: v / (1 + math.exp(-v)), "-9", "9"),
    "sin": (math.sin, "-9", "9"),
    "cos": (math.cos, "-9", "9"),
    "tan": (math.tan, "-3/2", "3/2"),
    "asin": (math.asin, "-99/100", "99/100"),
    "acos": (math.acos, "-99/100", "99/100"),
    "atan": (math.atan, "-9", "9"),
    "sinh": (math.sinh, "-9", "9"),
    "cosh": (math.cosh, "-9", "9"),
    "asinh": (math.asinh, "-9", "9"),
    "acosh": (math.acosh, "100/99", "9"),
    "atanh": (math.atanh, "-99/100", "99/100"),
}
"""Every function as the C library computes it, and the ends of the arguments at which it is compared."""


def test_every_function_is_compared_with_the_library() -> None:
    assert set(LIBRARY) == set(FUNCTIONS)


@pytest.mark.sweep
@pytest.mark.parametrize("name", LIBRARY)
@settings(max_examples=20)
@given(st.data())
def test_enclosures_hold_the_value_of_the_c_library_and_shrink(name: str, data: st.DataObject) -> None:
    function, low, high = LIBRARY[name]
    x = data.draw(st.fractions(low, high, max_denominator=10**6))
    near = function(float(x))
    number = FUNCTIONS[name](rational(x))
    previous = None
    for digits in (30, 60):
        bounds = number.bounds(Arithmetic.of(digits))
        assert bounds is not None
        assert bounds[0] <= bounds[1]
        assert abs(float(bounds[0]) - near) <= 1e-11 * max(1.0, abs(near))
        if previous is not None:
            assert previous[0] <= bounds[1]
            assert bounds[0] <= previous[1]
            assert Fraction(bounds[1]) - Fraction(bounds[0]) <= Fraction(1, 10**30) * max(1, math.ceil(abs(near)))
        previous = bounds


@pytest.mark.parametrize("rounding", ["toward_zero", "half_up"])
@given(st.fractions(-9, 9, max_denominator=1000).filter(bool))
def test_multiples_of_the_root_of_two_are_rounded_as_the_quantiser_says(rounding: Rounding, y: Fraction) -> None:
    quantizer = LinearQuantizer((Fraction(1, 10),), (Fraction(0),), -128, 127, rounding=rounding)
    # The root of 2 (10 y)^2, by integers: its integer part, or that of its double and one, halved.
    square = 2 * (10 * y) ** 2
    steps = (
        math.isqrt(math.floor(square)) if rounding == "toward_zero" else (math.isqrt(math.floor(4 * square)) + 1) // 2
    )
    expected = max(-128, min(127, steps if y > 0 else -steps))
    assert code(rational(y) * power(rational(2), HALF), quantizer) == expected


@given(st.fractions(-99, 99, max_denominator=1000), st.integers(-3, 6), st.integers(1, 4))
def test_multiples_of_the_root_of_two_have_the_nearest_power_of_two(y: Fraction, top: int, bits: int) -> None:
    quantizer = LogarithmicQuantizer(top, bits)
    number = rational(y) * power(rational(2), HALF)
    # |x| rounds to 2^e or more where |x| >= 2^(e - 1/2), so where |y| >= 2^(e - 1).
    reached = [e for e in range(top - 2**bits + 2, top + 1) if abs(y) >= Fraction(2) ** (e - 1)]
    assert code(number, quantizer) == ((y > 0) - (y < 0)) * (1 + len(reached))


def test_infinite_numbers_lie_beyond_all_others() -> None:
    least = FUNCTIONS["log"](rational(0))
    assert least.compare(Fraction(-(10**30))) == least.sign == -1
    assert (-least).compare(Fraction(10**30)) == (-least).sign == 1


@given(st.fractions(-4, 4, max_denominator=10**4))
def test_the_error_function_lies_between_partial_sums_of_its_alternating_series(x: Fraction) -> None:
    total, term, n = Fraction(0), x, 0
    while n < x * x or abs(term) > Fraction(1, 10**20):
        total += term / (2 * n + 1)
        n += 1
        term = -term * x * x / n
    rest = abs(term)
    bounds = FUNCTIONS["erf"](rational(x)).bounds(Arithmetic.of(30))
    assert bounds is not None
    root = Fraction(math.isqrt(int(Fraction(2**200) * 4 / Fraction(355, 113))), 2**100)  # 2 / sqrt(pi), to 3e-7
    middle = root * total
    assert abs(Fraction(bounds[0]) - middle) <= root * rest + Fraction(1, 10**6)
    # Without pi: erf x / erf 1 is the quotient of the series.
    unit = FUNCTIONS["erf"](rational(1)).bounds(Arithmetic.of(30))
    series = sum(Fraction((-1) ** k, math.factorial(k) * (2 * k + 1)) for k in range(30))
    assert unit is not None
    quotient = Fraction(bounds[0]) / Fraction(unit[0])
    assert abs(quotient - total / series) < Fraction(1, 10**18)


@given(st.fractions(-9, 9, max_denominator=10**4))
def test_three_functions_that_are_called_gelu(x: Fraction) -> None:
    v = float(x)
    near = {
        gelu: v * (1 + math.erf(v / math.sqrt(2))) / 2,
        gelu_tanh: v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2,
        gelu_sigmoid: v / (1 + math.exp(-1.702 * v)),
    }
    for function, value in near.items():
        number = function(rational(x))
        bounds = number.bounds(Arithmetic.of(40))
        assert bounds is not None
        assert abs(float(bounds[0]) - value) < 1e-12
        assert bounds[1] - bounds[0] < Fraction(1, 10**30)
    assert gelu(rational(0)).exact == gelu_tanh(rational(0)).exact == 0


@given(SMALL)
def test_sine_and_cosine_lie_on_the_circle(x: Fraction) -> None:
    sine, cosine = FUNCTIONS["sin"](rational(x)), FUNCTIONS["cos"](rational(x))
    total = (sine * sine + cosine * cosine).bounds(Arithmetic.of(50))
    assert total is not None
    assert total[0] <= 1 <= total[1]
    assert total[1] - total[0] < Fraction(1, 10**40)


@given(st.fractions(Fraction(1, 1000), 1000, max_denominator=1000), st.integers(2, 5), st.integers(-4, 4).filter(bool))
def test_powers_of_powers_are_found_exact(root: Fraction, degree: int, exponent: int) -> None:
    assert power(rational(root**degree), Fraction(exponent, degree)).exact == root**exponent


@given(st.fractions(Fraction(1, 1000), 1000, max_denominator=1000))
def test_square_roots_are_decided_by_squares(x: Fraction) -> None:
    root = FUNCTIONS["sqrt"](rational(x))
    for bound in (Fraction(math.isqrt(int(x))), Fraction(math.isqrt(int(x)) + 1), x):
        expected = (x > bound * bound) - (x < bound * bound)
        assert root.compare(bound) == expected


ALGEBRAIC = [
    ("exp", Fraction(0), Fraction(1)),
    ("log", Fraction(1), Fraction(0)),
    ("log2", Fraction(1, 8), Fraction(-3)),
    ("log2", Fraction(4096), Fraction(12)),
    ("sqrt", Fraction(9, 4), Fraction(3, 2)),
    ("rsqrt", Fraction(9, 4), Fraction(2, 3)),
    ("rsqr", Fraction(2), Fraction(1, 4)),
    ("sigmoid", Fraction(0), HALF),
    ("tanh", Fraction(0), Fraction(0)),
    ("gelu", Fraction(0), Fraction(0)),
    ("sin", Fraction(0), Fraction(0)),
    ("cos", Fraction(0), Fraction(1)),
    ("round", Fraction(-5, 2), Fraction(-2)),
    ("floor", Fraction(-5, 2), Fraction(-3)),
    ("ceil", Fraction(-5, 2), Fraction(-2)),
    ("sign", Fraction(-5, 2), Fraction(-1)),
    ("abs", Fraction(-5, 2), Fraction(5, 2)),
    ("elu", Fraction(5, 2), Fraction(5, 2)),
    ("relu", Fraction(-1), Fraction(0)),
    ("rcp", Fraction(-4), Fraction(-1, 4)),
]


@pytest.mark.parametrize(("name", "x", "value"), ALGEBRAIC)
def test_rational_points_are_decided_by_algebra(name: str, x: Fraction, value: Fraction) -> None:
    assert FUNCTIONS[name](rational(x)).exact == value


UNIT = st.fractions(-1, 1, max_denominator=10**4)


@given(UNIT, st.sampled_from(["asin", "acos", "atan", "tan", "sinh", "cosh", "asinh", "atanh", "acosh"]))
def test_further_functions_near_the_c_library(x: Fraction, name: str) -> None:
    if name == "acosh":
        x = x + 2
    if name == "atanh" and abs(x) == 1:
        assert FUNCTIONS[name](rational(x)).infinite == x
        return
    bounds = FUNCTIONS[name](rational(x)).bounds(Arithmetic.of(40))
    assert bounds is not None
    near = getattr(math, name)(float(x))
    assert bounds[0] <= bounds[1]
    assert abs(float(bounds[0]) - near) < 1e-9 * max(1.0, abs(near))
    assert bounds[1] - bounds[0] < Fraction(1, 10**25)


@given(st.fractions(-50, 50, max_denominator=1000))
def test_the_arc_tangent_inverts_the_tangent(x: Fraction) -> None:
    angle = FUNCTIONS["atan"](rational(x))
    back = FUNCTIONS["tan"](angle).bounds(Arithmetic.of(60))
    assert back is not None
    assert back[0] <= x <= back[1]
    assert back[1] - back[0] < Fraction(1, 10**40)


def test_a_tie_of_the_sigmoid_rounds_up() -> None:
    assert code(FUNCTIONS["sigmoid"](rational(0)), LinearQuantizer.linear(Fraction(0), Fraction(1), 8)) == 128


def test_limits_have_the_code_of_the_end() -> None:
    quantizer = LinearQuantizer.linear(Fraction(-4), Fraction(4), 8)
    assert code(FUNCTIONS["log"](rational(0)), quantizer) == 0
    assert code(-FUNCTIONS["log"](rational(0)), quantizer) == 255


@pytest.mark.parametrize(
    ("name", "x"),
    [("log", -1), ("sqrt", -1), ("rsqrt", 0), ("rcp", 0), ("log2", -3), ("asin", 2), ("acos", -2), ("acosh", 0)],
)
def test_what_has_no_value_is_undefined(name: str, x: int) -> None:
    with pytest.raises(Undefined):
        FUNCTIONS[name](rational(x))
    with pytest.raises(Undefined):
        FUNCTIONS["exp"](FUNCTIONS["log"](rational(0)) + rational(1))


def test_a_hidden_integer_is_refused_not_guessed() -> None:
    three = FUNCTIONS["exp"](FUNCTIONS["log"](rational(3)))
    assert three.exact is None
    with pytest.raises(Undecided):
        floor(three)
    with pytest.raises(Undecided):
        three.compare(Fraction(3))
    assert three.compare(Fraction(2)) == 1


@given(SMALL, st.integers(2, 16))
def test_codes_of_rationals_are_those_of_the_quantiser(x: Fraction, bits: int) -> None:
    quantizer = LinearQuantizer.linear(Fraction(-3), Fraction(5, 2), bits)
    expected = math.floor((min(max(x, Fraction(-3)), Fraction(5, 2)) + 3) / Fraction(11, 2) * (2**bits - 1) + HALF)
    assert code(rational(x), quantizer) == expected
    # The same number, not known to be rational, at no tie.
    hidden = rational(x) + FUNCTIONS["sqrt"](rational(2)) * rational(Fraction(1, 10**30))
    assert abs(code(hidden, quantizer) - expected) <= 1


def test_a_number_is_never_divided_by_zero() -> None:
    for dividend in (rational(1), FUNCTIONS["exp"](rational(1))):
        with pytest.raises(Undefined, match="division by zero"):
            dividend / rational(0)


def test_a_difference_in_the_last_digits_that_are_tried_is_seen() -> None:
    def enclosure(arithmetic: Arithmetic) -> tuple[Decimal, Decimal]:
        return Decimal(-1) if arithmetic.digits < MOST_DIGITS else Decimal("0.25"), Decimal("0.75")

    number = Real(enclosure=enclosure)
    assert number.compare(Fraction(0)) == 1
    assert floor(number) == 0
    with pytest.raises(Undecided):
        number.compare(Fraction(1, 2))


FAR = [sign * Fraction(10) ** exponent for exponent in (6, 12, 30, 400) for sign in (1, -1)]
ENDS = LinearQuantizer((Fraction(1, 16),), (Fraction(0),), -128, 127)


@pytest.mark.parametrize("x", FAR, ids=lambda x: f"{'-' * (x < 0)}1e{len(str(abs(x))) - 1}")
def test_every_function_of_a_number_far_from_zero_has_a_code(x: Fraction) -> None:
    limits = {
        **dict.fromkeys(("exp", "gelu", "silu", "softplus"), (127, 0)),
        **dict.fromkeys(("tanh", "erf"), (16, -16)),
        "cosh": (127, 127),
        "sinh": (127, -128),
        "sigmoid": (16, 0),
        "atan": (25, -25),
    }
    for name, (above, below) in limits.items():
        expected = above if x > 0 else below
        assert code(FUNCTIONS[name](rational(x)), ENDS) == expected, name
    cut = replace(ENDS, rounding="toward_zero")
    assert code(FUNCTIONS["sinh"](rational(x)), cut) == (127 if x > 0 else -128)


def test_sines_of_large_numbers_are_those_of_what_is_left_of_whole_turns() -> None:
    # sin(10^22) is a well-known hard case: -0.8522008497671888; cos(10^22) = 0.5232147853951389.
    fine = LinearQuantizer((Fraction(1, 10**9),), (Fraction(0),), -(2**31) + 1, 2**31 - 1)
    large = rational(10**22)
    assert code(FUNCTIONS["sin"](large), fine) == -852200850
    assert code(FUNCTIONS["cos"](large), fine) == 523214785
    assert code(FUNCTIONS["sin"](rational(0) - large), fine) == 852200850


def test_what_is_too_long_to_be_written_out_is_said_to_be_undecided() -> None:
    with pytest.raises(Undecided):
        floor(FUNCTIONS["exp"](rational(10**12)))
    with pytest.raises(Undecided):
        floor(FUNCTIONS["exp"](rational(10**30)))
