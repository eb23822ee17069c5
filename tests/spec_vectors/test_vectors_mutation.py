"""The vectors notice what can go wrong: mutants of FORMAL die by them alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

import formal.registry
from formal.registry import OPS
from tests.spec_vectors.shipped import ROOT
from tools.mutate_formal import tried

from tools.mutation.mutants import mutants, sources  # isort: skip - found through the path that mutate_formal sets
from tools.mutation.trial import compiled, loaded  # isort: skip

QUICK = 12
"""Every so many mutants are tried by default."""


@pytest.mark.sweep
@pytest.mark.parametrize("op", OPS)
def test_some_mutants_of_every_op_die(op: str) -> None:
    outcome = tried(op, every=QUICK)
    assert outcome.killed > 0
    assert (outcome.survived, outcome.wrongly_excused) == ([], [])


@pytest.mark.long
def test_all_mutants_of_all_ops_die() -> None:
    command = [sys.executable, str(ROOT / "tools" / "mutate_formal.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_a_surviving_mutant_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.mutate_formal

    few = tools.mutate_formal.valued_cases("clip")[:1]
    monkeypatch.setattr(tools.mutate_formal, "valued_cases", lambda op: few)
    assert tried("clip").survived != []


def test_mutants_have_different_names_and_are_different_programs() -> None:
    modules = sources(ROOT / "formal")
    found = list(mutants("non_max_suppression", modules))
    assert len({mutant.name for mutant in found}) == len(found) > 50


def test_a_mutated_formal_leaves_the_real_one_alone() -> None:
    modules = sources(ROOT / "formal")
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "formal"}
    mutant = next(iter(mutants("abs", modules)))
    other = loaded({**compiled(modules), mutant.module: compile(mutant.tree, "mutant", "exec")})
    assert other.OPS["abs"] is not OPS["abs"]
    assert {name: module for name, module in sys.modules.items() if name.split(".")[0] == "formal"} == before
    assert sys.modules["formal.registry"] is formal.registry
