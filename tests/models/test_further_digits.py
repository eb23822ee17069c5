"""The other trained networks: logarithmic weights, weights stored as codes, functions by table, state over cycles.

Every code of every quantised tensor equals that of the independent evaluator, softmax outputs within their bound.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cvm
from tests.reference import exact

SHARED = Path(__file__).parents[3] / "shared" / "models" / "digits"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models/digits is not there")

COUNTS = {"lenet_digits_logw": 40, "lenet_digits_qdat": 40, "mlp_cancer": 150}
RIGHT = {"lenet_digits_logw": 239, "lenet_digits_qdat": 249, "mlp_cancer": 145, "rnn_digits": 243}
"""Inputs whose label is the first of the largest output codes."""


def assert_within_bounds(program: cvm.Program, found: cvm.session.Result, expected: dict[str, np.ndarray]) -> None:
    for item in program.provenance.exactness:
        if item.value:
            codes = found[item.value]
            difference = np.abs(codes.astype(np.int64) - expected[item.tensor].reshape(codes.shape))
            assert Fraction(int(difference.max())) <= item.bound, item.tensor


@pytest.mark.parametrize("name", COUNTS)
def test_every_tensor_is_that_of_the_oracle(name: str) -> None:
    program = cvm.compile(SHARED / name)
    session, oracle = cvm.Session(program), exact.load(SHARED / name)
    images = np.load(SHARED / name / "test_inputs.npy")[: COUNTS[name], None]
    (source,) = (item.value.name for item in program.inputs)
    for image in images:
        shaped = image.reshape(program.inputs[0].value.shape)
        assert_within_bounds(program, session.run({source: shaped}, "all"), oracle.run(shaped).codes)


def test_a_recurrent_network_keeps_its_state_over_the_cycles_of_every_image() -> None:
    folder = SHARED / "rnn_digits"
    program = cvm.compile(folder)
    oracle = exact.load(folder)
    (source,) = (item.value.name for item in program.inputs)
    shape = program.inputs[0].value.shape
    for image in np.load(folder / "test_inputs.npy")[:25]:
        session = cvm.Session(program)
        feeds = [{source: row.reshape(shape)} for row in image]
        for feed, evaluation in zip(feeds, oracle.run_cycles(feeds), strict=True):
            assert_within_bounds(program, session.run(feed, "all"), evaluation.codes)


@pytest.mark.parametrize("name", RIGHT)
def test_so_many_inputs_are_classified_right(name: str) -> None:
    folder = SHARED / name
    program = cvm.compile(folder)
    inputs, labels = np.load(folder / "test_inputs.npy"), np.load(folder / "test_labels.npy")
    (source,) = program.inputs
    (output,) = (item.name for item in program.outputs)
    cycles = bool(program.state)
    shape = (len(inputs), inputs.shape[1], *source.value.shape) if cycles else (len(inputs), *source.value.shape)
    codes = cvm.Session(program).run({source.value.name: inputs.reshape(shape)}, cycles=cycles)[output]
    last = codes[:, -1] if cycles else codes
    found = last.reshape(len(inputs), -1).argmax(axis=1)
    assert int((found == labels[: len(inputs)]).sum()) == RIGHT[name]
