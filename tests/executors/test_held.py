"""State that an executor holds is what runs on arrays leave, and a run that fails has not happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors import EXECUTORS, Int32Array, create, initial_state
from cvm.executors.held import Held, hold
from cvm.executors.native.runtime.resident import Resident
from cvm.executors.numpy import executor as numpy_executor
from cvm.program import Output, Program, ProgramBuilder
from cvm.program.verifier import verify
from tests.executors.stateful import PROGRAMS, cache

CYCLES = 9
IN_PLACE = {"cache": 1, "read_before": 1, "old_returned": 1, "wide": 2, "twice": 1}
"""The programs in which slices are written in place, with how many."""


def feed(program: Program, random: np.random.Generator) -> dict[str, Int32Array]:
    """Random inputs."""
    values = [item.value for item in program.inputs]
    return {one.name: random.integers(one.lo, one.hi + 1, one.shape).astype(np.int32) for one in values}


def equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two mappings hold equal arrays under equal names."""
    return set(one) == set(other) and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_held_state_is_what_runs_on_arrays_leave(name: str, executor: str) -> None:
    program = PROGRAMS[name]()
    verified, random = verify(program), np.random.default_rng(3)
    state, reference = initial_state(program), create("formal", verified)
    held = hold(create(executor, verified, 1), program, state)
    bound = hold(create(executor, verified, 1), program, state).bound()
    assert equal(held, state)
    assert isinstance(held, Resident) == (executor == "native")
    for cycle in range(CYCLES):
        given = feed(program, random)
        version = held.version
        expected = reference.run(given, state)
        shown: dict[str, Int32Array] = {}
        if cycle % 3 == 2:  # runs that show the old state and the new one go on from the same storage
            found = held.run(given, "all", lambda tensors, shown=shown: shown.update(  # type: ignore[misc]
                {name: array.copy() for name, array in tensors.items()})).values  # fmt: skip
            assert equal(shown, reference.run(given, state, "all").values)
            found = {name: found[name] for name in expected.values}
        else:
            found = held.run(given).values
        assert equal(found, expected.values)
        assert equal(held, expected.state)
        assert held.version != version
        for array in found.values():
            array[...] = -1  # results are the caller's
        assert equal(held, expected.state)
        for source, array in bound.inputs.items():
            array[...] = given[source]
        bound.run()
        assert equal(bound.outputs, expected.values)
        state = expected.state


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_are_written_in_place_where_nothing_reads_the_old_state_afterwards(name: str) -> None:
    lines = [line for line in create("native", verify(PROGRAMS[name]()), 1).explain() if "= update_slice" in line]
    assert sum("own storage" in line for line in lines) == IN_PLACE.get(name, 0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_that_is_refused_or_interrupted_has_not_happened(executor: str) -> None:
    program = cache()
    held = hold(create(executor, verify(program), 1), program, initial_state(program))
    random = np.random.default_rng(1)
    held.run(feed(program, random))
    before, version = dict(held), held.version
    wrong = {"x": np.full((2, 1, 5), 101, np.int32)}
    with pytest.raises(Invalid, match="must lie in"):
        held.run(wrong)
    with pytest.raises(Invalid, match="is missing"):
        held.run({})
    bound = held.bound()
    bound.inputs["x"][...] = -101
    with pytest.raises(Invalid, match="must lie in"):
        bound.run()

    def stop(tensors: Mapping[str, Int32Array]) -> None:
        if "new" in tensors:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        held.run(feed(program, random), watch=stop)
    assert equal(held, before)
    assert held.version == version


def test_numpy_writes_back_what_it_overwrote_if_a_later_kernel_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    program = cache()
    held = hold(create("numpy", verify(program)), program, initial_state(program))
    given = feed(program, np.random.default_rng(1))
    held.run(given)
    before, execute = dict(held), numpy_executor._execute

    def interrupted(scheduled: Any, tensors: dict[str, Any]) -> None:
        if "total" in scheduled.writes:
            assert not np.array_equal(held["cache"], before["cache"])  # the row has been written
            raise KeyboardInterrupt
        execute(scheduled, tensors)

    monkeypatch.setattr(numpy_executor, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        held.run(given)
    assert equal(held, before)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_programs_beside_each_other_share_the_tensors_that_both_have(executor: str) -> None:
    one, other = cache(), cache()
    first = hold(create(executor, verify(one), 1), one, initial_state(one))
    second = hold(create(executor, verify(other), 1), other, {}, first)
    random = np.random.default_rng(2)
    state, formal = initial_state(one), create("formal", verify(one))
    for held in (first, second, first.bound(), second.bound()):
        given = feed(one, random)
        if isinstance(held, Held):
            held.run(given)
        else:
            held.inputs["x"][...] = given["x"]
            held.run()
        state = formal.run(given, state).state
        assert equal(first, state)
        assert equal(second, state)
        assert first.version == second.version
    first.load({"position": np.array([4], np.int32)})
    assert second["position"] == 4
    narrow = cache(-90, 90)
    with pytest.raises(ValueError, match="declared otherwise"):
        hold(create(executor, verify(narrow), 1), narrow, {}, first)


def chained(seed: int) -> Program:
    """A random program: slices of states are replaced, views are taken, and everything is mixed."""
    random = np.random.default_rng(seed)
    builder = ProgramBuilder()
    values = [builder.input("x", (4, 3), -20, 20)]
    at = builder.input("at", (1,), -1, 5)
    states = [builder.state(f"s{n}", builder.constant(np.full((4, 3), n), f"i{n}"), -20, 20) for n in range(3)]
    values += states
    row = builder.constant(random.integers(-20, 21, (1, 3)), "row")
    for _ in range(int(random.integers(3, 9))):
        kind = random.integers(6)
        one, two = (values[int(random.integers(len(values)))] for _ in range(2))
        if kind <= 1:
            target = states[int(random.integers(3))] if kind else one
            (made,) = builder.add("update_slice", [target, row, at], {"axis": 0})
        elif kind == 2:
            (made,) = builder.add("reshape", [one], {"target_shape": (3, 4)})
            (made,) = builder.add("transpose", [made], {"axes": (1, 0)})
        elif kind == 3:
            (made,) = builder.add("slice", [one], {"begin": (3, 0), "end": (-5, 3), "strides": (-1, 1)})
        elif kind == 4:
            (made,) = builder.add("elemwise_add", [one, two])
            (made,) = builder.add("clip", [made], {"a_min": -20, "a_max": 20})
        else:
            (made,) = builder.add("negative", [one])
        values.append(made)
    for state in states:
        fitting = [name for name in values if builder.shape(name) == (4, 3)]
        builder.update(state, fitting[-1 - int(random.integers(min(4, len(fitting))))])
    outputs = sorted({values[-1], values[int(random.integers(len(values)))]})
    return builder.build([Output(f"y{number}", name) for number, name in enumerate(outputs)])


def check(seed: int, executor: str) -> None:
    """Compare held state with runs on arrays for a random program."""
    program = chained(seed)
    verified, random, state = verify(program), np.random.default_rng(seed), initial_state(program)
    reference = create("formal", verified)
    held = hold(create(executor, verified, 1), program, state)
    assert isinstance(held, Resident) == (executor == "native"), seed
    for _ in range(3):
        given = feed(program, random)
        expected = reference.run(given, state)
        assert equal(held.run(given).values, expected.values), seed
        assert equal(held, expected.state), seed
        state = expected.state


def test_random_programs_on_numpy() -> None:
    for seed in range(150):
        check(seed, "numpy")


@pytest.mark.slow
def test_random_programs_on_machine_code() -> None:
    for seed in range(40):
        check(seed, "native")


@pytest.mark.long
def test_many_random_programs_on_machine_code() -> None:
    for seed in range(40, 400):
        check(seed, "native")
