"""A plugin of pytest that records how tests end, how long they take and, if asked, which lines each runs.

Settings come from the environment: ``MUTATION_RESULT`` is the file to write. ``MUTATION_COVER`` lists folders, one per
line, whose lines are recorded with the package coverage. ``MUTATION_MEMORY`` limits the address space, in bytes.
Lines that run outside any test, when modules are imported, are recorded under the empty name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__: list[str] = []

_seconds: dict[str, float] = {}
_failed: set[str] = set()
_passed: set[str] = set()
_coverage: Any = None


def _start() -> None:
    global _coverage
    memory = os.environ.get("MUTATION_MEMORY")
    if memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (int(memory), resource.getrlimit(resource.RLIMIT_AS)[1]))
    folders = os.environ.get("MUTATION_COVER")
    if folders:
        import coverage

        patterns = [f"{folder}/*" for folder in folders.splitlines()]
        _coverage = coverage.Coverage(data_file=None, config_file=False, include=patterns, messages=False)
        _coverage.start()


_start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Assign the lines that run from here on to this test."""
    if _coverage is not None:
        _coverage.switch_context(item.nodeid)
    result = yield
    if _coverage is not None:
        _coverage.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the time of each phase; a test passed if its call passed and no phase failed."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)
    elif report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_unconfigure() -> None:
    """Write the result."""
    target = os.environ.get("MUTATION_RESULT")
    if target is None:
        return
    result: dict[str, Any] = {
        "seconds": {name: round(_seconds[name], 4) for name in sorted(_passed - _failed)},
        "failed": sorted(_failed),
    }
    if _coverage is not None:
        _coverage.stop()
        data = _coverage.get_data()
        result["lines"] = {
            file: {str(line): sorted(names) for line, names in sorted(data.contexts_by_lineno(file).items())}
            for file in sorted(data.measured_files())
        }
    Path(target).write_text(json.dumps(result), "utf-8")
