"""``cvm map``: one command over a data set, whose result anyone can verify, and which goes on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_bytes, npz_members, read_npz
from cvm.session import Session
from tests.api import small

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small.negated().save("m.cvm")
    codes = np.random.default_rng(3).integers(0, 256, (9, 1, 2, 3)).astype(np.int32)
    (tmp_path / "in.npz").write_bytes(npz_bytes({"image": codes}))
    return codes


def test_the_results_are_those_of_the_program(cvm, model):
    outcome = cvm("map", "m.cvm", "in.npz", "-o", "out.npz", "--codes", "--jobs", 1, "--json")
    assert outcome.code == 0
    document = outcome.document
    assert (document["items"], document["resumed"], document["receipts"]) == (9, 0, None)
    assert document["outputs"] == [{"name": "y", "shape": [1, 2, 3]}, {"name": "total", "shape": [1]}]
    expected = Session("m.cvm", "numpy").run({"image": model}, codes=True)
    assert list(npz_members("out.npz")) == ["y", "total"]
    assert all(np.array_equal(read_npz("out.npz", name), expected[name]) for name in expected)
    people = cvm("map", "m.cvm", "in.npz", "-o", "out", "--input-codes", "--jobs", 1)
    assert people.out == f"ran       9 items\ndigest    {document['digest']}\nwrote     out\n"
    assert np.array_equal(read_npz("out/4.npz", "y"), expected.real("y")[4])


def test_the_receipts_are_verified_by_the_command_for_folders(cvm, model):
    outcome = cvm("map", "m.cvm", "in.npz", "-o", "out.npz", "--codes", "--receipts", "--trace", "--jobs", 1, "--json")
    folder = outcome.document["receipts"]
    assert folder == "out.npz.receipts"
    verified = cvm("receipt", "verify", folder, "--program", "m.cvm", "--codes", "--jobs", 1, "--json")
    assert (verified.code, verified.document["answers"]["REPRODUCED"]) == (0, 9)
    assert {item["level"] for item in verified.document["results"]} == {"trace"}


def test_numbers_out_of_range_are_reported_once_and_refused_if_asked(cvm, model):
    real = model / 255.0
    real[4, 0, 1, 1] = 7.5
    Path("real.npz").write_bytes(npz_bytes({"image": real}))
    outcome = cvm("map", "m.cvm", "real.npz", "-o", "out.npz", "--jobs", 1)
    assert outcome.code == 0
    assert "cvm: warning: items 4 to 4: input 'image': 1 of 6 real numbers are out of the range [0, 1]" in outcome.err
    assert outcome.err.count("warning") == 1
    refused = cvm("map", "m.cvm", "real.npz", "-o", "no.npz", "--out-of-range", "refuse", "--jobs", 1, "--json")
    assert (refused.code, refused.document["error"]["code"]) == (3, "input.range")
    assert refused.document["error"]["message"].startswith("item 4: ")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("in.npz", "-o", "out.npz"), 3, "it takes real numbers from 0 to 1, found an array of int32"),
        (("in.npz", "-o", "out.npz", "--trace"), 2, "expected --receipts"),
        (("in.npz", "-o", "out.csv", "--codes"), 3, "expected OUT.npz, OUT.parquet or a folder"),
        (("m.cvm", "-o", "out.npz"), 3, "expected a data set: a folder of .npy or .npz files"),
        (("m.cvm", "-o", "out.npz"), 3, "found a program of cvm; `cvm run`"),
        (("nowhere", "-o", "out.npz"), 3, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_words(cvm, model, options, code, words):
    outcome = cvm("map", "m.cvm", *options, "--jobs", 1)
    assert outcome.code == code
    assert words in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.long
def test_a_killed_command_goes_on_where_it_was(model, tmp_path):
    many = np.random.default_rng(4).integers(0, 256, (4000, 1, 2, 3)).astype(np.int32)
    (tmp_path / "many.npz").write_bytes(npz_bytes({"image": many}))
    command = [sys.executable, "-m", "cvm", "map", "m.cvm", "many.npz", "-o", "out.npz", "--receipts", "--codes"]
    command += ["--jobs", "1", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    deadline = time.monotonic() + 120
    parts = tmp_path / "out.npz.parts"
    while process.poll() is None and time.monotonic() < deadline:
        if parts.exists() and len(list(parts.glob("*.npz"))) >= 3:
            break
        time.sleep(0.005)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert (done.returncode, document["items"]) == (0, 4000)
    assert 0 < document["resumed"] < 4000
    expected = Session("m.cvm", "numpy").run({"image": many}, codes=True)
    assert Path("out.npz").read_bytes() == npz_bytes({name: expected[name] for name in expected})
    assert len(list(Path("out.npz.receipts").glob("*.receipt"))) == 4000
    assert not parts.exists()
