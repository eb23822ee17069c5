"""Compiled code on disk, so that a network is compiled once per machine.

A file is named after everything that its code depends on, and begins with the SHA-256 of its name and the rest, which
is checked on reading. Files are written beside and renamed, so that several processes may share a folder. Whatever goes
wrong with the folder - missing, read-only, full - costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from cvm.executors.native.machine import Machine
from cvm.program.files import write_atomically

__all__ = ["folder", "key", "read", "write"]

LIMIT = 2**28
"""Bytes of a file at most."""
DIGEST = 32
BINARY = getattr(os, "O_BINARY", 0)


def folder() -> Path | None:
    """Where compiled code is kept: ``CVM_CACHE`` (empty: nowhere), else the user's cache folder."""
    given = os.environ.get("CVM_CACHE")
    if given is not None:
        return Path(given) / "native" if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base) / "cvm" / "native" if base else Path.home() / ".cache" / "cvm" / "native"
    except RuntimeError:  # nobody's home
        return None


PARTS = ("executors/native", "ops", "program")
"""The parts of `cvm` that code depends on: the rules of ranges decide formats and places."""


@cache
def _sources() -> bytes:
    """A digest of our own code."""
    total = hashlib.sha256()
    root = Path(__file__).parents[2]
    for part in PARTS:
        for path in sorted((root / part).glob("*.py")):
            total.update(f"{part}/{path.name}\0".encode() + path.read_bytes())
    return total.digest()


def key(machine: Machine, parts: Iterable[str]) -> str:
    """The name of a file: a digest of our code, LLVM's version, the processor and ``parts``."""
    total = hashlib.sha256(_sources())
    host = (machine.cpu or llvm.get_host_cpu_name(), machine.features or llvm.get_host_cpu_features().flatten())
    versions = (llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info)), llvm.get_process_triple())
    for part in (machine.name, *host, *versions, *parts):
        total.update(part.encode() + b"\0")
    return total.hexdigest()


def read(name: str) -> bytes | None:
    """The content of a file that is whole and ours, else None."""
    where = folder()
    if where is None:
        return None
    try:
        # Nothing is waited for: somebody may have put a pipe there.
        with open(os.open(where / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | BINARY), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > LIMIT:
                return None
            if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
                return None  # code that somebody else could have put there is not run
            data = file.read(LIMIT)
    except OSError:
        return None
    content = data[DIGEST:]
    return content if _digest(name, content) == data[:DIGEST] else None


def write(name: str, content: bytes) -> None:
    """Keep a file, if that is possible."""
    where = folder()
    if where is None or len(content) > LIMIT - DIGEST:
        return
    with contextlib.suppress(OSError):
        where.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(where / name, _digest(name, content) + content, mode=0o600)


def _digest(name: str, content: bytes) -> bytes:
    """A file under another's name is as wrong as a damaged one."""
    return hashlib.sha256(name.encode() + b"\0" + content).digest()
