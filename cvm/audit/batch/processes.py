"""Processes of this machine that verify receipts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from cvm.audit.batch.work import Finished, Order, Worker, read_task
from cvm.errors import LimitExceeded

__all__ = ["RETRIES", "Processes"]

RETRIES = 3
"""How often in a row a worker may die without finishing anything."""

_worker: Worker | None = None
"""The worker of this process."""


class Processes:
    """A scheduler: ``count`` processes (None: one per core), started again when one of them is killed."""

    def __init__(self, count: int | None = None) -> None:
        self._count = count or os.cpu_count() or 1

    def answers(self, folder: Path, paths: Sequence[str], order: Order) -> Iterator[Finished]:
        """See `Scheduler.answers`."""
        left = dict.fromkeys(paths)
        losses = 0
        while left:
            try:
                for finished in self._round(folder, list(left), order):
                    del left[finished.path]
                    losses = 0
                    yield finished
            except BrokenProcessPool:
                losses += 1
                if losses > RETRIES:
                    message = f"processes are ended from outside, {losses} times in a row: memory may be exhausted"
                    raise LimitExceeded("limit.memory", message) from None

    def _round(self, folder: Path, paths: Sequence[str], order: Order) -> Iterator[Finished]:
        """Yield answers until all work is done or a process dies."""
        count = min(self._count, len(paths))
        # Processes are started fresh: a fork would copy the locks of BLAS's threads in whatever state they are.
        with ProcessPoolExecutor(count, get_context("spawn"), _prepare, (order,)) as pool:
            futures = [pool.submit(_answer, os.fspath(folder), path) for path in paths]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _prepare(order: Order) -> None:
    """Verify the programs once per process; an interruption is the parent's to handle."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker = Worker(order)


def _answer(folder: str, path: str) -> Finished:
    assert _worker is not None
    return _worker.finished(read_task(Path(folder), path))
