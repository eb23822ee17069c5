"""Random programs leave for the library: what is not refused is computed alike by both of its backends and here."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from cvm.errors import Unsupported
from cvm.export.cvm_runtime import saved
from cvm.frontends import cvm_runtime
from cvm.program import Constant, Output, Program, ProgramBuilder, verify
from cvm.session import Session
from tests.frontends.cvm_runtime.library import opened
from tests.random_programs.strategies import Sample, samples

QUICK, FULL = 100, 3000


def narrowed(sample: Sample) -> Program | None:
    """The program with its first input alone: the other inputs, and the states, are constants; one output."""
    program = sample.program
    if not program.inputs:
        return None
    constants = {item.name: item for item in program.constants}
    fixed = [Constant.of(item.value.name, sample.runs[0][item.value.name]) for item in program.inputs[1:]]
    fixed += [Constant.of(item.value.name, constants[item.initial].array()) for item in program.state]
    return Program(
        inputs=program.inputs[:1],
        outputs=program.outputs[:1],
        constants=(*program.constants, *fixed),
        nodes=program.nodes,
        op_set=program.op_set,
    )


def compare(sample: Sample, outcomes: Counter[str]) -> None:
    program = narrowed(sample)
    if program is None:
        return
    verify(program)
    try:
        files = saved(program)
    except Unsupported as error:
        outcomes[error.code] += 1
        return
    outcomes["exported"] += 1
    model = opened(files.content["model.json"].decode(), files.content["model.params"])
    back = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    name = program.inputs[0].value.name
    for run in sample.runs:
        codes = run[name]
        result = Session(program, "numpy").run({name: codes})[program.outputs[0].name]
        expected = back.model.interface.encode([result])
        data = np.asarray(codes).astype(f"<i{model.input_size}").tobytes()
        assert model.run(data, "formal") == expected
        assert model.run(data, "cpu") == expected
        again = Session(back.program, "numpy").run({"data": codes})
        assert np.array_equal(again[program.outputs[0].name], result)


def agreement(programs: int) -> Counter[str]:
    """Compare so many random programs; how many were exported, or refused and why."""
    outcomes: Counter[str] = Counter()

    @settings(max_examples=programs, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(samples())
    def run(sample: Sample) -> None:
        compare(sample, outcomes)

    run()
    return outcomes


@pytest.mark.slow
def test_random_programs_that_leave_are_computed_alike() -> None:
    assert agreement(QUICK)["exported"] > QUICK // 5


@pytest.mark.long
def test_many_random_programs_that_leave_are_computed_alike() -> None:
    outcomes = agreement(FULL)
    assert outcomes["exported"] > FULL // 4


def test_a_program_of_op_set_2_leaves_in_the_documents_ops() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (3, 4), -100, 100)
    one, offset = (builder.parameter(np.array([number], np.int64)) for number in (1, 7))
    bounds = {"rounding": "half_even", "lo": -50, "hi": 50}
    (y,) = builder.add("quotient", [x, builder.add("abs", [x])[0], one, one, offset, offset], {"terms": 1, **bounds})
    (z,) = builder.add("matmul", [y, x], {"transpose_b": True})
    program = builder.build([Output("z", z)])
    files = saved(program)
    back = cvm_runtime.loads(files.content["model.json"], files.content["model.params"])
    codes = np.random.default_rng(2).integers(-100, 101, (3, 4)).astype(np.int32)
    expected = Session(program, "numpy").run({"x": codes})["z"]
    (found,) = (Session(back.program, "numpy").run({"data": codes})[item.name] for item in back.program.outputs)
    np.testing.assert_array_equal(found, expected)
