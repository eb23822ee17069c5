"""Code writes nothing outside its tensors, and reads nothing outside what it is given and the stated slack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cvm.executors.native import NativeExecutor
from cvm.executors.native.plan.memory import SLACK
from cvm.program import verify
from tests.executors.native.comparison import MACHINES, NAMES, expected
from tests.selection import mostly_long
from tools.feeds import feeds
from tools.planted.networks import AIMS, network

ROOT = Path(__file__).parents[3]
posix = pytest.mark.skipif(sys.platform != "linux", reason="pages are guarded with Linux's mprotect")


def guarded(machine: str, aim: str, first: int, last: int) -> None:
    """A process of its own: what touches a guard dies there, and the last line it wrote says with which network."""
    command = [sys.executable, "-m", "tests.executors.native.guarded", machine, aim, str(first), str(last)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3600, env=dict(os.environ))
    assert done.returncode == 0, f"{done.returncode} at {done.stdout.splitlines()[-1:]}\n{done.stderr[-2000:]}"
    assert done.stdout.splitlines()[-1] == "done"


@pytest.mark.sweep
@posix
@pytest.mark.parametrize(
    ("machine", "aim"), [(NAMES[index % len(NAMES)], aim) for index, aim in enumerate(AIMS)], ids=list(AIMS)
)
def test_networks_run_among_guards(machine: str, aim: str) -> None:
    guarded(machine, aim, 0, 1)


@posix
@pytest.mark.long
@pytest.mark.parametrize("machine", NAMES)
@pytest.mark.parametrize("aim", AIMS)
def test_many_networks_run_among_guards(machine: str, aim: str) -> None:
    guarded(machine, aim, 20_000, 20_080)


@posix
@pytest.mark.parametrize("what", ["over", "under", "input"])
def test_a_guard_guards(what: str) -> None:
    """The tests above can fail."""
    code = f"""
import ctypes
from tests.executors.native.guarded import READ, region
with region(100, 0, {what != "under"}) as place:
    if {what == "input"}:
        place.protect(READ)
    ctypes.memset(place.address + {{"over": 100, "under": -1, "input": 3}}["{what}"], 1, 1)
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode < 0
    assert done.stdout == ""


@pytest.mark.parametrize(
    "machine", mostly_long(MACHINES, [MACHINES[0], MACHINES[-1]]), ids=lambda machine: machine.name
)
def test_nothing_around_the_arena_and_the_arrays_is_written(machine: object) -> None:
    """The same with bytes that must stay as they are, in every chunk of a shared run."""
    for aim in ("convolutions", "concatenations"):
        program = network(aim, 5)
        verified, runs = verify(program), feeds(program, 3)
        known = expected(verified, runs)
        executor = NativeExecutor(verified, 2, machine)  # type: ignore[arg-type]
        made = executor._main
        (memory,) = made._free
        wide = np.full(memory.arena.size + 2 * 4096, 0xA5, np.uint8)
        inner = wide[4096 : 4096 + memory.arena.size]
        memory.arena, memory.base = inner, inner.ctypes.data
        memory.jobs[0][2] = memory.base
        for feed, right in zip(runs, known, strict=True):
            arrays, edges = [], []
            for name, shape in (*made.given, *made.left):
                size = int(np.prod(shape))
                around = np.full(size + 2048, 0x5A5A5A5A, np.int32)
                arrays.append(around[1024 : 1024 + size].reshape(shape))
                edges.append((around, size))
                if name in feed and len(arrays) <= len(made.given):
                    arrays[-1][:] = feed[name]
            assert made.run(arrays)
            for (name, _), array in zip(made.left, arrays[len(made.given) :], strict=True):
                np.testing.assert_array_equal(array, right.values[name])
            for around, size in edges:
                assert (around[:1024] == 0x5A5A5A5A).all()
                assert (around[1024 + size :] == 0x5A5A5A5A).all()
            assert (wide[:4096] == 0xA5).all()
            assert (wide[4096 + made.plan.arena :] == 0xA5).all()
    assert SLACK >= 64 * 8
