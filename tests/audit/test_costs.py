"""Costs that are known before a run."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cvm.audit.costs import costs, peak_bytes
from cvm.executors.numpy import NumpyExecutor
from cvm.executors.numpy import executor as numpy_executor
from cvm.ops import REGISTRY, Call
from cvm.ops.declaration import Op
from cvm.program import Output, ProgramBuilder, verify
from tests.audit.examples import SUBJECTS, subject
from tests.program.examples import example

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_the_costs_of_the_worked_example():
    found = costs(verify(example()))
    # Three ops on 6 elements each: two that read two tensors, one that reads one.
    assert found.gas == (1 + 18) + (1 + 18) + (1 + 12)
    assert found.macs == 0
    assert found.constant_bytes == 2 * 24
    assert found.trace_bytes == 5 * 24
    assert found.peak_bytes == 3 * 24  # two operands and their sum


def test_memory_counts_what_is_alive_at_once():
    builder = ProgramBuilder()
    x = builder.input("x", (10,), 0, 9)
    (wide,) = builder.add("repeat", [x], {"axis": 0, "repeats": 100})
    (total,) = builder.add("sum", [wide])
    (y,) = builder.add("broadcast_add", [x, total])
    assert peak_bytes(builder.build([Output("y", y)])) == 4 * (10 + 1000 + 1)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_numpy_executor_keeps_no_more_alive_than_that(name, monkeypatch):
    item = subject(name)
    program = item.verified.program
    constants = {constant.name for constant in program.constants}
    seen = []
    execute = numpy_executor._execute

    def watched(scheduled, tensors):
        execute(scheduled, tensors)
        seen.append(sum(array.nbytes for key, array in tensors.items() if key not in constants))

    monkeypatch.setattr(numpy_executor, "_execute", watched)
    from cvm.executors import initial_state
    from cvm.inputs import Intake, arrange

    feed = arrange(program, item.inputs, item.cycles, intake=Intake(codes=True))[1][0][0]
    NumpyExecutor(item.verified).run(feed, initial_state(program))
    assert max(seen) <= peak_bytes(program)


WORK = {
    "sum": 1 * 24, "max": 1 * 24, "cvm_precision": 5 * 24, "broadcast_div": 8 * 24,
}  # fmt: skip
"""The work of an op on a tensor of 2, 3, 4 elements (and a second one of 1)."""


@pytest.mark.parametrize("name", WORK)
def test_work_is_what_the_decision_says(name):
    op = REGISTRY[name]
    shapes = ((2, 3, 4), (1,))[: op.arity()[0]]
    call = Call(shapes, op.parse({}))
    moved = sum(int(np.prod(shape)) for shape in (*shapes, *op.shape(call)))
    assert op.gas(call) == 1 + moved + WORK[name]


def test_the_work_of_suppression_is_that_of_all_pairs():
    op = REGISTRY["non_max_suppression"]
    for limits in ({}, {"top_k": 1, "max_output_size": 1}):
        call = Call(((3, 50, 6), (3,)), op.parse({"iou_threshold": 50, **limits}))
        assert op.work(call) == 32 * 3 * 50 * 50


def test_no_gas_depends_on_ranges_or_data():
    for op in REGISTRY.values():
        for rule in (op.work, op.gas):
            assert "ranges" not in inspect.getsource(rule)


def test_only_the_decided_ops_have_work():
    with_work = {name for name, op in REGISTRY.items() if type(op).work is not Op.work}
    decided = {"conv2d", "dense", "max_pool2d", "sum", "max", "requantize", "broadcast_div", "cvm_precision"}
    assert with_work == decided | {"non_max_suppression", "matmul", "quotient", "normalize"}


def test_gas_is_spread_reasonably():
    """Every op has a specimen, and none takes far longer than its gas: with a wide limit, since machines are noisy."""
    command = [sys.executable, str(ROOT / "tools" / "gas_spread.py"), "--executor", "numpy", "--seconds", "0.01"]
    result = subprocess.run([*command, "--limit", "150"], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == len(REGISTRY) + 2


def test_a_spread_beyond_the_limit_fails():
    command = [sys.executable, str(ROOT / "tools" / "gas_spread.py"), "--executor", "numpy", "--seconds", "0.001"]
    result = subprocess.run([*command, "--limit", "1"], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert result.returncode == 1
    assert "too slow for their gas: none" not in result.stdout
