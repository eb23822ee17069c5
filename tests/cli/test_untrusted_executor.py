"""Commands do not believe the executor that they run: ``check``, ``receipt verify``, folders of receipts, ``demo``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit import Receipt, load_receipt, save_receipt
from cvm.audit.batch.work import Finished, Order, Worker, read_task
from cvm.cli.check import default_executors
from cvm.executors import EXECUTORS
from tests.audit.examples import subject
from tests.audit.faulty import Faulty, everywhere, fraction
from tests.audit.test_spot_check import claimed_by

VERIFY = ("receipt", "verify", "r.receipt", "--program", "negated.cvm", "-i", "codes.npy", "--codes")
SALTED = ("--salt", "c0ffee")
DEFAULT = default_executors()[-1]


@pytest.fixture
def planted(monkeypatch):
    """A function that puts a defect into an executor; by default into the one that runs take by default."""

    def plant(tensor, where=everywhere, when="always", replaced=DEFAULT):
        def faulty(verified, threads=None):
            return Faulty(verified, tensor, where, when, replaced)

        monkeypatch.setattr("cvm.executors.EXECUTORS", {**EXECUTORS, replaced: faulty})

    return plant


@pytest.fixture
def receipt(cvm, files, planted):
    """A receipt of negated.cvm that an executor with a defect in the tensor ``difference`` made."""
    planted("difference", fraction(0.4))
    assert cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "r.receipt").code == 0
    return load_receipt("r.receipt")


def test_a_wrong_receipt_is_not_reproduced_by_the_executor_that_made_it(cvm, receipt):
    outcome = cvm(*VERIFY, *SALTED, "--json")
    document = outcome.document
    assert (outcome.code, document["answer"], document["level"]) == (5, "CANNOT_RECOMPUTE", "outputs")
    assert document["checked"] == ["structure", "roots"]
    assert document["executor"] == DEFAULT
    assert document["judged"]["salt"] == "c0ffee"
    people = cvm(*VERIFY, *SALTED)
    assert people.code == 5
    assert "tensor 'difference' (op broadcast_sub) differs at" in people.out
    assert "REPRODUCED" not in people.out
    # Another executor shows that the claim itself is false.
    assert cvm(*VERIFY, "--executor", "formal", "--json").document["answer"] == "DIVERGED"


def test_who_switches_the_judge_off_is_told_so(cvm, receipt):
    people = cvm(*VERIFY, "--judge", 0)
    assert people.code == 0
    assert f"executor  {DEFAULT}\njudged    nothing was judged by FORMAL\n" in people.out
    document = cvm(*VERIFY, "--judge", 0, *SALTED, "--json").document
    assert document["answer"] == "REPRODUCED"
    assert document["judged"] == {"elements": 0, "tensors": 0, "of": 2, "runs": 0, "salt": "c0ffee"}


def test_the_verdict_names_what_stands_behind_it_and_can_be_repeated(cvm, files):
    cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "r.receipt")
    fresh = cvm(*VERIFY, "--judge", 3, "--json").document
    assert fresh["judged"]["elements"] == 3
    assert fresh["judged"]["salt"] != cvm(*VERIFY, "--judge", 3, "--json").document["judged"]["salt"]
    again = cvm(*VERIFY, "--judge", 3, "--salt", fresh["judged"]["salt"], "--json").document
    assert again == fresh
    people = cvm(*VERIFY, "--executor", "numpy", *SALTED)
    assert people.out.startswith(
        "REPRODUCED at level outputs: 2 runs\n"
        "executor  numpy\n"
        "judged    14 elements of 2 of 2 tensors in 2 runs by FORMAL, salt c0ffee\n"
        "receipt   "
    )
    formal = cvm(*VERIFY, "--level", "formal", "--executor", "numpy")
    assert "executor  formal\njudged    every element was computed by FORMAL\n" in formal.out


@pytest.mark.parametrize(("level", "words"), [("structure", "STRUCTURE HOLDS"), ("roots", "ROOTS AGREE")])
def test_levels_that_execute_nothing_do_not_say_reproduced(cvm, files, level, words):
    cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "r.receipt")
    people = cvm(*VERIFY, "--level", level)
    assert people.code == 0
    assert people.out.startswith(f"{words}, nothing was executed: 2 runs\n")
    assert "REPRODUCED" not in people.out
    assert "judged" not in people.out
    document = cvm(*VERIFY, "--level", level, "--json").document
    assert (document["answer"], document["executor"], document["judged"]) == ("REPRODUCED", None, None)
    assert document["checked"][-1] == level


@pytest.mark.parametrize(
    "arguments",
    [
        (*VERIFY, "--salt", "coffee"),
        (*VERIFY, "--salt", ""),
        (*VERIFY, "--judge", -1),
        (*VERIFY, "--judge", 3, "--level", "structure"),
        (*VERIFY, *SALTED, "--level", "roots"),
        (*VERIFY, "--judge", 3, "--level", "formal"),
        ("check", "negated.cvm", "-i", "codes.npy", "--codes", "--judge", 3),
        ("check", "negated.cvm", "-i", "codes.npy", "--codes", *SALTED),
        ("check", "negated.cvm", "-i", "codes.npy", "--codes", "--sample", 2, "--judge", 3),
        ("check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "numpy,native", "--salt", "0"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_wrong_usage(cvm, files, arguments):
    cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "r.receipt")
    outcome = cvm(*arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("cvm: ") or "--judge" in outcome.err


# Check


def test_check_runs_the_default_executor_without_being_asked(cvm, files):
    assert default_executors()[:2] == ["formal", "numpy"]
    document = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--json").document
    assert document["executors"] == default_executors()
    assert set(document["executors"]) <= set(EXECUTORS)


@pytest.mark.parametrize("when", ["always", "open", "ordinary"])
@pytest.mark.parametrize("tensor", ["difference", "total"])
def test_check_finds_a_defect_of_the_default_executor(cvm, files, planted, when, tensor):
    planted(tensor, fraction(0.1), when)
    outcome = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--json")
    assert outcome.code == 1
    assert outcome.document["difference"]["tensor"] == tensor
    assert cvm("check", "negated.cvm", "-i", "codes.npy", "--codes").out.startswith("DIFFER   ")


def test_formal_judges_executors_that_agree_without_it(cvm, files, planted, monkeypatch):
    arguments = ("check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "numpy,native")
    people = cvm(*arguments, *SALTED)
    assert people.out == (
        "AGREE    numpy, native: 2 runs, 3 tensors each, 26 elements\n"
        "JUDGED   14 elements of 2 of 2 tensors in 2 runs by FORMAL, salt c0ffee\n"
    )
    judged = cvm(*arguments, *SALTED, "--judge", 4, "--json").document["judged"]
    assert judged == {"elements": 4, "tensors": 2, "of": 2, "runs": 2, "salt": "c0ffee"}
    assert cvm(*arguments, "--judge", 0).out.endswith("JUDGED   nothing was judged by FORMAL\n")
    monkeypatch.setattr("cvm.executors.create", lambda name, verified, _: Faulty(verified, "total", name=name))
    outcome = cvm(*arguments, *SALTED, "--json")
    assert (outcome.code, outcome.document["agree"]) == (1, False)
    assert outcome.document["difference"]["tensor"] == "total"
    assert "formal" in outcome.document["difference"]["values"]
    assert cvm(*arguments, "--judge", 0).code == 0


def test_the_elements_of_a_sample_are_drawn_with_a_salt(cvm, files):
    document = cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--sample", 2, "--json").document
    assert len(document["salt"]) == 32
    assert f"salt {'c0ffee'}" in cvm("check", "negated.cvm", "-i", "codes.npy", "--codes", "--sample", 2, *SALTED).out


# Folders of receipts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three receipts that an executor with a wrong element in ``total`` made."""
    root = tmp_path / "receipts"
    root.mkdir()
    verified = subject("negated").verified
    for number in range(3):
        inputs = {"image": np.full((1, 2, 3), number, np.int32)}
        save_receipt(root / f"{number}.receipt", made(verified, inputs))
        (root / f"{number}.npz").write_bytes(npz_bytes(inputs))
    return root


def made(verified, inputs) -> Receipt:
    return claimed_by(Faulty(verified, "total"), verified, inputs)


def answers(folder: Path, order: Order) -> list[Finished]:
    worker = Worker(order)
    return [worker.finished(read_task(folder, f"{number}.receipt")) for number in range(3)]


def test_a_folder_of_wrong_receipts_is_not_reproduced_by_the_executor_that_made_them(folder, planted):
    order = Order((subject("negated").verified.program.to_bytes(),), codes=True)
    assert [item.answer for item in answers(folder, order)] == ["DIVERGED"] * 3
    planted("total")
    found = answers(folder, order)
    assert [item.answer for item in found] == ["CANNOT_RECOMPUTE"] * 3
    assert all("the executor" in item.reason and item.judged is not None for item in found)


def test_a_folder_says_what_was_judged_and_a_log_remembers_it(cvm, files, tmp_path):
    cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "r.receipt")
    root = tmp_path / "receipts"
    root.mkdir()
    for name in ("a", "b"):
        (root / f"{name}.receipt").write_bytes((tmp_path / "r.receipt").read_bytes())
        np.savez(root / f"{name}.npz", image=np.load("codes.npy"))
    arguments = ("receipt", "verify", "receipts", "--program", "negated.cvm", "--codes", "--jobs", 1, "--resume", "log")
    arguments += ("--executor", "numpy")
    people = cvm(*arguments, *SALTED)
    assert people.out == (
        "2 receipts: 2 REPRODUCED, 0 DIVERGED, 0 CANNOT_RECOMPUTE; 0 known from before\n"
        "executed: 2 on numpy; FORMAL judged 28 elements, salt c0ffee\n"
    )
    # Another salt is not another question: what is known stays known, with the salt that it was judged with.
    document = cvm(*arguments, "--salt", "aa", "--json").document
    assert (document["resumed"], document["executed"], document["judged"], document["salt"]) == (2, 2, 28, "aa")
    judged = {"elements": 14, "tensors": 2, "of": 2, "runs": 2, "salt": "c0ffee"}
    assert [item["judged"] for item in document["results"]] == [judged] * 2
    assert [item["executor"] for item in document["results"]] == ["numpy"] * 2
    refused = cvm(*arguments, "--judge", 3)
    assert refused.code == 3
    assert "audit.log" in refused.err
    plain = cvm(*arguments[:6], "--jobs", 1, "--level", "structure")
    assert plain.out == (
        "2 receipts: 2 STRUCTURE HOLDS, 0 DIVERGED, 0 CANNOT_RECOMPUTE; 0 known from before\nnothing was executed\n"
    )
    silent = cvm(*arguments[:6], "--jobs", 1, "--executor", "numpy", "--judge", 0)
    assert silent.out.endswith("executed: 2 on numpy; FORMAL judged nothing\n")


# Demo


@pytest.mark.parametrize("when", ["always", "ordinary"])
def test_the_demo_fails_with_a_defect_of_the_default_executor(cvm, planted, when):
    planted("probs", when=when)
    outcome = cvm("demo", "--json")
    assert outcome.code == 1
    document = json.loads(outcome.out)
    assert not document["agreement"]["agree"]


def test_the_demo_fails_with_a_defect_of_the_executor_that_verifies(cvm, planted):
    planted("probs", when="ordinary", replaced="numpy")
    outcome = cvm("demo", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["receipt"]["answer"] == "CANNOT_RECOMPUTE"
