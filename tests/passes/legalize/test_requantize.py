"""A legalised requantize gives the same codes as the op, for all multipliers, shifts, offsets, roundings and bounds."""

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.ops import REGISTRY
from cvm.passes.legalize import legalize
from cvm.program import Program, verify
from tests.passes.legalize.nodes import LARGEST, ROUNDINGS, Requantize, node, run
from tests.selection import examples, mostly_long

RANDOMS = st.randoms(use_true_random=False)
EXHAUSTIVE = [HealthCheck.too_slow, HealthCheck.data_too_large]


def assert_same(case: Requantize, random: Random, executor: str = "numpy") -> Program:
    """The program in the document's ops, after comparison."""
    found = legalize(case.program)
    assert all(REGISTRY[item.op].family != "extension" for item in found.nodes)
    assert all(constant.kind == "tensor" for constant in found.constants)
    assert found.digest != case.program.digest
    assert verify(found).ranges["y"].hull() <= verify(case.program).ranges["y"].hull()
    inputs = case.aimed(random)
    np.testing.assert_array_equal(run(found, inputs, executor)["y"], run(case.program, inputs)["y"], strict=True)
    return found


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=EXHAUSTIVE)
@given(RANDOMS)
def test_every_node_gives_the_same_codes(random: Random) -> None:
    assert_same(node(random, (1, random.choice([1, 3]), 64)), random)


@settings(max_examples=25, suppress_health_check=EXHAUSTIVE)
@given(RANDOMS)
def test_formal_computes_the_same_codes_of_small_nodes(random: Random) -> None:
    assert_same(node(random, (1, random.choice([1, 2]), 3)), random, "formal")


@pytest.mark.long
def test_a_million_values() -> None:
    random = Random(20)
    values = 0
    while values < 1_000_000:
        case = node(random, (1, random.choice([1, 3]), 256))
        assert_same(case, random)
        values += int(np.prod(case.shape))


def scalar(value: int) -> np.ndarray:
    return np.array([value], np.int64)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", mostly_long(range(63), {0, 1, 2, 30, 31, 32, 33, 61, 62, *range(5, 63, 9)}))
def test_every_shift_over_the_whole_of_int32(rounding: str, shift: int) -> None:
    random = Random(f"{rounding} {shift}")
    half = (1 << shift) >> 1
    multiplier = random.choice([1, -1, 2**31 - 1, 2**30 + 1, min(half // LARGEST + 1, 2**30)])
    left = 2**63 - 1 - abs(multiplier) * LARGEST - half
    offset = random.choice([0, half, -half, left, -left])
    lo, hi = random.choice([(-LARGEST, LARGEST), (-LARGEST, LARGEST), (-128, 127)])
    parameters = [scalar(item) for item in (multiplier, max(-left, min(offset, left)), shift)]
    assert_same(Requantize((1, 1, 99), [(-LARGEST, LARGEST)], parameters, rounding, lo, hi), random)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", range(1, 62))
def test_every_width_of_multipliers(rounding: str, bits: int) -> None:
    random = Random(f"{rounding} {bits}")
    bound = min(LARGEST, 2 ** (62 - bits) - 1)
    multiplier = random.choice([2**bits - 1, -(2**bits) + 1, 2 ** (bits - 1) + 1, random.randint(1, 2**bits - 1)])
    shift = random.choice([min(61, bits + 3), max(0, bits - 8)])
    parameters = [scalar(item) for item in (multiplier, random.randint(-(2**60), 2**60), shift)]
    assert_same(Requantize((1, 1, 99), [(-bound, bound)], parameters, rounding, -(2**20), LARGEST), random)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", range(1, 5))
def test_every_small_sum(rounding: str, shift: int) -> None:
    sums = np.arange(-200, 201).reshape(1, 1, -1)
    for multiplier in (1, 3, -5):
        for offset in (0, 1, -7):
            parameters = [scalar(multiplier), scalar(offset), scalar(shift)]
            case = Requantize(sums.shape, [(-200, 200)], parameters, rounding)
            inputs = {"x0": sums.astype(np.int32)}
            expected = run(case.program, inputs)["y"]
            np.testing.assert_array_equal(run(legalize(case.program), inputs)["y"], expected)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_large_constants_per_position_saturate_apart(rounding: str) -> None:
    # In one column of the program the results lie within int32, in the next far beyond both of its ends.
    shape = (1, 2, 64)
    offsets = np.array([0, 2**61, -(2**61), 2**40, -(2**40), LARGEST, -LARGEST, 1] * 16, np.int64).reshape(shape)
    for shift in (0, 1, 8, 30):
        for bound, multiplier in ((1, 1), (255, 1), (LARGEST, 1), (2**20, 1023), (2**24, 31)):
            case = Requantize(shape, [(-bound, bound)], [scalar(multiplier), offsets, scalar(shift)], rounding)
            assert_same(case, Random(bound))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("shift", [0, 1])
def test_multipliers_beyond_the_column_that_is_rounded(rounding: str, shift: int) -> None:
    # The lowest column is constant; it decides alone whether there is a tie or a rest.
    offsets = np.arange(-4, 5).reshape(1, 9, 1)
    for multiplier in (2**10, 2**20, 2**26, -(2**40)):
        case = Requantize((1, 9, 8), [(-900, 900)], [scalar(multiplier), offsets, scalar(shift)], rounding)
        assert_same(case, Random(shift))


def test_without_ties_rounding_half_even_takes_no_more_ops_than_half_up() -> None:
    # 2 x + 1 is odd: over 4 there is no tie.
    parameters = [scalar(2**20), scalar(2**19), scalar(21)]
    up, even = (
        legalize(Requantize((1, 1, 8), [(-(2**20), 2**20)], parameters, rounding, 0, 255).program)
        for rounding in ("half_up", "half_even")
    )
    assert len(up.nodes) == len(even.nodes)


def test_a_sum_of_one_sign_takes_no_more_ops_toward_zero_than_half_up() -> None:
    for bounds in ((0, 2**20), (-(2**20), 0)):
        parameters = [scalar(2**30 + 1), scalar(0), scalar(40)]
        up, zero = (
            legalize(Requantize((1, 1, 8), [bounds], parameters, rounding).program)
            for rounding in ("half_up", "toward_zero")
        )
        assert len(zero.nodes) <= len(up.nodes) + 1
