"""Compares native code with NumPy, and NumPy with FORMAL, and reports what differs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite.binding import Target

from cvm.errors import CvmError
from cvm.executors import Executor, RunResult, create, initial_state
from cvm.executors.native import NativeExecutor
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import batches, calls, networks, proven, rehearsal
from cvm.program import Program, verify
from cvm.program.verifier import VerifiedProgram
from tools.fuzz.edge_feeds import Feed
from tools.fuzz.merging import with_all_outputs

__all__ = ["Difference", "Way", "differences", "formal_differences", "known_results", "prepared"]


@dataclass(frozen=True, slots=True)
class Way:
    """How native code runs a program: the machine, the threads, and whether every tensor is captured."""

    machine: Machine
    threads: int
    captured: bool

    def __str__(self) -> str:
        kept = "all captured" if self.captured else "nothing captured"
        return f"{self.machine.name}, {self.threads} threads, {kept}"


@dataclass(frozen=True, slots=True)
class Difference:
    """What went wrong in one way: wrong ``values`` (names), or an exception, ``error``."""

    way: Way
    values: tuple[str, ...] = ()
    error: str = ""

    @property
    def kind(self) -> str:
        """The kind of the failure, by which failures are distinguished."""
        return f"error: {self.error.splitlines()[0]}" if self.error else "wrong bytes"


@contextmanager
def prepared(level: int = 2, guarded: bool = True) -> Iterator[None]:
    """Within the block this process shares work of any size between threads, and keeps no compiled code on disk.

    ``level`` is LLVM's optimisation level, normally 2. With 0 it takes a third of the time; the code that cvm writes
    is tested as well, and only LLVM's own transformations are not. Unless ``guarded``, nothing is checked or rehearsed:
    everything that the planner and the emitter make runs, in half the time.
    """

    def target(self: Any, *arguments: Any, **options: Any) -> Any:
        return usual(self, *arguments, **{**options, "opt": level})

    usual, folder = Target.create_target_machine, os.environ.get("CVM_CACHE")
    unproven, rehearse = proven.__dict__["unproven"], rehearsal.rehearse
    worth, grain, shared = networks.WORTH, calls.GRAIN, batches.SHARED
    os.environ["CVM_CACHE"] = ""
    networks.WORTH, calls.GRAIN, batches.SHARED, Target.create_target_machine = 0, 1, 0, target
    if not guarded:
        proven.__dict__["unproven"], rehearsal.__dict__["rehearse"] = lambda *_: {}, lambda *_: None
    try:
        yield
    finally:
        networks.WORTH, calls.GRAIN, batches.SHARED = worth, grain, shared
        Target.create_target_machine = usual
        proven.__dict__["unproven"], rehearsal.__dict__["rehearse"] = unproven, rehearse
        os.environ.pop("CVM_CACHE")
        os.environ.update({} if folder is None else {"CVM_CACHE": folder})


def known_results(verified: VerifiedProgram, runs: Sequence[Feed]) -> list[RunResult]:
    """Every tensor of every run, by the NumPy executor."""
    return _results(create("numpy", verified), verified.program, runs)


def _results(found: Executor, program: Program, runs: Sequence[Feed]) -> list[RunResult]:
    state, results = initial_state(program), []
    for feed in runs:
        results.append(found.run(feed, state, "all"))
        state = results[-1].state
    return results


def formal_differences(verified: VerifiedProgram, runs: Sequence[Feed], known: Sequence[RunResult]) -> tuple[str, ...]:
    """The values for which NumPy's tensors are not FORMAL's."""
    wrong: set[str] = set()
    for right, found in zip(_results(create("formal", verified), verified.program, runs), known, strict=False):
        wrong |= _wrong(right, found, right.values)
    return tuple(sorted(wrong))


def differences(
    program: Program, runs: Sequence[Feed], known: Sequence[RunResult], ways: Iterable[Way]
) -> list[Difference]:
    """The differences between native code and NumPy, way by way."""
    verified = {False: verify(program), True: verify(with_all_outputs(program))}
    found = [_difference(verified[way.captured], runs, known, way) for way in ways]
    return [one for one in found if one is not None]


def _difference(
    verified: VerifiedProgram, runs: Sequence[Feed], known: Sequence[RunResult], way: Way
) -> Difference | None:
    wrong: set[str] = set()
    names = {output.value for output in verified.program.outputs}
    try:
        native = NativeExecutor(verified, way.threads, way.machine)
        state = initial_state(verified.program)
        for feed, right in zip(runs, known, strict=True):
            found = native.run(feed, state)
            wrong |= _wrong(right, found, names)
            state = right.state  # one wrong state is reported once
    except CvmError:
        raise
    except Exception as error:
        return Difference(way, error=f"{type(error).__name__}: {error}")
    if wrong:
        return Difference(way, tuple(sorted(wrong)))
    plain = [line for line in native.explain() if "plain, since otherwise" in line]
    refused = [*native.refusals, *plain]  # the bytes are right, but not from the code under test
    return Difference(way, error=f"refused: {refused[0]}") if refused else None


def _wrong(right: RunResult, found: RunResult, names: Iterable[str]) -> set[str]:
    values = {name for name in names if not _same(right.values.get(name), found.values.get(name))}
    return values | {name for name in right.state if not _same(right.state[name], found.state.get(name))}


def _same(right: object, found: object) -> bool:
    if not isinstance(right, np.ndarray) or not isinstance(found, np.ndarray):
        return False
    return found.dtype == right.dtype and found.shape == right.shape and np.array_equal(found, right)
