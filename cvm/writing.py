"""Writing results to files, pipes and devices.

A regular file is replaced whole or not at all. A link stands for its target. Anything that is no
regular file is never replaced: bytes are written into a pipe or a character device, such as ``/dev/null`` and
``/dev/stdout``, and everything else is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from cvm.errors import CvmError, Invalid, Location

__all__ = ["make_folder", "unwritable", "write_atomically", "write_file"]

_REFUSED = ((stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))


@contextlib.contextmanager
def unwritable(path: Path, what: str = "written") -> Iterator[None]:
    """Turn an error that keeps the block from writing ``path`` into `Invalid` (``output.unwritable``)."""
    try:
        yield
    except CvmError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path without a last part
        message = f"cannot be {what}: {getattr(error, 'strerror', None) or error}"
        raise Invalid("output.unwritable", message, Location(str(path))) from None


def make_folder(folder: Path, parents: bool = False) -> Path:
    """A folder for results, made if it is not there. Raises `Invalid` (``output.unwritable``)."""
    with unwritable(folder, "made a folder"):
        folder.mkdir(parents=parents, exist_ok=True)
    return folder


def write_atomically(
    path: str | PathLike[str], *data: bytes | memoryview, mode: int = 0o666, lasting: bool = True
) -> None:
    """Write ``data``, one after the other, to ``path``: a reader sees the old content or the new, never a part of it.

    A temporary file in the same folder is written, with ``mode`` as far as the process' mask allows, and renamed.
    ``lasting``: it is flushed to the disk before, so that this holds even if the system stops. Raises OSError.
    """
    target = Path(path)
    if not target.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    temporary = target.with_name(f".{target.name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            for part in data:
                file.write(part)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        if isinstance(error, OSError):  # the caller knows no other name than the one given
            error.filename, error.filename2 = os.fspath(path), None
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_file(path: str | PathLike[str], *data: bytes | memoryview) -> None:
    """Write ``data``, one after the other, to the target of ``path``. Raises OSError.

    Writing to a pipe waits for its reader. A file or a device that another process puts there meanwhile may be lost.
    """
    try:
        status = os.stat(path)  # of a link's target; the kernel refuses links that others left in a shared folder
    except FileNotFoundError:
        write_atomically(os.path.realpath(path), *data)
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if stat.S_ISREG(status.st_mode) and (target := _named(path, status)) is not None:
        write_atomically(target, *data)
        return
    for holds, what in _REFUSED:
        if holds(status.st_mode):
            expected = "expected a file, a pipe or a character device"
            raise OSError(errno.EINVAL, f"it is {what}, {expected}", os.fspath(path))
    _write_through(path, *data)


def _named(path: str | PathLike[str], status: os.stat_result) -> Path | None:
    """The name of a file, without links; None if it has none, like an open but deleted file (``/proc/self/fd``)."""
    target = Path(os.path.realpath(path))
    try:
        return target if os.path.samestat(os.stat(target), status) else None
    except OSError:
        return None


def _write_through(path: str | PathLike[str], *data: bytes | memoryview) -> None:
    """Write into a pipe, a device or a file that has no name; nothing is created, truncated or renamed."""
    flags = os.O_WRONLY | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "wb", buffering=0) as stream:
        for part in data:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[stream.write(rest) :]
