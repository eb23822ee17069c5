"""``cvm chain``: deploy, claim, challenge, status; what was stopped is started again. test_node.py has play."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("eth_tester") is None:
    pytest.skip("the extra chain is not installed", allow_module_level=True)

from cvm.audit.chain import Account
from cvm.audit.chain.book import Book
from cvm.audit.chain.local import LocalChain
from cvm.audit.receipt import load_receipt, save_receipt
from cvm.cli import main
from tests.api import small

CODES = np.arange(6).reshape(1, 1, 2, 3)
RUN = ("--program", "negated.cvm", "-i", "codes.npy", "--codes")


@pytest.fixture(scope="module")
def chain():
    made = LocalChain()
    with made.serve() as url:
        yield made, url


@pytest.fixture(scope="module")
def book(chain, tmp_path_factory):
    """A folder with a program, a receipt of a run, and a deployment."""
    local, url = chain
    folder = tmp_path_factory.mktemp("book")
    here = os.getcwd()
    os.chdir(folder)
    try:
        small.negated().save("negated.cvm")
        np.save("codes.npy", CODES)
        np.save("other.npy", CODES + 1)
        (folder / "key").write_text(local.keys[0])
        (folder / "key").chmod(0o600)
        run = ["run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "run.receipt", "--trace"]
        assert main(run) == 0
        terms = ["--bond", "1000", "--node", url, "--key-file", "key", "-o", "book.json"]
        assert main(["chain", "deploy", "negated.cvm", *terms]) == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def here(book, chain, monkeypatch):
    """The folder is the working one, and the node and the key of the first account are in the environment."""
    monkeypatch.chdir(book)
    monkeypatch.setenv("CVM_CHAIN_NODE", chain[1])
    monkeypatch.setenv("CVM_CHAIN_KEY", chain[0].keys[0])
    return book


def claimed(cvm, monkeypatch, chain, name, **change):
    """The number of a claim of the second account, about the run with other roots."""
    receipt = load_receipt("run.receipt")
    run = replace(receipt.claim.runs[0], **change)
    save_receipt(name, replace(receipt, claim=replace(receipt.claim, runs=(run,)), signatures=()))
    monkeypatch.setenv("CVM_CHAIN_KEY", chain[0].keys[1])
    number = cvm("chain", "claim", name, "-d", "book.json", "--json").document["claim"]
    monkeypatch.setenv("CVM_CHAIN_KEY", chain[0].keys[0])
    return number


# deploy


def test_a_finished_deployment_is_not_made_again(cvm, here):
    outcome = cvm("chain", "deploy", "negated.cvm", "--bond", "1000", "-o", "book.json", "--json")
    assert outcome.code == 0
    assert "sending" not in outcome.err
    assert outcome.document["contracts"] == json.loads((here / "book.json").read_text())["contracts"]


def test_a_deployment_that_was_stopped_goes_on(cvm, here):
    document = json.loads((here / "book.json").read_text())
    whole = document["contracts"]
    document["contracts"] = {name: at for name, at in whole.items() if name not in ("DisputeGame", "ClaimBook")}
    (here / "begun.json").write_text(json.dumps(document))
    refused = cvm("chain", "status", "-d", "begun.json")
    assert refused.code == 1
    assert "it was not finished" in refused.err
    outcome = cvm("chain", "deploy", "negated.cvm", "--bond", "1000", "-o", "begun.json", "--json")
    assert outcome.err.count("sending") == 2
    made = outcome.document["contracts"]
    assert {name for name in whole if whole[name] != made[name]} == {"DisputeGame", "ClaimBook"}
    assert cvm("chain", "status", "-d", "begun.json", "--json").document["count"] == 0


def test_a_deployment_on_other_terms_is_another_one(cvm, here):
    outcome = cvm("chain", "deploy", "negated.cvm", "--bond", "999", "-o", "book.json")
    assert outcome.code == 1
    assert "begun on other terms" in outcome.err
    assert "sending" not in outcome.err


# claim and status


def test_a_run_is_claimed_once_however_often_the_command_is_started(cvm, here):
    first = cvm("chain", "claim", "run.receipt", "-d", "book.json", "--json")
    assert first.err.count("sending claimRun") == 1
    number = first.document["claim"]
    again = cvm("chain", "claim", "run.receipt", "-d", "book.json", "--json")
    assert "sending" not in again.err
    assert again.document == {**first.document, "gas": 0, "transaction": None}
    assert "nothing is sent" in cvm("chain", "claim", "run.receipt", "-d", "book.json").out
    shown = cvm("chain", "status", number, "-d", "book.json", "--json").document["claims"]
    assert [(item["claim"], item["status"], item["games"]) for item in shown] == [(number, "open", [])]
    assert f"claim {number}  open, run 0 of receipt" in cvm("chain", "status", "-d", "book.json").out


def test_what_cannot_be_claimed_is_refused_before_anything_is_sent(cvm, here):
    assert cvm("run", *RUN[1:], "--receipt", "bare.receipt").code == 0
    outcome = cvm("chain", "claim", "bare.receipt", "-d", "book.json")
    assert (outcome.code, "sending" in outcome.err) == (3, False)
    assert "the run has no trace" in outcome.err
    outcome = cvm("chain", "claim", "run.receipt", "--run", "1", "-d", "book.json")
    assert (outcome.code, "sending" in outcome.err) == (3, False)
    outcome = cvm("chain", "status", "999", "-d", "book.json")
    assert (outcome.code, "there is no claim 999" in outcome.err) == (3, True)


def test_a_program_that_the_book_does_not_know_cannot_be_claimed(cvm, here):
    small.pair().save("pair.cvm")
    np.savez("pair.npz", a=np.zeros((1, 1, 4), np.int64), b=np.zeros((1, 4), np.int64))
    made = cvm("run", "pair.cvm", "-i", "pair.npz", "--codes", "--receipt", "pair.receipt", "--trace")
    assert made.code == 0, made.err
    outcome = cvm("chain", "claim", "pair.receipt", "-d", "book.json")
    assert outcome.code != 0
    assert "UnknownProgram" in outcome.err


# challenge


def test_a_claim_that_is_right_is_left_alone(cvm, here, chain, monkeypatch):
    number = claimed(cvm, monkeypatch, chain, "right.receipt")
    outcome = cvm("chain", "challenge", number, *RUN, "-d", "book.json", "--json")
    assert (outcome.code, outcome.document["did"], "sending" in outcome.err) == (1, "nothing", False)
    others = ("--program", "negated.cvm", "-i", "other.npy", "--codes")
    outcome = cvm("chain", "challenge", number, *others, "-d", "book.json")
    assert (outcome.code, "sending" in outcome.err) == (3, False)
    assert "the claim is about another inputs" in outcome.err


def test_a_claim_is_challenged_once_however_often_the_command_is_started(cvm, here, chain, monkeypatch):
    number = claimed(cvm, monkeypatch, chain, "traced.receipt", trace=bytes(32))
    first = cvm("chain", "challenge", number, *RUN, "-d", "book.json", "--json")
    assert (first.code, first.document["did"], first.err.count("sending")) == (0, "challenged", 1)
    again = cvm("chain", "challenge", number, *RUN, "-d", "book.json", "--json")
    assert again.document == {**first.document, "gas": 0}
    assert "sending" not in again.err
    (game,) = cvm("chain", "status", number, "-d", "book.json", "--json").document["claims"][0]["games"]
    assert game["game"] == first.document["game"]
    assert game["challenger"].lower() == Account(chain[0].keys[0]).address.lower()


class Stopped(BaseException):
    """What a kill is here: no command catches it."""


def test_a_claim_that_contradicts_its_trace_is_refuted_though_the_command_was_stopped(cvm, here, chain, monkeypatch):
    number = claimed(cvm, monkeypatch, chain, "outputs.receipt", outputs=(bytes(32), bytes(32)))
    refute = Book.refute

    def stopped(*_):
        raise Stopped

    monkeypatch.setattr(Book, "refute", stopped)
    with pytest.raises(Stopped):
        main(["chain", "challenge", str(number), *RUN, "-d", "book.json"])
    monkeypatch.setattr(Book, "refute", refute)
    outcome = cvm("chain", "challenge", number, *RUN, "-d", "book.json", "--json")
    assert (outcome.code, outcome.document["did"]) == (0, "refuted")
    assert [line.split()[1] for line in outcome.err.splitlines() if line.startswith("sending")] == [
        "announce",
        "refute",
    ]
    shown = cvm("chain", "status", number, "-d", "book.json", "--json").document["claims"]
    assert shown[0]["status"] == "rejected"


# keys


def test_a_key_is_needed_and_is_never_shown(cvm, here, monkeypatch):
    monkeypatch.delenv("CVM_CHAIN_KEY")
    arguments = ("chain", "claim", "run.receipt", "-d", "book.json")
    assert cvm(*arguments).code == 2
    key = (here / "key").read_text()
    (here / "seen").write_text(key)
    (here / "seen").chmod(0o644)
    outcome = cvm(*arguments, "--key-file", "seen")
    assert (outcome.code, "other users can read this key" in outcome.err) == (3, True)
    outcome = cvm(*arguments, "--key-file", "key")
    assert outcome.code == 0
    assert key.removeprefix("0x") not in outcome.out + outcome.err
