"""``cvm run --receipt`` and ``cvm receipt``."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from cvm.audit import load_receipt, read_trace, write_trace
from cvm.executors import choose_executor
from cvm.program import load


@pytest.fixture
def receipt(cvm, files):
    """A receipt of negated.cvm with the codes of codes.npy, and its outputs."""
    outcome = cvm(
        "run",
        "negated.cvm",
        "-i",
        "codes.npy",
        "--input-codes",
        "-o",
        "out.npz",
        "--receipt",
        "r.receipt",
        "--trace",
        "--json",
    )
    assert outcome.code == 0
    return outcome.document["receipt"]


VERIFY = ("receipt", "verify", "r.receipt", "--program", "negated.cvm", "-i", "codes.npy", "--codes")


def test_run_writes_a_receipt_and_says_its_id(cvm, receipt):
    found = load_receipt("r.receipt")
    assert receipt == {"path": "r.receipt", "id": found.id, "runs": 2, "traced": True}
    assert found.claim.program.hex() == load("negated.cvm").digest
    assert found.host.executor == choose_executor()[0]
    assert found.host.time == ""
    plain = cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "p.receipt", "--time", "noon")
    assert f"receipt   {load_receipt('p.receipt').id}\n" in plain.out
    assert load_receipt("p.receipt").host.time == "noon"
    assert not load_receipt("p.receipt").traced


def test_a_trace_needs_a_receipt(cvm, files):
    for option in (["--trace"], ["--time", "now"]):
        outcome = cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", *option)
        assert outcome.code == 2
        assert "--receipt FILE" in outcome.err


def test_run_writes_the_trace_of_each_run(cvm, receipt):
    arguments = ("run", "negated.cvm", "-i", "codes.npy", "--codes", "--trace-file", "all.trace")
    outcome = cvm(*arguments, "--receipt", "t.receipt", "--json")
    assert outcome.code == 0
    claim = load_receipt("t.receipt").claim
    assert outcome.document["receipt"] == {"path": "t.receipt", "id": receipt["id"], "runs": 2, "traced": True}
    roots = [run.trace.hex() for run in claim.runs]
    files = ["all.0.trace", "all.1.trace"]
    said = [{"path": path, "root": root} for path, root in zip(files, roots, strict=True)]
    assert outcome.document["traces"] == said
    assert [read_trace(path).root.hex() for path in files] == roots
    assert "".join(f"trace     {item['root']}\nwrote     {item['path']}\n" for item in said) in cvm(*arguments).out

    np.save("one.npy", np.load("codes.npy")[:1])
    alone = cvm("run", "negated.cvm", "-i", "one.npy", "--codes", "--trace-file", "one.trace", "--json").document
    assert alone["traces"] == [{"path": "one.trace", "root": roots[0]}]
    assert "receipt" not in alone
    for bad in ("no/x.trace", "/"):
        outcome = cvm("run", "negated.cvm", "-i", "one.npy", "--codes", "--trace-file", bad)
        assert outcome.code == 3
        assert "output.unwritable" in outcome.err


def test_given_traces_are_compared(cvm, receipt):
    cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--trace-file", "t.trace")
    given = ("--trace-file", "t.0.trace", "--trace-file", "t.1.trace")
    outcome = cvm(*VERIFY, *given, "--json")
    assert (outcome.code, outcome.document["answer"], outcome.document["level"]) == (0, "REPRODUCED", "trace")
    trace = read_trace("t.1.trace")
    write_trace(replace(trace, steps=(*trace.steps[:-1], (bytes(32),))), "t.1.trace")
    outcome = cvm(*VERIFY, *given)
    assert outcome.code == 1
    assert f"run 1: op {len(trace.steps) - 1}, the " in outcome.out
    assert "is the first that differs" in outcome.out
    write_trace(replace(trace, inputs=(bytes(32),)), "t.1.trace")
    assert cvm(*VERIFY, *given).code == 5
    for options in (("--trace-file", "text.txt"), ("--trace-file", "r.receipt"), ("--trace-file", "no.trace")):
        outcome = cvm(*VERIFY, *options)
        assert outcome.code == 3
        assert options[1] in outcome.err
    assert cvm(*VERIFY, *given, "--level", "outputs").code == 2
    assert cvm("receipt", "verify", ".", "--program", "negated.cvm", *given).code == 2


def test_a_receipt_that_cannot_be_written(cvm, files):
    outcome = cvm("run", "negated.cvm", "-i", "codes.npy", "--codes", "--receipt", "no/r.receipt")
    assert outcome.code == 3
    assert "output.unwritable" in outcome.err


@pytest.mark.parametrize("level", ["structure", "roots", "outputs", "trace", "formal"])
def test_verify_reproduces_at_every_level(cvm, receipt, level):
    outcome = cvm(*VERIFY, "--level", level, "--outputs", "out.npz", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert (document["answer"], document["level"]) == ("REPRODUCED", level)
    assert document["receipt"] == receipt["id"]
    assert document["signers"] == []


def test_verify_for_people(cvm, receipt):
    outcome = cvm(*VERIFY, "--level", "formal", "--sample", "3")
    assert outcome.code == 0
    assert outcome.out.startswith("REPRODUCED at level formal: 2 runs\n")


def test_a_false_receipt_has_exit_code_1(cvm, receipt):
    data = np.load("out.npz")
    np.savez("wrong.npz", y=data["y"][::-1])
    outcome = cvm(*VERIFY, "--outputs", "wrong.npz", "--json")
    assert (outcome.code, outcome.document["answer"], outcome.document["level"]) == (1, "DIVERGED", "roots")


def test_what_is_missing_has_exit_code_5(cvm, receipt):
    outcome = cvm("receipt", "verify", "r.receipt", "--program", "negated.cvm", "--json")
    assert (outcome.code, outcome.document["answer"], outcome.document["level"]) == (5, "CANNOT_RECOMPUTE", "roots")
    np.save("zeros.npy", np.zeros((1, 3, 2), int))
    outcome = cvm("receipt", "verify", "r.receipt", "--program", "channels.cvm", "-i", "zeros.npy", "--codes", "--json")
    assert (outcome.code, outcome.document["level"]) == (5, "structure")


def test_a_stateful_receipt_with_cycles(cvm, files):
    arguments = ("-i", "steps.npy", "--cycles")
    assert cvm("run", "counter.cvm", *arguments, "--receipt", "c.receipt", "--trace").code == 0
    assert cvm("receipt", "verify", "c.receipt", "--program", "counter.cvm", *arguments).code == 0
    np.savez("state.npz", memory=np.array([[1, 2]]))
    outcome = cvm("receipt", "verify", "c.receipt", "--program", "counter.cvm", *arguments, "--state", "state.npz")
    assert outcome.code == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((*VERIFY, "--level", "all"), 2),
        ((*VERIFY, "--sample", "3"), 2),
        ((*VERIFY, "--program", "pair.cvm"), 2),
        ((*VERIFY, "--resume", "log"), 2),
        ((*VERIFY, "--jobs", "2"), 2),
        ((*VERIFY, "--ray", "127.0.0.1:1"), 2),
        (("receipt", "verify", ".", "--program", "negated.cvm", "--ray", "127.0.0.1:1"), 3),
        (("receipt", "verify", ".", "--program", "negated.cvm", "-i", "codes.npy", "--codes"), 2),
        (("receipt", "show", "nothing.receipt"), 3),
        (("receipt", "show", "text.txt"), 3),
        (("receipt", "show", "."), 3),
        (("receipt", "show", "negated.cvm"), 3),
        (("receipt", "verify", "text.txt", "--program", "negated.cvm"), 3),
        (("receipt", "diff", "r.receipt", "codes.npy"), 3),
    ],
)
def test_mistakes_are_said(cvm, receipt, arguments, code):
    outcome = cvm(*arguments)
    assert outcome.code == code
    assert outcome.err.startswith("cvm: ")


def test_show_tells_the_claim_from_what_the_host_said(cvm, receipt):
    outcome = cvm("receipt", "show", "r.receipt", "--json")
    document = outcome.document
    assert document["id"] == receipt["id"]
    assert set(document["claim"]) == {"program", "op_set", "limits", "gas", "runs"}
    assert set(document["not_authenticated"]) == {"executor", "version", "machine", "time"}
    people = cvm("receipt", "show", "r.receipt").out
    assert people.startswith(f"receipt   {receipt['id']}\n")
    assert f"the host said (not authenticated): {choose_executor()[0]}, cvm " in people


def test_diff_names_the_fields(cvm, receipt):
    np.save("more.npy", np.load("codes.npy") + (np.arange(12) == 7).reshape(2, 2, 3))
    cvm("run", "negated.cvm", "-i", "more.npy", "--codes", "--receipt", "b.receipt", "--trace")
    outcome = cvm("receipt", "diff", "r.receipt", "b.receipt", "--json")
    assert outcome.code == 1
    fields = [item["field"] for item in outcome.document["differences"]]
    assert fields == ["runs[1].inputs[0]", "runs[1].outputs[0]", "runs[1].outputs[1]", "runs[1].trace"]
    assert cvm("receipt", "diff", "r.receipt", "b.receipt").out.startswith("DIFFER   ")
    np.save("one.npy", np.load("codes.npy")[0:1])
    cvm("run", "negated.cvm", "-i", "one.npy", "--codes", "--receipt", "c.receipt", "--trace")
    outcome = cvm("receipt", "diff", "r.receipt", "c.receipt", "--json")
    assert outcome.document["differences"] == [{"field": "runs", "first": "2 items", "second": "1 items"}]
    same = cvm("receipt", "diff", "r.receipt", "r.receipt")
    assert (same.code, same.out) == (0, f"EQUAL    {receipt['id']}\n")


def test_sign_and_verify_say_who(cvm, receipt):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with open("key.pem", "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    signed = cvm("receipt", "sign", "r.receipt", "--key", "key.pem", "-o", "s.receipt", "--json")
    assert signed.code == 0
    public = key.public_key().public_bytes_raw().hex()
    assert signed.document["signers"] == [public]
    assert signed.document["receipt"] == receipt["id"]
    outcome = cvm("receipt", "verify", "s.receipt", *VERIFY[3:], "--json")
    assert (outcome.code, outcome.document["signers"]) == (0, [public])
    data = load_receipt("s.receipt").signatures[0].signature
    with open("s.receipt", "rb+") as file:
        content = file.read().replace(data, data[:-1] + bytes([data[-1] ^ 1]))
        file.seek(0)
        file.write(content)
    outcome = cvm("receipt", "verify", "s.receipt", *VERIFY[3:], "--json")
    assert (outcome.code, outcome.document["answer"]) == (1, "DIVERGED")
    for bad in ("text.txt", "nothing.pem", "."):
        outcome = cvm("receipt", "sign", "r.receipt", "--key", bad)
        assert outcome.code == 3


@pytest.mark.parametrize("kind", ["a link to nothing", "a pipe", "a folder"])
def test_a_folder_whose_only_receipt_cannot_be_read_fails_and_names_it(cvm, receipt, tmp_path, kind):
    path = tmp_path / "folder" / "a.receipt"
    path.parent.mkdir()
    make = {"a link to nothing": lambda: path.symlink_to("nowhere"), "a pipe": lambda: os.mkfifo(path)}
    make.get(kind, path.mkdir)()
    outcome = cvm("receipt", "verify", "folder", "--program", "negated.cvm", "--jobs", "1")
    assert outcome.code == 5
    assert "a.receipt" in outcome.out
    assert "1 receipts: 0 REPRODUCED, 0 DIVERGED, 1 CANNOT_RECOMPUTE" in outcome.out


def test_a_folder_of_receipts(cvm, receipt, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.receipt").write_bytes((tmp_path / "r.receipt").read_bytes())
        np.savez(folder / f"{name}.npz", image=np.load("codes.npy") + (name == "c"))
    arguments = ("receipt", "verify", "folder", "--program", "negated.cvm", "--jobs", "1", "--resume", "log", "--codes")
    outcome = cvm(*arguments, "--json")
    assert outcome.code == 5
    document = outcome.document
    assert document["answers"] == {"REPRODUCED": 2, "DIVERGED": 0, "CANNOT_RECOMPUTE": 1}
    assert [item["answer"] for item in document["results"]] == ["REPRODUCED", "REPRODUCED", "CANNOT_RECOMPUTE"]
    people = cvm(*arguments).out
    assert "3 receipts: 2 REPRODUCED, 0 DIVERGED, 1 CANNOT_RECOMPUTE; 3 known from before" in people


@pytest.mark.parametrize("resumes", [True, False])
def test_an_interrupted_folder_says_how_far_it_came_and_how_it_goes_on(cvm, receipt, tmp_path, monkeypatch, resumes):
    import cvm.audit.batch as batch

    folder = tmp_path / "folder"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.receipt").write_bytes((tmp_path / "r.receipt").read_bytes())
        np.savez(folder / f"{name}.npz", image=np.load("codes.npy"))
    whole = batch.verify_all

    def interrupted(*arguments):
        answers = whole(*arguments)
        yield next(answers)
        yield next(answers)
        raise KeyboardInterrupt

    arguments = ["receipt", "verify", "folder", "--program", "negated.cvm", "--jobs", "1", "--codes"]
    arguments += ["--resume", "log"] if resumes else []
    with monkeypatch.context() as context:
        context.setattr(batch, "verify_all", interrupted)
        outcome = cvm(*arguments)
    assert outcome.code == 130
    done = "cvm: 2 of 3 receipts are verified"
    if not resumes:
        assert outcome.err == f"{done}; with --resume FILE they would be noted there\ncvm: interrupted\n"
        return
    assert outcome.err == f"{done} and noted in log: the same command goes on from there\ncvm: interrupted\n"
    again = cvm(*arguments, "--json").document
    assert (again["resumed"], again["answers"]["REPRODUCED"]) == (2, 3)


@pytest.mark.parametrize("given", [("-i", "image.npy"), ("-i", "nothing=x.npy"), ("-i", "codes.npy", "--codes"), ()])
def test_a_receipt_of_a_program_with_other_inputs_is_not_recomputed(cvm, receipt, given):
    from cvm.demo import MODEL

    np.save("image.npy", np.zeros((3, 5)))
    np.save("x.npy", np.zeros(7))
    outcome = cvm("receipt", "verify", "r.receipt", "--program", str(MODEL), *given)
    assert outcome.code == 5
    assert outcome.out.startswith("CANNOT_RECOMPUTE")
    assert f"the receipt is of program {load('negated.cvm').digest}, the program at hand is" in " ".join(
        outcome.out.split()
    )
