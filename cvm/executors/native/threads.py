"""Worker threads: made once for the process, parked when idle, never needed for progress.

A worker is a Python thread inside a native function that watches a ticket; when nothing has come for a while it returns
and sleeps on a semaphore. Whoever starts a run takes part in it and finishes it alone if need be. One run at a time has
the workers; others that start meanwhile run on their own thread.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading

import numpy as np

from cvm.executors.native.ir import Module
from cvm.executors.native.jit import Loaded, compiled
from cvm.executors.native.machine import Machine
from cvm.executors.native.runtime import LINE_BYTES, WORKER_LINES, emit_worker

__all__ = ["Workers", "workers"]

BUDGET = 20_000
"""Looks of an idle worker before it sleeps: some tens of microseconds to a millisecond."""
TICKET, STOP = 0, 8
"""Places in the control block (`runtime.emit_worker`)."""
MOST = 1024
"""Workers at most."""


class _Worker(threading.Thread):
    """One worker; a daemon, so that it never keeps the interpreter alive."""

    def __init__(self, pool: Workers, index: int) -> None:
        super().__init__(name=f"cvm-worker-{index}", daemon=True)
        self._pool, self._index = pool, index
        self.wake = threading.Semaphore(0)

    def run(self) -> None:
        pool, place = self._pool, _line(self._index)
        seen = 0
        while not pool.control[STOP // 8]:
            seen = pool.function(pool.address, self._index, seen, BUDGET)
            pool.control[place] = 1
            # A run that was published before the flag was set is not missed: the ticket is looked at once more.
            if int(pool.control[TICKET // 8]) == seen and not pool.control[STOP // 8]:
                self.wake.acquire()
            pool.control[place] = 0


class Workers:
    """The workers of this process, as many as the largest run wanted so far."""

    def __init__(self, machine: Machine) -> None:
        module = Module()
        emit_worker(module, machine)
        self._loaded = Loaded(compiled(str(module), machine), machine)
        self.function = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
        )(self._loaded.address("worker"))
        self._publish = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            self._loaded.address("publish")
        )
        self.control = np.zeros(_line(MOST), np.int64)
        self.address = self.control.ctypes.data
        self._threads: list[_Worker] = []
        self._busy = threading.Lock()
        self._shown: list[object] = []
        atexit.register(self.stop)

    def acquire(self, count: int) -> bool:
        """Reserve ``count`` workers for one run; False where another run has them."""
        if not self._busy.acquire(blocking=False):
            return False
        while len(self._threads) < min(count, MOST):
            worker = _Worker(self, len(self._threads))
            worker.start()
            self._threads.append(worker)
        return True

    def release(self) -> None:
        """Give the workers back."""
        self._busy.release()

    def publish(self, job: int, epoch: int, count: int, owner: object) -> None:
        """Show a job to the first ``count`` workers, and wake those that sleep.

        The memory of the job belongs to ``owner``, which is kept alive until no worker can look at it any more: until
        another job is shown and every worker has been seen without one since.
        """
        self._publish(self.address, job, epoch)
        if not any(self.control[_line(index) + 1] for index in range(len(self._threads))):
            self._shown.clear()
        if not self._shown or self._shown[-1] is not owner:
            self._shown.append(owner)
        for index, worker in enumerate(self._threads[:count]):
            if self.control[_line(index)]:
                worker.wake.release()

    def stop(self) -> None:
        """End all workers."""
        self.control[STOP // 8] = 1
        for worker in self._threads:
            worker.wake.release()
        for worker in self._threads:
            worker.join(1.0)


def _line(index: int) -> int:
    """The place of a worker's cache line: 1 while it sleeps or is about to, then 1 while it looks at a job."""
    return (WORKER_LINES + index * LINE_BYTES) // 8


_pool: Workers | None = None
_making = threading.Lock()


def workers(machine: Machine) -> Workers:
    """The workers of this process, made when first asked for."""
    global _pool
    with _making:
        if _pool is None:
            _pool = Workers(machine)
        return _pool


def _forget() -> None:
    """A forked process has no threads: it begins anew."""
    global _pool, _making
    _pool, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
