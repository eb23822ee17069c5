"""`cvm.generate`: texts, receipts, executors, refusals."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import cvm
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.generation import SEEDS, Generator, Sampling, Vocabulary, composed, decoder_of
from cvm.generation.vocabulary import beside
from cvm.ops import op_set
from cvm.passes.legalize import legalize
from cvm.program import Output, ProgramBuilder
from cvm.program.verifier import verify
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from tools.decode_step import CHARACTERS, CONTEXT, decode_step

WORDS = list(CHARACTERS)
SETTINGS = [{"temperature": 0}, {}, {"temperature": "2.5", "top_k": 5, "seed": 7}]
SCALE = LinearQuantizer((Fraction(1, 8),), (Fraction(0),), -100, 100)


@pytest.fixture(scope="module")
def model():
    return decode_step()


def followed(model, prompt, tokens) -> list[int]:
    """The greedy tokens by a loop outside of the program: the model is run, its greatest logit is fed back."""
    session, found = cvm.Session(model, "numpy"), []
    for cycle in range(len(prompt) + tokens - 1):
        token = prompt[cycle] if cycle < len(prompt) else found[-1]
        logits = session.run({"token": np.array([token], np.int32)})["logits"]
        if cycle >= len(prompt) - 1:
            found.append(int(np.argmax(logits)))
    return found


def test_greedy_tokens_are_those_of_a_loop_around_the_model(model):
    made = cvm.generate(model, "Once upon", 20, vocabulary=WORDS, temperature=0, executor="numpy")
    assert list(made.tokens) == followed(model, [CHARACTERS.index(c) for c in "Once upon"], 20)
    assert made.text == "".join(WORDS[token] for token in made.tokens)
    assert made.prompt == tuple(CHARACTERS.index(c) for c in "Once upon")


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_executor_gives_every_tensor_of_every_cycle(model, settings):
    made = cvm.generate(model, "Once", 10, vocabulary=WORDS, executor="numpy", **settings)
    every = {
        name: cvm.Session(made.program, name).run(made.inputs, "all", cycles=True)
        for name in ("formal", "numpy", "native")
    }
    names = set(every["formal"])
    assert names == set(made.program.value_names()) - {item.name for item in made.program.constants}
    for name in names:
        assert np.array_equal(every["formal"][name], every["numpy"][name]), name
        assert np.array_equal(every["formal"][name], every["native"][name]), name
    assert every["formal"]["token"][3:, 0].tolist() == list(made.tokens)


def test_texts_and_receipts_depend_on_no_executor_and_no_thread(model):
    settings = {"vocabulary": WORDS, "temperature": 1.5, "top_k": 9, "seed": 3, "receipt": "trace"}
    made = [
        cvm.generate(model, "Once", 12, executor=name, threads=threads, **settings)
        for name, threads in (("formal", 1), ("numpy", 1), ("native", 1), ("native", 2))
    ]
    assert len({item.text for item in made}) == 1
    assert len({item.receipt.id for item in made}) == 1
    assert len(made[0].receipt.claim.runs) == 4 + 12 - 1


def test_tokens_are_told_as_they_come(model):
    told = []
    made = cvm.generate(model, "Once", 9, vocabulary=WORDS, executor="numpy", told=lambda *item: told.append(item))
    assert told == [(token, WORDS[token]) for token in made.tokens]
    assert len(told) == 9


def test_a_generator_begins_anew_with_each_request(model):
    generator = Generator(model, temperature="0.9", executor="numpy")
    first, second = (generator.run(generator.request([5, 6], 8, seed)) for seed in (1, 2))
    again = generator.run(generator.request([5, 6], 8, 1))
    assert first.tokens == again.tokens != second.tokens
    assert first.text == ""
    assert np.array_equal(first.outputs["token"], again.outputs["token"])


def test_the_prompt_may_be_tokens(model):
    texts, tokens = (
        cvm.generate(model, prompt, 5, vocabulary=WORDS, executor="numpy")
        for prompt in ("Once", np.array([CHARACTERS.index(c) for c in "Once"]))
    )
    assert texts.tokens == tokens.tokens


def test_the_inputs_are_the_prompt_and_the_seed_and_then_to_go_on(model):
    made = cvm.generate(model, "Once", 3, vocabulary=WORDS, executor="numpy", seed=9)
    assert made.inputs["prompt"].tolist() == [[CHARACTERS.index(c)] for c in "Once"] + [[-1], [-1]]
    assert made.inputs["seed"].tolist() == [[9], [0], [0], [0], [0], [0]]
    greedy = cvm.generate(model, "Once", 3, vocabulary=WORDS, executor="numpy", temperature=0)
    assert list(greedy.inputs) == ["prompt"]


def test_the_temperature_is_1_if_none_is_given(model):
    given = [Generator(model).program, Generator(model, temperature=1).program]
    assert given[0] == given[1] == cvm.generate(model, [0], 1, executor="numpy").program


def test_a_model_may_have_nodes_of_several_outputs():
    builder = ProgramBuilder()
    builder.input("token", (1,), 0, 2)
    rows = builder.constant([[[0, 5], [0, -1], [0, 7]]])
    count, valid = builder.add("get_valid_count", [rows], {"score_threshold": 0}, "valid")
    before = builder.state("count", builder.constant([0]), 0, 3)
    builder.update(before, count)
    (row,) = builder.add("slice", [valid], {"begin": (0, 0, 1), "end": (1, 3, 2)})
    (row,) = builder.add("reshape", [row], {"target_shape": (1, 3)})
    (logits,) = builder.add("broadcast_mul", [row, before])
    wide = LinearQuantizer((Fraction(1),), (Fraction(0),), -100, 100)
    made = cvm.generate(builder.build([Output("logits", logits, wide)]), [0], 3, temperature=0, executor="numpy")
    assert made.tokens == (0, 1, 1), "logits 0 0 0 at first, then twice 5 7 -1"
    assert {"valid.valid_count", "valid.Y"} <= set(made.program.value_names())


# What the digest and the receipt commit to


def test_a_receipt_holds_for_the_inputs_and_for_no_others(model):
    made = cvm.generate(model, "Once", 8, vocabulary=WORDS, seed=4, executor="numpy", receipt=True)
    verdict = cvm.verify(made.receipt, made.program, made.inputs, outputs=made.outputs, cycles=True, executor="numpy")
    assert (verdict.answer, verdict.level) == ("REPRODUCED", "outputs")
    other = {**made.inputs, "seed": made.inputs["seed"] + np.eye(11, 1, dtype=np.int32)}
    verdict = cvm.verify(made.receipt, made.program, other, cycles=True, executor="numpy")
    assert verdict.answer == "CANNOT_RECOMPUTE"


def test_one_forged_token_does_not_belong_to_the_receipt(model):
    made = cvm.generate(model, "Once", 8, vocabulary=WORDS, executor="numpy", receipt=True)
    forged = made.outputs["token"].copy()
    forged[6] = (forged[6] + 1) % len(WORDS)
    verdict = cvm.verify(
        made.receipt, made.program, made.inputs, outputs={"token": forged}, cycles=True, executor="numpy"
    )
    assert verdict.answer == "DIVERGED"
    assert "token" in verdict.reason


def test_the_digest_commits_to_model_temperature_and_candidates(model):
    def digest(model, *sampling):
        return composed(decoder_of(verify(model)), Sampling(*sampling)).program.digest

    known = [
        digest(model, Fraction(1)),
        digest(model, Fraction(9, 10)),
        digest(model, Fraction(0)),
        digest(model, Fraction(1), 5),
        digest(model, Fraction(1), 6),
        digest(decode_step(width=11), Fraction(1)),
    ]
    assert len(set(known)) == len(known)
    assert digest(decode_step(), Fraction(1)) == known[0]
    assert digest(model, Fraction(1), len(WORDS)) == known[0], "all tokens are candidates without top_k"


def test_equal_temperatures_are_equal_however_they_are_written(model):
    made = {
        Generator(model, temperature=item).program.digest
        for item in (0.7, "0.7", "0.70", Decimal("0.7"), Fraction(7, 10))
    }
    assert len(made) == 1


def test_the_program_is_valid_keeps_names_and_has_the_state_of_the_model(model):
    verified = composed(decoder_of(verify(model)), Sampling(Fraction(1), 4))
    program = verified.program
    assert [item.value.name for item in program.inputs] == ["prompt", "seed"]
    assert [item.value.name for item in program.state] == ["chosen", "random", "memory", "position"]
    assert {value.name for node in model.nodes for value in node.outputs} <= set(program.value_names())
    assert program.op_set == op_set(node.op for node in program.nodes) == 2
    assert verify(type(program)(**vars(program))).gas == verified.gas


def test_a_greedy_program_of_op_set_1_stays_one(model):
    program = composed(decoder_of(verify(model)), Sampling(Fraction(0))).program
    assert program.op_set == 1
    assert [item.value.name for item in program.inputs] == ["prompt"]


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_document_s_ops_alone_give_the_same_tokens(settings):
    made = cvm.generate(decode_step(9), [3, 4], 4, executor="numpy", **settings)
    plain = legalize(made.program)
    assert plain.op_set == 1
    assert np.array_equal(cvm.Session(plain, "numpy").run(made.inputs, cycles=True)["token"], made.outputs["token"])


# Refusals


def refused(error: type[CvmError], code: str, *arguments, **settings) -> str:
    with pytest.raises(error) as caught:
        cvm.generate(*arguments, **{"vocabulary": WORDS, **settings})
    assert caught.value.code == code
    return caught.value.message


def test_what_does_not_fit_the_context_is_refused_before_it_is_run(model):
    told = []
    message = refused(LimitExceeded, "limit.context", model, "a" * 60, 6, told=lambda *item: told.append(item))
    assert (told, str(CONTEXT) in message, "65" in message) == ([], True, True)
    assert len(cvm.generate(model, "a" * 60, 5, vocabulary=WORDS, executor="numpy").tokens) == 5
    refused(LimitExceeded, "limit.context", model, "a" * 9, 2, context=9)
    refused(LimitExceeded, "limit.cycles", model, "a", 2**20 + 1, context=2**30)


def test_a_position_that_begins_later_leaves_less_room():
    builder = ProgramBuilder()
    builder.input("token", (1,), 0, 1)
    builder.state("position", builder.constant([3]), 0, 9)
    after = builder.add("clip", ["position"], {"a_min": 0, "a_max": 8})[0]
    builder.update("position", after)
    logits = builder.constant([[1, 2]])
    decoder = decoder_of(verify(builder.build([Output("logits", logits, SCALE)])))
    assert decoder.context == 5


@pytest.mark.parametrize(
    ("code", "settings"),
    [
        ("generation.temperature", {"temperature": "-1"}),
        ("generation.temperature", {"temperature": "1e3"}),
        ("generation.temperature", {"temperature": "nan"}),
        ("generation.temperature", {"temperature": float("inf")}),
        ("generation.temperature", {"temperature": 1001}),
        ("generation.temperature", {"temperature": Fraction(-1, 2)}),
        ("argument.temperature", {"temperature": None}),
        ("argument.temperature", {"temperature": True}),
        ("generation.top_k", {"top_k": 0}),
        ("generation.top_k", {"top_k": len(WORDS) + 1}),
        ("generation.top_k", {"top_k": 3, "temperature": 0}),
        ("argument.top_k", {"top_k": 2.0}),
        ("generation.seed", {"seed": 0}),
        ("generation.seed", {"seed": SEEDS[1] + 1}),
        ("argument.seed", {"seed": "1"}),
        ("argument.context", {"context": "1"}),
        ("vocabulary.size", {"vocabulary": WORDS[1:]}),
        ("vocabulary.texts", {"vocabulary": [*WORDS[1:], WORDS[1]]}),
        ("vocabulary.texts", {"vocabulary": [*WORDS[1:], ""]}),
        ("argument.vocabulary", {"vocabulary": 3}),
    ],
)
def test_a_wrong_setting_is_refused(model, code, settings):
    assert refused(Invalid, code, model, "a", 3, **settings)


@pytest.mark.parametrize(
    ("code", "prompt", "tokens"),
    [
        ("generation.prompt", "", 3),
        ("generation.prompt", "Ünder", 3),
        ("generation.prompt", [len(WORDS)], 3),
        ("generation.prompt", [-1], 3),
        ("argument.prompt", [0.5], 3),
        ("argument.prompt", 5, 3),
        ("generation.tokens", "a", 0),
        ("argument.tokens", "a", 2.5),
    ],
)
def test_a_wrong_prompt_is_refused(model, code, prompt, tokens):
    assert refused(Invalid, code, model, prompt, tokens)


def test_a_text_without_a_vocabulary_is_refused(model):
    assert "vocabulary" in refused(Invalid, "generation.prompt", model, "a", 3, vocabulary=None)


def program_of(shape=(1,), lo=0, hi=3, logits=(1, 4), quantizer=SCALE, names=("logits",), inputs=1, state=None):
    """A program that is a decode step unless an argument says otherwise."""
    builder = ProgramBuilder()
    for number in range(inputs):
        builder.input(f"token{number or ''}", shape, lo, hi)
    row = builder.constant(np.arange(np.prod(logits)).reshape(logits) % 4)
    if state is not None:
        builder.state(state, builder.constant([0]), 0, 0)
        builder.update(state, builder.constant([0]))
    return builder.build([Output(name, row, quantizer) for name in names])


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": 2},
        {"shape": (2,)},
        {"logits": (2, 2)},
        {"hi": 2},
        {"lo": 1},
        {"quantizer": None},
        {"quantizer": LogarithmicQuantizer(Fraction(1), 4)},
        {"quantizer": LinearQuantizer((Fraction(1),) * 4, (Fraction(0),) * 4, -9, 9, 1)},
        {"names": ("a", "b")},
    ],
)
def test_a_program_that_is_no_decode_step_is_refused(wrong):
    message = refused(Invalid, "generation.program", program_of(**wrong), [0], 3, vocabulary=None)
    assert "expected" in message


@pytest.mark.parametrize("fine", [{}, {"shape": (1, 1)}, {"names": ("a",)}, {"names": ("a", "logits")}, {"hi": 9},
                                  {"logits": (4,)}, {"logits": (1, 1, 4)}, {"lo": -5}])  # fmt: skip
def test_shapes_and_names_of_a_decode_step_may_differ(fine):
    assert cvm.generate(program_of(**fine), [0], 3, temperature=0, executor="numpy").tokens == (3, 3, 3)


@pytest.mark.parametrize("name", ["prompt", "seed", "chosen", "random", "chosen.initial"])
def test_a_state_with_the_name_of_a_new_tensor_is_refused(name):
    refused(Invalid, "generation.name", program_of(state=name), [0], 3, vocabulary=None)


@pytest.mark.parametrize("name", ["logits", "weights", "given", "share", "continue"])
def test_other_names_are_free(name):
    settings = {"temperature": 0, "executor": "numpy"}
    assert cvm.generate(program_of(state=name), [0], 2, **settings).tokens == (3, 3)


def test_logits_too_far_apart_are_refused():
    wide = LinearQuantizer((Fraction(1),), (Fraction(0),), -(2**31 - 1), 2**31 - 1)
    builder = ProgramBuilder()
    token = builder.input("token", (1,), 0, 1)
    (row,) = builder.add("take", [builder.constant([[2**31 - 1, -(2**31 - 1)], [0, 1]]), token], {"axis": 0})
    program = builder.build([Output("logits", row, wide)])
    refused(LimitExceeded, "limit.logits", program, [0], 3, vocabulary=None)
    assert cvm.generate(program, [0], 2, temperature=0, executor="numpy").tokens == (0, 0)


# Vocabularies


def test_the_longest_token_is_taken_at_each_place():
    words = Vocabulary(["a", "b", "ab", "abab", "c"])
    assert words.encode("ababab") == (3, 2)
    assert words.encode("abac") == (2, 0, 4)
    assert words.decode((3, 2, 4)) == "abababc"
    with pytest.raises(Invalid, match="character 3 of the prompt, 'd'"):
        words.encode("abd")


def test_a_vocabulary_is_a_json_list_of_texts(tmp_path):
    path = tmp_path / "words.json"
    path.write_text(json.dumps(["a", "é", "\n"]), "utf-8")
    assert Vocabulary.load(path).encode("é\na") == (1, 2, 0)
    for text in ("[" * 100_000, "{}", "[1]", "", '["a"', "\ufeff[]", '"ab"'):
        path.write_text(text, "utf-8")
        with pytest.raises(Malformed) as error:
            Vocabulary.load(path)
        assert (error.value.code, error.value.location.file) == ("vocabulary.json", str(path))
    path.write_text('["a", "a"]')
    with pytest.raises(Invalid, match="tokens 0 and 1 have the same text") as caught:
        Vocabulary.load(path)
    assert caught.value.location.file == str(path)
    path.write_text(json.dumps(["a" * 1025]))
    with pytest.raises(LimitExceeded, match="more than 1024 bytes"):
        Vocabulary.load(path)
    with pytest.raises(Invalid) as missing:
        Vocabulary.load(tmp_path / "none.json")
    assert missing.value.code == "vocabulary.unreadable"


def test_the_vocabulary_lies_beside_the_program():
    assert str(beside("models/gpt.cvm")) == "models/gpt.vocabulary.json"
