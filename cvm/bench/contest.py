"""Contestants are timed by turns: each has its own process, rounds have a rotating order, and one runs at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cvm import errors
from cvm.bench.engines import ENGINES, EXTRA
from cvm.bench.timing import Timing, summary
from cvm.errors import CvmError, Invalid, Location, Mismatch, Unsupported
from cvm.records import dataclass

__all__ = ["Contestant", "Score", "Start", "check", "compete", "require"]


@dataclass(frozen=True, slots=True)
class Contestant:
    """An engine of `cvm.bench.engines.ENGINES` on a model file, with a number of threads and of samples in a batch."""

    engine: str
    model: Path
    threads: int
    batch: int
    label: str = ""
    """The name to print, if several contestants of one engine compete."""


@dataclass(frozen=True, slots=True)
class Start:
    """Three durations in seconds: from the process start to the first result, its processor time, opening the model."""

    first_result: float
    cpu: float
    open: float


@dataclass(frozen=True, slots=True)
class Score:
    """The results of a contestant, or the reason why it has none.

    ``run`` is a call with arrays in and out, ``bound`` a call on memory that was bound before. ``cold`` is a start with
    an empty cache of compiled code, ``cached`` a start with the cache that the first start left, for engines that keep
    one. ``memory`` is the bytes beyond the engine's imports: those used now, and the peak.
    """

    contestant: Contestant
    failure: str | None = None
    run: Timing | None = None
    bound: Timing | None = None
    cold: Start | None = None
    cached: Start | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


def require(engines: Sequence[str]) -> None:
    """Raise `Invalid` for an unknown engine, and `Unsupported` for one that is not installed."""
    for name in engines:
        if name not in ENGINES:
            raise Invalid("bench.engine", f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
        package = ENGINES[name].modules[0].split(".")[0]
        if find_spec(package) is None:
            message = f"{name} is not installed; install the extra: pip install 'cvm[{EXTRA}]'"
            raise Unsupported("bench.extra", message)


def compete(
    contestants: Sequence[Contestant],
    rounds: int,
    seconds: float,
    advance: Callable[[int], None] = lambda done: None,
    cache: str | None = None,
) -> list[Score]:
    """Time all contestants, by turns.

    Executors that run the same program on the same batch must give the same bytes before anything is timed. If another
    engine fails, its score holds the reason. ``cache`` is a folder of compiled code that serves several contests; with
    it, no engine is started a second time. Raises `Mismatch` (``bench.outputs``), and the errors of executors.
    """
    with ExitStack() as stack:
        own = None if cache else stack.enter_context(tempfile.TemporaryDirectory(prefix="cvm-bench-"))
        entries = []
        for index, contestant in enumerate(contestants):
            entries.append(_entered(contestant, cache or os.path.join(own or "", str(index)), stack, cache is None))
            advance(index + 1)
        _compare([(entry.contestant, entry.process.greeting) for entry in entries if entry.process is not None])
        timings: list[list[dict[str, Any]]] = [[] for _ in entries]
        count = len(entries)
        for number in range(rounds):
            for turn in range(count):
                index = (turn + number) % count
                entries[index] = _timed(entries[index], seconds, timings[index])
                advance(count * (number + 1) + turn + 1)
    return [_score(entry, found) for entry, found in zip(entries, timings, strict=True)]


def _timed(entry: _Entry, seconds: float, timings: list[dict[str, Any]]) -> _Entry:
    """Let a contestant have its turn; if another engine fails, it has no process from now on."""
    if entry.process is None:
        return entry
    try:
        timings.append(entry.process.ask(seconds))
    except (_Failed, OSError) as failed:
        if not ENGINES[entry.contestant.engine].foreign:
            raise failed.error if isinstance(failed, _Failed) else failed from None
        return replace(entry, process=None, failure=str(failed))
    return entry


def check(contestants: Sequence[Contestant]) -> None:
    """Raise `Mismatch` (``bench.outputs``) unless these executors, run one after the other, give the same bytes."""
    said = []
    with tempfile.TemporaryDirectory(prefix="cvm-bench-") as cache:
        for contestant in contestants:
            try:
                with _process(contestant, cache) as process:
                    said.append((contestant, process.greeting))
            except _Failed as failed:
                raise failed.error from None
    _compare(said)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A contestant that is ready, or has failed."""

    contestant: Contestant
    process: _Process | None
    failure: str | None = None
    cold: Start | None = None
    cached: Start | None = None


def _entered(contestant: Contestant, cache: str, stack: ExitStack, twice: bool) -> _Entry:
    engine = ENGINES[contestant.engine]
    try:
        cold = None
        if engine.keeps_code and twice:
            with _process(contestant, cache) as first:
                cold = first.start
        process = stack.enter_context(_process(contestant, cache))
    except _Failed as failed:
        if not engine.foreign:
            raise failed.error from None
        return _Entry(contestant, None, str(failed.error))
    if cold is None:
        return _Entry(contestant, process, cold=process.start)
    return _Entry(contestant, process, None, cold, process.start)


def _compare(said: Sequence[tuple[Contestant, Mapping[str, Any]]]) -> None:
    """Require that all contestants that report roots of their outputs report the same for one program and batch."""
    seen: dict[tuple[Path, int], tuple[Contestant, Mapping[str, Any]]] = {}
    for contestant, greeting in said:
        if greeting["roots"] is None:
            continue
        other, known = seen.setdefault((contestant.model, contestant.batch), (contestant, greeting))
        for name, root in greeting["roots"].items():
            if known["roots"][name] != root:
                pair = " and ".join(f"{one.engine} with {one.threads} threads" for one in (other, contestant))
                raise Mismatch("bench.outputs", f"{pair} give different outputs", Location(tensor=name))


def _score(entry: _Entry, found: Sequence[Mapping[str, Any]]) -> Score:
    if entry.process is None:
        return Score(entry.contestant, entry.failure)
    bound = None if found[0]["bound"] is None else summary([Timing(**item["bound"]) for item in found])
    return Score(
        entry.contestant,
        None,
        summary([Timing(**item["run"]) for item in found]),
        bound,
        entry.cold,
        entry.cached,
        found[-1]["memory"],
        entry.process.greeting["facts"],
    )


# Processes ----------------------------------------------------------------------------------------------------------


class _Failed(Exception):
    """Raised when a process reports an error."""

    def __init__(self, error: CvmError) -> None:
        super().__init__(str(error))
        self.error = error


class _Process:
    """A worker process that is ready, and the seconds that it took to start."""

    def __init__(self, process: subprocess.Popen[str], start: float) -> None:
        self._process = process
        self.greeting = self._answer()
        self.start = Start(
            self.greeting["first_result"] - start, self.greeting["cpu_seconds"], self.greeting["open_seconds"]
        )

    def ask(self, seconds: float) -> dict[str, Any]:
        """Ask the worker to time its model for the given number of seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise _Failed(Unsupported("bench.failed", f"its process ended with {code}"))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise _Failed(_error(answer["error"]))
        return answer


def _error(document: Mapping[str, Any]) -> CvmError:
    """The error that a worker reported, as an error of the same class."""
    found = getattr(errors, document["class"], Unsupported)
    location = Location(**document["location"])
    made: CvmError = found(document["code"], document["message"], location)
    return made


@contextmanager
def _process(contestant: Contestant, cache: str) -> Iterator[_Process]:
    words = (contestant.engine, str(contestant.model), str(contestant.threads), str(contestant.batch))
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    threads = str(contestant.threads)
    environment = os.environ | {
        "PYTHONPATH": path, "CVM_CACHE": cache, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads
    }  # fmt: skip
    start = time.monotonic()  # of the same clock as in the worker
    with subprocess.Popen(
        [sys.executable, "-m", "cvm.bench.worker", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as process:
        try:
            yield _Process(process, start)
        except BaseException:
            process.kill()
            raise
