"""Prefill programs change no token, state or receipt."""

from __future__ import annotations

import numpy as np
import pytest

import cvm
from cvm.demo import LANGUAGE_MODEL
from cvm.errors import Invalid, Mismatch
from cvm.executors import EXECUTORS
from cvm.generation import Generator, prefill
from cvm.generation.decoding import decoder_of
from cvm.program.verifier import verify
from tools.cached_model import CONTEXT, SIZE, cached

PROMPT = [int(token) for token in np.random.default_rng(1).integers(0, SIZE, 76)]
TOKENS = 12
WAYS: list[tuple[int, ...]] = [(1,), (7,), (64,), (7, 64), (2, 3, 5)]


def made(chunks: tuple[int, ...], executor: str, temperature: object = "0.9", receipt: object = True) -> object:
    """What is generated after a prompt, and the state that is left."""
    generator = Generator(
        cached(1), temperature=temperature, executor=executor, threads=1, prefill=[cached(count) for count in chunks]
    )
    found = generator.run(generator.request(PROMPT, TOKENS, seed=5), receipt)
    return found, generator.session.state


@pytest.mark.parametrize("temperature", ["0.9", 0])
@pytest.mark.parametrize("executor", ["numpy", "native"])
def test_prefill_in_any_pieces_gives_equal_tokens_states_and_receipts(executor: str, temperature: object) -> None:
    expected, left = made((), executor, temperature)
    assert len(set(expected.tokens)) > 1
    for chunks in WAYS:
        found, state = made(chunks, executor, temperature)
        assert found.tokens == expected.tokens
        assert found.receipt.claim == expected.receipt.claim
        assert np.array_equal(found.outputs["token"], expected.outputs["token"])
        silent, other = made(chunks, executor, temperature, False)
        assert silent.tokens == expected.tokens
        for name in left:
            assert np.array_equal(state[name], left[name]), name
            assert np.array_equal(other[name], left[name]), name
    verdict = cvm.verify(expected.receipt, expected.program, expected.inputs, cycles=True)
    assert verdict.answer == "REPRODUCED"


@pytest.mark.slow
def test_formal_generates_with_prefill_what_it_generates_without() -> None:
    prompt, programs = PROMPT[:7], {(): [], (3,): [cached(3)]}
    found = []
    for programs_of_prefill in programs.values():
        generator = Generator(cached(1), executor="formal", prefill=programs_of_prefill)
        found.append(generator.run(generator.request(prompt, 2, seed=3), True))
    assert found[0].tokens == found[1].tokens
    assert found[0].receipt.claim == found[1].receipt.claim


def test_a_trace_is_of_single_tokens() -> None:
    expected, _ = made((), "numpy", receipt="trace")
    found, _ = made((7,), "numpy", receipt="trace")
    assert found.receipt.claim == expected.receipt.claim
    assert found.receipt.traced


def test_tokens_that_nothing_asked_for_are_not_computed() -> None:
    found, _ = made((64,), "numpy", receipt=False)
    assert found.outputs["token"][:64].tolist() == [[-1]] * 64
    assert (found.outputs["token"][64:] >= 0).all()


def test_the_prompt_is_read_in_the_largest_pieces_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    runs = prefill.Reading._runs

    def counted(self: object, main: object, program: prefill.Prefill) -> object:
        run = runs(self, main, program)  # type: ignore[arg-type]
        return lambda tokens: (seen.append(len(tokens)), run(tokens))[1]

    monkeypatch.setattr(prefill.Reading, "_runs", counted)
    made((3, 20), "numpy", receipt=False)
    assert seen == [20, 20, 20, 3, 3, 3, 3, 3]  # the last token of the prompt is read by the decode step


@pytest.mark.parametrize("executor", EXECUTORS)
def test_programs_are_compared_before_they_are_used_together(executor: str) -> None:
    decoder = decoder_of(verify(cached(1)))
    prefill.agree(prefill.prefill_of(verify(cached(5)), decoder), decoder, executor)
    prefill.agree(prefill.prefill_of(verify(cached(5, last_only=True)), decoder), decoder, executor)
    with pytest.raises(Mismatch, match="other codes than the decode step"):
        prefill.agree(prefill.prefill_of(verify(cached(5, shift=6)), decoder), decoder, executor)


def test_a_program_that_leaves_another_state_makes_no_receipt() -> None:
    generator = Generator(cached(1), executor="numpy", prefill=[cached(3, step=4)])
    request = generator.request(PROMPT, TOKENS)
    with pytest.raises(Mismatch, match="counts from 0 to 4"):
        generator.run(request, True)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda: cached(5, context=CONTEXT + 1), "expected the state of the decode step"),
        (lambda: cvm.load(LANGUAGE_MODEL), "expected the state"),
    ],
)
def test_other_programs_are_refused(program: object, reason: str) -> None:
    with pytest.raises(Invalid, match=reason) as caught:
        Generator(cached(1), prefill=[program()])  # type: ignore[operator]
    assert caught.value.code == "generation.prefill"


def test_a_receipt_needs_the_logits_of_all_tokens() -> None:
    generator = Generator(cached(1), executor="numpy", prefill=[cached(7, last_only=True)])
    request = generator.request(PROMPT, TOKENS, seed=5)
    with pytest.raises(Invalid, match="no logits of all tokens"):
        generator.run(request, True)
    assert generator.run(request).tokens == made((), "numpy", "1", False)[0].tokens
