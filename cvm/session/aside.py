"""Machine code that a process of its own makes while a session answers its first run by NumPy.

That process opens a session of the same file, which plans, proves, tries and stores the code as any session does. What
it stores is believed for the same reason as what an earlier process stored (`cvm.executors.native.runtime.cache`): the
session looks for it in the cache, and makes the code itself if it finds none.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from cvm.executors import cores, stores

if TYPE_CHECKING:
    from subprocess import Popen

    from cvm.program.reading import ReadFile

__all__ = ["Making", "begin", "finish"]

LEAST = 2**16
"""Programs of fewer bytes are compiled in about the time that a process takes to begin."""

_CHILD = """
import json, sys
path, threads, sys.path[:] = json.loads(sys.argv[1])
from cvm.session.session import Session
Session(path, "native", threads)
"""

_running: list[Popen[bytes]] = []
"""The processes that have not been waited for."""


class Making:
    """The making of machine code for one program file."""

    def __init__(self, process: Popen[bytes]) -> None:
        self._process = process
        self.answered = False
        """Whether a run has been answered without the code."""

    def ended(self) -> bool:
        """Whether the process has ended, whether or not it has made the code."""
        return self._process.poll() is not None

    def wait(self) -> None:
        """Wait until the process has ended."""
        self._process.wait()

    def stop(self) -> None:
        """End the process, whose code is not wanted."""
        self._process.kill()
        self._process.wait()


def begin(file: ReadFile, threads: int) -> Making | None:
    """Begin to make the code of a program file for so many threads.

    Returns None where this would help nobody or is impossible: for small programs, on one core, without a cache, where
    the native executor is not the default, and where no process of this interpreter can be started.
    """
    if file.size < LEAST or cores() < 2 or os.name != "posix" or not _interpreter() or not stores():
        return None
    import subprocess

    given = json.dumps([os.fsdecode(file.path), threads, [os.fspath(folder) for folder in sys.path]])
    command, none = [sys.executable, *_flags(), "-c", _CHILD, given], subprocess.DEVNULL
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
    }  # idle threads of BLAS spin, and this process needs the core
    try:
        process = subprocess.Popen(command, stdin=none, stdout=none, stderr=none, env=environment)
    except (OSError, subprocess.SubprocessError):  # the system has no more processes
        return None
    _running[:] = [process, *(one for one in _running if one.poll() is None)]
    return Making(process)


@atexit.register
def finish() -> None:
    """Wait until all code is made. Each process does so before it ends: nothing outlives it, and the next one has it.

    What was printed before can be read while it waits. An interrupt ends the wait, and all that is waited for.
    """
    if not _running:
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no such stream, or a closed one
            stream.flush()
    try:
        for process in _running:
            process.wait()
    except KeyboardInterrupt:
        for process in _running:
            process.kill()
            process.wait()
    _running.clear()


def _interpreter() -> bool:
    """Whether `sys.executable` is an interpreter. A program that contains one puts its own name there, or nothing."""
    return os.path.basename(sys.executable or "").lower().startswith(("python", "pypy")) and not hasattr(sys, "frozen")


def _flags() -> list[str]:
    """The options of this interpreter that say what the other one may read and write; always ``-P``.

    Without it, modules of the current folder would come before Python's own.
    """
    flags = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return ["-P", *(name for name, given in flags.items() if given), *(["-B"] if sys.dont_write_bytecode else [])]
