"""The check of a GPU, on a device of this processor."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cvm.executors.cuda.emit import registry
from tools import check_cuda
from tools.serial_device import SerialDevice


@pytest.fixture(autouse=True)
def plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serial device knows no fast forms."""
    monkeypatch.setattr(registry, "FAST", {})
    monkeypatch.setattr(check_cuda, "BATCHES", (1, 3))


def named(device: Any, *words: str) -> list[check_cuda.Part]:
    return [part for part in check_cuda.parts(device, 50, 1, [], True) if part[0].startswith(words)]


def test_a_device_that_is_right_has_no_differences(capsys: pytest.CaptureFixture[str]) -> None:
    items = named(SerialDevice(), "SHA-256", "1 random", "digits")
    assert len(items) == 3
    assert check_cuda.checked(iter(items))
    lines = capsys.readouterr().out.splitlines()
    assert sum("0 differences" in line for line in lines) == 3
    assert any(line.startswith("  trace root ") and len(line) == 77 for line in lines)


class Idle(SerialDevice):
    """A device whose pools do nothing."""

    def prepare(self, code: Any, launches: Any, *others: Any) -> Any:
        return super().prepare(code, [one for one in launches if not one.function.startswith("pool")], *others)


def test_differences_are_counted_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert not check_cuda.checked(iter(named(Idle(), "digits")))
    line = capsys.readouterr().out.splitlines()[-1]
    assert " WRONG: " in line


def test_every_part_of_the_check_is_there() -> None:
    words = [what for what, _ in check_cuda.parts(SerialDevice(), 2000, 1, [], False)]
    assert [word.split(",")[0] for word in words[1:5]] == [
        "67 classes of the trial", "67 classes of the trial", "all test vectors", "2000 random programs"
    ]  # fmt: skip
    assert {"resnet50", "mobilenet_v2", "tiny_gpt"} <= {word.split(":")[0] for word in words[5:]}


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert check_cuda.main([]) == 3
    assert capsys.readouterr().err.startswith("no device: ")


def test_a_missing_sanitizer_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert check_cuda.sanitized(0)
    assert "compute-sanitizer is not installed" in capsys.readouterr().out
