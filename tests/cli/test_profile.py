"""`cvm compile --profile` and the spinner: where time goes, and what is being done once it takes long."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cvm import timing
from cvm.cli import output
from tests.cli.conftest import Outcome

MODEL = Path(timing.__file__).parent / "demo" / "lenet_digits"
Cvm = Callable[..., Outcome]


def test_the_times_of_parts_within_others_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(timing, "perf_counter", lambda: now)
    began: list[tuple[str, str]] = []
    with timing.recorded(lambda stage, name: began.append((stage, name))) as times:
        with timing.timed("outer", "a"):
            now += 1
            with timing.timed("inner"):
                now += 10
                with timing.timed("outer", "a"):
                    now += 100
            now += 1000
        with timing.timed("inner"):
            now += 0.5
    assert began == [("outer", "a"), ("inner", ""), ("outer", "a"), ("inner", "")]
    found = {key: (part.seconds, part.count) for key, part in times.parts.items()}
    assert found == {("outer", "a"): (1101, 2), ("inner", ""): (10.5, 2)}


def test_a_part_that_fails_is_counted_and_nothing_is_recorded_without_a_listener() -> None:
    with timing.recorded() as times, pytest.raises(ValueError, match="x"), timing.timed("stage"):
        raise ValueError("x")
    with timing.timed("later"):
        pass
    assert [(part.stage, part.count) for part in times.parts.values()] == [("stage", 1)]


def test_the_stages_are_printed_with_their_sum(cvm: Cvm) -> None:
    result = cvm("compile", MODEL, "--profile")
    assert result.code == 0, result.err
    stages = {line.split()[0] for line in result.out.splitlines() if line and not line.startswith(" ")}
    assert {"reading", "lowering", "passes", "verification", "all"} <= stages


def test_the_document_has_every_part_and_is_otherwise_the_same(cvm: Cvm) -> None:
    plain, profiled = (cvm("compile", MODEL, "--json", *more).document for more in ((), ("--profile",)))
    parts = profiled.pop("profile")
    assert profiled == plain
    assert parts == sorted(parts, key=lambda part: -part["seconds"])
    names = {(part["stage"], part["part"]) for part in parts}
    assert {("reading", ""), ("lowering", "conv"), ("passes", "movement"), ("verification", "of the result")} <= names
    assert all(part["seconds"] >= 0 and part["count"] >= 1 for part in parts)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("patience", "shown"), [(60.0, False), (0.0, True)])
def test_a_spinner_is_shown_on_a_terminal_once_it_takes_long(
    patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(output, "PATIENCE", patience)
    with output.working("compiling") as tell:
        tell("compiling: lowering conv")
        for _ in range(200):
            if "lowering conv" in stream.getvalue():
                break
            time.sleep(0.01 if shown else 0)
    assert ("lowering conv" in stream.getvalue()) == shown
    if not shown:
        assert stream.getvalue() == ""


def test_two_seconds_pass_before_a_spinner() -> None:
    assert output.PATIENCE == 2
