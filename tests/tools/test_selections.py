"""The selections of tests: a part for each day, and every test within ten days in a row."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PARTS, SWEPT, mark_sweeps, part_of

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Item:
    nodeid: str


ITEMS: list[Any] = [Item(f"tests/a.py::test_{number:03}") for number in range(137)]


@pytest.mark.parametrize("first", [0, 7, 20780])
def test_ten_days_in_a_row_run_every_test_once(first: int) -> None:
    parts = [part_of(ITEMS, day) for day in range(first, first + PARTS)]
    assert sorted(item.nodeid for part in parts for item in part) == [item.nodeid for item in ITEMS]
    assert {len(part) for part in parts} == {13, 14}


def test_a_day_has_one_selection_whatever_the_order_of_collection() -> None:
    assert part_of(ITEMS, 5) == part_of(ITEMS[::-1], 5)
    assert part_of(ITEMS, 5) != part_of(ITEMS, 15)
    assert set(part_of(ITEMS, 5)) == set(part_of(ITEMS, 15))


class Case:
    """A case of a test function, as pytest gives it to a hook."""

    def __init__(self, nodeid: str, sweep: bool) -> None:
        self.nodeid = nodeid
        self.marks = {"sweep"} if sweep else set()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.add(mark.name)


@pytest.mark.parametrize("count", [1, 2, 5, 6, 100])
def test_a_fifth_of_a_sweep_is_always_run_and_all_others_are_long(count: int) -> None:
    swept = [Case(f"tests/a.py::test_one[{number}]", True) for number in range(count)]
    other = [Case(f"tests/a.py::test_two[{number}]", False) for number in range(count)]
    items: list[Any] = [*swept, *other]
    mark_sweeps(items[::-1])
    always = [item.nodeid for item in swept if "long" not in item.marks]
    assert len(always) == -(-count // SWEPT)
    assert all("long" not in item.marks for item in other)
    again = [Case(item.nodeid, True) for item in swept]
    mark_sweeps(list[Any](again))
    assert [item.nodeid for item in again if "long" not in item.marks] == always


_CHILDREN = Path(f"/proc/self/task/{threading.get_native_id()}/children")

SLOW = """
import time

def test_that_ends() -> None:
    pass

def test_that_takes_long() -> None:
    for _ in range(600):
        time.sleep(0.1)
"""

FINALIZER = """
import time

class Slow:
    def __del__(self) -> None:
        time.sleep(60)

def test_that_ends() -> None:
    pass

def test_whose_finalizer_hides_the_first_alarm() -> None:
    Slow()
    time.sleep(60)
"""

HANDLED = """
import time

def test_that_ends() -> None:
    pass

def test_that_makes_another_error_of_the_alarm() -> None:
    try:
        time.sleep(60)
    finally:
        raise RuntimeError("interrupted in the middle of a step")
"""

WAITING = """
import subprocess
import sys

def test_that_ends() -> None:
    pass

def test_that_waits_for_a_process_on_its_way_out_too() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        process.wait()
"""

WRONG = """
def test_that_fails() -> None:
    raise RuntimeError("not because of an alarm")
"""


def test_an_error_that_no_alarm_led_to_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0"]
    result = subprocess.run(
        [*command, "--seconds", "300", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    assert "RuntimeError: not because of an alarm" in result.stdout


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no alarms here")
@pytest.mark.parametrize(
    ("text", "workers"),
    [
        (SLOW, "0"),
        (SLOW, "1"),
        (FINALIZER, "0"),
        (HANDLED, "0"),
        pytest.param(
            WAITING,
            "0",
            marks=pytest.mark.skipif(not _CHILDREN.exists(), reason="the system does not list a thread's processes"),
        ),
    ],
)
def test_a_test_that_runs_when_the_time_is_used_up_is_broken_off(tmp_path: Path, text: str, workers: str) -> None:
    (tmp_path / "test_slow.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", workers, "-rs"]
    command += ["-W", "error"]
    begun = time.monotonic()
    result = subprocess.run(
        [*command, "--seconds", "2", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "1 passed, 1 skipped in" in result.stdout, result.stdout
    assert "the time was used up while it ran" in result.stdout
    assert time.monotonic() - begun < 40
