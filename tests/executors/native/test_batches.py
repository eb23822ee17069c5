"""Batches: every sample gets the bytes of a single run, however the samples are grouped and dealt to threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cvm
from cvm.errors import Invalid
from cvm.executors.native import NativeExecutor
from cvm.executors.native.emit.sharing import HEAD_BYTES
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime import batches, networks
from cvm.executors.native.runtime.batches import GROUP, MOST, SHARES, Segment, groups, segments
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES, expected
from tests.executors.native.test_threads import small
from tools.feeds import feeds
from tools.planted.networks import network

GENERIC = MACHINES[-1]


@pytest.fixture(params=["sample by sample", "in segments"])
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the calls of a network are divided: as usual for small networks, or as much as possible."""
    monkeypatch.setattr(batches, "SHARED", 0)
    monkeypatch.setenv("CVM_CACHE", "")
    if request.param == "in segments":
        monkeypatch.setattr(networks, "segments", every_call)
    return str(request.param)


def every_call(made: Plan) -> tuple[Segment, ...]:
    """A segment for each call, in two parts where it has several units."""
    return tuple(Segment(number, number + 1, min(2, call.units)) for number, call in enumerate(made.calls))


@given(st.integers(1, MOST), st.booleans(), st.floats(0, 1e9), st.integers(1, 300))
def test_no_group_is_empty_or_too_large(samples: int, grouped: bool, cost: float, threads: int) -> None:
    count = groups(samples, grouped, cost, threads)
    assert 1 <= count <= samples < 2**16
    sizes = [b - a for a, b in pairwise(samples * k // count for k in range(count + 1))]
    assert min(sizes) >= 1
    if grouped:
        assert max(sizes) <= GROUP
    else:
        assert count <= SHARES * threads


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("aim", ["convolutions", "concatenations", "reductions"])
def test_a_batch_gives_the_bytes_of_single_runs(aim: str, threads: int, cut: str) -> None:
    program = network(aim, 3)
    verified, runs = verify(program), feeds(program, 4)
    known = expected(verified, runs)
    native = NativeExecutor(verified, threads, MACHINES[0])
    for samples in (1, 2, 3, 8, 19):
        chosen = [number % 4 for number in range(samples)]
        stacks = {name: np.stack([runs[k][name] for k in chosen]) for name in runs[0]}
        for capture in (frozenset[str](), "all") if samples == 3 else (frozenset[str](),):
            found = native.run_batch(samples, stacks, capture)
            assert found is not None, native.refusals
            assert len(found) >= len(program.outputs)
            for name, array in found.items():
                right = np.stack([known[k].values[name] for k in chosen])
                np.testing.assert_array_equal(array, right, err_msg=f"{name} of {samples}", strict=True)
        several = native.run_samples([runs[k] for k in chosen])
        assert several is not None
        for k, values in zip(chosen, several, strict=True):
            for name, array in values.items():
                np.testing.assert_array_equal(array, known[k].values[name], err_msg=name, strict=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_wrong_code_is_named_and_others_are_computed_before_and_after(threads: int, cut: str) -> None:
    session = cvm.Session(small(), "native", threads)
    images = np.zeros((21, 8, 9, 9), np.int32)
    right = session.run({"x": images})["s"]
    images[17, 3, 2, 1] = 10
    with pytest.raises(Invalid, match=r"found 10 at \[17, 3, 2, 1\]") as caught:
        session.run({"x": images})
    assert caught.value.code == "input.code"
    with pytest.raises(Invalid, match="number 17 of the 21 inputs of run_many") as caught:
        session.run_many([{"x": image[None]} for image in images])
    assert caught.value.code == "input.code"
    images[17, 3, 2, 1] = 0
    for _ in range(3):
        np.testing.assert_array_equal(session.run({"x": images})["s"], right)


def test_a_batch_that_is_not_as_declared_is_refused() -> None:
    native = NativeExecutor(verify(small()), 2, GENERIC)
    refused: list[Any] = [
        np.zeros((3, 1, 8, 9, 9), np.int64),
        np.zeros((2, 1, 8, 9, 9), np.int32),
        np.zeros((3, 1, 8, 9, 18), np.int32)[..., ::2],
    ]
    for array in refused:
        with pytest.raises(Invalid) as caught:
            native.run_batch(3, {"x": array})
        assert caught.value.code == "executors.input.shape"


def test_many_threads_run_batches_of_changing_sizes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptions of batches change from run to run while workers come late."""
    monkeypatch.setattr(batches, "SHARED", 0)
    program = small()
    verified, runs = verify(program), feeds(program, 4)
    known = expected(verified, runs)
    native = NativeExecutor(verified, 4, GENERIC)

    def run(number: int) -> int:
        chosen = [(number + k) % 4 for k in range(1 + number * 7 % 40)]
        found = native.run_batch(len(chosen), {"x": np.stack([runs[k]["x"] for k in chosen])})
        assert found is not None
        for name, array in found.items():
            np.testing.assert_array_equal(array, np.stack([known[k].values[name] for k in chosen]))
        return len(chosen)

    assert sum(map(run, range(100))) > 100
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(200))) > 200


def test_a_worker_that_comes_late_finds_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a batch, its counter says that every group was claimed, whatever the next batch has."""
    monkeypatch.setattr(batches, "SHARED", 0)
    native = NativeExecutor(verify(small()), 2, GENERIC)
    for samples in (2, 40, 3):
        native.run_batch(samples, {"x": np.zeros((samples, 1, 8, 9, 9), np.int32)})
        (memory,) = native._main.batches._free  # type: ignore[union-attr]
        epoch, counter = int(memory._job[0]), int(memory._job[HEAD_BYTES // 8])
        assert counter == (epoch << 16) + 65535
        assert int(memory._job[HEAD_BYTES // 8 + 8]) == epoch * batches.EVERY


def wide() -> Program:
    """Three products whose weights together exceed a core's own cache."""
    builder = ProgramBuilder()
    value = builder.input("x", (1, 1024), -128, 127)
    for _ in range(3):
        weights = builder.constant(np.arange(2**20).reshape(1024, 1024) % 3 - 1)
        bias = builder.constant(np.zeros(1024, np.int32))
        value = builder.add("dense", [value, weights, bias])[0]
        value = builder.add("clip", [value], {"a_min": -128, "a_max": 127})[0]
    return builder.build([Output("y", value)])


def test_segments_cover_all_calls_once_and_divide_large_weights() -> None:
    for program, several in ((small(), False), (wide(), True)):
        made = networks_plan(program)
        found = segments(made)
        assert [a.end for a in found[:-1]] == [b.first for b in found[1:]]
        assert (found[0].first, found[-1].end) == (0, len(made.calls))
        assert all(1 <= one.parts <= made.calls[one.first].units for one in found)
        assert (len(found) > 1) is several


def networks_plan(program: Program) -> Plan:
    verified = verify(program)
    return plan(verified, MACHINES[0], frozenset(output.value for output in program.outputs))
