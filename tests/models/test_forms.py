"""All trained networks in all their forms - as lowered, optimised, legalised, both - give the same codes.

By NumPy on the first inputs that lie beside a network, in the long suites on all of them; by FORMAL on some of the
small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet

import cvm
from cvm.executors import create, initial_state
from cvm.inputs import arrange
from cvm.ops import REGISTRY
from cvm.passes.legalize import legalize
from cvm.passes.optimize import optimize
from cvm.program import Program, verify

SHARED = Path(__file__).parents[3] / "shared" / "models"

DIGITS = ("lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mlp_cancer", "mobilenet_digits", "rnn_digits")
REAL = ("hello_world", "micro_speech", "person_detect", "mobilenet_v2")
FORMAL = {"hello_world": 8, "mlp_cancer": 3, "rnn_digits": 1, "lenet_digits": 1}
"""Inputs that FORMAL computes."""

SOME = 20
"""Inputs that NumPy computes always; the long suites take all."""

FORMS = {
    "optimised": optimize,
    "legalised": legalize,
    "optimised and legalised": lambda program: legalize(optimize(program)),
    "legalised and optimised": lambda program: optimize(legalize(program)),
}

Runs = list[list[dict[str, np.ndarray]]]
"""Of every input, of every cycle, what is fed."""


@cache
def lowered(folder: Path) -> Program:
    return cvm.compile(folder, optimize=False)


@cache
def formed(folder: Path, form: str) -> Program:
    return FORMS[form](lowered(folder))


def runs(folder: Path) -> Runs:
    """All inputs that lie beside a network."""
    program = lowered(folder)
    (source,) = (item.value for item in program.inputs)
    if folder.parent.name == "real":
        with np.load(folder / "expected.npz") as expected:
            given = expected["input"]
        return [[{source.name: codes.reshape(source.shape).astype(np.int32)}] for codes in given]
    given = np.load(folder / "test_inputs.npy")
    cycles = (given.shape[1],) if program.state else ()
    shaped = given.reshape(len(given), *cycles, *source.shape)
    return [list(sample) for sample in arrange(program, {source.name: shaped}, bool(program.state))[1]]


def results(program: Program, executor: str, given: Runs) -> list[dict[str, np.ndarray]]:
    """Outputs and states of all cycles of all inputs."""
    run = create(executor, verify(program)).run
    found = []
    for cycles in given:
        state = initial_state(program)
        for feed in cycles:
            result = run(feed, state)
            state = result.state
            found.append({item.name: result.values[item.value] for item in program.outputs} | state)
    return found


@cache
def expected(folder: Path, count: int) -> list[dict[str, np.ndarray]]:
    return results(lowered(folder), "numpy", runs(folder)[:count])


def assert_same(found: list[dict[str, np.ndarray]], wanted: list[dict[str, np.ndarray]]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name, codes in other.items():
            np.testing.assert_array_equal(one[name], codes, err_msg=name, strict=True)


def folder_of(name: str) -> Path:
    folder = SHARED / ("real" if name in REAL else "digits") / name
    if not folder.is_dir():
        pytest.skip(f"there is no ../shared/models/{folder.parent.name}/{name}")
    return folder


def _some() -> Iterator[ParameterSet]:
    """Every network in every form, the largest one always in one form only."""
    for name, form in product([*DIGITS, *REAL], FORMS):
        always = name != "mobilenet_v2" or form == "optimised and legalised"
        yield pytest.param(name, form, marks=() if always else pytest.mark.long)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "form"), list(_some()))
def test_numpy_gives_the_same_on_some_inputs(name: str, form: str) -> None:
    assert_same_form(name, form, SOME)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*DIGITS, *REAL])
def test_numpy_gives_the_same_on_all_inputs(name: str, form: str) -> None:
    assert_same_form(name, form, None)


def assert_same_form(name: str, form: str, count: int | None) -> None:
    """The first so many inputs; all of them if there is no number."""
    folder = folder_of(name)
    program = formed(folder, form)
    assert program is not lowered(folder) or form == "optimised"
    if "legalised" in form:
        assert all(REGISTRY[node.op].family != "extension" for node in program.nodes)
        assert {constant.kind for constant in program.constants} <= {"tensor"}
    given = runs(folder)[:count]
    assert_same(results(program, "numpy", given), expected(folder, len(given)))


@pytest.mark.sweep
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", FORMAL)
def test_formal_gives_the_same_on_some_inputs(name: str, form: str) -> None:
    folder = folder_of(name)
    given = runs(folder)[: FORMAL[name]]
    found = results(formed(folder, form), "formal", given)
    assert_same(found, expected(folder, len(given)))


@pytest.mark.parametrize("name", [*DIGITS, *REAL])
def test_optimisation_costs_no_gas_and_reports_what_is_there(name: str) -> None:
    folder = folder_of(name)
    before, after = verify(lowered(folder)), verify(formed(folder, "optimised"))
    assert after.gas <= before.gas
    values = {value.name for node in after.program.nodes for value in node.outputs}
    values |= {item.value.name for item in (*after.program.inputs, *after.program.state)}
    for old, new in zip(before.program.provenance.exactness, after.program.provenance.exactness, strict=True):
        assert (old.tensor, old.bound) == (new.tensor, new.bound)
        assert new.value in values | {""}
        moved = [node for node in before.program.nodes if node.outputs[0].name == old.value]
        rearranged = bool(moved) and moved[0].op in ("transpose", "reshape", "concatenate")
        assert bool(new.value) == bool(old.value) or rearranged, old.tensor
