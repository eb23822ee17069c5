"""The language model that comes with cvm: its digest, and its tensors on every executor, while text is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pytest

import cvm
from cvm.agreement import compare, judge, makers
from cvm.audit.hashing import tensor_roots
from cvm.audit.trace import trace_of
from cvm.demo import LANGUAGE_MODEL, VOCABULARY
from cvm.executors import Capture, Executor, Int32Array, RunResult, Watch, create
from cvm.generation import Vocabulary
from cvm.inputs import Feed
from cvm.program.verifier import verify
from cvm.session import Session
from tools.tiny_gpt.perplexity import losses

DIGEST = "ccf7ad2b7505350db9cf7e78e84ce1adb4bd180447150961207f5c63afd95f72"
PROMPT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n"


@pytest.fixture(scope="module")
def program() -> cvm.Program:
    return cvm.load(LANGUAGE_MODEL)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.load(VOCABULARY)


def cycles_of(tokens: Sequence[int]) -> list[Feed]:
    return [{"token": np.array([token], np.int32)} for token in tokens]


def test_the_program_is_the_one_of_the_page(program: cvm.Program) -> None:
    assert program.digest == DIGEST
    assert LANGUAGE_MODEL.stat().st_size <= 1_500_000
    assert [(item.value.name, item.value.shape) for item in program.inputs] == [("token", (1,))]
    assert [item.name for item in program.outputs] == ["logits"]
    blocks = [f"{kind}_{block}" for block in range(4) for kind in ("key", "value")]
    assert [item.value.name for item in program.state] == ["position", *blocks]


def test_it_has_learnt_english(program: cvm.Program, vocabulary: Vocabulary) -> None:
    """A sentence that is not in the training text; guessing among 65 characters alike would take 4.2 nats for each."""
    sentence = "The king will come to the house of his father, and all the men will follow him."
    tokens = np.array(vocabulary.encode(sentence))
    result = Session(program, "numpy").run({"token": tokens[None, :, None]}, cycles=True, codes=True)
    logits = result.real("logits").reshape(len(tokens), -1)
    assert losses(logits[:-1], tokens[1:]).mean() < 1.6


def test_a_token_is_written_to_the_state_at_its_position(program: cvm.Program, vocabulary: Vocabulary) -> None:
    session = Session(program, "numpy")
    before = {name: array.copy() for name, array in session.state.items()}
    for place, token in enumerate(vocabulary.encode("To be")):
        session.run({"token": np.array([token])}, codes=True)
        assert session.state["position"].tolist() == [place + 1]
        for name, array in session.state.items():
            if name != "position":
                changed = np.flatnonzero((array != before[name]).any(axis=(0, 1, 3)))
                assert changed.tolist() == [place]
        before = {name: array.copy() for name, array in session.state.items()}


@pytest.mark.slow
def test_executors_and_formal_give_the_same_tensors(program: cvm.Program, vocabulary: Vocabulary) -> None:
    verified = verify(program)
    executors = [create(name, verified) for name in ("numpy", "native")]
    cycles = cycles_of(vocabulary.encode(PROMPT)[:12])
    agreement = compare(program, executors, [cycles])
    assert (agreement.runs, agreement.difference) == (12, None)
    judged = judge(verified, executors[0], [cycles[:3]], 4)
    assert (judged.runs, judged.difference) == (3, None)
    assert judged.elements > 3 * 4 * 200


class Traced:
    """An executor that also computes the trace of each run of which it returns every tensor."""

    def __init__(self, executor: Executor, program: cvm.Program) -> None:
        self._executor, self._program = executor, program
        self.name = executor.name
        self.roots: list[str] = []

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        result = self._executor.run(inputs, state, capture, watch)
        if capture == "all":
            values = {
                name: array for name, array in {**result.values, **inputs, **state}.items() if name in self._shown
            }
            self.roots.append(trace_of(self._program, tensor_roots(values)).root.hex())
        return result

    @cached_property
    def _shown(self) -> frozenset[str]:
        return frozenset(makers(self._program))

    def explain(self) -> tuple[str, ...]:
        return self._executor.explain()


@pytest.mark.long
def test_whole_tensors_of_two_hundred_generated_tokens_are_those_of_formal(vocabulary: Vocabulary) -> None:
    """The program that generates, so that the choice of each token is judged too: every element of every tensor."""
    made = cvm.generate(
        LANGUAGE_MODEL, "ROMEO:", 200, vocabulary=vocabulary, temperature="0.7", top_k=10, seed=7, receipt="trace"
    )
    assert made.receipt is not None
    verified = verify(made.program)
    cycles = [{name: rows[cycle] for name, rows in made.inputs.items()} for cycle in range(len(made.inputs["prompt"]))]
    executors = [Traced(create(name, verified), made.program) for name in ("formal", "numpy", "native")]
    agreement = compare(made.program, executors, [cycles])
    assert (agreement.runs, agreement.difference) == (205, None)
    claimed = [run.trace.hex() for run in made.receipt.claim.runs if run.trace is not None]
    assert len(claimed) == 205
    for executor in executors:
        assert executor.roots == claimed
