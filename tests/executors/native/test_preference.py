"""Small networks: whether workers share a run is decided by time, and neither way changes a byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.executors.native import NativeExecutor
from cvm.executors.native.runtime import calls, networks, preference
from cvm.executors.native.runtime.preference import BEFORE, FIRST, LATEST, RUNS, SOONEST, Preference
from cvm.program import verify
from tests.executors.native.comparison import MACHINES
from tests.executors.native.test_threads import GENERIC, ready, small


class Clock:
    """Time that passes only in runs, and a preference whose runs take the given nanoseconds."""

    def __init__(self, patch: pytest.MonkeyPatch, alone: int, shared: int) -> None:
        self.now, self.alone, self.shared = 0, alone, shared
        self.made: list[str] = []
        self.subject = Preference()
        patch.setattr(preference, "perf_counter_ns", lambda: self.now)

    def way(self, name: str) -> Callable[[int], int]:
        def run(head: int) -> int:
            self.now += getattr(self, name)
            self.made.append(name)
            return head

        return run

    def run(self, times: int) -> list[str]:
        """The ways of so many runs."""
        self.made.clear()
        for number in range(times):
            assert self.subject.run(self.way("alone"), self.way("shared"), number) == number
        return list(self.made)


def trial() -> list[str]:
    return ["alone"] * RUNS + ["shared"] * RUNS


@pytest.mark.parametrize(("alone", "shared", "used"), [(90, 50, "shared"), (50, 90, "alone"), (50, 50, "alone")])
def test_the_faster_way_is_used_after_a_trial(
    alone: int, shared: int, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, alone, shared)
    assert clock.run(FIRST) == ["alone"] * FIRST
    assert clock.run(2 * RUNS) == trial()
    assert set(clock.run(SOONEST)) == {used}


def test_trials_that_agree_are_made_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 90, 50)
    clock.run(FIRST + 2 * RUNS)
    apart = SOONEST
    for _ in range(12):
        assert set(clock.run(apart)) == {"shared"}
        assert clock.run(2 * RUNS) == trial()
        apart = min(2 * apart, LATEST)
    assert apart == LATEST
    clock.shared = 200  # another program takes a core
    assert set(clock.run(apart)) == {"shared"}
    clock.run(2 * RUNS)
    assert set(clock.run(SOONEST)) == {"alone"}
    assert clock.run(2 * RUNS) == trial()  # soon after a change


def test_runs_that_wake_workers_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 90, 50)
    clock.run(FIRST + RUNS)
    clock.shared = 10_000
    clock.run(BEFORE)
    clock.shared = 50
    clock.run(RUNS - BEFORE)
    assert clock.run(1) == ["shared"]


@pytest.fixture
def undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time decides for all networks."""
    monkeypatch.setattr(networks, "WORTH", 10**12)
    monkeypatch.setattr(networks, "SMALL", 0)


@pytest.mark.usefixtures("undecided")
def test_both_ways_give_the_same_bytes_and_refuse_the_same_inputs() -> None:
    _, runs, native, run = ready(small(), 3)
    network = native._main
    assert network is not None
    assert network._preference is not None
    outside = {"x": np.where(np.arange(648).reshape(1, 8, 9, 9) == 647, 10, runs[0]["x"]).astype(np.int32)}
    for shared in (True, False, True):
        network._preference.shared, network._preference._left = shared, 30
        for index in range(20):
            run(index)
        with pytest.raises(Invalid):
            native.run(outside, {})
        assert network._preference._left == 9
    for index in range(300):  # through trials
        run(index)
    assert NativeExecutor(verify(small()), 3, GENERIC)._main._preference is not None  # from the cache, too


@pytest.mark.usefixtures("undecided")
@pytest.mark.parametrize("machine", MACHINES[:1], ids=lambda machine: machine.name)
def test_a_network_with_state_runs_in_both_ways(machine: Any) -> None:
    from cvm.program import Output, ProgramBuilder

    builder = ProgramBuilder()
    x = builder.input("x", (1, 8, 40, 40), -9, 9)
    state = builder.state("total", builder.constant(np.zeros((1, 8, 40, 40), np.int32)), -(2**20), 2**20)
    (total,) = builder.add("clip", [builder.add("broadcast_add", [x, state])[0]], {"a_min": -(2**20), "a_max": 2**20})
    builder.update(state, total)
    program = builder.build([Output("y", builder.add("max", [total], {"axes": (2, 3)})[0])])
    native = NativeExecutor(verify(program), 2, machine)
    held = native.hold({state: np.zeros((1, 8, 40, 40), np.int32)})
    network = native.network
    assert network is not None
    assert network._preference is not None
    feed = np.random.default_rng(0).integers(-9, 10, (1, 8, 40, 40)).astype(np.int32)
    bound = held.bound()
    bound.inputs["x"][...] = feed
    for number in range(1, 4 * RUNS):
        bound.run()
        np.testing.assert_array_equal(held[state], number * feed)


@pytest.mark.usefixtures("undecided")
@pytest.mark.parametrize("way", ["alone", "together"])
def test_new_code_is_tried_in_both_ways(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that runs nothing is noticed before it is used."""

    def nothing(module: Any) -> None:
        module.functions["together"] = "define i64 @together(ptr %control, ptr %job) {\n  ret i64 -1\n}"

    def without(module: Any, runs: str | None, name: str = "start") -> None:
        calls.emit_start(module, None if name == "alone" else runs, name)

    monkeypatch.setenv("CVM_CACHE", "")
    if way == "together":
        monkeypatch.setattr(networks, "emit_together", nothing)
    else:
        monkeypatch.setattr(networks, "emit_start", without)
    native = NativeExecutor(verify(small()), 2, GENERIC)
    assert "when the code was tried" in " ".join(native.refusals)
