"""Trained and real networks on every machine that this processor can be: the codes of the NumPy executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
import cvm.demo
from cvm.arrays import read_npz
from cvm.executors.native.runtime.select import available
from tests.executors.native.comparison import NAMES
from tests.selection import mostly_long

OWN = [machine.name for machine in available()]
"""The machines that ``CVM_MACHINE`` may name: those of this processor."""

SHARED = Path(__file__).parents[4] / "shared" / "models"
DIGITS = ("lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mlp_cancer", "mobilenet_digits", "rnn_digits")
REAL = ("hello_world", "micro_speech", "person_detect", "mobilenet_v2")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models is not there")

Sequence = list[dict[str, Any]]


def sequences(name: str, program: cvm.Program) -> Iterator[Sequence]:
    """All inputs: each one run, or as many runs as it has cycles."""
    value = program.inputs[0].value
    if name in REAL:
        with np.load(SHARED / "real" / name / "expected.npz") as expected:
            for codes in expected["input"]:
                yield [{value.name: codes}]
        return
    for image in np.load(SHARED / "digits" / name / "test_inputs.npy"):
        rows = image if name == "rnn_digits" else [image]
        yield [{value.name: row.reshape(value.shape)} for row in rows]


def results(session: cvm.Session, runs: Sequence, capture: str | None) -> list[Mapping[str, Any]]:
    session.reset()
    # Codes where the network stores them so, else real numbers.
    return [
        dict(session.run(feed, capture, codes=all(item.dtype.kind == "i" for item in feed.values()))) for feed in runs
    ]


def require_same(name: str, program: cvm.Program, runs: list[Sequence], machine: str, threads: int) -> None:
    """Every output of every input, and every tensor of the last one."""
    native, numpy = cvm.Session(program, "native", threads), cvm.Session(program, "numpy")
    assert any(machine in line for line in native.explain())
    for index, sequence in enumerate(runs):
        for capture in (None, "all") if index == len(runs) - 1 else (None,):
            pairs = zip(results(native, sequence, capture), results(numpy, sequence, capture), strict=True)
            for found, expected in pairs:
                assert found.keys() == expected.keys()
                for tensor, codes in expected.items():
                    context = f"{name}, input {index}, {tensor} on {machine}, {threads} threads"
                    np.testing.assert_array_equal(found[tensor], codes, err_msg=context, strict=True)
        np.testing.assert_equal(native.state, numpy.state)


@pytest.fixture(params=NAMES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sessions compile for this one."""
    monkeypatch.setenv("CVM_MACHINE", request.param)
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_long(dict.fromkeys((OWN[0], OWN[-1])), [OWN[0]]))
def test_the_network_of_the_demo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_MACHINE", name)
    program = cvm.compile(cvm.demo.MODEL)
    value = program.inputs[0].value
    images = read_npz(cvm.demo.IMAGES, "image")[:3]
    runs = [[{value.name: image.reshape(value.shape)}] for image in images]
    require_same("demo", program, runs, name, 2)


@needs_shared
@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", DIGITS)
def test_trained_networks_on_all_their_inputs(name: str, threads: int, machine: str) -> None:
    program = cvm.compile(SHARED / "digits" / name)
    runs = list(sequences(name, program))
    assert len(runs) >= 150
    require_same(name, program, runs, machine, threads)


@needs_shared
@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", REAL)
def test_real_networks_on_all_their_inputs(name: str, threads: int, machine: str) -> None:
    program = cvm.compile(SHARED / "real" / name)
    runs = list(sequences(name, program))
    require_same(name, program, runs, machine, threads)
