"""Every op has a plan and every kind of kernel an emitter: nothing is planned by default."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.native.emit.machine import MACHINES
from cvm.executors.native.kernels import pointwise
from cvm.executors.native.kernels.registry import EMITTERS, PLANS, merged, plan
from cvm.executors.native.plan.groups import POINTWISE
from cvm.executors.native.plan.protocol import OpPlan
from cvm.executors.native.runtime import proven
from cvm.executors.native.runtime.select import choice
from cvm.executors.native.runtime.trial_programs import programs
from cvm.ops import REGISTRY
from cvm.program import Output, ProgramBuilder
from cvm.session import Session

WITHOUT_PLAN: frozenset[str] = frozenset()
"""Ops that have no plan on purpose: the NumPy executor runs the programs that have one."""


def test_every_op_has_a_plan() -> None:
    """An op that is declared, and is neither planned by a module of ``native/kernels`` nor listed here, fails."""
    assert PLANS.keys() | WITHOUT_PLAN == REGISTRY.keys()
    assert not PLANS.keys() & WITHOUT_PLAN


def test_the_ops_that_groups_join_are_those_that_formulas_compute() -> None:
    assert pointwise.PLANS.keys() == POINTWISE


def test_two_modules_may_not_plan_one_op() -> None:
    entry = {"relu": OpPlan(pointwise.plan_pointwise)}
    with pytest.raises(ValueError, match="relu"):
        merged(entry, {"abs": entry["relu"]}, entry)


def test_every_kernel_has_an_emitter_and_every_emitter_a_kernel() -> None:
    """On all machines together, since tiles are only planned where there are tile registers."""
    planned: set[type] = set()
    for machine in MACHINES:
        for _, verified in programs():
            returned = frozenset(output.value for output in verified.program.outputs)
            planned |= {type(kernel) for kernel in plan(verified, machine, returned).functions.values()}
    assert planned == EMITTERS.keys()


def test_programs_with_an_op_that_has_no_plan_run_by_numpy_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    choice()  # the machine is tried before an op is taken out
    monkeypatch.setattr(proven, "PLANS", {op: entry for op, entry in PLANS.items() if op != "update_slice"})
    monkeypatch.setenv("CVM_CACHE", "")
    builder = ProgramBuilder()
    x = builder.input("x", (2, 3), -9, 9)
    (y,) = builder.add("update_slice", [x, builder.constant([[7], [8]]), builder.constant([1])], {"axis": 1})
    (z,) = builder.add("concatenate", [y, x], {"axis": 0})
    session = Session(builder.build([Output("z", z)]), "native")
    found = session.run({"x": np.arange(6).reshape(2, 3)}, codes=True)["z"]
    assert found.tolist() == [[0, 7, 2], [3, 8, 5], [0, 1, 2], [3, 4, 5]]
    assert any("there are no kernels of update_slice" in line for line in session.explain())
