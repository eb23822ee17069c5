"""Section 3.3.3: exact compile-time values, and limits on what they may become."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import LimitExceeded, Unsupported
from cvm.frontends.nnef.exact import NUMBER_BITS, arithmetic, decimal_text, parse_number
from cvm.frontends.nnef.flatten import concrete
from cvm.limits import Limits
from tests.frontends.nnef.documents import error_of, flatten_text, graph


def scalar(expression: str) -> Fraction:
    """The exact scalar that an expression evaluates to."""
    value: Any = flatten_text(graph(f"y = leaky_relu(x, alpha = {expression});")).operations[-1].arguments["alpha"]
    assert type(value) is Fraction
    return value


def integers(expression: str) -> tuple[int, ...]:
    """The integers that an array expression evaluates to."""
    body = f"y = constant<integer>(shape = [length_of({expression}) + 1], value = {expression} + [0]);"
    value: Any = concrete(flatten_text(graph(body)).operations[-1].arguments["value"])
    return tuple(value[:-1])


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", Fraction(3, 10)),
        ("16777216.0 + 1.0", Fraction(16777217)),
        ("1.0 / 3.0 * 3.0", Fraction(1)),
        ("-1.0 + 5.0", Fraction(4)),
        ("2.0 * -3.0 - -1.0", Fraction(-5)),
        ("2.0 ^ -2.0", Fraction(1, 4)),
        ("2.0 ^ 3.0 ^ 2.0", Fraction(64)),
        ("4.0 ^ 0.5", Fraction(2)),
        ("0.25 ^ -0.5", Fraction(2)),
        ("(8.0 / 27.0) ^ (2.0 / 3.0)", Fraction(4, 9)),
        ("0.0 ^ 0.0", Fraction(1)),
        ("1e30 / 1e29", Fraction(10)),
        ("scalar('-1.5e1')", Fraction(-15)),
        ("scalar(true) + scalar(2)", Fraction(3)),
        ("1.0 if 1 + 1 == 2 && 3 < 4 || false else 2.0", Fraction(1)),
        ("1.0 if !true || true else 2.0", Fraction(1)),
        ("1.0 if 'b' in ['a', 'b'] else 2.0", Fraction(1)),
        ("1.0 if (1, [2]) in [(1, [2])] else 2.0", Fraction(1)),
        ("1.0 if logical(0) else 2.0", Fraction(2)),
        ("1.0 if logical('') || logical(0.0) else 2.0", Fraction(2)),
        ("1.0 if string(1.5) + string(true) + string(-3) == '1.5true-3' else 2.0", Fraction(1)),
        ("1.0 if 'ab' * 2 == 'abab' && 'abc'[1] == 'b' && 'abc'[1:] == 'bc' else 2.0", Fraction(1)),
        ("1.0 if true else [2.0][7]", Fraction(1)),
    ],
)
def test_scalar_expressions_are_exact(expression: str, value: Fraction) -> None:
    assert scalar(expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[1,2] + [3]", (1, 2, 3)),
        ("[1,2] * 2", (1, 2, 1, 2)),
        ("[1] * 0", ()),
        ("[] * 9223372036854775808 + [1]", (1,)),
        ("[length_of('' * 9223372036854775808)]", (0,)),
        ("[1,2,3][0:2]", (1, 2)),
        ("[1,2,3][1:]", (2, 3)),
        ("[1,2,3][:]", (1, 2, 3)),
        ("[1,2,3][2:1]", ()),
        ("[[1,2],[3]][1]", (3,)),
        ("[for i in [1,2,3] yield i * i]", (1, 4, 9)),
        ("[for i in [1,2,3] if i != 2 yield i]", (1, 3)),
        ("[for i in [1,2], j in [3,4] yield i * j]", (3, 8)),
        ("[for i in [1,2] yield i if i > 1 else 9]", (9, 2)),
        ("[for i in range_of('abc') yield i]", (0, 1, 2)),
        ("[for p in [(1,2),(3,4)] yield p[1]]", (2, 4)),
        ("[for i in [1,2] yield [for j in [1,2] yield i * j][1]]", (2, 4)),
        ("[7 / 2, -7 / 2, 7 / -2]", (3, -3, -3)),
        ("[2 ^ 10, -2 ^ 2]", (1024, 4)),
        ("[integer(-1.5), integer(1.5), integer('12'), integer(true)]", (-2, 1, 12, 1)),
        ("[length_of([1,2]), length_of('abc'), length_of([])]", (2, 3, 0)),
        ("[12345678901234567890 - 12345678901234567889]", (1,)),
        ("shape_of(x)", (2, 3)),
        ("shape_of(1.0)", ()),
    ],
)
def test_array_expressions(expression: str, value: tuple[int, ...]) -> None:
    assert integers(expression) == value


def test_operators_on_tensors_become_operations() -> None:
    names = [
        o.name for o in flatten_text(graph("y = select(x < 1.0 && !(x >= 2.0), +x - -x * x / x ^ x, x);")).operations
    ]
    assert names == ["external", "lt", "ge", "not", "and", "copy", "neg", "mul", "pow", "div", "sub", "select"]


def test_an_irrational_power_is_refused_and_not_rounded() -> None:
    error = error_of(lambda: scalar("2.0 ^ 0.5"))
    assert isinstance(error, Unsupported)
    assert (error.location.line, error.location.column) == (6, 37)


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("[2 ^ 10000000000]", "number"),
        ("[9" + " * 9" * 3000 + "]", "number"),
        ("[integer(1.0000001 ^ 100000000.0)]", "number"),
        ("[integer('" + "9" * 5000 + "')]", "number"),
        ("[1] * 2000000000", "expansion"),
        ("[1] * 60000 * 60000", "expansion"),
        ("[length_of('ab' * 1000000000)]", "expansion"),
        ("[length_of([[1] * 60000] * 60000)]", "expansion"),
        ("[length_of([[1] * 60000, [1] * 60000])]", "expansion"),
        ("[length_of([1] * 60000 + [1] * 60000)]", "expansion"),
        ("[for i in [1] * 60000 yield length_of([for j in [1] * 60000 yield j])]", "expansion"),
        ("[length_of([for i in [1] * 60000 yield [1,2]])]", "expansion"),
    ],
)
def test_what_an_expression_produces_is_counted_before_it_is_made(expression: str, limit: str) -> None:
    limits = Limits("test")
    error = error_of(lambda: flatten_text(graph(f"y = reshape(x, shape = {expression});"), limits))
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.line) == (f"limit.{limit}", 6)


@given(st.fractions(max_denominator=10**6) | st.decimals(allow_nan=False, allow_infinity=False, places=9).map(Fraction))
def test_decimal_text_denotes_the_number_it_was_made_of(value: Fraction) -> None:
    text = decimal_text(value)
    denominator = value.denominator
    while denominator % 2 == 0:
        denominator //= 2
    while denominator % 5 == 0:
        denominator //= 5
    if denominator != 1:
        assert text is None
    else:
        assert text is not None
        assert Fraction(parse_number(text.removeprefix("-"))) == abs(value)
        assert text.startswith("-") == (value < 0)


@given(st.integers(), st.integers())
def test_integer_division_truncates_toward_zero(x: int, y: int) -> None:
    if y:
        quotient = arithmetic("/", x, y)
        assert abs(quotient) == abs(x) // abs(y)
        assert quotient == 0 or (quotient < 0) == ((x < 0) != (y < 0))


@given(st.integers(-50, 50), st.integers(0, 10_000))
def test_powers_are_exact_or_too_large(base: int, exponent: int) -> None:
    try:
        value = arithmetic("^", base, exponent)
    except LimitExceeded:
        assert abs(base) ** min(exponent, NUMBER_BITS + 1) >= 2 ** (NUMBER_BITS // 2)
    else:
        assert value == base**exponent
