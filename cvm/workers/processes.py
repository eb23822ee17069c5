"""Processes of this machine that answer tasks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from cvm.errors import LimitExceeded
from cvm.workers import AHEAD, RETRIES, Answer, Job, Task, Tasks

__all__ = ["Processes"]

_worker: Callable[[Any], Any] | None = None
"""The prepared worker of this process."""


class Processes:
    """A scheduler: ``count`` processes (None: one per core), started again when one of them is killed."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count or os.cpu_count() or 1

    def answers(self, job: Job[Task, Answer], tasks: Tasks[Task]) -> Iterator[tuple[str, Answer]]:
        """See `Scheduler.answers`."""
        given: dict[str, Task] = {}
        waiting = iter(tasks)
        losses = 0
        while True:
            try:
                for name, answer in self._round(job, given, waiting):
                    losses = 0
                    yield name, answer
                return
            except BrokenProcessPool:
                losses += 1
                if losses > RETRIES:
                    message = f"processes are ended from outside, {losses} times in a row: memory may be exhausted"
                    raise LimitExceeded("limit.memory", message) from None

    def _round(
        self, job: Job[Task, Answer], given: dict[str, Task], waiting: Iterator[tuple[str, Task]]
    ) -> Iterator[tuple[str, Answer]]:
        """Yield answers until all work is done or a process dies; ``given`` are tasks that wait for an answer."""
        # Processes are started fresh: a fork would copy the locks of BLAS's threads in whatever state they are.
        with ProcessPoolExecutor(self._count, get_context("spawn"), _prepare, (job,)) as pool:
            futures: dict[Future[Any], str] = {pool.submit(_answer, task): name for name, task in given.items()}
            try:
                while True:
                    while len(futures) < AHEAD * self._count and (item := next(waiting, None)) is not None:
                        name, task = item
                        given[name] = task
                        futures[pool.submit(_answer, task)] = name
                    if not futures:
                        return
                    for future in wait(futures, return_when=FIRST_COMPLETED).done:
                        answer = future.result()
                        name = futures.pop(future)
                        del given[name]
                        yield name, answer
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _prepare(job: Job[Any, Any]) -> None:
    """Prepare the worker of this process; an interruption is the parent's to handle."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = job.worker()


def _answer(task: Any) -> Any:
    assert _worker is not None
    return _worker(task)
