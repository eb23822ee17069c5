import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from cvm.report.measures import Meter, decibels
from cvm.report.ruler import ruler
from tests.report.brute_force import Expected, at, number

QUANTIZERS = {
    "uniform": LinearQuantizer.linear(Fraction(-13, 10), Fraction(21, 10), 8),
    "one bit": LinearQuantizer.linear(Fraction(-1), Fraction(1), 1),
    "wide": LinearQuantizer.linear(Fraction(-3), Fraction(7, 3), 16),
    "wider than a table": LinearQuantizer((Fraction(1, 2**20),), (Fraction(1, 3),), -(2**31) + 1, 2**31 - 1),
    "signed": LinearQuantizer((Fraction(3, 127),), (Fraction(0),), -127, 127, rounding="half_even"),
    "per channel": LinearQuantizer(
        (Fraction(1, 10), Fraction(1, 77), Fraction(3)), (Fraction(0), Fraction(1, 3), Fraction(-2)), -128, 127, 1
    ),
    "none": None,
}
SHAPE = (2, 3, 5)
INTERVAL = (-300, 400)


@pytest.mark.sweep
@pytest.mark.parametrize("name", QUANTIZERS)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), runs=st.integers(1, 4))
def test_measures_are_those_of_their_definitions(name, seed, runs):
    check_measures(name, seed, runs)


@pytest.mark.long
@pytest.mark.parametrize("name", QUANTIZERS)
@settings(max_examples=1000)
@given(seed=st.integers(0, 2**32 - 1), runs=st.integers(1, 4))
def test_many_measures_are_those_of_their_definitions(name, seed, runs):
    check_measures(name, seed, runs)


def check_measures(name, seed, runs):
    quantizer, random = QUANTIZERS[name], np.random.default_rng(seed)
    lo, hi = INTERVAL if quantizer is None else (quantizer.lo, quantizer.hi)
    meter, expected = Meter(ruler(quantizer, SHAPE, INTERVAL)), Expected()
    for sample in range(runs):
        codes = random.integers(lo, hi + 1, SHAPE).astype(np.int32)
        codes[random.random(SHAPE) < 0.1] = random.choice([lo, hi])
        reals = np.empty(SHAPE)
        for index in np.ndindex(SHAPE):
            channel, code = index[1], int(codes[index])
            reals[index] = number(code, quantizer, channel)
            if random.random() < 0.8:
                reals[index] += float(random.normal()) * float(at(quantizer, channel)[0])
            if quantizer is None:  # integers of the model are within the proven interval
                reals[index] = min(max(reals[index], lo), hi)
            expected.add(float(reals[index]), code, quantizer, channel, sample)
        meter.add(reals, codes, sample)
    found = meter.result()
    histogram = found.histogram
    assert found.elements == expected.elements == sum(histogram.program)
    assert found.undefined == 0
    assert found.differing == expected.differing
    assert (histogram.below, histogram.above) == (expected.below, expected.above)
    assert (found.at_least, found.at_greatest) == (expected.codes[lo], expected.codes[hi])
    assert found.code_range == (min(expected.codes), max(expected.codes))
    assert found.float_range == (min(expected.floats), max(expected.floats))
    for counts, seen in ((histogram.program, expected.codes), (histogram.float, expected.float_codes)):
        bins = [0] * len(counts)
        for code, count in seen.items():
            bins[(code - histogram.first) // histogram.width] += count
        assert list(counts) == bins
    assert len(histogram.float) <= 1024
    assert found.sqnr == pytest.approx(expected.sqnr, abs=1e-6)
    assert found.max_error == pytest.approx(float(expected.worst), rel=1e-6)
    assert found.max_error_sample == expected.worst_sample
    assert found.mean_error == pytest.approx(float(expected.error / expected.elements), rel=1e-6, abs=1e-9)


def test_logarithmic_codes_stand_for_powers_of_two():
    quantizer = LogarithmicQuantizer(3, 2)
    codes = np.arange(quantizer.lo, quantizer.hi + 1)
    exact = np.array([float(quantizer.value(int(code))) for code in codes])
    meter = Meter(ruler(quantizer, codes.shape, (quantizer.lo, quantizer.hi)))
    meter.add(exact, codes)
    found = meter.result()
    assert found.sqnr == math.inf
    assert found.histogram.float == found.histogram.program == (1,) * 9
    assert (found.histogram.below, found.histogram.above) == (0, 0)
    meter.add(exact * 4, codes)
    assert meter.result().histogram.above == meter.result().histogram.below == 2


def test_large_tensors_are_counted_like_small_ones():
    quantizer = QUANTIZERS["per channel"]
    shape = (7, 3, 20_000)  # several blocks, which end inside of channels
    random = np.random.default_rng(7)
    codes = random.integers(-128, 128, shape).astype(np.int32)
    reals = random.normal(size=shape) * 9
    whole, parts = Meter(ruler(quantizer, shape, (-128, 127))), Meter(ruler(quantizer, (1, 3, 20_000), (-128, 127)))
    whole.add(reals, codes)
    for index in range(7):
        parts.add(reals[index : index + 1], codes[index : index + 1])
    one, other = whole.result(), parts.result()
    assert one.histogram == other.histogram
    assert (one.at_least, one.at_greatest, one.differing) == (other.at_least, other.at_greatest, other.differing)
    assert one.max_error == other.max_error
    assert one.sqnr == pytest.approx(other.sqnr, abs=1e-9)


def test_conventions_of_the_ratio():
    assert decibels(100.0, 1.0, equal=False) == 20
    assert decibels(5.0, 0.0, equal=True) == math.inf
    assert decibels(0.0, 0.0, equal=True) == math.inf
    assert decibels(0.0, 2.0, equal=False) == -math.inf
    assert decibels(math.inf, 2.0, equal=False) is None
    assert decibels(1.0, math.inf, equal=False) is None
    assert decibels(1.0, 0.0, equal=False) is None  # the squares are below float64


def test_what_is_not_a_number_is_counted_and_left_out():
    quantizer = QUANTIZERS["uniform"]
    meter = Meter(ruler(quantizer, (5,), (0, 255)))
    meter.add(np.array([np.nan, np.inf, -np.inf, float(quantizer.offset[0]), 0.5]), np.array([0, 255, 0, 0, 200]))
    found = meter.result()
    assert (found.elements, found.undefined, found.differing) == (5, 3, 1)
    assert (found.histogram.below, found.histogram.above) == (1, 1)
    assert sum(found.histogram.float) == 2
    assert sum(found.histogram.program) == 5
    assert found.float_range == (float(quantizer.offset[0]), 0.5)
    assert found.sqnr is not None
    nothing = Meter(ruler(quantizer, (1,), (0, 255)))
    nothing.add(np.array([np.nan]), np.array([3]))
    assert nothing.result().sqnr is None
