"""Many tasks of one job, distributed to processes of this machine or to a cluster.

A job is prepared once per worker: it verifies and compiles its programs there. Then the worker answers one task after
the other. This process alone makes the tasks and collects the answers, so that workers need nothing but cvm. If a
worker dies, its tasks are given to another one. The answers are the same, whoever gives them and in whatever order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeAlias, TypeVar

__all__ = ["AHEAD", "RETRIES", "Job", "Scheduler", "Tasks"]

RETRIES = 3
"""How often the same task may be given to another worker after one has died."""
AHEAD = 2
"""How many tasks are given out at a time for each worker: one to work on, one to go on with."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")
_Task = TypeVar("_Task", contravariant=True)
_Answer = TypeVar("_Answer", covariant=True)

Tasks: TypeAlias = Iterable[tuple[str, Task]]
"""Tasks with different names. They are taken when a worker needs one, not before."""


class Job(Protocol[_Task, _Answer]):
    """What to do with each task. A job and its tasks are pickled, since workers are other processes."""

    def identity(self) -> str:
        """A digest of the job and of the version of cvm: workers that differ in it would give other answers."""

    def worker(self) -> Callable[[_Task], _Answer]:
        """Prepare a worker, in its process and once; returns the function that answers a task."""


class Scheduler(Protocol):
    """Distributes tasks."""

    def answers(self, job: Job[Task, Answer], tasks: Tasks[Task]) -> Iterator[tuple[str, Answer]]:
        """The name and the answer of each task, as they are found.

        Raises `LimitExceeded` if the same work ends one worker after another, and the errors of the tasks.
        """
