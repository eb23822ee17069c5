"""Claims of real networks are the same on every executor, with any number of threads, in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.audit import Claim, Recorder
from cvm.demo import IMAGES, MODEL
from cvm.executors import EXECUTORS
from cvm.program import VerifiedProgram, verify
from tests.audit.examples import subject

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "models" / "real"
FAST = [name for name in EXECUTORS if name != "formal"]


@cache
def program(name: str) -> VerifiedProgram:
    return verify(cvm.compile(MODEL if name == "digits" else REAL / name))


def claim(name: str, executor: str, threads: int | None = None, samples: int = 1) -> Claim:
    """The traced claim of runs on inputs that are a pattern over their whole interval."""
    verified = program(name)
    inputs = {}
    for item in verified.program.inputs:
        shape = (samples, *item.value.shape)
        k = np.arange(int(np.prod(shape)))
        span = item.value.hi - item.value.lo + 1
        inputs[item.value.name] = (item.value.lo + (k * 7919 + k * k % 1009) % span).reshape(shape)
    recorder = Recorder(verified, trace=True)
    cvm.Session(verified, executor, threads).run(inputs, witness=recorder)
    return recorder.claim()


def test_every_executor_claims_the_same_of_the_digits():
    expected = claim("digits", "formal", samples=2)
    for executor in FAST:
        for threads in (1, 2, 3):
            assert claim("digits", executor, threads, samples=2) == expected


@pytest.mark.parametrize(
    "name",
    [
        "hello_world",
        "micro_speech",
        pytest.param("person_detect", marks=pytest.mark.long),
        pytest.param("mobilenet_v2", marks=pytest.mark.long),
    ],
)
def test_every_executor_claims_the_same_of_real_networks(name):
    if not (REAL / name).is_dir():
        pytest.skip("the real networks are not here (../shared)")
    expected = claim(name, "numpy", samples=3)
    for executor in EXECUTORS if name == "hello_world" else FAST:
        for threads in (1, 3):
            assert claim(name, executor, threads, samples=3) == expected


@pytest.mark.parametrize("seed", ["0", "1", "random"])
@pytest.mark.parametrize("executor", FAST)
def test_another_process_claims_the_same(tmp_path, seed, executor):
    subject("batch").verified.program.save(tmp_path / "m.cvm")
    np.save(tmp_path / "x.npy", subject("batch").inputs["image"])
    command = [sys.executable, "-m", "cvm", "run", "m.cvm", "-i", "x.npy", "--executor", executor, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "TZ": "NPT-5:45", "LC_ALL": "C"}
    result = subprocess.run(
        [*command, "--receipt", "r.receipt", "--trace"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(result.stdout)["receipt"]["id"] == subject("batch").receipt().id


def test_the_demo_images_leave_one_claim_in_any_batches():
    with np.load(IMAGES) as data:
        images = data["image"][:6]
    runs = []
    for part in (images[:1], images[1:3], images[3:]):
        recorder = Recorder(program("digits"))
        cvm.Session(program("digits")).run({"image": part}, witness=recorder)
        runs += recorder.claim().runs
    whole = Recorder(program("digits"))
    cvm.Session(program("digits")).run({"image": images}, witness=whole)
    assert whole.claim().runs == tuple(runs)
