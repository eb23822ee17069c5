"""Whoever watches a run sees every tensor once, in order, and never more of them at once than a window holds."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.executors import EXECUTORS, Executor, base, create, initial_state
from cvm.executors.base import windows
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.test_executors import Arrays, assert_equal, fed, network
from tests.program.examples import programs
from tests.selection import examples
from tools.planted.networks import AIMS
from tools.planted.networks import network as random_network

every_executor = pytest.mark.parametrize("name", list(EXECUTORS))
some_windows = pytest.mark.parametrize("window", [1, 600, 2000, 2**23])


def watched(executor: Executor, program: Program, seed: int = 0, state: Arrays | None = None) -> list[Arrays]:
    """What is shown, group by group, as copies."""
    shown: list[Arrays] = []

    def watch(tensors: Mapping[str, np.ndarray]) -> None:
        shown.append({name: array.copy() for name, array in tensors.items()})

    executor.run(fed(program, seed), state or initial_state(program), watch=watch)
    return shown


def assert_shown(shown: list[Arrays], program: Program, expected: Arrays) -> None:
    """All inputs and states first, then the nodes of each window."""
    begin = [item.value.name for item in (*program.inputs, *program.state)]
    names = [begin]
    for first, end in windows(program):
        names.append([value.name for node in program.nodes[first:end] for value in node.outputs])
    assert [list(group) for group in shown] == names
    merged = {name: array for group in shown for name, array in group.items()}
    assert_equal(merged, {name: expected[name] for name in merged})
    assert sum(map(len, names)) == len(merged)


@every_executor
@some_windows
@pytest.mark.parametrize("threads", [1, 2])
def test_every_tensor_is_shown_once_in_order(
    name: str, window: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "WINDOW", window)
    monkeypatch.setattr("cvm.executors.native.runtime.networks.WORTH", 0)  # threads share even so small a network
    program = network()
    executor = create(name, verify(program), threads)
    state = initial_state(program)
    for seed in range(3):
        expected = create("numpy", verify(program)).run(fed(program, seed), state, "all")
        assert_shown(watched(executor, program, seed, state), program, expected.values)
        state = expected.state
    assert state["memory"].any()


def test_several_runs_are_watched_at_once() -> None:
    program = network()
    executor = create("native", verify(program), 1)
    expected = [executor.run(fed(program, seed), initial_state(program), "all").values for seed in range(8)]

    def one(seed: int) -> None:
        for _ in range(20):
            assert_shown(watched(executor, program, seed), program, expected[seed])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(8)))


@pytest.mark.parametrize("aim", AIMS)
def test_native_shows_what_numpy_computes(aim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "WINDOW", 10_000)
    monkeypatch.setattr("cvm.executors.native.runtime.networks.WORTH", 0)
    program = random_network(aim, 11)
    expected = create("numpy", verify(program)).run(fed(program), initial_state(program), "all").values
    assert_shown(watched(create("native", verify(program), 3), program), program, expected)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), seed=st.integers(0, 3))
def test_numpy_shows_what_formal_computes(program: Program, seed: int) -> None:
    executors = [create(name, verify(program)) for name in ("formal", "numpy")]
    formal, numpy = (watched(executor, program, seed) for executor in executors)
    expected = executors[0].run(fed(program, seed), initial_state(program), "all").values
    assert_shown(formal, program, expected)
    assert_shown(numpy, program, expected)


@every_executor
def test_being_watched_does_not_change_a_result(name: str) -> None:
    program = network()
    executor = create(name, verify(program))
    for capture in (frozenset(), frozenset({"codes", "x", "memory"}), "all"):
        plain = executor.run(fed(program), initial_state(program), capture)  # type: ignore[arg-type]
        seen = executor.run(fed(program), initial_state(program), capture, lambda _: None)  # type: ignore[arg-type]
        assert_equal(seen.values, plain.values)
        assert_equal(seen.state, plain.state)
        arrays = [*seen.values.values(), *seen.state.values()]
        assert not any(np.shares_memory(one, other) for k, one in enumerate(arrays) for other in arrays[:k])


@every_executor
def test_a_program_without_nodes_shows_its_inputs(name: str) -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), 0, 9)
    program = builder.build([Output("y", x)])
    for threads in (1, 2):
        executor = create(name, verify(program), threads)
        assert_shown(watched(executor, program), program, fed(program))


@every_executor
def test_a_watch_may_end_a_run_and_another_one_begins_anew(name: str) -> None:
    program = network()
    executor = create(name, verify(program), 2)
    expected = executor.run(fed(program), initial_state(program), "all").values

    class Enough(Exception):
        pass

    for patience in range(3):
        seen = []

        def watch(tensors: Mapping[str, np.ndarray], patience: int = patience, seen: list[object] = seen) -> None:
            if len(seen) == patience:
                raise Enough
            seen.append(tensors)

        if patience < 2:
            with pytest.raises(Enough):
                executor.run(fed(program), initial_state(program), watch=watch)
        assert_shown(watched(executor, program), program, expected)


@every_executor
def test_nothing_is_shown_of_inputs_that_are_refused(name: str) -> None:
    program = network()
    executor = create(name, verify(program))
    bad = {"x": np.full((1, 3, 6, 6), 128, np.int32)}
    with pytest.raises(Invalid, match="must lie in"):
        executor.run(bad, initial_state(program), watch=lambda _: pytest.fail("it was shown"))


def test_windows_are_as_large_as_they_may_be() -> None:
    builder = ProgramBuilder()
    name = builder.input("x", (1, 256), 0, 9)
    for repeats in (1, 1, 1, 5, 1, 1):
        (name,) = builder.add("repeat", [name], {"axis": 0, "repeats": repeats})
    program = builder.build([Output("y", name)])  # 1, 1, 1, 5, 5, 5 KiB
    assert windows(program, 0) == [(k, k + 1) for k in range(6)]
    assert windows(program, 2048) == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert windows(program, 8 * 1024) == [(0, 4), (4, 5), (5, 6)]
    assert windows(program, 10 * 1024) == [(0, 4), (4, 6)]
    assert windows(program) == [(0, 6)]


def chain(count: int, size: int) -> Program:
    builder = ProgramBuilder()
    name = builder.input("x", (size,), 0, 9)
    for index in range(count):
        (name,) = builder.add("negative", [name], {}, f"t{index}")
    return builder.build([Output("y", name)])


@pytest.mark.parametrize("name", ["numpy", "native"])
def test_memory_is_bounded_by_the_window(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = 2**20
    monkeypatch.setattr(base, "WINDOW", 4 * tensor)
    program = chain(40, tensor // 4)
    executor = create(name, verify(program), 1)
    inputs = {"x": np.ones(tensor // 4, np.int32)}

    def peak(run: Callable[[], object]) -> int:
        run()  # compiles, and keeps its memory
        tracemalloc.start()
        try:
            run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    bounded = peak(lambda: executor.run(inputs, {}, watch=lambda _: None))
    assert bounded < 8 * tensor
    assert peak(lambda: executor.run(inputs, {}, "all")) > 35 * tensor
