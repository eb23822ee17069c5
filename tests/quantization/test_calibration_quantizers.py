"""The quantisers of ranges: short decimals, zero a code, nothing in the range clipped."""

import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.frontends.nnef.quantizer_text import algorithm_text
from cvm.quantization import LinearQuantizer
from cvm.quantization.calibration import (
    affine,
    decimal_above,
    multiples_of,
    power_above,
    powers,
    short_above,
    symmetric,
)
from cvm.quantization.exact import code, quantize

BITS = st.integers(2, 16)
REALS = st.floats(-1e30, 1e30)
POSITIVE = st.fractions(Fraction(1, 10**40), Fraction(10**40))


@given(POSITIVE)
def test_decimals_have_six_digits_and_are_the_least_above(value: Fraction) -> None:
    decimal = decimal_above(value)
    digits = str(decimal.numerator * 10**60 // decimal.denominator).rstrip("0")
    assert Fraction(decimal * 10**60).denominator == 1
    assert len(digits) <= 6
    assert value <= decimal < value * (1 + Fraction(1, 10**5))
    assert decimal_above(decimal) == decimal


@given(POSITIVE)
def test_powers_of_two_are_the_least_above(value: Fraction) -> None:
    power = power_above(value)
    assert power.numerator == 1 or power.denominator == 1
    assert (power.numerator * power.denominator).bit_count() == 1
    assert power / 2 < value <= power


@given(POSITIVE)
def test_short_numbers_have_ten_bits_and_are_the_least_above(value: Fraction) -> None:
    short = short_above(value)
    assert (short.denominator & (short.denominator - 1)) == 0
    assert (short.numerator // (short.numerator & -short.numerator)).bit_length() <= 10
    assert value <= short < value * (1 + Fraction(1, 512))
    assert short_above(short) == short


@given(REALS, REALS, BITS, st.booleans(), st.sampled_from([decimal_above, power_above, short_above]))
def test_no_number_of_a_range_is_further_than_half_a_scale_from_a_code(
    a: float, b: float, bits: int, signed: bool, rounded: Callable[[Fraction], Fraction]
) -> None:
    low, high = min(a, b), max(a, b)
    quantizer = affine(low, high, bits, signed=signed, rounded=rounded)
    (scale,), (offset,) = quantizer.scale, quantizer.offset
    for x in (Fraction(low), Fraction(high), (Fraction(low) + Fraction(high)) / 2):
        assert abs(offset + scale * code(x, quantizer, 0) - x) <= scale / 2
    assert quantizer.hi - quantizer.lo == 2**bits - 1
    assert quantizer.lo == (-(2 ** (bits - 1)) if signed else 0)


@given(REALS, REALS, BITS, st.booleans())
def test_zero_is_a_multiple_of_the_scale_away_and_a_code_of_every_range_that_has_it(
    a: float, b: float, bits: int, signed: bool
) -> None:
    low, high = min(a, b), max(a, b)
    quantizer = affine(low, high, bits, signed=signed)
    zero = -quantizer.offset[0] / quantizer.scale[0]
    assert zero.denominator == 1
    if low <= 0.0 <= high:
        assert quantizer.lo <= zero <= quantizer.hi


@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e6), BITS)
def test_what_something_is_divided_by_does_not_become_zero(low: float, ratio: float, bits: int) -> None:
    for sign in (1, -1):
        ends = sorted((sign * low, sign * low * ratio))
        quantizer = affine(*ends, bits, signed=True, nonzero=True)
        (scale,), (offset,) = quantizer.scale, quantizer.offset
        extremes = (offset + scale * quantizer.lo, offset + scale * quantizer.hi)
        assert min(extremes) > 0 if sign > 0 else max(extremes) < 0


def test_ranges_without_extent() -> None:
    assert affine(0.0, 0.0, 8, signed=False) == affine(0.0, 1.0, 8, signed=False)
    quantizer = affine(5.0, 5.0, 8, signed=False)
    assert abs(quantizer.offset[0] + quantizer.scale[0] * code(Fraction(5), quantizer, 0) - 5) <= quantizer.scale[0] / 2
    assert quantizer.scale[0] * 255 < Fraction(1, 100)
    assert affine(5.0, 5.0 + 1e-12, 8, signed=False).scale[0] > Fraction(1, 10**6)


@given(st.lists(st.floats(0.0, 1e30), min_size=1, max_size=5), BITS, st.booleans())
def test_symmetric_quantisers_reach_their_magnitudes_from_zero(
    magnitudes: list[float], bits: int, signed: bool
) -> None:
    axis = 0 if len(magnitudes) > 1 else None
    quantizer = symmetric(magnitudes, bits, signed=signed, axis=axis)
    most = 2 ** (bits - 1) - 1
    zero = 0 if signed else most + 1
    for i, magnitude in enumerate(magnitudes):
        assert quantizer.offset[i] + quantizer.scale[i] * zero == 0
        assert code(Fraction(0), quantizer, i) == zero
        for sign in (1, -1):
            assert abs(code(sign * Fraction(magnitude), quantizer, i) - zero) <= most
        if magnitude:
            assert magnitude <= quantizer.scale[i] * most <= Fraction(magnitude) * (1 + Fraction(1, 10**5))
        else:
            assert quantizer.scale[i] == max(quantizer.scale)


@given(REALS, REALS, BITS, st.booleans())
def test_the_text_of_a_quantiser_has_decimals_only(a: float, b: float, bits: int, signed: bool) -> None:
    for quantizer in (
        affine(min(a, b), max(a, b), bits, signed=signed),
        symmetric([abs(a)], bits, signed=signed),
        symmetric([abs(a), abs(b)], bits, signed=True, axis=0),
    ):
        text = algorithm_text(quantizer)
        assert text is not None
        assert "/" not in text
        assert text.startswith("zero_point_linear_quantize(" if quantizer.lo < 0 or quantizer.axis == 0 else "linear_")


def test_the_text_of_usual_quantisers() -> None:
    assert algorithm_text(affine(0.0, 1.0, 8, signed=False)) == "linear_quantize(min = 0.0, max = 1.00000035, bits = 8)"
    assert re.fullmatch(
        r"zero_point_linear_quantize\(zero_point = 0, scale = 0\.00787402, bits = 8, signed = true, symmetric = true\)",
        algorithm_text(symmetric([1.0], 8, signed=True)) or "",
    )
    assert (
        algorithm_text(symmetric([1.0], 8, signed=False))
        == "linear_quantize(min = -1.00787456, max = 1.00000054, bits = 8)"
    )
    assert algorithm_text(powers(0.4, 4)) == "logarithmic_quantize(max = 0.5, bits = 4)"


def test_multiples_of_given_scales() -> None:
    scales = [Fraction(1, 3), Fraction(2)]
    quantizer = multiples_of(scales, 32, signed=True, axis=1)
    assert quantizer == LinearQuantizer(tuple(scales), (Fraction(0),) * 2, -(2**31) + 1, 2**31 - 1, 1)
    assert quantize(np.array([[1.0, -5.0]]), quantizer).tolist() == [[3, -2]]


@given(st.floats(1e-30, 1e30), st.integers(2, 8))
def test_powers_round_their_magnitude_to_the_greatest(magnitude: float, bits: int) -> None:
    quantizer = powers(magnitude, bits)
    greatest = quantizer.value(quantizer.hi)
    assert greatest**2 / 2 <= Fraction(magnitude) ** 2 < greatest**2 * 2


@pytest.mark.parametrize("bits", [-1, 0, 1, 17, 32])
def test_other_widths_are_refused(bits: int) -> None:
    for make in (lambda: affine(0.0, 1.0, bits, signed=True), lambda: symmetric([1.0], bits, signed=True),
                 lambda: powers(1.0, bits)):  # fmt: skip
        with pytest.raises(Invalid) as caught:
            make()
        assert caught.value.code == "calibration.bits"


@pytest.mark.parametrize(("low", "high"), [(0.0, 5.0), (-5.0, 0.0)])
def test_a_range_that_ends_at_zero_has_zero_whether_or_not_others_must_keep_their_sign(low: float, high: float) -> None:
    assert affine(low, high, 8, signed=False, nonzero=True) == affine(low, high, 8, signed=False)
