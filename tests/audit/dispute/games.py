"""Runs to quarrel about, and games between who says what follows from them and who does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest

import cvm
from cvm.audit.dispute import chunks, folds, vision
from cvm.audit.dispute.bounds import most_rounds
from cvm.audit.dispute.evidence import Evidence, OpenProgram
from cvm.audit.dispute.game import Outcome, settle
from cvm.audit.dispute.party import Witnessed
from cvm.audit.dispute.sides import statement_of
from cvm.demo import MODEL
from cvm.executors import create, initial_state
from cvm.program import Program, decode, verify
from cvm.vectors import decode as decode_vectors
from cvm.vectors.format import OpCase, ProgramCase
from tests.audit.dispute.folding import cases
from tests.audit.dispute.liars import LIARS
from tools.vector_cases.steps import op_evidence

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "models"
MODELS = {
    "demo": MODEL,
    **{
        f"{folder}/{name}": SHARED / folder / name
        for folder, names in (
            ("digits", ("lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mlp_cancer", "mobilenet_digits",
                        "rnn_digits")),
            ("real", ("hello_world", "micro_speech", "person_detect", "mobilenet_v2")),
        )
        for name in names
    },
}  # fmt: skip
"""All models of ``../shared/models``, and the one that comes with cvm."""


def evidence_of(program: Program, seed: int = 0, inputs: Mapping[str, np.ndarray] | None = None) -> Evidence:
    """What follows from a program: from its initial state, and inputs drawn from the intervals where none are given."""
    random = np.random.default_rng(seed)
    feed = {
        item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
        for item in program.inputs
    } | dict(inputs or {})
    state = initial_state(program)
    result = create("numpy", verify(program)).run(feed, state, "all")
    return Evidence(OpenProgram(program), {**state, **feed, **result.values})


@cache
def vector_programs() -> dict[str, Evidence]:
    """The programs of the test vectors, with the inputs of their first run."""
    found = {}
    for path in sorted((ROOT / "spec_vectors" / "programs").glob("*.msgpack")):
        case = decode_vectors(path.read_bytes()).cases[0]
        assert isinstance(case, ProgramCase)
        if case.verdict == "value":
            inputs = {name: tensor.array() for name, tensor in case.runs[0].inputs.items()}
            found[path.stem] = evidence_of(decode(case.program), 0, inputs)
    return found


@cache
def op_programs() -> dict[str, Evidence]:
    """For every op a program of one node, from one of its vectors, and its run on that vector's tensors."""
    return {op: op_evidence(_telling(found)) for op, found in cases().items()}


def _telling(found: list[OpCase]) -> OpCase:
    """The vector of an op with the largest output that has not too many elements and not one value alone."""
    sized = [(max(t.array().size for t in (*case.inputs, *case.outputs)), case.id, case) for case in found]
    return max((size, name, case) for size, name, case in sized if size <= 600)[2]


@cache
def model(name: str) -> Evidence:
    """A run of a model, on noise."""
    return evidence_of(cvm.compile(MODELS[name]))


class Tally:
    """Games, by the liar and by how they ended."""

    def __init__(self) -> None:
        self.games = 0
        self.proven = 0
        self.kinds: Counter[str] = Counter()
        self.ops: Counter[str] = Counter()
        self.longest = 0

    def note(self, kind: str, true: Evidence, outcome: Outcome) -> None:
        self.games += 1
        self.kinds[kind] += 1
        self.longest = max(self.longest, outcome.rounds)
        if outcome.proof is not None:
            self.proven += 1
            assert outcome.op is not None
            self.ops[true.program.program.nodes[outcome.op].op] += 1


def play(true: Evidence, kind: str, random: Random) -> Outcome | None:
    """A game of the truth against a liar of that kind, on either side; None if this liar happens to tell the truth."""
    if not true.trace.steps and kind != "wrong_status":
        return None  # there is nothing else to lie about
    liar = LIARS[kind](true, random)
    if liar.root == true.trace.root:
        return None
    honest = Witnessed(true)
    statement = statement_of(true)
    if random.random() < 0.5:
        outcome = settle(statement, (honest.root, liar.root), (honest, liar))
        assert outcome.winner == "A", (kind, outcome)
    else:
        outcome = settle(statement, (liar.root, honest.root), (liar, honest))
        assert outcome.winner == "B", (kind, outcome)
    assert outcome.rounds <= most_rounds(true.program), (kind, outcome)
    return outcome


def play_all(true: Evidence, random: Random, tally: Tally, kinds: Iterator[str], games: int) -> None:
    """So many games about one run, with liars of the next kinds."""
    for _ in range(games):
        kind = next(kinds)
        outcome = play(true, kind, random)
        if outcome is not None:
            tally.note(kind, true, outcome)


def small_steps(monkeypatch: pytest.MonkeyPatch, terms: int) -> None:
    """Let a step have so few terms that elements of small tensors take several."""
    for module in (chunks, vision):
        monkeypatch.setattr(module, "TERMS", terms)
    monkeypatch.setattr(folds, "PARTS", terms)
