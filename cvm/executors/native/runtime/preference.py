"""Which of two ways to run a small network takes less time, measured while it runs.

A small network may be computed by the calling thread alone or be shared with workers. What is faster depends on more
than its size: whether other programs leave a core free, whether two cores share a cache, and whether runs follow one
another so closely that workers do not fall asleep between them. So each way is tried for some runs in a row, and the
faster one is used until the next trial. Both give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

__all__ = ["Preference"]

FIRST = 4
"""The runs before the first trial: they find caches cold."""
SOONEST, LATEST = 64, 8192
"""The runs from one trial to the next: at first, and after many trials that agree."""
RUNS, BEFORE = 24, 8
"""The runs of a trial in each way, and how many of them are not counted: workers wake up meanwhile."""
GAIN = 0.95
"""Workers are used if a run with them takes less than this part of the time of one without them."""


class Preference:
    """Chooses the way of each run. Several threads may use it at once: then a trial counts the runs of all of them."""

    def __init__(self) -> None:
        self.shared = False
        self._left, self._apart = FIRST, SOONEST
        self._times: list[int] = []

    def run(self, alone: Callable[[int], int], shared: Callable[[int], int], head: int) -> int:
        """The result of ``alone`` or of ``shared``, called with ``head``."""
        if self._left > 0:
            self._left -= 1
            return shared(head) if self.shared else alone(head)
        way = alone if len(self._times) < RUNS else shared
        begin = perf_counter_ns()
        found = way(head)
        self._times.append(perf_counter_ns() - begin)
        if len(self._times) >= 2 * RUNS:
            self._decide()
        return found

    def _decide(self) -> None:
        times, self._times = self._times, []
        if len(times) < 2 * RUNS:  # another thread has decided just now
            return
        alone, shared = _median(times[BEFORE:RUNS]), _median(times[RUNS + BEFORE : 2 * RUNS])
        better = shared < GAIN * alone
        self._apart = min(2 * self._apart, LATEST) if better == self.shared else SOONEST
        self.shared, self._left = better, self._apart


def _median(times: list[int]) -> int:
    """The middle one of some times, or the longer one of the two in the middle."""
    return sorted(times)[len(times) // 2]
