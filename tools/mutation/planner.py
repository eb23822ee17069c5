"""The tests that are run on a mutant: those that run its lines, the fastest first, within a budget.

If the lines run on import, or no test is known to run them, the tests of the files that import the module are used:
first those that run any other line of it. One case of each parametrised test comes before the second case of any, so
that the budget is not spent on many cases of one test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tools.mutation.changes import Change
from tools.mutation.recordings import Recording

__all__ = ["Budget", "planned"]


@dataclass(frozen=True)
class Budget:
    """The most tests, and seconds of tests, for one mutant; a first test is always run."""

    tests: int
    seconds: float


def planned(change: Change, recorded: Iterable[Recording], budget: Budget) -> dict[str, float]:
    """The tests for a change and their seconds, in the order of running; none if no test runs its lines."""
    module = change.key.module
    seconds: dict[str, float] = {}
    first: set[str] = set()
    second: set[str] = set()
    for recording in recorded:
        seconds.update(recording.seconds)
        running = recording.tests(module, change.lines)
        first |= running - {""}
        if "" in running:
            second |= set(recording.seconds)
            first |= {name for names in recording.lines[module].values() for name in names if name}
    ordered = _ordered(sorted(first & set(seconds)), seconds)
    if not ordered or change.imported:
        ordered += _ordered(sorted(second - first), seconds)
    return _within(ordered, seconds, budget)


def _ordered(tests: Sequence[str], seconds: dict[str, float]) -> list[str]:
    """The tests, the fastest first, one case of each test before the second case of any."""
    seen: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    for name in sorted(tests, key=lambda name: (seconds[name], name)):
        function = name.partition("[")[0]
        ranks[name] = seen[function]
        seen[function] += 1
    return sorted(tests, key=lambda name: (ranks[name], seconds[name], name))


def _within(tests: Sequence[str], seconds: dict[str, float], budget: Budget) -> dict[str, float]:
    kept: dict[str, float] = {}
    left = budget.seconds
    for name in tests:
        if len(kept) == budget.tests:
            break
        if kept and seconds[name] > left:
            continue
        kept[name] = seconds[name]
        left -= seconds[name]
    return kept
