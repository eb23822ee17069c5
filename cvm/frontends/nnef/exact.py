"""Exact numbers of compile-time expressions: parsing, arithmetic and printing.

Integers are unbounded Python integers and scalars are fractions, both limited to `NUMBER_BITS`; every operation
estimates the size of its result before it computes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType

from cvm.frontends.nnef.faults import Placed, invalid, malformed, too_large, unsupported
from cvm.quantization.roots import exact_root

__all__ = ["NUMBER_BITS", "arithmetic", "decimal_text", "is_decimal", "number_text", "parse_number"]

NUMBER_BITS = 4096
"""The most bits of an integer, and of a scalar's numerator and denominator: float64 needs far fewer."""

_DIGITS = 1200  # decimal digits, or powers of ten, that surely fit NUMBER_BITS


def parse_number(text: str, at: Placed | None = None) -> int | Fraction:
    """The exact value of a numeric literal: an integer, or a scalar if it has a point or an
    exponent (section 3.3.1).
    """
    mantissa, _, exponent = text.replace("E", "e").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    power = exponent.lstrip("+-").lstrip("0")
    if len(digits) > _DIGITS or len(fraction) > _DIGITS or len(power) > 4 or int(power or 0) > _DIGITS:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise too_large("number", f"the numeric literal {shown} is outside 10^±{_DIGITS}", at)
    if len(mantissa) == len(text) and not fraction:
        return int(digits or "0")
    shift = (-int(power or 0) if exponent.startswith("-") else int(power or 0)) - len(fraction)
    value = int(digits or "0")
    return Fraction(value * 10**shift) if shift >= 0 else Fraction(value, 10**-shift)


def _bits(value: int | Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _sized(value: int | Fraction, at: Placed | None) -> int | Fraction:
    if _bits(value) > NUMBER_BITS:
        raise too_large("number", f"a compile-time number needs more than {NUMBER_BITS} bits", at)
    return value


def _divide(x: int | Fraction, y: int | Fraction, at: Placed | None) -> int | Fraction:
    if y == 0:
        raise invalid("argument-validity.division", "division by zero in a compile-time expression", at)
    if isinstance(x, int) and isinstance(y, int):
        quotient = abs(x) // abs(y)
        return quotient if (x < 0) == (y < 0) else -quotient
    return Fraction(x) / Fraction(y)


def _power(x: int | Fraction, y: int | Fraction, at: Placed | None) -> int | Fraction:
    if x == 0 and y < 0:
        raise invalid("argument-validity.division", "zero to a negative power in a compile-time expression", at)
    if isinstance(x, int) and y < 0:
        raise invalid("argument-validity.power", "an integer to a negative power is not an integer", at)
    degree = y.denominator
    if degree != 1 and x not in (0, 1):
        if x < 0:
            raise invalid("argument-validity.power", "a negative number has no fractional power", at)
        roots = exact_root(x.numerator, degree), exact_root(x.denominator, degree)
        if roots[0] is None or roots[1] is None:
            message = f"{x} ^ ({y}) is not rational; compile-time numbers are exact"
            raise unsupported("argument-validity.irrational", message, at)
        x = Fraction(roots[0], roots[1])
    exponent = y.numerator
    if x in (0, 1) or exponent == 0:
        return type(x)(1) if x == 1 or exponent == 0 else x
    if x == -1:
        return x if exponent % 2 else type(x)(1)
    if (_bits(x) - 1) * abs(exponent) > NUMBER_BITS:
        raise too_large("number", f"a compile-time number needs more than {NUMBER_BITS} bits", at)
    return x**exponent if isinstance(x, int) else Fraction(x) ** exponent


_ARITHMETIC: Mapping[str, Callable[[int | Fraction, int | Fraction, Placed | None], int | Fraction]] = MappingProxyType(
    {
        "+": lambda x, y, at: operator.add(x, y),
        "-": lambda x, y, at: operator.sub(x, y),
        "*": lambda x, y, at: operator.mul(x, y),
        "/": _divide,
        "^": _power,
    }
)


def arithmetic(symbol: str, x: int | Fraction, y: int | Fraction, at: Placed | None = None) -> int | Fraction:
    """``x symbol y`` for two integers (an integer; division truncates toward zero) or two scalars (exact).

    Raises `Invalid` for a division by zero, `Unsupported` for an irrational power, and `LimitExceeded` before a number
    grows beyond `NUMBER_BITS`.
    """
    return _sized(_ARITHMETIC[symbol](x, y, at), at)


def decimal_text(value: Fraction) -> str | None:
    """The scalar literal of a fraction, with its sign; None if it has no finite decimal expansion."""
    twos = fives = 0
    rest = value.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    if places > _DIGITS:
        raise malformed("lexical.number", "the number has too many decimal places to be written")
    digits = str(abs(value.numerator) * (10**places // value.denominator))
    sign = "-" if value < 0 else ""
    if places == 0 and len(digits) > 20 and digits.endswith("0" * 10):
        stripped = digits.rstrip("0")
        return f"{sign}{stripped}.0e{len(digits) - len(stripped)}"
    if places > len(digits) + 6:
        return f"{sign}{digits}.0e-{places}"
    digits = digits.rjust(places + 1, "0")
    return f"{sign}{digits[: len(digits) - places]}.{digits[len(digits) - places :] or '0'}"


def is_decimal(value: Fraction) -> bool:
    """Whether a fraction has a decimal literal of reasonable length."""
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1 and value.denominator.bit_length() <= _DIGITS


def number_text(value: Fraction) -> str:
    """A compile-time expression for a fraction: its literal, or a quotient of two literals."""
    if is_decimal(value):
        return decimal_text(value) or ""
    return f"{value.numerator}.0 / {value.denominator}.0"
