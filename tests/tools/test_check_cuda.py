"""The check of a GPU, on a device of this processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cvm.errors import Unsupported
from cvm.executors.cuda.emit import registry
from tools import check_cuda
from tools.check_cuda import Part, Result
from tools.serial_device import SerialDevice


@pytest.fixture(autouse=True)
def plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serial device knows no fast forms."""
    monkeypatch.setattr(registry, "FAST", {})
    monkeypatch.setattr(check_cuda, "BATCHES", (1, 3))
    monkeypatch.setattr(check_cuda, "TOGETHER", 1)
    monkeypatch.setattr(check_cuda, "PACK", 1)


def results(device: Any, *words: str) -> dict[str, Result]:
    every = check_cuda.parts(100, 1, [], True)
    return {part.what: check_cuda.completed(part, device) for part in every if part.what.startswith(words)}


def test_a_device_that_is_right_has_no_differences() -> None:
    classes = ("classes 0 to 0, chosen", "classes 60 to 60, plain")
    found = results(SerialDevice(), "SHA-256", "random programs 1 ", "digits", "vectors programs", *classes)
    assert len(found) == 7
    assert not any(one.wrong for one in found.values())
    (root,) = found["digits: every tensor, trace"].remarks
    assert root.startswith("trace root ")
    assert len(root) == 75


class Idle(SerialDevice):
    """A device on which kernels with some names do nothing, or nothing for the samples of a batch behind the first."""

    name = "an idle device"

    def __init__(self, names: str, samples: int = 0) -> None:
        super().__init__()
        self.names, self.samples = names, samples

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        kept = [one for one in launches if not one.function.startswith(self.names) or one.grid[2] <= self.samples]
        return super().prepare(code, kept, *others)


def test_differences_are_counted_and_named() -> None:
    found = results(Idle(""), "digits: every", "vectors programs")
    assert [bool(one.wrong) for one in found.values()] == [True] * 2
    found = results(Idle("pool", samples=1), "digits")
    assert [bool(one.wrong) for one in found.values()] == [False, True]
    assert "of sample 0 of a batch of 3" in found["digits: batches"].wrong[0]


@pytest.mark.parametrize(("samples", "right"), [(0, False), (1, False), (16, True)])
def test_classes_are_tried_singly_and_in_batches(samples: int, right: bool) -> None:
    number = next(k for k, one in enumerate(check_cuda.CLASSES) if one.name == "windows")
    (one,) = results(Idle("pool", samples), f"classes {number} to {number}, plain").values()
    assert one.wrong == (() if right else ("windows",))


class Broken(SerialDevice):
    """A device that fails whenever it is to run."""

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        raise Unsupported("cuda.call", "cuGraphInstantiate failed: CUDA_ERROR_ILLEGAL_ADDRESS")


def test_a_device_that_fails_answers_no_vector_rightly() -> None:
    (one,) = results(Broken(), "vectors programs").values()
    assert "vectors were answered with an error of the device" in one.wrong[-1]
    (one,) = results(Broken(), "digits: batches").values()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in one.wrong[0]


def test_every_part_of_the_check_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    words = [part.what for part in check_cuda.parts(2000, 1, [], False)]
    assert len({*words}) == len(words)
    assert words[0] == "SHA-256 on the device"
    for form in ("chosen", "plain"):
        ranges = [word.split() for word in words if word.endswith(f"{form} form")]
        assert [int(one[1]) for one in ranges] == [0, *(int(one[3][:-1]) + 1 for one in ranges[:-1])]
        assert int(ranges[-1][3][:-1]) == len(check_cuda.CLASSES) - 1
    assert {"vectors ops/nn", "vectors programs", "random programs 1950 to 1999"} <= {*words}
    for name in ("resnet50", "mobilenet_v2", "tiny_gpt"):
        assert {f"{name}: every tensor, trace", f"{name}: batches"} <= {*words}


def test_parts_come_in_the_order_of_what_is_learned_from_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    words = [part.what for part in check_cuda.parts(2000, 1, [], False)]
    firsts = ["SHA-256 on the device", "classes 0 to 7, chosen form", "digits: every tensor, trace",
              "vectors ops/broadcast", "random programs 0 to 49", "resnet18: every tensor, trace",
              "classes 0 to 7, plain form", "random programs 50 to 99"]  # fmt: skip
    assert [words.index(one) for one in firsts] == sorted(words.index(one) for one in firsts)
    quick = [part.what for part in check_cuda.parts(2000, 1, [], True)]
    assert "lenet: batches" in quick
    assert not any("resnet" in word for word in quick)


ANSWER = 'import sys; print(\'noise\'); print(\'{"wrong": ["x"], "remarks": ["y"]}\')'


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        (ANSWER, "x"),
        ("import time; time.sleep(60)", "it had not ended after 1 s"),
        ("import os; os.abort()", "its process ended with -6: "),
        ("raise SystemExit('no device')", "its process ended with 1: no device"),
    ],
)
def test_a_process_that_gives_no_answer_is_a_difference(script: str, wrong: str) -> None:
    found = check_cuda._apart(Part("a part", lambda device: []), [sys.executable, "-c", script], 1)
    assert found.wrong == (wrong,)
    assert found.remarks == (("y",) if script == ANSWER else ())


def test_a_process_that_cannot_be_ended_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for a driver that hangs is not ended by a signal."""
    waits: list[float] = []

    class Stuck:
        def __init__(self, command: list[str], **named: Any) -> None: ...

        def communicate(self, timeout: float) -> None:
            waits.append(timeout)
            raise subprocess.TimeoutExpired("a part", timeout)

        def kill(self) -> None:
            waits.append(0)

    monkeypatch.setattr(subprocess, "Popen", Stuck)
    assert check_cuda._apart(Part("a part", lambda device: []), [], 7).wrong == ("it had not ended after 7 s",)
    assert waits == [7, 0, check_cuda.ENDING]


def test_what_is_known_so_far_is_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "check.json"
    report = check_cuda._Report("a GPU", file)
    report.add(Result("one", (), ("a remark",), 1.5))
    report.add(Result("two", ("x", "y"), (), 2.5))
    document = json.loads(file.read_text())
    assert document["device"] == "a GPU"
    assert document["parts"][1] == {"what": "two", "wrong": ["x", "y"], "remarks": [], "seconds": 2.5}
    assert check_cuda._Report("a GPU", file).known() == {"one": Result("one", (), ("a remark",), 1.5)}
    assert check_cuda._Report("another GPU", file).known() == {}
    report.left += ["three"]
    assert report.summary().splitlines() == [
        "", "Summary, on a GPU", "two: x; y", "one: a remark", "left out: three",
        "2 parts, 1 with differences, 1 left out",
    ]  # fmt: skip
    file.write_text(json.dumps(document | {"code": "another version"}))
    assert check_cuda._Report("a GPU", file).known() == {}
    lines = capsys.readouterr().out.splitlines()
    assert "0 differences" in lines[0]
    assert lines[1] == "  a remark"
    assert lines[2].endswith("2 WRONG: x; y")


def test_parts_beyond_the_time_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = check_cuda._Report("a GPU", tmp_path / "check.json")
    monkeypatch.setattr(check_cuda, "_apart", lambda part, command, limit: Result(part.what, (), (), 0))
    every = [Part(name, lambda device: []) for name in ("one", "two")]
    for seconds, left in (("0", ["one", "two"]), ("60", [])):
        report.left.clear()
        options = check_cuda._options(["--seconds", seconds, "--workers", "1"])
        check_cuda._all_apart(every, report, options, [])
        assert report.left == left
    assert [one.what for one in report.results] == ["one", "two"]


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert check_cuda.main([]) == 3
    assert capsys.readouterr().err.startswith("no device: ")


def test_a_missing_sanitizer_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert check_cuda.sanitized(0, 1)
    assert "compute-sanitizer is not installed" in capsys.readouterr().out
