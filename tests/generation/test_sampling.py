"""The choice of tokens: the composed program against plain Python with exact fractions."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cvm
import cvm.generation.weights as table_module
from cvm.errors import LimitExceeded
from cvm.generation import SEEDS, Sampling, composed, decoder_of
from cvm.generation.settings import MODULUS, MULTIPLIER
from cvm.generation.weights import WEIGHT_BITS, weights
from cvm.program.verifier import verify
from tests.generation.models import drawn, given_logits, kept, next_random

SIZES = (1, 2, 65, 256, 257, 1000)
"""Sizes of vocabularies: 256 is the longest row that one matrix sums, and 257 the shortest that is cut into blocks."""
LO, HI = -2000, 2000


def decimal_weights(step: Fraction, most: int) -> list[int]:
    """round(2^30 * exp(-step * d)), by the exponential of decimal, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(step.numerator) / step.denominator
        found = [int((2**WEIGHT_BITS * (-exact * d).exp() + Decimal("0.5")).__floor__()) for d in range(most + 1)]
    return [item for item in found if item]


def seed_for(random: int) -> int:
    """The seed after which the generator gives ``random``."""
    return pow(MULTIPLIER, -1, MODULUS) * random % MODULUS


def tokens_of(rows, scale, sampling, randoms, executor="numpy") -> list[int]:
    """The token of each cycle, whose logits are a row and whose random number is chosen."""
    program = given_logits(rows, scale, LO, HI)
    session = cvm.Session(composed(decoder_of(verify(program)), sampling), executor)
    inputs = {"prompt": np.zeros((len(rows), 1), np.int32)}
    if not sampling.greedy:
        inputs["seed"] = np.array([[seed_for(random)] for random in randoms], np.int32)
    return session.run(inputs, cycles=True)["token"].ravel().tolist()


def edges(logits, table, k) -> list[int]:
    """The random numbers on both sides of every border between two tokens, and the ends."""
    greatest, among = max(logits), kept(logits, len(logits) if k is None else k)
    found, total = [], 0
    for token, logit in enumerate(logits):
        distance = greatest - logit
        total += table[distance] if token in among and distance < len(table) else 0
        found.append(total)
    places = {SEEDS[0], SEEDS[1]}
    for part in found:
        border = -(-part * SEEDS[1] // total)
        places |= {place for place in (border, border + 1, border + 2) if SEEDS[0] <= place <= SEEDS[1]}
    return sorted(places)


@st.composite
def rows_of_logits(draw, size: int):
    """Logits of a few cycles: far apart, near each other with many ties, at the ends of their range."""
    spread = draw(st.sampled_from([1, 3, 60, HI]))
    item = st.one_of(st.integers(-spread, spread), st.sampled_from([LO, HI]))
    few = draw(st.lists(item, min_size=1, max_size=12))
    chosen = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(chosen).choice(few, size).tolist()


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_tokens_are_drawn_as_exact_fractions_say(size, data):
    check_draws(size, data)


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_many_tokens_are_drawn_as_exact_fractions_say(size, data):
    check_draws(size, data)


def check_draws(size, data):
    logits = data.draw(rows_of_logits(size))
    k = data.draw(st.one_of(st.none(), st.integers(1, size)))
    scale = data.draw(st.sampled_from([Fraction(1, 64), Fraction(1, 10), Fraction(5)]))
    temperature = data.draw(st.sampled_from([Fraction(1), Fraction(4, 5), Fraction(1, 10**9), Fraction(1000)]))
    table = decimal_weights(scale / temperature, HI - LO)
    randoms = edges(logits, table, k)
    randoms = sorted(set(data.draw(st.lists(st.sampled_from(randoms), min_size=1, max_size=40))) | set(randoms[:2]))
    found = tokens_of([logits] * len(randoms), scale, Sampling(temperature, k), randoms)
    assert found == [drawn(logits, table, k, random) for random in randoms]
    assert set(found) <= kept(logits, k or size)


@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_temperature_0_takes_the_first_of_the_greatest_logits(size, data):
    rows = [data.draw(rows_of_logits(size)) for _ in range(3)]
    found = tokens_of(rows, Fraction(1), Sampling(Fraction(0)), None)
    assert found == [row.index(max(row)) for row in rows]


@pytest.mark.parametrize("size", SIZES)
def test_equal_logits_have_equal_shares(size):
    randoms = [1 + token * SEEDS[1] // size + SEEDS[1] // (2 * size) for token in range(size)][:40]
    assert tokens_of([[7] * size] * len(randoms), Fraction(1), Sampling(), randoms) == list(range(len(randoms)))


@pytest.mark.parametrize("size", [65, 257])
def test_of_equal_logits_the_first_are_kept(size):
    logits = [0] * size
    logits[size - 1] = 1
    randoms = [SEEDS[0], SEEDS[1] // 2, SEEDS[1]]
    found = tokens_of([logits] * 3, Fraction(1, 1000), Sampling(Fraction(1), 3), randoms)
    assert found == [0, 1, size - 1]


@pytest.mark.parametrize("size", [2, 65, 257])
def test_all_executors_draw_the_same(size):
    rows = np.random.default_rng(size).integers(-300, 300, (12, size)).tolist()
    randoms = np.random.default_rng(1).integers(*SEEDS, 12).tolist()
    found = {
        name: tokens_of(rows, Fraction(1, 64), Sampling(Fraction(1), min(size, 40)), randoms, name)
        for name in ("formal", "numpy", "native")
    }
    assert found["formal"] == found["numpy"] == found["native"]
    assert len(set(found["formal"])) > 1


def test_the_generator_goes_on_from_the_seed():
    program = given_logits([[0, 0]] * 20, Fraction(1), LO, HI)
    session = cvm.Session(composed(decoder_of(verify(program)), Sampling()), "numpy")
    state = 1
    for seed in (0, 0, 5, 0, SEEDS[1], 0, 0):
        session.run({"prompt": [0], "seed": [seed]})
        state = next_random(seed or state)
        assert session.state["random"].tolist() == [state]


def test_the_generator_has_the_longest_period():
    assert sorted(factor for factor in range(2, 400) if (MODULUS - 1) % factor == 0 and is_prime(factor)) == [
        2, 3, 7, 11, 31, 151, 331,
    ]  # fmt: skip
    assert (MODULUS - 1) == 2 * 3**2 * 7 * 11 * 31 * 151 * 331
    assert all(pow(MULTIPLIER, (MODULUS - 1) // factor, MODULUS) != 1 for factor in (2, 3, 7, 11, 31, 151, 331))


def is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, number))


@pytest.mark.parametrize("step", [Fraction(1, 64), Fraction(3, 7), Fraction(1, 997), Fraction(21), Fraction(500)])
def test_weights_are_correctly_rounded(step):
    assert weights(step, 3000) == decimal_weights(step, 3000)
    assert weights(step, 2) == decimal_weights(step, 2)


def test_weights_that_the_guard_bits_do_not_decide_are_enclosed_by_more_digits(monkeypatch):
    monkeypatch.setattr(table_module, "_MARGIN", 2**70)
    assert table_module.weights(Fraction(1, 3), 500) == decimal_weights(Fraction(1, 3), 500)


def test_a_table_has_a_limit(monkeypatch):
    monkeypatch.setattr(table_module, "MOST_WEIGHTS", 100)
    with pytest.raises(LimitExceeded, match="lower the temperature") as error:
        table_module.weights(Fraction(1, 1000), 3000)
    assert error.value.code == "limit.weights"
    assert len(table_module.weights(Fraction(1, 1000), 99)) == 100


@pytest.mark.slow
@pytest.mark.parametrize("size", [255 * 256, 255 * 256 + 1, 2**18])
def test_a_large_vocabulary_has_digits_that_its_sums_fit(size):
    logits = np.random.default_rng(3).integers(-400, 400, size).tolist()
    table = decimal_weights(Fraction(1, 64), HI - LO)
    randoms = [SEEDS[0], 2**30, SEEDS[1]]
    for k in (None, 50):
        found = tokens_of([logits] * 3, Fraction(1, 64), Sampling(Fraction(1), k), randoms)
        expected = [by_sums(logits, table, k, random) for random in randoms]
        assert found == expected


def by_sums(logits, table, k, random) -> int:
    """As `drawn`, in one pass."""
    among, greatest = kept(logits, k or len(logits)), max(logits)
    items = [
        table[greatest - logit] if token in among and greatest - logit < len(table) else 0
        for token, logit in enumerate(logits)
    ]
    goal, passed = (random - 1) * sum(items), 0
    for token, item in enumerate(items):
        passed += item
        if passed * SEEDS[1] > goal:
            return token
    raise AssertionError("the random number is below 1")
