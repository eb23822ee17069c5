"""The time of a call: many calls, their quartiles, and the processor time that they used."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from cvm.records import dataclass

__all__ = ["Timing", "summary", "timed"]

_FEWEST = 5
"""The least number of calls, however long they take."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds per call: the least, the quartiles of ``calls`` calls, and the mean processor time of all threads.

    If other programs share the cores, the processor time of one thread is the most reliable number.
    """

    calls: int
    least: float
    quartile: float
    median: float
    upper_quartile: float
    cpu: float


def timed(call: Callable[[], object], seconds: float) -> Timing:
    """Call for at least ``seconds`` seconds, after one call that does not count."""
    call()
    spent: list[int] = []
    clock = time.perf_counter_ns
    cpu, end = time.process_time_ns(), clock() + round(seconds * 1e9)
    while True:
        start = clock()
        call()
        now = clock()
        spent.append(now - start)
        if now >= end and len(spent) >= _FEWEST:
            break
    cpu = time.process_time_ns() - cpu
    least, quartile, median, upper = np.percentile(spent, (0, 25, 50, 75)).tolist()
    return Timing(len(spent), least, quartile, median, upper, cpu / len(spent))


def summary(rounds: list[Timing]) -> Timing:
    """Several rounds as one: the least time of all, and the median round's quartiles and processor time."""
    middle = {
        name: float(np.median([getattr(timing, name) for timing in rounds]))
        for name in ("quartile", "median", "upper_quartile", "cpu")
    }
    return Timing(sum(timing.calls for timing in rounds), min(timing.least for timing in rounds), **middle)
