"""Verification of folders of receipts: many at once, and a log to go on from after an interruption.

The inputs of ``NAME.receipt`` are in ``NAME.npz`` beside it. The digest in a receipt selects its program among those
that are given. A scheduler (`cvm.workers`) distributes the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from cvm.audit.batch.log import Log
from cvm.audit.batch.work import Finished, Order, read_task
from cvm.errors import Invalid, Location
from cvm.executors import EXECUTORS
from cvm.workers import Scheduler
from cvm.workers.processes import Processes

__all__ = ["Finished", "Order", "receipts_in", "verify_all"]


def receipts_in(folder: Path) -> list[str]:
    """Everything called ``*.receipt`` in a folder and the folders in it, as relative paths with slashes, in order.

    An entry with such a name that is no regular file (a broken link, a pipe, a folder) is included, as a receipt that
    cannot be verified: a receipt that nobody could read must not look like one that does not exist. Raises `Invalid`
    (``audit.folder``) for a folder that cannot be read.
    """
    found = []
    for directory, folders, files in os.walk(folder, onerror=_unreadable):
        names = (name for name in (*folders, *files) if name.endswith(".receipt"))
        found += [Path(directory, name).relative_to(folder).as_posix() for name in names]
    return sorted(found)


def _unreadable(error: OSError) -> NoReturn:
    message = f"the folder cannot be read: {error.strerror or error}"
    raise Invalid("audit.folder", message, Location(os.fsdecode(error.filename))) from None


def verify_all(
    folder: Path, paths: Sequence[str], order: Order, log: Path | None = None, scheduler: Scheduler | None = None
) -> Iterator[Finished]:
    """Verify the receipts at ``paths`` (None: with one process per core); results are yielded as they are found.

    With ``log``, results that it holds are reused and new ones are added. Raises `Malformed` (``audit.log``)
    for a damaged log, and `Invalid` for a log with other options (``audit.log``), if there is
    nothing to verify (``audit.none``), and for an unknown executor (``executors.unknown``); and the errors of the
    scheduler when no worker is left.
    """
    if not paths:
        raise Invalid("audit.none", "there are no receipts here (files *.receipt)", Location(str(folder)))
    if order.executor is not None and order.executor not in EXECUTORS:
        raise Invalid("executors.unknown", f"there is no executor {order.executor!r}; there are {', '.join(EXECUTORS)}")
    workers = Processes() if scheduler is None else scheduler
    if log is None:
        yield from _answers(workers, folder, paths, order)
        return
    known = Log.read(log, order)
    left = []
    for path in paths:
        finished = known.results.get(path)
        if finished is not None and finished.files == read_task(folder, path).digests:
            yield finished
        else:
            left.append(path)
    with known.appending() as append:
        for finished in _answers(workers, folder, left, order):
            append(finished)
            yield finished


def _answers(workers: Scheduler, folder: Path, paths: Sequence[str], order: Order) -> Iterator[Finished]:
    """The answers for the receipts at ``paths``; each is read when a worker needs it."""
    for _, finished in workers.answers(order, ((path, read_task(folder, path)) for path in paths)):
        yield finished
