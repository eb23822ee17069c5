"""Native code against the NumPy executor: on every machine that this processor can be, on one thread and on several."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from random import Random

import numpy as np

from cvm.executors import Capture, RunResult, initial_state
from cvm.executors.native import NativeExecutor
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Program, verify
from cvm.program.verifier import VerifiedProgram
from tools.emulated_x86 import emulated_machines
from tools.feeds import Feed, feeds

EMULATED = emulated_machines() if os.environ.get("CVM_TEST_EMULATED") == "1" else ()
"""The machines that this processor is not. They take many times the time, and are only tried if asked for."""

MACHINES = (*EMULATED, *available())
NAMES = [machine.name for machine in MACHINES]


def expected(verified: VerifiedProgram, runs: Sequence[Feed]) -> list[RunResult]:
    """Every tensor of every run, one after the other, and the states between them."""
    numpy, state, results = NumpyExecutor(verified), initial_state(verified.program), []
    for feed in runs:
        results.append(numpy.run(feed, state, "all"))
        state = results[-1].state
    return results


def require_equal(
    verified: VerifiedProgram,
    runs: Sequence[Feed],
    known: Sequence[RunResult],
    machine: Machine,
    threads: int,
    capture: Capture,
    what: object = "",
) -> None:
    """The same values, states and kinds of arrays as the known results."""
    native = NativeExecutor(verified, threads, machine)
    state = initial_state(verified.program)
    for number, (feed, right) in enumerate(zip(runs, known, strict=True)):
        found = native.run(feed, state, capture)
        assert not native.refusals, f"{what}: {native.refusals}"
        wanted = {output.value for output in verified.program.outputs}
        wanted |= set(right.values) if capture == "all" else capture
        assert set(found.values) == wanted
        for name in wanted:
            context = f"{what}: {name} on {machine.name}, {threads} threads, capture {capture!r}, run {number}"
            np.testing.assert_array_equal(found.values[name], right.values[name], err_msg=context, strict=True)
        assert found.state.keys() == right.state.keys()
        for name, tensor in right.state.items():
            np.testing.assert_array_equal(found.state[name], tensor, err_msg=f"{what}: state {name}", strict=True)
        state = found.state


EVERY_WAY = False
"""Whether `compare` takes every machine in every way; the fixture ``ways`` decides."""


def compare(
    program: Program | VerifiedProgram,
    runs: Sequence[Feed] | None = None,
    machines: Iterable[Machine] = MACHINES,
    threads: Iterable[int] = (1, 2),
    captures: Iterable[Capture] = (frozenset(), "all"),
    what: object = "",
) -> None:
    """Every machine against NumPy, with every number of threads and capture in turn, or with all of them.

    Which way the first machine takes depends on the program: those of a test do not all take the same.
    """
    verified = verify(program) if isinstance(program, Program) else program
    runs = feeds(verified.program, 4) if runs is None else runs
    known, each = expected(verified, runs), list(product(threads, captures))
    for index, machine in enumerate(machines, int(verified.program.digest[:8], 16)):
        for count, capture in each if EVERY_WAY else [each[index % len(each)]]:
            require_equal(verified, runs, known, machine, count, capture, what)


def compare_some(program: Program, runs: Sequence[Feed], seed: int, what: object = "") -> None:
    """Every machine, each with one number of threads and one capture of all: quicker by a factor of four."""
    verified, random = verify(program), Random(seed)
    known = expected(verified, runs)
    for machine in MACHINES:
        capture: Capture = "all" if random.random() < 0.3 else frozenset()
        require_equal(verified, runs, known, machine, random.choice((1, 2)), capture, what)
