"""Real networks leave for the library: within its rules, and with the same outputs on both of its backends."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.errors import Unsupported
from cvm.export.cvm_runtime import Files, saved
from cvm.frontends import cvm_runtime
from cvm.inputs import arrange
from cvm.program import verify
from cvm.session import Session
from tests.api import small
from tests.frontends.cvm_runtime.library import opened

SHARED = Path(__file__).parents[4] / "shared" / "models"
PAGE = Path(__file__).parents[3] / "docs" / "cvm-runtime.md"
LONG = ("mobilenet_digits", "lenet_digits_qdat", "person_detect", "mobilenet_v2")
"""Networks of the suite that takes longer: `pytest -m long tests/frontends/cvm_runtime`."""
CLASSIFIERS = {
    "lenet_digits": "image",
    "lenet_digits_logw": "image",
    "lenet_digits_qdat": "image",
    "mobilenet_digits": "image",
    "mlp_cancer": "features",
}
REAL = ("hello_world", "micro_speech", "person_detect", "mobilenet_v2")
NETWORKS = [pytest.param(name, marks=[pytest.mark.long] if name in LONG else []) for name in (*CLASSIFIERS, *REAL)]

needs_models = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models is not there")

SIMULATED = 2
"""Inputs that the backends of the tests, which are slow, are given; all are given to the program that is read back."""


@cache
def network(name: str) -> tuple[cvm.Program, Files, cvm_runtime.Imported]:
    """A program, its files, and what is read from them."""
    program = cvm.compile(SHARED / ("real" if name in REAL else "digits") / name)
    files = saved(program)
    return program, files, cvm_runtime.loads(files.content["model.json"], files.content["model.params"])


def inputs_of(name: str, program: cvm.Program) -> np.ndarray:
    """All given inputs of a network, as codes."""
    if name in REAL:
        with np.load(SHARED / "real" / name / "expected.npz") as arrays:
            codes = arrays["input"].astype(np.int32)
        return codes.reshape(-1, *program.inputs[0].value.shape)
    reals = np.load(SHARED / "digits" / name / "test_inputs.npy")
    _, samples = arrange(program, {CLASSIFIERS[name]: reals})
    return np.stack([feed[CLASSIFIERS[name]] for (feed,) in samples])


@needs_models
@pytest.mark.parametrize("name", NETWORKS)
def test_every_op_is_within_the_rules_of_the_library(name: str) -> None:
    _, files, _ = network(name)
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    assert model.steps
    assert {step.op for step in model.steps} & {"cvm_left_shift", "where"} == set()


@needs_models
@pytest.mark.parametrize("name", NETWORKS)
def test_the_program_read_back_gives_the_same_outputs_on_all_given_inputs(name: str) -> None:
    program, _, imported = network(name)
    codes = inputs_of(name, program)
    expected = Session(program, "numpy").run({program.inputs[0].value.name: codes}, codes=True)
    found = Session(imported.program, "numpy").run({"data": codes})
    for output in program.outputs:
        assert np.array_equal(expected[output.name], found[output.name])


@needs_models
@pytest.mark.parametrize("name", [network for network in NETWORKS if network.values != ("mobilenet_v2",)])
def test_both_backends_of_the_library_give_the_outputs(name: str) -> None:
    program, files, imported = network(name)
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    session = Session(program, "numpy")
    for codes in inputs_of(name, program)[:SIMULATED]:
        result = session.run({program.inputs[0].value.name: codes}, codes=True)
        expected = imported.model.interface.encode([result[output.name] for output in program.outputs])
        data = codes.astype(f"<i{model.input_size}").tobytes()
        assert model.run(data, "formal") == model.run(data, "cpu") == expected


@needs_models
@pytest.mark.parametrize("name", NETWORKS)
def test_the_page_says_what_the_model_costs(name: str) -> None:
    program, files, _ = network(name)
    there = cvm_runtime.described(files.model)
    figures = [len(program.nodes), there["nodes"], verify(program).gas, there["gas"], there["storage_bytes"]]
    assert f"| {name} | {' | '.join(map(str, figures))} |" in PAGE.read_text("utf-8").splitlines()


@needs_models
@pytest.mark.parametrize("name", ["lenet_digits", "hello_world"])
def test_inputs_beyond_the_interval_of_the_program_do_not_set_the_backends_at_variance(name: str) -> None:
    _, files, _ = network(name)
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    shape = model.shapes[model.data]
    for extreme in (-(2**31), 2**31 - 1, -1):
        data = np.full(shape, extreme, f"<i{model.input_size}").tobytes()
        assert model.run(data, "formal") == model.run(data, "cpu")


def test_a_program_with_state_is_refused_by_name() -> None:
    program = small.counter()
    with pytest.raises(Unsupported, match="keeps no state") as caught:
        saved(program)
    assert caught.value.code == "cvm_runtime.export.state"
    assert caught.value.location.tensor == program.state[0].value.name


@needs_models
@pytest.mark.long
def test_the_recurrent_network_is_refused_for_its_state() -> None:
    program = cvm.compile(SHARED / "digits" / "rnn_digits")
    with pytest.raises(Unsupported, match="keeps no state"):
        saved(program)


@needs_models
@pytest.mark.parametrize("name", ["lenet_digits", "hello_world", "micro_speech"])
def test_what_was_read_back_leaves_again_as_the_same_program(name: str) -> None:
    _, _, imported = network(name)
    files = saved(imported.program)
    again = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    assert again.program.digest == imported.program.digest
    assert again.model.metering.gas == imported.model.metering.gas


@needs_models
def test_the_files_are_the_same_for_the_same_program() -> None:
    program, files, _ = network("hello_world")
    assert saved(program).content == files.content
