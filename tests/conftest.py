"""Settings of all tests, and two selections of them: a fast one, and the part of the long ones that a day runs."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Machines are noisy and proofs take as long as they take: a test fails for what it finds, never for its duration.
settings.register_profile("all", deadline=None)
settings.register_profile("few", deadline=None, max_examples=25)


PARTS = 10
"""The long tests are run in so many parts, one on each day."""

SWEPT = 5
"""One of so many cases of a sweep is always run."""

_FAST_OF_A_FILE = 2
_END = pytest.StashKey[float]()
_USED_UP = "the time was used up while it ran (--seconds)"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cvm")
    group.addoption("--fast", action="store_true", help="a few quick tests of every file, a minute in all")
    group.addoption("--long-day", type=int, metavar="DAY", help="of the tests that -m selects, part DAY mod 10 of 10")
    group.addoption(
        "--seconds", type=float, metavar="S", help="begin no test after so many seconds, and break off what runs"
    )


def pytest_configure(config: pytest.Config) -> None:
    """The usual run tries few examples of the properties that do not say how many, other ones in every run."""
    settings.load_profile("few" if config.option.markexpr == "not long" else "all")


def pytest_report_header(config: pytest.Config) -> list[str]:
    day = config.getoption("--long-day")
    return [] if day is None else [f"part {day % PARTS} of {PARTS} (day {day} since 1970): --long-day {day}"]


@pytest.hookimpl(tryfirst=True)  # before pytest itself deselects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_sweeps(items)
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.property)
    day = config.getoption("--long-day")
    if config.getoption("--fast"):
        chosen = _fast(items)
    elif day is not None:
        chosen = part_of(items, day)
    else:
        return
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Switch the garbage collector off while pytest collects the tests, and let it ignore the collected tests later.

    It would search their hundred thousands of objects again and again, which takes a quarter of the time of collecting
    and a tenth of the time of running.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def mark_sweeps(items: list[pytest.Item]) -> None:
    """Of each function marked ``sweep``, leave every fifth case, and at least one, and mark the others ``long``.

    The choice depends on the names of the cases alone, so that it is the same on every day and machine.
    """
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep") is not None:
            cases[item.nodeid.partition("[")[0]].append(item)
    for found in cases.values():
        ordered = sorted(found, key=lambda item: hashlib.sha256(item.nodeid.encode()).digest())
        for item in ordered[-(-len(ordered) // SWEPT) :]:
            item.add_marker(pytest.mark.long)


def part_of(items: list[pytest.Item], day: int) -> list[pytest.Item]:
    """Every tenth test by name, beginning with one of the first ten; ten days in a row have all tests.

    The order is another one every ten days: if time does not suffice for all, the rest of today comes up another time.
    """
    chosen = sorted(items, key=lambda item: item.nodeid)[day % PARTS :: PARTS]
    return sorted(chosen, key=lambda item: hashlib.sha256(f"{day // PARTS} {item.nodeid}".encode()).digest())


def _fast(items: list[pytest.Item]) -> list[pytest.Item]:
    """The first test functions of every file, each with its first parameters, but those that are marked slow."""
    functions: dict[Path, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        if item.get_closest_marker("slow") is None and item.get_closest_marker("long") is None:
            functions[item.path].setdefault(item.nodeid.partition("[")[0], item)
    return [item for found in functions.values() for item in list(found.values())[:_FAST_OF_A_FILE]]


def pytest_sessionstart(session: pytest.Session) -> None:
    seconds = session.config.getoption("--seconds")
    if seconds is not None:
        session.config.stash[_END] = time.monotonic() + seconds


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash.get(_END, float("inf")):
        pytest.skip("the time is used up (--seconds)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Break a test off when the time is used up, where there are signals and it runs in the main thread."""
    left = item.config.stash.get(_END, float("inf")) - time.monotonic()
    alarms = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if left == float("inf") or not alarms:
        return (yield)
    before = _child_processes()

    def break_off(*_: object) -> None:
        # A context manager that waits for a process on the way out would be interrupted by the next alarm.
        for process in _child_processes() - before:
            with contextlib.suppress(ProcessLookupError):  # another thread has waited for it meanwhile
                os.kill(process, signal.SIGKILL)
        pytest.skip(_USED_UP)

    previous = signal.signal(signal.SIGALRM, break_off)
    unraisable = sys.unraisablehook
    sys.unraisablehook = functools.partial(_report_unraisable, unraisable)
    # Again every second: what an alarm raises is lost in a finalizer or in a callback of a foreign function.
    signal.setitimer(signal.ITIMER_REAL, max(left, 0.01), 1.0)
    try:
        return (yield)
    except Exception as error:
        if not _follows_from_alarm(error):
            raise
        break_off()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = unraisable
        signal.signal(signal.SIGALRM, previous)


def _child_processes() -> set[int]:
    """The processes that threads of this one have started and nobody has waited for. None where Linux does not say."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(map(int, thread.read_text().split()))
    return found


def _follows_from_alarm(error: BaseException | None) -> bool:
    """Whether an error was raised while the skip of an alarm was handled, as by hypothesis, which may be interrupted
    between any two of its steps.
    """
    while error is not None:
        if str(error) == _USED_UP:
            return True
        error = error.__cause__ or error.__context__
    return False


def _report_unraisable(report: Callable[[Any], object], lost: Any) -> None:
    """Report what a finalizer or a callback raised, except for an alarm, which only happened to ring there."""
    if str(lost.exc_value) != _USED_UP:
        report(lost)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests measured and recorded as the property "measured": the random documents of each operation."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    rows = [value for report in reports for key, value in report.user_properties if key == "measured"]
    if rows:
        titles = ("operation", "documents", "refused", "codes compared", "differ", "by at most", "bound")
        widths = [max(len(row[i]) for row in (titles, *rows)) for i in range(len(titles))]
        terminalreporter.section("random documents against the exact evaluator")
        for row in (titles, *sorted(rows)):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line(line.rstrip())
