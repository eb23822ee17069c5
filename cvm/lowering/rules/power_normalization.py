"""x / (bias + alpha / n * sum x^2)^beta for tensors with too many codes for the tables of `cvm.lowering.rules.norms`.

Let X be integers, S = sum X^2, and D = c_0 + c_1 * S the divisor. The magnitude of the result reaches the step to the
code k if

    2 |X| >= (2 k - 1) * D^beta,   that is   (2 |X|)^(1 / beta) >= (2 k - 1)^(1 / beta) * (c_0 + c_1 * S),

So all roots and powers are in tables, of |X| on the left and of k on the right, and S is not changed. Both sides are
integers of any width, which are compared by digits. If 1 / beta is an integer, all of this is exact. Otherwise the
tables hold the numbers times 2^F, rounded, and the error of both sides together is at most M units. A tie lies within M
units of the threshold, and every number within M units is treated as a tie; M is less than 2^-60 steps of the result.
Rounding half to even is an odd function of x.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from cvm.limits import INT32_MAX
from cvm.lowering.claims import WHOLE_TENSOR, bounded
from cvm.lowering.context import Coded, Lowering, Result, rule
from cvm.lowering.forms.emission import Value
from cvm.lowering.forms.form import LinearForm
from cvm.lowering.parts.digits import array_digits, squared, value_digits
from cvm.lowering.proofs.decide import (
    Summand,
    at_least_zero,
    count_reached,
    digit_tables,
    fixed_sum,
    looked_up,
    table_digits,
)
from cvm.lowering.rules.pooling import window_total, window_volume
from cvm.quantization.rationals import Rationals

__all__: list[str] = []

_FINENESS = 60
_MOST_POWER = 16
"""The largest 1 / beta. A number of 16 bits to this power has 256 bits."""
_MOST_NUMBERS = 2**16
_STEP = 32
_DIGIT = 13
_SQUARE_BITS = 17
"""The product of a digit of this many bits and one with one bit more fits 32 bits."""


_APART = "operand and result differ in scale, or have an offset"


@rule(
    "local_response_normalization",
    accuracy="fine",
    claim=bounded(
        "powers of x and of the steps of the result in tables, compared by digits with the sum of squares; exact where "
        "1 / beta is an integer",
        "where a power is irrational, no width is proven to decide all sums of squares; the report says how near a "
        "number must be to differ",
        WHOLE_TENSOR,
        "beta is below 1/16",
        _APART,
    ),
)
def power_normalization(lowering: Lowering) -> list[Result]:
    """``x / (bias + alpha * mean of squares)^beta`` over windows of ``size``, rounded half to even.

    Beyond the data there are zeros. Operand and result have the same scale and no offset; bias, alpha and beta are
    positive.
    """
    bias, alpha, beta = (lowering.fraction(name) for name in ("bias", "alpha", "beta"))
    quantizer = lowering.linear_quantizer()
    if quantizer is None or not quantizer.per_tensor:
        raise lowering.unsupported("the result needs a quantiser for the whole tensor")
    if beta < Fraction(1, _MOST_POWER):
        raise lowering.unsupported("beta is below 1/16")
    value, scale, constant, form = lowering.coded("input")
    if constant or quantizer.offset[0] or quantizer.scale[0] != scale:
        raise lowering.unsupported(_APART)
    count = window_volume(lowering)
    squares = window_total(lowering, squared(lowering, form, count))
    largest = value.range.magnitude()
    if max(largest, quantizer.hi, -quantizer.lo) >= _MOST_NUMBERS:
        raise lowering.needs_quantization(str(lowering.operation.inputs["input"]))
    constants = bias, alpha * scale * scale / count
    # If the divisor is at least 1, no result exceeds its operand.
    most = max(quantizer.hi, -quantizer.lo) if bias < 1 else largest
    tables = _tables(largest, most, constants, beta, count * largest * largest)
    digits = _square_digits(lowering, squares, scale)
    magnitude = abs(value)
    found = _magnitudes(magnitude, digits, tables, most)
    if value.range.hull()[0] < 0:
        found = _signed(value, found)
    found = found.clip(quantizer.lo, quantizer.hi)
    note = (
        "exact comparisons of powers" if not tables.margin else f"may differ only within 2^-{_FINENESS} steps of a tie"
    )
    return [Coded(found, Fraction(int(bool(tables.margin))), note, any_rounding=True)]


class _Tables:
    """Tables of integers of any size: (2 x)^(1 / beta) for every x, and for every k, (2 k - 1)^(1 / beta) times c_0 and
    times c_1.

    The entries with c_0 are shifted such that the comparison is with 0. For an odd k, a number within the margin does
    not reach the step.
    """

    def __init__(self, left: list[int], base: list[int], slope: list[int], margin: int) -> None:
        # The code of 0 must be 0, even if a divisor is so small that all steps lie within the margin.
        self.left, self.margin = [-2 * (margin + 1), *left[1:]], margin
        self.base = [item + (margin + 1 if k % 2 else -margin) for k, item in enumerate(base)]
        self.slope = slope


@lru_cache(maxsize=8)
def _tables(largest: int, steps: int, constants: tuple[Fraction, Fraction], beta: Fraction, squares: int) -> _Tables:
    inverse = 1 / beta
    size = 2 ** steps.bit_length()
    odds = [2 * min(k, steps) - 1 if k else 0 for k in range(size)]
    if inverse.denominator == 1:
        unit = math.lcm(*(item.denominator for item in constants))
        raised = [k ** int(inverse) for k in range(2 * max(largest, steps) + 1)]
        left = [raised[2 * x] * unit for x in range(largest + 1)]
        base, slope = ([raised[k] * int(item * unit) for k in odds] for item in constants)
        return _Tables(left, base, slope, 0)
    margin = squares + 4
    # Near step k the right side R grows by 2 R / (beta * (2 k - 1)) per step; R is at least 1, and k at most 2^15.
    bits = _FINENESS + margin.bit_length() + 18 + math.ceil(beta).bit_length()
    bits = -(-bits // _STEP) * _STEP  # so that windows of different sizes share a table
    guard = 80 + math.ceil(17 * inverse) + math.ceil(max(constants)).bit_length()
    guard = -(-guard // _STEP) * _STEP
    powers = _powers(2 * max(largest, steps), inverse, bits + guard)
    left = [_shifted(powers[2 * x], guard) for x in range(largest + 1)]
    base, slope = ([_shifted_product(powers[k], item, guard) for k in odds] for item in constants)
    return _Tables(left, base, slope, margin)


def _shifted(item: int, bits: int) -> int:
    return (item + (1 << (bits - 1))) >> bits


def _shifted_product(item: int, factor: Fraction, bits: int) -> int:
    return int((2 * item * factor.numerator + (factor.denominator << bits)) // (2 * factor.denominator << bits))


@lru_cache(maxsize=8)
def _powers(most: int, exponent: Fraction, bits: int) -> list[int]:
    """k^exponent * 2^bits for k = 0 .. most, rounded for primes, and computed as products for other numbers.

    A number below 2^17 has at most 16 prime factors, so the relative error is below 2^(6 - bits). That is negligible
    compared with the half unit of the final rounding to fewer bits.
    """
    smallest = list(range(most + 1))
    for prime in range(2, math.isqrt(most) + 1):
        if smallest[prime] == prime:
            for multiple in range(prime * prime, most + 1, prime):
                smallest[multiple] = min(smallest[multiple], prime)
    found = [0, 1 << bits]
    for k in range(2, most + 1):
        prime = smallest[k]
        if prime == k:
            found.append(_power_of_prime(k, exponent, bits))
        else:
            found.append(_shifted(found[prime] * found[k // prime], bits))
    return found[: most + 1]


def _power_of_prime(k: int, exponent: Fraction, bits: int) -> int:
    """k^exponent * 2^bits, an irrational number, with an error below 2, for k < 2^17.

    exp and ln of `decimal` are correctly rounded. With P digits, the relative error of the exponent of e is below 16 *
    10^-P. For exponents up to 16 it is below 189, so its absolute error is below 10^(4 - P), and the relative error of
    the power of e is below 2 * 10^(4 - P). The result is below 2^(17 * exponent + bits), and its error is below 1
    before the fraction is dropped.
    """
    digits = math.ceil((bits + 17 * exponent) * Fraction(30_103, 100_000)) + 6
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    power = context.exp(context.multiply(ratio, context.ln(Decimal(k))))
    return math.floor(Fraction(power) * (1 << bits))


def _square_digits(lowering: Lowering, squares: LinearForm, scale: Fraction) -> list[tuple[Value, int]]:
    """The integer S = sum X^2 as values and their weights: its lowest 17 bits, and digits of the higher bits."""
    rank = squares.rank
    unit = Rationals.scalar(1 / (scale * scale), rank)
    factors = [term.factor * unit for term in squares.terms]
    terms = [(t.value, f.numerators // f.denominator) for t, f in zip(squares.terms, factors, strict=True)]
    one = np.ones((1,) * rank, dtype=object)
    bits = _SQUARE_BITS
    # half_up adds 2^(bits - 1), so it is subtracted to get a floor.
    upper = fixed_sum(lowering, squares.shape, terms, one * -(2 ** (bits - 1)), bits, (0, INT32_MAX), "high")
    rest = [*terms, (upper, one * -(2**bits))]
    low = fixed_sum(lowering, squares.shape, rest, one * 0, 0, (0, 2**bits - 1), "low")
    above = value_digits(upper, 2 ** (bits + 1))
    return [(low, 1), *((value, weight * 2**bits) for value, weight in above)]


def _magnitudes(magnitude: Value, digits: list[tuple[Value, int]], tables: _Tables, steps: int) -> Value:
    """The greatest k such that a magnitude reaches the step to k."""
    lowering, shape = magnitude.emission, magnitude.shape
    rank = len(shape)
    thresholds = table_digits(lowering, tables.left, magnitude, rank, "power")
    left = [Summand(item.value, -item.coefficients) for item in thresholds]
    bases, limit = digit_tables(lowering, tables.base, "power"), 2**_DIGIT - 1
    slopes = [
        (lowering.tensor_constant(items, "slope"), weight)
        for items, weight in array_digits(np.array(tables.slope, dtype=object), limit)
    ]

    def reached(trial: Value) -> Value:
        found = [*left, *looked_up(lowering, bases, trial, rank, "power")]
        for table, weight in slopes:
            digit = lowering.emit("cvm_lut", table, trial)
            for value, times in digits:
                product = value * digit
                found.append(Summand(product, np.full((1,) * rank, -weight * times, dtype=object)))
        return at_least_zero(lowering, shape, found, np.zeros((1,) * rank, dtype=object), "power.reached")

    return count_reached(lowering, shape, steps, reached, "power", most=steps)


def _signed(value: Value, found: Value) -> Value:
    """The magnitude with the sign of x."""
    lowering = value.emission
    rank = len(value.shape)
    zero, one = (lowering.tensor_constant(np.full((1,) * rank, k, dtype=object), "sign") for k in (0, 1))
    negative = zero.greater(value)
    signs = one - (negative + negative)
    return found * signs
