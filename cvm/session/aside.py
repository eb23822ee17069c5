"""Machine code that another process makes while a session answers its first run by NumPy.

The other process opens a session of the same file, which plans, proves, tries and stores the code as any session does.
What it stores is believed for the same reason as what an earlier process stored
(`cvm.executors.native.runtime.cache`): the session looks for it in the cache, and makes the code itself if it finds
none.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING
from weakref import WeakSet

from cvm.executors import cores, stores

if TYPE_CHECKING:
    from subprocess import Popen

    from cvm.program.reading import ReadFile
    from cvm.session.encoded import Encoded

__all__ = ["Making", "begin", "finish"]

LEAST = 2**16
"""Programs of fewer bytes are compiled in about the time that a process takes to begin."""

_CHILD = """
import json, sys
path, threads, sys.path[:] = json.loads(sys.argv[1])
from cvm.session.session import Session
Session(path, "native", threads)
"""

_lock = threading.Lock()
_running: dict[tuple[str, int], Popen[bytes]] = {}
"""The processes that have not been waited for, by the SHA-256 of the file and the number of threads."""


class Making:
    """The making of machine code for one session. Sessions of one file share the process.

    In a process that was forked from the one that began it, it counts as ended: only the parent can wait for it.
    """

    def __init__(self, process: Popen[bytes]) -> None:
        self._process, self._owner = process, os.getpid()
        self._answered = False
        self.settling = threading.Lock()
        """Whoever changes from NumPy to the machine code holds it."""
        self._taking = threading.Lock()
        _all.add(self)

    def take(self) -> bool:
        """Whether a run may be answered without the code. The answer is True once, and only before the code is made."""
        with self._taking:
            first, self._answered = not self._answered, True
        return first and not self.ended()

    def ended(self) -> bool:
        """Whether the process has ended, whether or not it has made the code."""
        return self._owner != os.getpid() or self._process.poll() is not None

    def wait(self) -> None:
        """Wait until the process has ended, however long it takes."""
        if self._owner == os.getpid():
            self._process.wait()

    def stop(self) -> None:
        """End the process, since no session can use this file."""
        if self._owner == os.getpid():
            self._process.kill()
            self._process.wait()

    def forked(self) -> None:
        """Forget locks that threads of the parent process hold."""
        self.settling, self._taking = threading.Lock(), threading.Lock()


_all: WeakSet[Making] = WeakSet()


def begin(file: ReadFile | Encoded, threads: int) -> Making | None:
    """Begin to make the code of a program for so many threads, or share a process that has begun.

    Returns None where this would help nobody or is impossible: for small programs, on one core, without a cache, where
    the native executor is not the default, where no process of this interpreter can be started, and while as many
    processes run as there are other cores.
    """
    if file.size < LEAST or cores() < 2 or os.name != "posix" or not _interpreter() or not stores():
        return None
    with _lock:
        for ended in [key for key, one in _running.items() if one.poll() is not None]:
            del _running[ended]
        process = _running.get((file.hash, threads))
        if process is None:
            if len(_running) >= cores() - 1:
                return None
            try:
                process = _process(file, threads)
            except Exception:  # the system has no more processes or room, or a hook of this process forbids them
                return None
            _running[file.hash, threads] = process
        return Making(process)


def _process(file: ReadFile | Encoded, threads: int) -> Popen[bytes]:
    """The process that makes the code. It reads a program that has no file from its stdin."""
    import subprocess

    from cvm.program.reading import ReadFile

    root = str(Path(__file__).resolve().parents[2])  # of this package, which the other process must use too
    folders = [*(one for one in sys.path if isinstance(one, str) and os.path.isabs(one)), root]
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ}  # idle threads of BLAS spin on a core that is needed
    with contextlib.ExitStack() as files:
        none = subprocess.DEVNULL
        stdin: int | IO[bytes]
        if isinstance(file, ReadFile):
            path, stdin = os.fsdecode(file.path), none
        else:
            path, stdin = "/dev/stdin", files.enter_context(file.opened())
        command = [sys.executable, *_flags(), "-c", _CHILD, json.dumps([path, threads, folders])]
        return subprocess.Popen(command, stdin=stdin, stdout=none, stderr=none, env=environment)


@atexit.register
def finish() -> None:
    """Wait until the other processes have ended. Python calls this at exit, so the next process finds their code.

    What was printed before can be read while it waits. An interrupt ends these processes.
    """
    if not _running:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no such stream, or a closed one
            stream.flush()
    try:
        while _running:
            key, process = next(iter(_running.items()))
            process.wait()
            _running.pop(key, None)
    except BaseException as end:
        for process in _running.values():
            process.kill()
            process.wait()
        if not isinstance(end, KeyboardInterrupt):
            raise
    finally:
        _running.clear()


def _forked() -> None:
    """Begin anew in a process that was forked: it has no children, and nobody will give its locks back."""
    global _lock
    _lock = threading.Lock()
    _running.clear()
    for making in _all:
        making.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _interpreter() -> bool:
    """Whether `sys.executable` is an interpreter. A program that contains one puts its own name there, or nothing."""
    return os.path.basename(sys.executable or "").lower().startswith(("python", "pypy")) and not hasattr(sys, "frozen")


def _flags() -> list[str]:
    """The options of this interpreter that say what the other one may read and write; always ``-P``.

    Without it, modules of the current folder would come before Python's own.
    """
    given = {
        "-I": sys.flags.isolated,
        "-E": sys.flags.ignore_environment,
        "-s": sys.flags.no_user_site,
        "-S": sys.flags.no_site,
        "-B": sys.dont_write_bytecode,
    }
    return ["-P", *(name for name, is_given in given.items() if is_given)]
