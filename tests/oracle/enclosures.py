"""Fixed-point intervals around real functions: the arithmetic under every decision about irrational numbers.

An interval (low, high) of integers stands for the reals from low / 2^bits to high / 2^bits. Every function takes
intervals around its arguments and gives one around its value; all roundings go outwards, all in integers. Widths vanish
as bits grows. Where the arguments are not known well enough to say anything (a divisor that may be zero, a logarithm
of what may be negative), `Unresolved` asks for more bits.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import isqrt

Interval = tuple[int, int]

LARGEST_ANGLE = 1 << 14
"""sin and cos are summed as power series without reduction; larger angles are refused."""


class Unresolved(ArithmeticError):
    """The enclosures of the arguments are too wide; more bits may help."""


def around(value: Fraction, bits: int) -> Interval:
    """The two neighbouring multiples of 2^-bits of a rational number."""
    scaled = value.numerator << bits
    return scaled // value.denominator, -(-scaled // value.denominator)


def scaled(x: Interval, factor: Fraction) -> Interval:
    """factor * x."""
    n, d = factor.numerator, factor.denominator
    low, high = (x[0] * n, x[1] * n) if n >= 0 else (x[1] * n, x[0] * n)
    return low // d, -(-high // d)


def product(x: Interval, y: Interval, bits: int) -> Interval:
    """x * y: the extremes are among the products of the ends."""
    ends = [a * b for a in x for b in y]
    return min(ends) >> bits, -(-max(ends) >> bits)


def reciprocal(x: Interval, bits: int) -> Interval:
    """1 / x, which falls on either side of 0."""
    if x[0] <= 0 <= x[1]:
        raise Unresolved
    one = 1 << 2 * bits
    return one // x[1], -(-one // x[0])


def _exp_at(n: int, bits: int) -> Interval:
    """e^(n / 2^bits).

    With w = |n| / 2^(bits + halvings) < 2^-8, e^w is the sum of t_k = w^k / k!, each kept between a term rounded down
    and one rounded up; as t_(k+1) < t_k / 2, all terms after t_k sum to less than t_k, and the last upper term counted
    twice bounds the rest. A negative exponent takes the reciprocal, then each squaring undoes a halving. Squaring
    doubles relative errors, hence the extra 2 * halvings bits, and 2 bits for each factor e of a large result.
    """
    negative, n = n < 0, abs(n)
    whole = n >> bits
    if negative and whole > bits:
        return 0, 1  # e^-x < 2^-x
    halvings = whole.bit_length() + 8
    precision = bits + 2 * halvings + 32 + (0 if negative else 2 * whole)
    w = n << (precision - bits - halvings)
    term_low = term_high = low = high = 1 << precision
    for k in count(1):
        term_low = (term_low * w >> precision) // k
        term_high = -(-(term_high * w) // (k << precision))
        low, high = low + term_low, high + term_high
        if term_high <= 1:
            break
    high += term_high
    if negative:
        one = 1 << 2 * precision
        low, high = one // high, -(-one // low)
    for _ in range(halvings):
        low, high = low * low >> precision, -(-high * high >> precision)
    shift = precision - bits
    return low >> shift, -(-high >> shift)


def exp(x: Interval, bits: int) -> Interval:
    """e^x, which grows."""
    return _exp_at(x[0], bits)[0], _exp_at(x[1], bits)[1]


def _twice_atanh(n: int, d: int, precision: int) -> Interval:
    """2 * atanh(n / d) = 2 * (z + z^3 / 3 + z^5 / 5 + ...) for 0 <= z = n / d <= 1/3.

    Every next power is at most 1/9 of the last, so all omitted terms sum to less than the last upper power.
    """
    low, high = (n << precision) // d, -(-(n << precision) // d)
    power_low, power_high, sum_low, sum_high = low, high, low, high
    for k in count(3, 2):
        power_low = power_low * n * n // (d * d)
        power_high = -(-power_high * n * n // (d * d))
        sum_low, sum_high = sum_low + power_low // k, sum_high - (-power_high // k)
        if power_high <= 1:
            break
    return 2 * sum_low, 2 * (sum_high + power_high)


@lru_cache(maxsize=64)
def _ln2(precision: int) -> Interval:
    return _twice_atanh(1, 3, precision)


def _log_at(n: int, bits: int) -> Interval:
    """ln(n / 2^bits), n > 0: with n = 2^k * y and 1 <= y < 2, ln y = 2 * atanh((y - 1) / (y + 1)), then k * ln 2."""
    precision = bits + 32
    k = n.bit_length() - 1
    unit = 1 << k
    low, high = _twice_atanh(n - unit, n + unit, precision)
    halves = scaled(_ln2(precision), Fraction(k - bits))
    return (low + halves[0]) >> 32, -(-(high + halves[1]) >> 32)


def log(x: Interval, bits: int) -> Interval:
    """ln x, which grows."""
    if x[0] <= 0:
        raise Unresolved
    return _log_at(x[0], bits)[0], _log_at(x[1], bits)[1]


def square_root(x: Interval, bits: int) -> Interval:
    """The root of x, which grows; a lower end below 0 counts as 0."""
    return isqrt(max(x[0], 0) << bits), isqrt(max(x[1], 0) << bits) + 1


def _sin_cos_at(n: int, bits: int) -> tuple[Interval, Interval]:
    """sin and cos of n / 2^bits, summed with one error bound for all roundings.

    The two roundings of a step err by less than 2 together; an error e of a term adds at most e * e^|w| to all later
    terms, |w| < whole + 1, and once |w| / k <= 1/2 the terms after a term of at most 1 sum to at most 2 (and their
    share of the errors): all in all less than (terms + 4) * 2^(2 * whole + 3) units of 2^-precision.
    """
    whole = abs(n) >> bits
    if whole > LARGEST_ANGLE:
        raise ValueError(f"sin and cos are evaluated up to {LARGEST_ANGLE} only")
    precision = bits + 2 * whole + 64
    w = n << (precision - bits)
    term, sums = 1 << precision, [0, 0]
    for k in count(0):
        sums[k % 2] += -term if k % 4 in (2, 3) else term
        term = (term * w >> precision) // (k + 1)
        if abs(term) <= 1 and k > 2 * whole + 2:
            break
    error = (k + 4) << (2 * whole + 3)
    shift = precision - bits
    cosine, sine = ((total - error >> shift, -(-(total + error) >> shift)) for total in sums)
    return sine, cosine


def _sine_or_cosine(x: Interval, bits: int, which: int) -> Interval:
    """Both functions change at most as fast as their argument: the value at the middle, plus and minus the radius."""
    middle = (x[0] + x[1]) // 2
    radius = x[1] - middle + 1
    low, high = _sin_cos_at(middle, bits)[which]
    one = 1 << bits
    return max(low - radius, -one), min(high + radius, one)


def sin(x: Interval, bits: int) -> Interval:
    """The sine of x radians."""
    return _sine_or_cosine(x, bits, 0)


def cos(x: Interval, bits: int) -> Interval:
    """The cosine of x radians."""
    return _sine_or_cosine(x, bits, 1)


_HALVED = 6
"""Halvings of an angle after which its tangent is below 2^-5."""


def _arctangent_at(n: int, bits: int) -> Interval:
    """atan(n / 2^bits).

    atan t = 2 * atan(t / (1 + sqrt(1 + t^2))), six times; then atan z = z - z^3 / 3 + z^5 / 5 - .. for 0 <= z < 1/8,
    whose terms fall, so that each partial sum is off by less than the next term.
    """
    precision = bits + 2 * _HALVED + 32
    t = abs(n) << (precision - bits), abs(n) << (precision - bits)
    one = 1 << precision
    for _ in range(_HALVED):
        square = product(t, t, precision)
        root = square_root((one + square[0], one + square[1]), precision)
        t = product(t, reciprocal((one + root[0], one + root[1]), precision), precision)
    square, power = product(t, t, precision), t
    low, high = 0, 0
    for k in count(1, 2):
        term = power[0] // k, -(-power[1] // k)
        low, high = (low + term[0], high + term[1]) if k % 4 == 1 else (low - term[1], high - term[0])
        power = product(power, square, precision)
        if power[1] <= 1:
            break
    low, high = low - power[1], high + power[1]
    shift = precision - bits - _HALVED
    low, high = low >> shift, -(-high >> shift)
    return (low, high) if n >= 0 else (-high, -low)


def arctangent(x: Interval, bits: int) -> Interval:
    """atan x, which grows."""
    return _arctangent_at(x[0], bits)[0], _arctangent_at(x[1], bits)[1]


def _error_function_at(n: int, bits: int) -> Interval:
    """erf(n / 2^bits) = 2 / sqrt(pi) * e^(-x^2) * (x + 2 x^3 / 3 + 4 x^5 / 15 + ..), all of whose terms are positive.

    1 - erf x < e^(-x^2), so that a large x needs no series; else the sum is below e^(x^2) <= 2^(bits + 2), and as many
    more bits keep its product with e^(-x^2) close. If each term is at most half of the one before, the rest is at most
    twice the next term.
    """
    if n < 0:
        low, high = _error_function_at(-n, bits)
        return -high, -low
    one = 1 << bits
    if n * n > bits << 2 * bits:  # x^2 > bits, and e^(-bits) < 2^(-bits)
        return one - 1, one
    precision = 4 * bits + 64
    x = n << (precision - bits)
    square = product((x, x), (x, x), precision)
    ratio = 2 * square[0], 2 * square[1]
    term, low, high = (x, x), 0, 0
    for k in count(1):
        low, high = low + term[0], high + term[1]
        divisor = 2 * k + 1
        below, above = product(term, ratio, precision)
        term = below // divisor, -(-above // divisor)
        if 2 * ratio[1] <= divisor << precision and term[1] <= 1 << (precision - 3 * bits):
            break
    high += 2 * term[1]
    quarter = arctangent((1 << precision, 1 << precision), precision)
    root = square_root((4 * quarter[0], 4 * quarter[1]), precision)
    factor = product(reciprocal(root, precision), exp((-square[1], -square[0]), precision), precision)
    low, high = product((2 * factor[0], 2 * factor[1]), (low, high), precision)
    shift = precision - bits
    return max(low >> shift, 0), min(-(-high >> shift), one)


def error_function(x: Interval, bits: int) -> Interval:
    """erf x, which grows."""
    return _error_function_at(x[0], bits)[0], _error_function_at(x[1], bits)[1]
