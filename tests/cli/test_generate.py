"""``cvm generate``: the text, its receipt, and a forged token that is proven wrong at one step."""

from __future__ import annotations

import json
import string
import subprocess
import sys
from pathlib import Path

import pytest

from cvm.arrays import npz_bytes, npz_members, read_npz
from cvm.audit import load_receipt
from cvm.standalone import verify_step
from tools.cached_model import SIZE, cached
from tools.decode_step import CHARACTERS, decode_step

WRITTEN = ("--receipt", "a.receipt", "-o", "a.cvm", "--save-inputs", "a.npz")
VERIFY = ("receipt", "verify", "a.receipt", "--program", "a.cvm", "-i", "a.npz", "--cycles")


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decode_step().save("gpt.cvm")
    (tmp_path / "gpt.vocabulary.json").write_text(json.dumps(list(CHARACTERS)))
    return tmp_path


def generate(cvm, *options, prompt="Once upon", tokens=12):
    return cvm("generate", "gpt.cvm", "--prompt", prompt, "--tokens", tokens, "--executor", "numpy", *options)


def alone(verifier, *arguments):
    """A verifier of the standard library, which needs nothing of cvm."""
    file = Path(verify_step.__file__).with_name(f"{verifier}.py")
    return subprocess.run([sys.executable, "-I", file, *arguments], capture_output=True, text=True, check=False)


def test_the_text_is_all_that_stdout_gets(cvm, model):
    people = generate(cvm, "--seed", 3, *WRITTEN)
    document = generate(cvm, "--seed", 3, *WRITTEN, "--json").document
    assert people.code == 0
    assert people.out == f"Once upon{document['text']}\n"
    assert len(document["tokens"]) == len(document["text"]) == 12
    assert document["prompt"] == {"text": "Once upon", "tokens": [CHARACTERS.index(c) for c in "Once upon"]}
    assert document["sampling"] == {"temperature": "1", "top_k": None, "seed": 3}
    assert f"receipt   {document['receipt']['id']}\n" in people.err
    assert people.err.endswith("verify    cvm receipt verify a.receipt --program a.cvm -i a.npz --cycles\n")


def test_equal_options_give_equal_texts_and_other_seeds_others(cvm, model):
    options = ("--top-k", "20", "--temperature", "3")
    texts = [generate(cvm, *options, "--seed", seed).out for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_anyone_verifies_all_tokens_with_the_printed_command(cvm, model):
    generate(cvm, *WRITTEN, "--trace")
    outcome = cvm(*VERIFY, "--json")
    assert (outcome.code, outcome.document["answer"], outcome.document["level"]) == (0, "REPRODUCED", "trace")
    receipt = load_receipt("a.receipt")
    assert len(receipt.claim.runs) == len("Once upon") + 12 - 1


def test_another_prompt_or_seed_is_not_what_the_receipt_names(cvm, model):
    generate(cvm, *WRITTEN)
    inputs = {name: read_npz("a.npz", name) for name in npz_members("a.npz")}
    for name in ("prompt", "seed"):
        other = inputs | {name: inputs[name].copy()}
        other[name][0] += 1
        (model / "a.npz").write_bytes(npz_bytes(other))
        outcome = cvm(*VERIFY, "--json")
        assert (outcome.code, outcome.document["answer"]) == (5, "CANNOT_RECOMPUTE")


def forged(model, tensor: str, run: int):
    """The files of two sides: `mine` has all tensors of all cycles, `theirs` one other element of one cycle."""
    mine = {name: read_npz("mine.npz", name) for name in npz_members("mine.npz")}
    theirs = mine | {tensor: mine[tensor].copy()}
    element = theirs[tensor][run].reshape(-1)
    element[-1] = element[-1] - 1 if element[-1] else 1
    (model / "theirs.npz").write_bytes(npz_bytes(theirs))
    return element[-1]


@pytest.mark.parametrize("tensor", ["token", "share", "memory_next"])
def test_one_forged_element_is_found_and_proven_wrong_at_one_step(cvm, model, tensor):
    generate(cvm, *WRITTEN)
    run = len("Once upon") + 2
    command = ("run", "a.cvm", "-i", "a.npz", "--cycles", "--codes", "--executor", "numpy")
    assert cvm(*command, "--capture", "all", "-o", "mine.npz").code == 0
    program = ("--program", "a.cvm", "--cycles")
    sides = ("mine.npz", "theirs.npz", *program)
    value = forged(model, tensor, run)
    assert [cvm("dispute", "locate", *sides, "--run", number).code for number in (run - 1, run, run + 1)] == [0, 1, 0]
    place = cvm("dispute", "locate", *sides, "--run", run, "--json").document["place"]
    assert (place["tensor"], place["values"][1], place["right"]) == (tensor, value, ["A"])
    game = cvm("dispute", "play", *sides, "-i", "a.npz", "--run", run, "-o", "won.step", "--json").document
    assert (game["winner"], game["op"]) == ("A", place["op"])
    assert cvm("dispute", "verify-step", "won.step", "--program", "a.cvm").code == 0
    assert alone("verify_step", "won.step").returncode == 0


def test_a_forged_token_does_not_belong_to_the_receipt(cvm, model):
    generate(cvm, *WRITTEN)
    assert cvm("run", "a.cvm", "-i", "a.npz", "--cycles", "--executor", "numpy", "-o", "tokens.npz").code == 0
    tokens = read_npz("tokens.npz", "token").copy()
    claimed = (*VERIFY, "--outputs", "tokens.npz", "--json")
    assert cvm(*claimed).document["answer"] == "REPRODUCED"
    tokens[12] = (tokens[12] + 1) % len(CHARACTERS)
    (model / "tokens.npz").write_bytes(npz_bytes({"token": tokens}))
    outcome = cvm(*claimed)
    assert (outcome.code, outcome.document["answer"]) == (1, "DIVERGED")
    assert "token" in outcome.document["reason"]
    assert "12" in outcome.document["reason"]


@pytest.mark.parametrize(
    ("code", "exit_code", "options"),
    [
        ("usage", 2, ["--temperature", "hot"]),
        ("usage", 2, ["--temperature", "-0.5"]),
        ("usage", 2, ["--temperature", "1e5"]),
        ("usage", 2, ["--temperature", "0", "--top-k", "3"]),
        ("usage", 2, ["--top-k", "0"]),
        ("usage", 2, ["--seed", "0"]),
        ("usage", 2, ["--seed", str(2**31 - 1)]),
        ("usage", 2, ["--trace"]),
        ("generation.top_k", 3, ["--top-k", "1000"]),
        ("limit.context", 4, ["--context", "10"]),
        ("vocabulary.size", 3, ["--vocabulary", "few.json"]),
        ("vocabulary.json", 3, ["--vocabulary", "gpt.cvm"]),
        ("vocabulary.unreadable", 3, ["--vocabulary", "none.json"]),
        ("output.unwritable", 3, ["-o", "none/a.cvm"]),
    ],
)
def test_a_wrong_option_is_refused(cvm, model, code, exit_code, options):
    (model / "few.json").write_text('["a"]')
    outcome = generate(cvm, *options, "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (exit_code, code)


@pytest.mark.parametrize(
    ("code", "exit_code", "prompt", "tokens"),
    [("generation.prompt", 3, "", 3), ("generation.prompt", 3, "a1", 3), ("limit.context", 4, "a" * 65, 1),
     ("usage", 2, "a", 0), ("usage", 2, "a", "x")],
)  # fmt: skip
def test_a_wrong_prompt_is_refused(cvm, model, code, exit_code, prompt, tokens):
    outcome = generate(cvm, "--json", prompt=prompt, tokens=tokens)
    assert (outcome.code, outcome.document["error"]["code"]) == (exit_code, code)


def test_a_program_that_generates_already_is_no_decode_step(cvm, model):
    generate(cvm, *WRITTEN)
    outcome = cvm("generate", "a.cvm", "--prompt", "a", "--tokens", 1, "--vocabulary", "gpt.vocabulary.json", "--json")
    assert outcome.document["error"]["code"] == "generation.program"
    assert outcome.document["error"]["location"]["file"] == "a.cvm"


def test_a_program_without_a_vocabulary_says_where_one_is_looked_for(cvm, model):
    (model / "gpt.vocabulary.json").unlink()
    outcome = generate(cvm)
    assert outcome.code == 2
    assert "--vocabulary FILE" in outcome.err
    assert "gpt.vocabulary.json" in outcome.err


def test_tokens_cannot_command_a_terminal(cvm, model):
    words = ["\x1b[2J", *CHARACTERS[1:]]
    (model / "gpt.vocabulary.json").write_text(json.dumps(words))
    outcome = generate(cvm, "--temperature", "1000", tokens=50)
    assert "\x1b" not in outcome.out
    assert generate(cvm, "--temperature", "1000", "--json", tokens=50).document["text"].count(
        "\x1b"
    ) == outcome.out.count("\\x1b")


def test_the_digest_of_the_model_can_be_demanded(cvm, model):
    digest = cvm("digest", "gpt.cvm", "--json").document
    outcome = generate(cvm, "--expect-digest", "00" * 32, "--json")
    assert outcome.code == 1
    assert generate(cvm, "--json").document["model"] in json.dumps(digest)


def test_prefill_programs_change_no_receipt_and_are_kept_in_one_file(cvm, model):
    for count in (1, 3, 8):
        cached(count).save(f"cached_{count}.cvm")
    cached(3, shift=6).save("other.cvm")
    Path("cached_1.vocabulary.json").write_text(json.dumps(list(string.ascii_lowercase[:SIZE])))
    Path("cached.vocabulary.json").write_bytes(Path("cached_1.vocabulary.json").read_bytes())

    def ids(program, *options):
        document = cvm(
            "generate", program, "--prompt", "abcdefghijklm", "--tokens", 6, "--seed", 2, "--executor", "numpy",
            "--receipt", "a.receipt", "--json", *options,
        ).document  # fmt: skip
        return document["tokens"], document["receipt"]["id"]

    expected = ids("cached_1.cvm")
    prefill = ("--prefill", "cached_3.cvm", "--prefill", "cached_8.cvm")
    assert ids("cached_1.cvm", *prefill, "--save-model", "cached.model") == expected
    assert ids("cached.model") == expected
    sizes = [Path(f"cached_{count}.cvm").stat().st_size for count in (1, 3, 8)]
    assert Path("cached.model").stat().st_size < 0.7 * sum(sizes)
    refused = cvm(
        "generate", "cached_1.cvm", "--prompt", "abcd", "--tokens", 1, "--executor", "numpy",
        "--prefill", "other.cvm", "--save-model", "never.model",
    )  # fmt: skip
    assert refused.code == 1
    assert "other codes than the decode step" in refused.err
    assert not Path("never.model").exists()
    assert "`cvm generate` takes it" in cvm("run", "cached.model", "-i", "a.npz").err
