"""Shared by all fuzzers: numbered cases, a worker with limits, counters, and the shrinking of failures.

A case is bytes. A fuzzer makes it from a random generator seeded with the seed of the run and the number of the case,
and examines it; the result is a word for the counters. A failure is any exception outside cvm's hierarchy
(`RecursionError` and `MemoryError` included, even if they were turned into errors of cvm), more than 10 seconds of
processor time (so other work on the machine causes no failures), or a worker that dies or gives no answer. Cases run in
a process of their own with 1 GiB of address space. When one fails there, it is reduced to a small case that fails in
the same way, and both are written to the folder of failures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cvm.errors import CvmError

__all__ = ["ADDRESS_SPACE", "SECONDS", "Failure", "Fuzzer", "Outcome", "examine", "main", "minimise", "run"]

SECONDS = 10.0
"""The most seconds of processor time for one case."""
ADDRESS_SPACE = 2**30
"""Bytes of address space of the worker."""
_EXHAUSTED = ("limit.memory", "limit.stack")
"""Codes of errors that stand for `MemoryError` and `RecursionError`, which limits must prevent."""
_GRACE = 5  # seconds of processor time after SECONDS, before a worker that ignores the signal is killed
_PATIENCE = 1800.0  # seconds of clock time, before a worker that does not answer is killed: it waits for something
_MINIMISING = 400  # the most cases tried to reduce one failure


@dataclass(frozen=True, slots=True)
class Fuzzer:
    """A fuzzer: how to make a case, and how to examine it (which returns a word for the counters)."""

    module: str
    make: Callable[[random.Random], bytes]
    examine: Callable[[bytes], str]

    def case(self, seed: int, number: int) -> bytes:
        """The case with this number in the run with this seed."""
        return self.make(random.Random(f"{seed}:{number}"))


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed: the kind of failure, where it was raised, and the whole report."""

    number: int
    kind: str
    report: str


@dataclass(slots=True)
class Outcome:
    """The results of a run."""

    seed: int
    cases: int = 0
    seconds: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        found = ", ".join(f"{word} {count}" for word, count in self.counters.most_common())
        rate = self.cases / self.seconds if self.seconds else 0.0
        head = f"seed {self.seed}: {self.cases} cases in {self.seconds:.0f} s ({rate:.0f}/s)"
        return f"{head}, {len(self.failures)} failures\n{found}"


class _Slow(BaseException):
    """A case took too long. This is no `Exception`, so that no code on the way catches it."""


def examine(fuzzer: Fuzzer, case: bytes) -> tuple[str, str | None]:
    """The word for a case and, if it failed, the report. For a failure, the word is its kind."""

    def too_slow(_: int, __: FrameType | None) -> NoReturn:
        raise _Slow

    previous = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return fuzzer.examine(case), None
    except CvmError as error:
        if error.code in _EXHAUSTED:
            return f"failure: {error.code}", traceback.format_exc()
        return type(error).__name__, None
    except _Slow:
        return f"failure: more than {SECONDS:.0f} s", traceback.format_exc()
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "cvm" in Path(frame.filename).parts] or frames[-1:]
        where = f"{Path(ours[-1].filename).name}:{ours[-1].name}"
        return f"failure: {type(error).__name__} in {where}", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def minimise(case: bytes, fails: Callable[[bytes], bool], tries: int = _MINIMISING) -> bytes:
    """A smaller case for which ``fails`` is still true: it leaves out lines first, then ever shorter runs of bytes."""
    pieces = case.splitlines(keepends=True)
    case, tries = _without_pieces(pieces, fails, tries)
    if tries > 0 and len(case) > 1:
        size = max(1, len(case) // 8)
        chunks = [case[at : at + size] for at in range(0, len(case), size)]
        while tries > 0:
            case, tries = _without_pieces(chunks, fails, tries)
            if size == 1:
                break
            size = max(1, size // 4)
            chunks = [case[at : at + size] for at in range(0, len(case), size)]
    return case


def _without_pieces(pieces: list[bytes], fails: Callable[[bytes], bool], tries: int) -> tuple[bytes, int]:
    """Leave out as many pieces as possible, in runs of a half, a quarter, ... of them."""
    run = max(1, len(pieces) // 2)
    while tries > 0:
        at = 0
        while at < len(pieces) and tries > 0:
            shorter = pieces[:at] + pieces[at + run :]
            tries -= 1
            if fails(b"".join(shorter)):
                pieces = shorter
            else:
                at += run
        if run == 1:
            break
        run //= 2
    return b"".join(pieces), tries


def run(fuzzer: Fuzzer, seed: int, count: int, failures: Path | None = None, begin: int = 0) -> Outcome:
    """Examine ``count`` cases in workers with limits; failures are reduced and written to a folder.

    ``begin`` is the number of the first case.
    """
    outcome = Outcome(seed)
    started = time.monotonic()
    number, end = begin, begin + count
    while number < end:
        number = _run_worker(fuzzer, seed, number, end, outcome)
    outcome.seconds = time.monotonic() - started
    for failure in outcome.failures:
        if failures is not None:
            _keep(fuzzer, seed, failure, failures)
    return outcome


def _run_worker(fuzzer: Fuzzer, seed: int, begin: int, end: int, outcome: Outcome) -> int:
    """Examine cases in one worker until the end, or until it dies or hangs; returns the number of the next case."""
    command = [sys.executable, "-m", fuzzer.module, "--worker", "--seed", str(seed)]
    command += ["--begin", str(begin), "--count", str(end - begin)]
    number = begin
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=_ROOT) as worker:
        for line in _lines(worker):
            word, report = json.loads(line)
            outcome.counters[word] += 1
            outcome.cases += 1
            if report is not None:
                outcome.failures.append(Failure(number, word, report))
            number += 1
        if number < end:
            worker.kill()
            status = worker.wait()
            kind = f"failure: the worker ended with {status}" if status != -signal.SIGKILL else "failure: no answer"
            stderr = worker.stderr.read().decode(errors="replace") if worker.stderr else ""
            outcome.failures.append(Failure(number, kind, stderr[-4000:]))
            outcome.counters[kind] += 1
            outcome.cases += 1
            number += 1
    return number


_ROOT = Path(__file__).parents[2]


def _lines(worker: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines that a worker prints, until it ends or prints nothing for too long."""
    assert worker.stdout is not None
    descriptor = worker.stdout.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while selector.select(_PATIENCE):
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from lines


def _keep(fuzzer: Fuzzer, seed: int, failure: Failure, folder: Path) -> None:
    """Write a failing case, the reduced case, and the report."""
    folder.mkdir(parents=True, exist_ok=True)
    case = fuzzer.case(seed, failure.number)
    name = f"{fuzzer.module.rpartition('.')[2]}-{seed}-{failure.number}"
    (folder / name).write_bytes(case)
    (folder / f"{name}.txt").write_text(f"{failure.kind}\n{failure.report}")
    slow = "more than" in failure.kind or "worker" in failure.kind or "no answer" in failure.kind
    if not slow:
        small = minimise(case, lambda shorter: examine(fuzzer, shorter)[0] == failure.kind)
        (folder / f"{name}.small").write_bytes(small)


def _work(fuzzer: Fuzzer, seed: int, begin: int, count: int) -> None:
    """The worker: one line on stdout for each case."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for number in range(begin, begin + count):
        _allow_time()
        word, report = examine(fuzzer, fuzzer.case(seed, number))
        print(json.dumps([word, report]), flush=True)


def _allow_time() -> None:
    """Let the system end this process some time after the next case should have ended: no handler runs in C code."""
    spent = math.ceil(time.process_time() + SECONDS) + _GRACE
    resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main(fuzzer: Fuzzer) -> int:
    """The command line of a fuzzer; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog=f"python -m {fuzzer.module}")
    parser.add_argument("--count", type=int, default=1000, help="cases to examine")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--begin", type=int, default=0, help="number of the first case")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder of what failed")
    parser.add_argument("--show", action="store_true", help="print the first case instead of examining it")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show:
        sys.stdout.buffer.write(fuzzer.case(options.seed, options.begin))
        return 0
    if options.worker:
        _work(fuzzer, options.seed, options.begin, options.count)
        return 0
    outcome = run(fuzzer, options.seed, options.count, options.failures, options.begin)
    print(outcome)
    for failure in outcome.failures:
        print(f"case {failure.number}: {failure.kind}")
    return 1 if outcome.failures else 0
