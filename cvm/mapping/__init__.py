"""One program over a data set: on all cores of this machine or on a cluster, in order, and resumable.

A data set is divided into chunks of items. A scheduler (`cvm.workers`) distributes the chunks. The results of each
chunk are a file beside the output (`cvm.mapping.parts`), so that an interrupted command goes on where it was. At the
end they become the output (`cvm.mapping.results`). Its bytes depend on the program and the data set alone, not on who
computed which chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path

from cvm.errors import CvmError, Invalid
from cvm.executors import EXECUTORS
from cvm.mapping.datasets import Dataset
from cvm.mapping.job import MapJob, MapTask
from cvm.mapping.parts import Parts, Receipts
from cvm.mapping.results import assemble, require_form
from cvm.records import dataclass
from cvm.workers import Scheduler
from cvm.workers.processes import Processes

__all__ = ["Mapped", "chunk_size", "map_dataset"]

CHUNKS = 256
"""About how many chunks a data set is divided into, so that many workers have a share."""
MOST_ITEMS = 256
"""The most items of one chunk."""
MOST_BYTES = 8 * 2**20
"""The most bytes of a chunk's inputs and outputs, unless it is one item."""


@dataclass(slots=True)
class Mapped:
    """What was done."""

    items: int
    resumed: int = 0
    """How many items were done by an earlier run of the same command."""
    clamped: list[str] = field(default_factory=list)
    """For each chunk with real numbers out of range that were clipped: which, in words."""


def chunk_size(items: int, item_bytes: int) -> int:
    """How many items one chunk has. It depends on the data set and the program alone, so that a later run agrees."""
    return max(1, min(MOST_ITEMS, MOST_BYTES // max(item_bytes, 1), -(-items // CHUNKS)))


def map_dataset(
    job: MapJob,
    dataset: Dataset,
    output: Path,
    scheduler: Scheduler | None = None,
    progress: Callable[[int], None] | None = None,
) -> Mapped:
    """Run the job's program on every item of the data set and write the results, and receipts if it makes any.

    ``output`` is a ``.npz`` or ``.parquet`` file with one row per item, or a folder with one ``.npz`` file per item.
    ``scheduler`` is by default one process per core. ``progress`` is called with the number of finished items. If this
    is interrupted, or an item is refused, what is finished stays in the folder ``OUTPUT.parts``, and the same call goes
    on from there. Raises `Invalid` (``map.empty``) for a data set without items, `Invalid` (``executors.unknown``),
    the errors of the data set and of its items, `Invalid` (``map.output``) for an output of another form, and the
    errors of the scheduler.
    """
    _require_possible(job, dataset, output)
    names = dataset.names
    done = Mapped(len(names))
    parts = Parts.beside(output)
    receipts = Receipts.beside(output) if job.receipts else None
    finished = 0

    def advance(items: int) -> None:
        nonlocal finished
        finished += items
        if progress is not None:
            progress(finished)

    def waiting() -> Iterator[tuple[str, MapTask]]:
        """The chunks that no earlier run has finished; files are read when a worker needs their chunk."""
        for chunk in dataset.chunks(chunk_size(len(names), job.item_bytes)):
            name = parts.expect(chunk, job.identity())
            if not parts.has(name) or not (receipts is None or receipts.have(chunk.names)):
                yield name, MapTask(chunk.names, chunk.arrays)
                continue
            done.resumed += len(chunk.names)
            advance(len(chunk.names))

    for name, answer in (scheduler or Processes()).answers(job, waiting()):
        if isinstance(answer, CvmError):
            raise answer
        if receipts is not None:
            receipts.write(answer.receipts)
        parts.write(name, answer.outputs)
        done.clamped += answer.clamped
        advance(answer.items)
    assemble(parts, names, output)
    parts.remove()
    return done


def _require_possible(job: MapJob, dataset: Dataset, output: Path) -> None:
    """Refuse what cannot end well before anything is run."""
    require_form(output)
    if job.executor is not None and job.executor not in EXECUTORS:
        message = f"there is no executor {job.executor!r}; there are {', '.join(EXECUTORS)}"
        raise Invalid("executors.unknown", message)
    if not dataset.names:
        raise Invalid("map.empty", f"{dataset.source} has no items; expected {dataset.expected}")
