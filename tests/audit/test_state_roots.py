"""Roots of state from the leaves that changed are those of a full computation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cvm import Session
from cvm.audit import state_roots
from cvm.audit.receipt import Run
from cvm.audit.record import Observer, Recorder
from cvm.audit.state_roots import StateRoots, changed_leaves
from cvm.executors import create, initial_state
from cvm.executors.held import Held, hold
from cvm.program import Output, Program, ProgramBuilder
from cvm.program.appends import appends
from cvm.program.commitments import tensor_root
from cvm.program.verifier import verify
from tests.executors.stateful import PROGRAMS
from tests.executors.test_held import feed

SHAPES = [
    ((1,), 0), ((256,), 0), ((257,), 0), ((700,), 0), ((4, 256, 32), 1), ((1, 3, 200, 7), 2), ((40, 50), 1),
    ((5, 600), 0),
]  # fmt: skip


def appending(shape: tuple[int, ...], axis: int, count: int) -> Program:
    """A state of a shape, to which a run appends."""
    builder = ProgramBuilder()
    part = tuple(count if number == axis else extent for number, extent in enumerate(shape))
    x = builder.input("x", part, -50, 50)
    at = builder.input("at", (1,), -3, shape[axis] + 3)
    state = builder.state("memory", builder.constant(np.zeros(shape, np.int8), "empty"), -50, 50)
    (new,) = builder.add("update_slice", [state, x, at], {"axis": axis}, "new")
    builder.update("memory", new)
    return builder.build([Output("at", at)])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_roots_after_appends(shape: tuple[int, ...], axis: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_roots, "FEW", 0 if fast else 10**9)
    monkeypatch.setattr(state_roots, "LITTLE", 0)
    random = np.random.default_rng(math.prod(shape))
    for count in {1, shape[axis] // 2 or 1, shape[axis]}:
        program = appending(shape, axis, count)
        held = hold(create("numpy", verify(program)), program, initial_state(program))
        trees, append = StateRoots(held.shapes), appends(program)["memory"]
        trees.replace([trees.read(held, "memory")])
        for _ in range(4):
            assert trees.root("memory") == tensor_root(held["memory"])
            given, before = feed(program, random), held["memory"]
            held.run(given)
            leaves = changed_leaves(shape, axis, append.start(int(given["at"][0])), count)
            differing = np.flatnonzero(before.reshape(-1) != held["memory"].reshape(-1)) // state_roots.ELEMENTS
            assert set(differing) <= set(leaves.tolist())
            trees.replace([trees.read(held, "memory", leaves)])


@pytest.mark.parametrize("executor", ["formal", "numpy", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_receipts_of_held_state_are_those_of_state_in_arrays(name: str, executor: str) -> None:
    program = PROGRAMS[name]()
    verified, random = verify(program), np.random.default_rng(5)
    session, reference, state = Session(verified, executor, 1), create("numpy", verified), initial_state(program)
    recorder, traced = Recorder(verified), Recorder(verified, trace=True)
    runs: list[Run] = []
    traces: list[Run] = []
    for cycle in range(6):
        given = feed(program, random)
        observer = Observer(program, given, state, traced=True)
        result = reference.run(given, state, watch=observer.watch)
        run = observer.end(result).run
        (traces if cycle == 3 else runs).append(run)
        session.run(given, witness=traced if cycle == 3 else recorder, codes=True)
        state = result.state
    claimed = [(run.inputs, run.before, run.outputs, run.after) for run in recorder.claim().runs]
    assert claimed == [(run.inputs, run.before, run.outputs, run.after) for run in runs]
    assert list(traced.claim().runs) == traces


def test_a_run_hashes_only_the_leaves_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    program = appending((4, 1024, 64), 1, 1)
    verified = verify(program)
    read, blocks = [], Held.blocks

    def counted(self: Held, name: str, numbers: np.ndarray, size: int) -> np.ndarray:
        read.append(len(numbers))
        return blocks(self, name, numbers, size)

    monkeypatch.setattr(Held, "blocks", counted)
    session, recorder = Session(verified, "numpy"), Recorder(verified)
    for cycle in range(5):
        given = {"x": np.ones((4, 1, 64), np.int32), "at": np.array([cycle], np.int32)}
        session.run(given, witness=recorder, codes=True)
    assert read == [1024, 4, 4, 4, 4, 4]
    session.reset()  # another state: its tree is made once
    session.run(given, witness=recorder, codes=True)
    assert read[6:] == [1024, 4]
