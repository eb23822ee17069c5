"""Codes of real arrays, against the definition in rational arithmetic."""

import math
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.bounds import narrowest
from cvm.errors import Invalid
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.quantization.exact import code, dequantize, quantize, quantize_rationals, round_fraction
from cvm.quantization.rationals import Rationals

FLOATS = st.floats(-(10**6), 10**6, allow_nan=False, width=32)
DECIMALS = st.decimals(-1000, 1000, places=6, allow_nan=False)


def definition(x: Fraction, minimum: Fraction, maximum: Fraction, bits: int) -> int:
    """NNEF 1.0.1 section 4.9.5, word for word."""
    r = 2**bits - 1
    z = min(max(x, minimum), maximum)
    return floor((z - minimum) / (maximum - minimum) * r + Fraction(1, 2))


@given(st.lists(FLOATS, min_size=1, max_size=30), DECIMALS, DECIMALS, st.integers(1, 16))
def test_linear_quantize_is_the_documents_formula(items: list[float], a: object, b: object, bits: int) -> None:
    minimum, maximum = sorted((Fraction(str(a)), Fraction(str(b))))
    if minimum == maximum:
        maximum += 1
    quantizer = LinearQuantizer.linear(minimum, maximum, bits)
    expected = [definition(Fraction(x), minimum, maximum, bits) for x in items]
    assert quantize(np.array(items, np.float64), quantizer).tolist() == expected
    assert quantize(np.array(items, np.float32), quantizer).tolist() == expected


@pytest.mark.parametrize("bits", [1, 2, 8, 16])
def test_thresholds_and_their_neighbours_are_decided_exactly(bits: int) -> None:
    quantizer = LinearQuantizer.linear(Fraction(0), Fraction(2**bits - 1), bits)
    thresholds = np.arange(2**bits - 1) + 0.5
    for nudge, expected in ((np.inf, 1), (-np.inf, 0), (None, 1)):
        items = thresholds if nudge is None else np.nextafter(thresholds, nudge)
        assert (quantize(items, quantizer) == np.arange(2**bits - 1) + expected).all()


def test_a_tiny_range_far_from_zero_is_exact() -> None:
    minimum, maximum = Fraction(10) ** 9, Fraction(10) ** 9 + Fraction(1, 1000)
    quantizer = LinearQuantizer.linear(minimum, maximum, 8)
    items = np.linspace(1e9 - 1e-3, 1e9 + 2e-3, 200)
    expected = [definition(Fraction(float(x)), minimum, maximum, 8) for x in items]
    assert quantize(items, quantizer).tolist() == expected


@given(st.fractions(-5, 5), st.sampled_from(["half_up", "half_even", "toward_zero"]))
def test_roundings(x: Fraction, rounding: str) -> None:
    expected = {"half_up": floor(x + Fraction(1, 2)), "half_even": round(x), "toward_zero": int(x)}[rounding]
    assert round_fraction(x, rounding) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_the_float_estimate_agrees_with_rationals_for_every_rounding(rounding: str) -> None:
    quantizer = LinearQuantizer((Fraction(1, 3),), (Fraction(-7, 5),), -20, 20, None, rounding)  # type: ignore[arg-type]
    items = np.concatenate([np.linspace(-10, 10, 1001), np.arange(-40, 40) / 6 - 1.4])
    expected = [
        min(max(round_fraction((Fraction(float(x)) + Fraction(7, 5)) * 3, quantizer.rounding), -20), 20) for x in items
    ]
    assert quantize(items, quantizer).tolist() == expected


@pytest.mark.parametrize("item", [np.nan, np.inf, -np.inf])
def test_what_is_no_real_number_is_refused(item: float) -> None:
    with pytest.raises(Invalid, match="not a real number") as error:
        quantize(np.array([0.0, item]), LinearQuantizer.linear(Fraction(0), Fraction(1), 8))
    assert error.value.code == "quantization.nan"


def test_per_channel_codes_and_their_real_numbers() -> None:
    quantizer = LinearQuantizer((Fraction(1, 2), Fraction(1, 10)), (Fraction(0), Fraction(-1)), 0, 15, axis=1)
    items = np.array([[1.26, -0.34], [9.0, 9.0]])
    codes = quantize(items, quantizer)
    assert codes.tolist() == [[3, 7], [15, 15]]
    assert dequantize(codes, quantizer).tolist() == [[1.5, float(Fraction(-3, 10))], [7.5, 0.5]]
    rationals = Rationals.of([Fraction(float(x)) for x in items.ravel()], items.shape)
    assert quantize_rationals(rationals, quantizer).tolist() == codes.tolist()
    with pytest.raises(Invalid) as error:
        quantize(np.zeros((2, 3)), quantizer)
    assert error.value.code == "quantization.axis"


def test_per_channel_codes_of_a_vector_have_an_item_per_channel() -> None:
    quantizer = LinearQuantizer((Fraction(1), Fraction(1, 2)), (Fraction(0), Fraction(-1)), 0, 15, 0)
    assert quantize(np.array([3.5, 3.5]), quantizer).tolist() == [4, 9]


@given(st.integers(0, 255))
def test_a_code_is_the_code_of_its_own_real_number(code: int) -> None:
    quantizer = LinearQuantizer.linear(Fraction("-0.47589335"), Fraction("0.37490502"), 8)
    assert quantize(dequantize(np.array([code]), quantizer), quantizer).tolist() == [code]


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda: LinearQuantizer.linear(Fraction(1), Fraction(1), 8), "quantization.range"),
        (lambda: LinearQuantizer.linear(Fraction(0), Fraction(1), 0), "quantization.bits"),
        (lambda: LinearQuantizer.linear(Fraction(0), Fraction(1), 32), "quantization.bits"),
        (lambda: LinearQuantizer((Fraction(0),), (Fraction(0),), 0, 1), "quantization.scale"),
        (lambda: LinearQuantizer((Fraction(1),), (Fraction(0),), 1, 1), "quantization.codes"),
        (lambda: LinearQuantizer((Fraction(1),) * 2, (Fraction(0),) * 2, 0, 1), "quantization.axis"),
        (lambda: LinearQuantizer((Fraction(1),) * 2, (Fraction(0),), 0, 1, 0), "quantization.lists"),
        (lambda: LogarithmicQuantizer(0, 0), "quantization.bits"),
        (lambda: LogarithmicQuantizer(0, 17), "quantization.bits"),
        (lambda: LogarithmicQuantizer.of(Fraction(0), 4), "quantization.range"),
    ],
)
def test_impossible_quantisers_are_refused(build: object, code: str) -> None:
    with pytest.raises(Invalid) as error:
        build()  # type: ignore[operator]
    assert error.value.code == code


# Logarithmic quantisers (NNEF 1.0.1 section 4.9.5)


def by_definition(x: Fraction, quantizer: LogarithmicQuantizer) -> int:
    """sign(x) * 2^round(clamp(log2 |x|)), the exponent by counting the halves that |x| reaches, squared."""
    if x == 0:
        return 0
    exponents = range(quantizer.top - quantizer.hi + 2, quantizer.top + 1)
    index = 1 + sum(x * x >= Fraction(2) ** (2 * e - 1) for e in exponents)
    return index if x > 0 else -index


POWERS = st.builds(LogarithmicQuantizer, st.integers(-40, 40), st.integers(1, 6))
BESIDE_HALVES = st.builds(
    lambda e, side, sign: sign * float(np.nextafter(2.0 ** (e - 0.5), side)),
    st.integers(-60, 60), st.sampled_from([0.0, np.inf]), st.sampled_from([-1, 1]),
)  # fmt: skip


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | BESIDE_HALVES, min_size=1), POWERS)
def test_floats_get_the_logarithmic_codes_of_the_definition(items, quantizer):
    found = quantize(np.array(items), quantizer)
    assert found.tolist() == [by_definition(Fraction(item), quantizer) for item in items]


@given(st.lists(st.floats(width=16, allow_nan=False, allow_infinity=False), min_size=1), POWERS)
def test_halves_get_them_too(items, quantizer):
    found = quantize(np.array(items, np.float16), quantizer)
    assert found.tolist() == [by_definition(Fraction(item), quantizer) for item in items]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), POWERS)
def test_integers_of_64_bits_get_them_too(items, quantizer):
    assert quantize(np.array(items), quantizer).tolist() == [by_definition(Fraction(x), quantizer) for x in items]


@given(POWERS)
def test_logarithmic_codes_and_their_numbers_are_inverse(quantizer):
    codes = np.arange(quantizer.lo, quantizer.hi + 1)
    real = dequantize(codes, quantizer)
    assert quantize(real, quantizer).tolist() == codes.tolist()
    assert [Fraction(item) for item in real] == [quantizer.value(int(code)) for code in codes]


def test_numbers_beyond_float64_become_infinite():
    assert dequantize(np.array([-4, 0, 4]), LogarithmicQuantizer(2000, 2)).tolist() == [-math.inf, 0.0, math.inf]
    huge = LinearQuantizer((Fraction(10**400),), (Fraction(0),), -1, 1)
    assert dequantize(np.array([-1, 0, 1]), huge).tolist() == [-math.inf, 0.0, math.inf]
    assert quantize(np.array([1e308, -1e308]), huge).tolist() == [0, 0]


def test_a_vector_is_quantised_per_channel():
    quantizer = LinearQuantizer((Fraction(1), Fraction(1, 2)), (Fraction(0), Fraction(0)), 0, 255, axis=0)
    assert quantize(np.array([2.0, 2.0]), quantizer).tolist() == [2, 4]
    # Beside a threshold, where the exact decision replaces the estimate.
    assert quantize(np.array([2.5, 2.25]), quantizer).tolist() == [3, 5]


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
@pytest.mark.parametrize("bits", [8, 16, 24])
def test_blocks_of_a_tensor_get_the_codes_of_single_numbers(bits, rounding, axis, monkeypatch):
    """Also at thresholds and at the floats beside them, in a narrow type, with several blocks per channel."""
    monkeypatch.setattr("cvm.blocks.blocks.__defaults__", (16,))
    random = np.random.default_rng(bits)
    shape, channels = (3, 5, 7), 1 if axis is None else (3, 5, 7)[axis]
    scales = tuple(Fraction(int(random.integers(1, 10**6)), 10**8) for _ in range(channels))
    offsets = tuple(-int(random.integers(-9, 9)) * scale for scale in scales)
    half = 2 ** (bits - 1)
    quantizer = LinearQuantizer(scales, offsets, -half, half - 1, axis, rounding=rounding)
    index = np.zeros(shape, int) if axis is None else np.indices(shape)[axis]
    steps = (random.integers(-2 * half, 2 * half, shape) // 2 + random.integers(0, 2, shape) / 2).astype(np.float64)
    scale, offset = (np.array(items, float)[index] for items in (scales, offsets))
    values = np.nextafter(steps * scale + offset, random.choice([-np.inf, 0.0, np.inf], shape))
    found = quantize(values, quantizer, dtype=narrowest(quantizer.lo, quantizer.hi))
    assert found.dtype == {8: np.int8, 16: np.int16, 24: np.int32}[bits]
    exact = [code(Fraction(x), quantizer, int(i)) for x, i in zip(values.ravel(), index.ravel(), strict=True)]
    assert found.ravel().tolist() == exact
