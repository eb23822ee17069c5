"""Functions of real numbers by integer intervals, and codes decided by them: a model that shares nothing with lowering.

An interval (low, high) stands for low / 2^bits .. high / 2^bits (`tests.oracle.enclosures`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from tests.oracle import enclosures
from tests.oracle.enclosures import Interval, Unresolved

Function = Callable[[Interval, int], Interval]
MOST_BITS = 2048


def one(bits: int) -> Interval:
    return 1 << bits, 1 << bits


def plus(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def minus(x: Interval) -> Interval:
    return -x[1], -x[0]


def quotient(x: Interval, y: Interval, bits: int) -> Interval:
    return enclosures.product(x, enclosures.reciprocal(y, bits), bits)


def sigmoid(x: Interval, bits: int) -> Interval:
    return enclosures.reciprocal(plus(one(bits), enclosures.exp(minus(x), bits)), bits)


def tanh(x: Interval, bits: int) -> Interval:
    twice = enclosures.scaled(sigmoid(enclosures.scaled(x, Fraction(2)), bits), Fraction(2))
    return plus(twice, minus(one(bits)))


def erf(x: Interval, bits: int) -> Interval:
    """2 / sqrt(pi) * (x - x^3 / 3 + x^5 / 10 - ..), whose terms grow to e^x^2 first; it grows with x."""
    return _erf_at(Fraction(x[0], 1 << bits), bits)[0], _erf_at(Fraction(x[1], 1 << bits), bits)[1]


def _erf_at(x: Fraction, bits: int) -> Interval:
    if abs(x) > 40:  # 1 - erf x < e^-1600 < 2^-2300
        assert bits <= MOST_BITS
        end = one(bits)[0]
        return (end - 1, end) if x > 0 else (-end, 1 - end)
    fine = bits + 3 * (int(x * x) + 1) + 64
    square, term, total, n = enclosures.around(x * x, fine)[0], enclosures.around(x, fine)[0], 0, 0
    while n << fine < square or abs(term) > 1:
        total += (-1) ** n * term // (2 * n + 1)
        n += 1
        term = (term * square >> fine) // n
    # Errors of up to 3 + |x| + n units of the terms so far, each of which the next ones multiply by at most e^x^2.
    rest = (n + 1) * (n + 4 + int(abs(x))) << 2 * (int(x * x) + 1)
    ends = total - rest, total + rest
    eighth = enclosures.arctangent(one(fine), fine)  # pi / 4; 2 / sqrt(pi) = 1 / sqrt(pi / 4)
    factor = enclosures.reciprocal(enclosures.square_root(eighth, fine), fine)
    low, high = enclosures.product(ends, factor, fine)
    return low >> (fine - bits), -(-high >> (fine - bits))


def gelu(x: Interval, bits: int) -> Interval:
    half = enclosures.square_root((one(bits)[0] >> 1,) * 2, bits)
    both = plus(one(bits), erf(enclosures.product(x, half, bits), bits))
    return enclosures.scaled(enclosures.product(x, both, bits), Fraction(1, 2))


def softplus(x: Interval, bits: int) -> Interval:
    return enclosures.log(plus(one(bits), enclosures.exp(x, bits)), bits)


def tan(x: Interval, bits: int) -> Interval:
    return quotient(enclosures.sin(x, bits), enclosures.cos(x, bits), bits)


def elu(alpha: Fraction) -> Function:
    def function(x: Interval, bits: int) -> Interval:
        if x[0] >= 0:
            return x
        return enclosures.scaled(plus(enclosures.exp(x, bits), minus(one(bits))), alpha)

    return function


def softsign(x: Interval, bits: int) -> Interval:
    magnitude = (max(x[0], -x[1], 0), max(abs(x[0]), abs(x[1])))
    return quotient(x, plus(one(bits), magnitude), bits)


FUNCTIONS: dict[str, Function] = {
    "cos": enclosures.cos,
    "elu": elu(Fraction(1)),
    "erf": erf,
    "exp": enclosures.exp,
    "gelu": gelu,
    "log": enclosures.log,
    "reciprocal": enclosures.reciprocal,
    "sigmoid": sigmoid,
    "sin": enclosures.sin,
    "softplus": softplus,
    "softsign": softsign,
    "sqrt": enclosures.square_root,
    "tan": tan,
    "tanh": tanh,
}
"""The operators of one operand whose results are no rationals, or no linear ones."""


def code(enclosure: Callable[[int], Interval], scale: Fraction, zero: int, lo: int, hi: int) -> int:
    """clamp(round_half_even(y / scale) + zero) for a number that is enclosed with any number of bits.

    What is still open with `MOST_BITS` lies at a tie.
    """
    bits = 64
    while bits <= MOST_BITS:
        try:
            ends = sorted(Fraction(end, 1 << bits) / scale for end in enclosure(bits))
        except Unresolved:
            bits *= 2
            continue
        low, high = (min(max(round(end) + zero, lo), hi) for end in ends)
        if low == high:
            return low
        bits *= 2
    tie = Fraction(round(2 * sum(ends) / 2), 2)
    assert abs(tie - ends[0]) < Fraction(1, 2**999)
    return min(max(round(tie) + zero, lo), hi)


@lru_cache(maxsize=2**14)
def _at(function: Function, x: Fraction, bits: int) -> Interval:
    """What a function is at a number, to so many bits."""
    return function(enclosures.around(x, bits), bits)


def codes(function: Function, numbers: np.ndarray, scale: float, zero: int, data_type: str) -> np.ndarray:
    """The codes of a function of every number."""
    info = np.iinfo(data_type)
    size = Fraction(float(np.float32(scale)))
    known: dict[Fraction, int] = {}
    for x in numbers.ravel():
        if x not in known:
            known[x] = code(partial(_at, function, x), size, zero, info.min, info.max)
    return np.array([known[x] for x in numbers.ravel()], data_type).reshape(numbers.shape)
