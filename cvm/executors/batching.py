"""Executors that compute many independent runs in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from cvm.executors.base import Capture, Int32Array

__all__ = ["Batching"]


@runtime_checkable
class Batching(Protocol):
    """An executor that runs several samples of a program without state, and deals them to its threads by itself.

    Both methods return None, without having run anything, if this executor has no such code for the program.
    """

    def run_batch(
        self,
        samples: int,
        inputs: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        into: Mapping[str, Int32Array] | None = None,
    ) -> dict[str, Int32Array] | None:
        """Run all samples of a batch.

        ``inputs`` are C-contiguous arrays by the names of the inputs, with an axis of samples before those of the
        tensor. The result has arrays of this form for the program's outputs and for the values in ``capture``. Values
        in ``into`` are written into the arrays there, which must have that form and overlap no other array. Raises
        `Invalid` as `Executor.run` does; then the arrays in ``into`` may hold anything.
        """

    def run_samples(
        self, feeds: Sequence[Mapping[str, Int32Array]], capture: Capture = frozenset()
    ) -> list[dict[str, Int32Array]] | None:
        """Run on each of ``feeds``, the inputs of one run each. The results have arrays of their own."""
