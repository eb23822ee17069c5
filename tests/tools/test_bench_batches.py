"""The table of samples per second: every engine has its rate, and what fails is said and stops nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cvm.bench import contest
from cvm.bench.contest import Contestant, Score
from cvm.bench.timing import Timing
from cvm.errors import CvmError, Mismatch, Unsupported
from tools.bench import batches
from tools.bench.batches import Contest, contests, document, markdown


def timing(nanoseconds: float, cpu: float) -> Timing:
    return Timing(5, nanoseconds, nanoseconds, nanoseconds, nanoseconds, cpu)


def contestants(batch: int, threads: int = 1) -> tuple[Contestant, ...]:
    return tuple(
        Contestant(engine, Path("model"), threads, batch, label)
        for engine, label in (("native", "native"), ("litert", "litert"), ("openvino", "openvino"))
    )


def scores(batch: int, times: list[float | None]) -> list[Score]:
    return [
        Score(one, "it refuses") if time is None else Score(one, run=timing(time, 2 * time))
        for one, time in zip(contestants(batch), times, strict=True)
    ]


def made(batch: int, times: list[float | None]) -> dict[str, Any]:
    return document(Contest("net", 1000, contestants(batch)), scores(batch, times))


def test_rates_are_samples_per_second_and_the_best_other_engine_is_named() -> None:
    table = markdown([made(8, [1e6, 2e6, 4e6])])
    assert "| net | 1 | 8 | 8000 | 4000 | 2000 | 2.00 (litert) | 2.00 (litert) |" in table
    assert table.splitlines()[3].count("|") == table.splitlines()[2].count("|")


def test_an_engine_that_refuses_batches_is_compared_by_its_single_samples() -> None:
    table = markdown([made(1, [1e6, 2e6, 4e6]), made(8, [1e6, None, 4e6]), made(32, [1e6, None, None])])
    assert "| net | 1 | 8 | 8000 | 500 * | 2000 | 4.00 (openvino) | 4.00 (openvino) |" in table
    assert "| net | 1 | 32 | 3.2e+04 | 500 * | 250 * | 64.00 (litert) | 64.00 (litert) |" in table
    assert "* net, 1, 8, litert: it refuses" in table


def test_a_contest_that_fails_is_a_row_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compete(given: Any, rounds: int, seconds: float, cache: str) -> list[Score]:
        if given[0].batch == 8:
            raise Mismatch("bench.outputs", "they differ")
        return scores(given[0].batch, [1e6, 2e6, None])

    monkeypatch.setattr(batches, "compete", compete)
    results = list(contests([Contest("net", 1000, contestants(batch)) for batch in (1, 8, 32)], 0.1, "cache"))
    assert [item["failure"] is None for item in results] == [True, False, True]
    table = markdown(results)
    assert "| net | 1 | 8 | failed | failed | failed |  |  |" in table
    assert "they differ" in table


def test_long_contests_have_one_round() -> None:
    assert Contest("net", 4_000_000_000, contestants(128)).rounds() == 1
    assert Contest("net", 300_000, contestants(128)).rounds() == 3


class Broken:
    """A process that answers once."""

    def __init__(self) -> None:
        self.left = 1

    def ask(self, seconds: float) -> dict[str, Any]:
        self.left -= 1
        if self.left < 0:
            raise contest._Failed(Unsupported("bench.failed", "its process ended with -9"))
        return {"run": {}}


def test_an_engine_whose_process_dies_in_its_turn_has_a_failure_and_ours_an_error() -> None:
    native, litert, _ = contestants(1)
    for one in (litert, native):
        entry, timings = contest._Entry(one, Broken()), list[dict[str, Any]]()  # type: ignore[arg-type]
        assert contest._timed(entry, 0.1, timings) is entry
        assert len(timings) == 1
        if one is native:
            with pytest.raises(CvmError, match="ended with -9"):
                contest._timed(entry, 0.1, timings)
            continue
        after = contest._timed(entry, 0.1, timings)
        assert after.process is None
        assert "ended with -9" in str(after.failure)
        assert contest._timed(after, 0.1, timings) is after
        assert "ended with -9" in str(contest._score(after, timings).failure)
