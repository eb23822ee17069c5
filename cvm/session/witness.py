"""What may observe the single runs of a session, such as the recorder of a receipt (`cvm.audit.record`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cvm.executors import Int32Array, RunResult, Watch
from cvm.inputs import Feed

__all__ = ["Observer", "Witness"]


class Observer(Protocol):
    """Observes one run for a witness."""

    @property
    def watch(self) -> Watch | None:
        """A function that the executor calls with the tensors during the run; None if none is needed."""

    def end(self, result: RunResult) -> Any:
        """Called after the run with its result; returns a note for `Witness.keep`."""


class Witness(Protocol):
    """Observes every single run of a session."""

    def begin(self, feed: Feed, before: Mapping[str, Int32Array]) -> Observer:
        """Called before a run with its inputs and the state before it; returns the observer of the run.

        The state changes with the run: what is needed of it later must be read now. Runs of different samples may go on
        at the same time.
        """

    def keep(self, notes: Sequence[Any]) -> None:
        """Called after a call with the notes of all its runs, in order."""
