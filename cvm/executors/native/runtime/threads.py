"""Worker threads, which all runs of the process share. A run never depends on a worker: without one it is only slower.

A worker is a Python thread that calls a native function, which watches a ticket. After a while without a new job the
function returns, and the worker sleeps on a lock. The thread that starts a run takes part in it, and finishes it alone
if no worker comes. The workers help one run at a time; other runs that start meanwhile use their own thread only.

A system may let a thread continue on the core of the thread that wakes it, although another core is free. There, the
two would take turns, and the worker would fall asleep before anything moves it. So where the system allows it (Linux),
a worker that sleeps is kept off the core of the thread that wakes it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
from collections.abc import Callable

import numpy as np

from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.sharing import BUSY, LINE, LINES, STOP, TICKET, emit_worker
from cvm.executors.native.runtime.jit import Loaded, kept_or_compiled

__all__ = ["Workers", "settled", "workers"]

BUDGET = 2_000
"""How often an idle worker looks for work before it sleeps: some fifty microseconds where it was measured."""
MOST = 1024
"""The largest number of workers."""


class _Worker(threading.Thread):
    """One worker. It is a daemon thread, so it never keeps the interpreter alive."""

    def __init__(self, pool: Workers, index: int) -> None:
        super().__init__(name=f"cvm-worker-{index}", daemon=True)
        self._pool, self._index = pool, index
        self.flag = (LINES + index * LINE) // 8
        # The lock is held while the worker has no reason to wake. Unlike a semaphore, an interrupt cannot leave it half
        # released.
        self._wake = threading.Lock()
        self._wake.acquire()
        self._kept: tuple[int, set[int]] | None = None

    def wake(self, core: int | None) -> None:
        """Wake the worker, or prevent its next sleep. It will not run on ``core`` if it may use another one."""
        if core is not None and self.native_id is not None:
            may = os.sched_getaffinity(0)
            if self._kept != (core, may) and may != {core}:
                with contextlib.suppress(OSError):  # the thread ends, or the system has taken these cores away
                    os.sched_setaffinity(self.native_id, may - {core})
                    self._kept = core, may
        with contextlib.suppress(RuntimeError):  # the lock is free: another thread has woken the worker already
            self._wake.release()

    def run(self) -> None:
        pool = self._pool
        seen = 0
        while not pool.control[STOP // 8]:
            seen = pool.function(pool.address, self._index, seen, BUDGET)
            pool.control[self.flag] = 1
            # The ticket is read again, so that a run that was shown before the flag was set is not missed.
            if int(pool.control[TICKET // 8]) == seen and not pool.control[STOP // 8]:
                self._wake.acquire()
            pool.control[self.flag] = 0


class Workers:
    """The workers of this process: as many as the largest run so far has asked for."""

    def __init__(self, machine: Machine) -> None:
        module = Module()
        emit_worker(module, machine)
        text = str(module)
        self._loaded = Loaded(kept_or_compiled("workers", text, machine), machine)
        self.function = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
        )(self._loaded.address("worker"))
        self._start = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(self._loaded.address("start"))
        self._settle = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(
            self._loaded.address("settle")
        )
        self.control = np.zeros((LINES + MOST * LINE) // 8, np.int64)
        self.address = self.control.ctypes.data
        self._words = self.control.data  # whose elements are read faster
        self._threads: list[_Worker] = []
        self._lines = 0
        self._growing = threading.Lock()
        atexit.register(self.stop)

    def run(self, job: int, count: int) -> None:
        """Run a job with the help of ``count`` workers, or alone if another job has the workers."""
        self.rouse(count)
        self._start(self.address, job)

    def rouse(self, count: int) -> None:
        """Wake ``count`` workers, unless a job has them."""
        words = self._words
        if not words[BUSY // 8]:
            if len(self._threads) < min(count, MOST):
                self._grow(min(count, MOST))
            asleep = [worker for worker in self._threads[:count] if words[worker.flag]]
            core = _core() if asleep else None
            for worker in asleep:
                worker.wake(core)

    def settle(self, job: int) -> None:
        """Return when no worker is in a job that has ended. Then its memory and code may be freed."""
        self._settle(self.address, self._lines, job)

    def _grow(self, count: int) -> None:
        with self._growing:
            while len(self._threads) < count and self._lines < MOST:
                worker = _Worker(self, self._lines)
                self._lines += 1  # before the start: even if an exception interrupts it, no line is used twice
                try:
                    worker.start()
                except RuntimeError:  # the system has no more threads, so fewer workers help
                    self._lines -= 1
                    return
                self._threads.append(worker)

    def stop(self) -> None:
        """End all workers."""
        self.control[STOP // 8] = 1
        for worker in self._threads:
            worker.wake(None)
        for worker in self._threads:
            worker.join(1.0)


def _core_function() -> Callable[[], int] | None:
    """The system's function that returns the number of the core on which it is called, if threads may be moved."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    try:
        found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return None
    return found


_asked = _core_function()


def _core() -> int | None:
    """The number of the core on which the calling thread runs; None where the system does not tell it."""
    core = -1 if _asked is None else _asked()
    return core if core >= 0 else None


_pool: Workers | None = None
_making = threading.Lock()


def workers(machine: Machine) -> Workers:
    """The workers of this process, which are made at the first call."""
    global _pool
    pool = _pool
    if pool is not None:
        return pool
    with _making:
        if _pool is None:
            _pool = Workers(machine)
        return _pool


def settled(job: int) -> None:
    """Return when no worker of this process is in the job."""
    if _pool is not None:
        _pool.settle(job)


def _forget() -> None:
    """Forget the workers after a fork: the child process has no threads, and must not wait for its parent's workers."""
    global _pool, _making
    if _pool is not None:
        atexit.unregister(_pool.stop)
    _pool, _making = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
