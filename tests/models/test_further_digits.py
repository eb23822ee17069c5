"""The other trained networks: logarithmic weights, weights stored as codes, functions by table, state over cycles.

Every code of every quantised tensor equals that of the independent evaluator, softmax outputs within their bound.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import cvm
from tests.oracle import exact

SHARED = Path(__file__).parents[3] / "shared" / "models" / "digits"

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/models/digits is not there")

COUNTS = {"lenet_digits_logw": (40, 250), "lenet_digits_qdat": (40, 250), "mlp_cancer": (150, 150)}
"""Inputs that are compared always, and all that there are."""


def assert_within_bounds(program: cvm.Program, found: cvm.session.Result, expected: dict[str, np.ndarray]) -> None:
    for item in program.provenance.exactness:
        if item.value:
            codes = found[item.value]
            difference = np.abs(codes.astype(np.int64) - expected[item.tensor].reshape(codes.shape))
            assert Fraction(int(difference.max())) <= item.bound, item.tensor


def assert_that_of_the_oracle(name: str, first: int, last: int) -> None:
    program = cvm.compile(SHARED / name)
    session, oracle = cvm.Session(program), exact.load(SHARED / name)
    images = np.load(SHARED / name / "test_inputs.npy")
    assert len(images) == COUNTS[name][1]
    (source,) = (item.value.name for item in program.inputs)
    for image in images[first:last]:
        shaped = image.reshape(program.inputs[0].value.shape)
        assert_within_bounds(program, session.run({source: shaped}, "all"), oracle.run(shaped).codes)


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_every_tensor_is_that_of_the_oracle(name: str) -> None:
    assert_that_of_the_oracle(name, 0, COUNTS[name][0])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, (some, every) in COUNTS.items() if some < every])
def test_every_tensor_is_that_of_the_oracle_on_all_further_inputs(name: str) -> None:
    assert_that_of_the_oracle(name, *COUNTS[name])


def assert_state_kept(first: int, last: int) -> None:
    folder = SHARED / "rnn_digits"
    program = cvm.compile(folder)
    oracle = exact.load(folder)
    (source,) = (item.value.name for item in program.inputs)
    shape = program.inputs[0].value.shape
    images = np.load(folder / "test_inputs.npy")
    assert images.shape[:2] == (250, 8)
    for image in images[first:last]:
        session = cvm.Session(program)
        feeds = [{source: row.reshape(shape)} for row in image]
        for feed, evaluation in zip(feeds, oracle.run_cycles(feeds), strict=True):
            assert_within_bounds(program, session.run(feed, "all"), evaluation.codes)


@pytest.mark.slow
def test_a_recurrent_network_keeps_its_state_over_the_cycles_of_an_image() -> None:
    assert_state_kept(0, 25)


@pytest.mark.long
def test_a_recurrent_network_keeps_its_state_over_the_cycles_of_all_further_images() -> None:
    assert_state_kept(25, 250)
