"""Whoever says what follows from program and inputs wins every game, whatever the other side says."""

from __future__ import annotations

from itertools import cycle
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cvm.audit.dispute.game import settle
from cvm.audit.dispute.party import Witnessed
from cvm.audit.dispute.sides import statement_of
from tests.audit.dispute.games import (
    MODELS,
    Tally,
    evidence_of,
    model,
    play,
    play_all,
    small_steps,
    vector_programs,
)
from tests.audit.dispute.liars import LIARS, wrong_element
from tests.random_programs.strategies import Sample, samples

GAMES = 14
"""Games about one random program: a liar of every kind."""


def random_programs(programs: int, tally: Tally) -> None:
    kinds = cycle(LIARS)

    @settings(
        max_examples=programs,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(samples(), st.integers(0, 2**32 - 1))
    def run(sample: Sample, seed: int) -> None:
        true = evidence_of(sample.program, 0, sample.runs[0])
        play_all(true, Random(seed), tally, kinds, GAMES)

    run()


@pytest.mark.parametrize("kind", LIARS)
def test_a_liar_of_every_kind_loses(kind):
    random = Random(kind)
    for name in ("detection", "valid_rows", "tiny_cnn", "movements"):
        for _ in range(2):
            play(vector_programs()[name], kind, random)


def test_the_honest_side_wins_about_random_programs(monkeypatch):
    small_steps(monkeypatch, 2)
    tally = Tally()
    random_programs(10, tally)
    assert tally.games >= 100
    assert tally.proven >= 10


@pytest.mark.parametrize("name", ["demo", "digits/mlp_cancer", "real/hello_world"])
def test_the_honest_side_wins_about_small_models(name):
    if not MODELS[name].is_dir():
        pytest.skip("the models are not here (../shared)")
    tally = Tally()
    play_all(model(name), Random(name), tally, cycle(LIARS), 2 * len(LIARS))
    assert tally.games >= 20


@pytest.mark.long
def test_the_honest_side_wins_5000_games():
    """`python -m pytest -m long -s tests/audit/dispute/test_game.py` plays them and prints what happened."""
    tally = Tally()
    for terms in (256, 3, 1):
        with pytest.MonkeyPatch.context() as patch:
            small_steps(patch, terms)
            random_programs(250, tally)
            for name, true in vector_programs().items():
                play_all(true, Random(f"{name} {terms}"), tally, cycle(LIARS), 2 * len(LIARS))
    for name, folder in MODELS.items():
        if folder.is_dir():
            play_all(model(name), Random(name), tally, cycle(LIARS), 3 * len(LIARS))
    print(f"\n{tally.games} games, {tally.proven} up to a proof, at most {tally.longest} rounds")
    print(f"{dict(tally.kinds)}\n{dict(tally.ops)}")
    assert tally.games >= 5_000


def test_there_is_nothing_to_settle_where_both_agree():
    true = vector_programs()["tiny_cnn"]
    honest = Witnessed(true)
    outcome = settle(statement_of(true), (honest.root, honest.root), (honest, honest))
    assert (outcome.winner, outcome.rounds) == (None, 0)


def test_two_liars_may_both_lose():
    true = vector_programs()["tiny_cnn"]
    first, second = (Witnessed(wrong_element(true, Random(seed)).evidence) for seed in (0, 1))
    assert first.root != second.root
    # Each is the truth at the step of the other's lie, or they lie at one step: nobody else can win.
    outcome = settle(statement_of(true), (first.root, second.root), (first, second))
    silent = settle(statement_of(true), (bytes(32), bytes(31)), (first, second))
    assert outcome.winner in ("A", "B", None)
    assert silent.winner is None
