"""Claims of all models, every tensor of them, are the same on every executor, with any number of threads and processes.

The models of which FORMAL takes seconds or minutes are in the long suite (``make test-long``): `person_detect`, half a
minute, with all its tensors, and `mobilenet_v2` with some elements of each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

import cvm
from cvm.agreement import judge
from cvm.audit import Claim, Recorder
from cvm.demo import IMAGES
from cvm.executors import EXECUTORS, create
from cvm.inputs import Intake, arrange
from tests.audit.examples import subject
from tests.models.claims import FOLDERS, ROOT, SMALL, claim, inputs, program

FAST = [name for name in EXECUTORS if name != "formal"]
THERE = [name for name in FOLDERS if FOLDERS[name].is_dir()]
LARGE = [pytest.param(name, marks=pytest.mark.long) for name in FOLDERS if name not in SMALL]
every_model = pytest.mark.parametrize("name", [*SMALL, *LARGE])


def require(name: str) -> None:
    if name not in THERE:
        pytest.skip("this model is not here (../shared/models)")


@every_model
def test_every_executor_claims_the_same_with_any_number_of_threads(name: str) -> None:
    require(name)
    expected = claim(name, "numpy", 1, samples=3)
    for executor in FAST:
        for threads in (1, 2, 3):
            assert claim(name, executor, threads, samples=3) == expected
            # One sample alone is run by several threads, three are run at the same time.
            alone = claim(name, executor, threads).runs
            assert alone == expected.runs[: len(alone)]


@pytest.mark.parametrize("name", [*SMALL, pytest.param("person_detect", marks=pytest.mark.long)])
def test_formal_claims_the_same(name: str) -> None:
    require(name)
    assert claim(name, "formal") == claim(name, "numpy")


@pytest.mark.long
def test_formal_judges_elements_of_what_is_too_large_for_it() -> None:
    require("mobilenet_v2")
    verified = program("mobilenet_v2")
    _, samples = arrange(verified.program, inputs("mobilenet_v2", 1), intake=Intake(codes=True))
    agreement = judge(verified, create("numpy", verified), samples, 25)
    assert agreement.difference is None
    assert claim("mobilenet_v2", "native") == claim("mobilenet_v2", "numpy")


ELSEWHERE = {
    "a seed": {"PYTHONHASHSEED": "0", "TZ": "NPT-5:45", "LC_ALL": "C"},
    "another seed": {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"},
    "no cache, chance": {"PYTHONHASHSEED": "random", "CVM_CACHE": "", "OPENBLAS_NUM_THREADS": "2"},
}


def of_another_process(environment_name: str, executor: str, threads: int, names: Sequence[str]) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.models.claims", executor, str(threads), "2", *names]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **ELSEWHERE[environment_name]}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(result.stdout)
    return found


def test_another_process_claims_the_same() -> None:
    names = [name for name in SMALL if name in THERE]
    expected = {name: claim(name, "numpy", samples=2).id().hex() for name in names}
    assert of_another_process("another seed", "native", 3, names) == expected


@pytest.mark.long
@pytest.mark.parametrize("environment_name", ELSEWHERE)
@pytest.mark.parametrize("executor", FAST)
@pytest.mark.parametrize("threads", [1, 3])
def test_other_processes_claim_the_same_of_every_model(environment_name: str, executor: str, threads: int) -> None:
    expected = {name: claim(name, "numpy", samples=2).id().hex() for name in THERE}
    assert of_another_process(environment_name, executor, threads, THERE) == expected


@pytest.mark.parametrize("seed", ["0", "random"])
@pytest.mark.parametrize("executor", FAST)
def test_another_command_claims_the_same(tmp_path, seed, executor):
    subject("batch").verified.program.save(tmp_path / "m.cvm")
    np.save(tmp_path / "x.npy", subject("batch").inputs["image"])
    command = [sys.executable, "-m", "cvm", "run", "m.cvm", "-i", "x.npy", "--codes", "--executor", executor, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed, "TZ": "NPT-5:45", "LC_ALL": "C"}
    result = subprocess.run(
        [*command, "--receipt", "r.receipt", "--trace"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(result.stdout)["receipt"]["id"] == subject("batch").receipt().id


def test_the_demo_images_leave_one_claim_in_any_batches():
    with np.load(IMAGES) as data:
        images = data["image"][:6]

    def claimed(*parts: np.ndarray) -> Claim:
        recorder = Recorder(program("demo"))
        for part in parts:
            cvm.Session(program("demo")).run({"image": part}, witness=recorder)
        return recorder.claim()

    assert claimed(images) == claimed(images[:1], images[1:3], images[3:])
