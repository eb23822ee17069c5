"""The language model that comes with cvm: its digest, and its tensors on every executor, while text is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import cvm
from cvm.agreement import compare, judge
from cvm.demo import LANGUAGE_MODEL, VOCABULARY
from cvm.executors import create
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


def chosen(program: cvm.Program, tokens: Sequence[int], count: int) -> list[int]:
    """The given tokens and those that follow, each with the greatest logit, until there are ``count``."""
    session, found = Session(program, "numpy"), list(tokens)
    for place in range(count - 1):
        logits = session.run({"token": np.array([found[place]])}, codes=True)["logits"]
        if place + 1 == len(found):
            found.append(int(logits.argmax()))
    return found


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


@pytest.mark.long
def test_all_tensors_of_two_hundred_tokens_are_the_same(program: cvm.Program, vocabulary: Vocabulary) -> None:
    """The prompt, and what the model adds to it."""
    verified = verify(program)
    executors = [create(name, verified) for name in ("numpy", "native")]
    cycles = cycles_of(chosen(program, vocabulary.encode(PROMPT), 200))
    agreement = compare(program, executors, [cycles])
    assert (agreement.runs, agreement.difference) == (200, None)
    judged = judge(verified, executors[0], [cycles], 2)
    assert (judged.runs, judged.difference) == (200, None)
