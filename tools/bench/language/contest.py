"""Engines are timed by turns: each has a process of its own, rounds have a rotating order, and one runs at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Job", "Outcome", "compete"]

_PATIENCE = 300.0
"""The seconds after which an engine that says nothing has failed."""


@dataclass(frozen=True, slots=True)
class Job:
    """An engine of `ENGINES` on a file: the task, the threads, and the tokens that it reads, the last ones timed."""

    engine: str
    file: str
    task: str
    threads: int
    prompt: tuple[int, ...]
    following: tuple[int, ...]
    reference: str
    """A .npy file with the float network's logits after every token; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine did: nanoseconds of every pass, or why it failed."""

    job: Job
    failure: str | None = None
    spent: tuple[int, ...] = ()
    check: dict[str, float] | None = None
    """``decibels`` of the float logits over the differences from them, and the share of equal ``argmax``."""
    facts: dict[str, Any] = field(default_factory=dict)


class _Failed(Exception):
    """An engine has failed; the message says why."""


def compete(jobs: Sequence[Job], rounds: int, seconds: float) -> list[Outcome]:
    """Time all jobs by turns. A job that fails has an outcome that says why, and the others go on."""
    with ExitStack() as stack:
        processes: list[_Process | None] = []
        failures: dict[int, str] = {}
        for index, job in enumerate(jobs):
            try:
                processes.append(stack.enter_context(_Process(job)))
            except _Failed as failed:
                processes.append(None)
                failures[index] = str(failed)
        found: list[list[dict[str, Any]]] = [[] for _ in jobs]
        for number in range(rounds):
            for turn in range(len(jobs)):
                index = (turn + number) % len(jobs)
                process = processes[index]
                if process is None or index in failures:
                    continue
                try:
                    found[index].append(process.ask(seconds))
                except _Failed as failed:
                    failures[index] = str(failed)
        return [_outcome(job, processes[i], failures.get(i), found[i]) for i, job in enumerate(jobs)]


def _outcome(job: Job, process: _Process | None, failure: str | None, found: list[dict[str, Any]]) -> Outcome:
    if process is None or failure is not None:
        return Outcome(job, failure)
    spent = tuple(one for answer in found for one in answer["spent"])
    return Outcome(job, None, spent, process.greeting["check"], process.greeting["facts"])


class _Process:
    """A worker process that has opened its file and passed the check."""

    def __init__(self, job: Job) -> None:
        root = str(Path(__file__).resolve().parents[3])
        threads = str(job.threads)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.language.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        try:
            self.greeting = self._asked(json.dumps(asdict(job)))
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, seconds: float) -> dict[str, Any]:
        """Passes for so many seconds, at least one: ``spent`` has the nanoseconds of each."""
        return self._asked(str(seconds))

    def _asked(self, line: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        clock = threading.Timer(_PATIENCE, self._process.kill)
        clock.start()
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            clock.cancel()
        if not answer:
            code = self._process.wait()
            raise _Failed(f"its process ended with {code}, or said nothing for {_PATIENCE:.0f} seconds")
        document: dict[str, Any] = json.loads(answer)
        if "error" in document:
            raise _Failed(document["error"])
        return document

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
